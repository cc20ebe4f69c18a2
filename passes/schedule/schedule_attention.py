"""schedule-attention: cache write, scores, mask, softmax and weighted sum of one head in one block of a CPU kernel.

Before (inside a kernel = "attention"):            After:
  %c = scf.for … { tensor.insert_slice %k … }        scf.for %n … { vector.load %k, vector.store %cache }
  %s = linalg.contract ins(%q, %keys) …              scf.for %block_of_queries … {
  %m = linalg.generic ins(%s, %positions) …            scf.for %t … { dot products, memref.store scratch }
  %p = linalg.softmax ins(%m) …                        scf.for %t … { mask, maximum }   scf.for %t … { exp, sum }
  %o = linalg.contract ins(%p, %values) …              scf.for %t … { weights · values }   vector.store %o }

Requires: what outline-kernels and destination-passing ensure.
Ensures: the kernel's `grid` holds one block for each sequence and key-value head.  No score leaves the block's stack,
and keys past the block's largest position are not read where the mask is `t <= position`.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lispgpt.errors import InternalError
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    indexing_maps,
    integers,
    kernel_functions,
    operations,
    shape_of,
)
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.emit import Emitter, Index, largest_power_of_two
from lispgpt.passes.kernels.kernel_body import DYNAMIC, KernelBody, kept_dimensions
from lispgpt.passes.model.attention import Attention, attention_of

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target


@dataclass(frozen=True)
class ScheduleAttention(Pass):
    """queries: query rows whose scores a block holds at once; query_tile, key_tile: dot products in registers."""

    name: ClassVar[str] = "schedule-attention"
    queries: int = 32
    query_tile: int = 4
    key_tile: int = 4

    def run(self, module: ir.Module, target: Target) -> None:
        lanes = target.vector_bytes // 4
        for kernel in kernel_functions(module, "attention"):
            body = KernelBody(kernel, Emitter(kernel))
            attention = match_attention(body.compute_ops())
            if attention is None:
                continue
            written = {w.results[0] for w in attention.writes}
            in_place = all(w.operands[3] in body.buffers or w.operands[3] in written for w in attention.writes)
            if in_place and set(body.destinations) <= {attention.weighted.results[0], *written}:
                _Schedule(self, body, attention, lanes).emit()


class _Schedule:
    """One attention kernel; q… are its query coordinates in the order of the scores' loops."""

    def __init__(self, options: ScheduleAttention, body: KernelBody, attention: Attention, lanes: int) -> None:
        self.body, self.emitter, self.attention = body, body.emitter, attention
        extents, context = attention.extents, attention.context
        self.head_width = shape_of(attention.weighted.results[0])[-1]
        self.depth = shape_of(attention.scores.operands[0])[-1]
        self.along_context = largest_power_of_two(lanes, context)
        self.along_depth = largest_power_of_two(lanes, self.depth)
        self.along_width = largest_power_of_two(lanes, self.head_width)
        self.query_extents = [extents[d] for d in attention.query_dims]
        rows = math.prod(self.query_extents)
        self.queries = _divisor(rows, options.queries)
        self.query_tile = _divisor(self.queries, options.query_tile)
        self.key_tile = _divisor(self.along_context, options.key_tile)
        self.rows = rows
        self.bound = attention.position_bound()
        self.scores = self.emitter.scratch([self.queries, context], self.emitter.f32)
        self.staged = self.emitter.scratch([self.queries, self.depth], self.emitter.f32)

    def emit(self) -> None:
        emitter, body, attention = self.emitter, self.body, self.attention
        extents = [attention.extents[d] for d in attention.shared_dims]
        blocks = math.prod(extents)
        with ir.InsertionPoint(body.ops[-1]), body.function.location, body.scope():
            block = emitter.block_id("x")
            at: list[Index] = [0] * (len(attention.extents) - 1)
            for d, coordinate in zip(attention.shared_dims, emitter.delinearize(block, extents), strict=True):
                at[d] = coordinate
            for write in attention.writes:
                self._write_cache(write, at)
            with emitter.loop(0, self.rows, self.queries) as loop, body.scope():
                stop = self._context_bound(at, loop.index)
                self._stage_queries(at, loop.index)
                self._dot_products(at, loop.index, stop)
                sums = self._softmax(at, loop.index, stop)
                self._weighted_sums(at, loop.index, stop, sums)
        body.finish([blocks, 1, 1])

    def _at(self, at: list[Index], row: Index) -> list[Index]:
        """The query coordinates `at` with those filled in that only queries have: rows of a sequence, then the heads
        that share keys and values, so that one pass over those serves them all."""
        inner = list(at)
        for d, coordinate in zip(
            self.attention.query_dims, self.emitter.delinearize(row, self.query_extents), strict=True
        ):
            inner[d] = coordinate
        return inner

    def _write_cache(self, loop_op: ir.Operation, at: list[Index]) -> None:
        """Run one cache-writing loop for this block's sequence and head only."""
        emitter, body = self.emitter, self.body
        block = loop_op.regions[0].blocks[0]
        insert = next(op for op in operations(block) if op.name == "tensor.insert_slice")
        if insert.operands[1] != block.arguments[1]:
            raise InternalError("schedule-attention: a cache write inserts into something else than the cache")
        cache = body.buffers.get(loop_op.operands[3])
        body.buffers[loop_op.results[0]] = cache
        head = at[self.attention.shared_dims[-1]]
        sequences = self.attention.extents[self.attention.shared_dims[0]] if len(self.attention.shared_dims) > 1 else 1
        rows = shape_of(defining_op(_row_source(insert)).operands[0])[0] // sequences
        first = emitter.mul(at[self.attention.shared_dims[0]], rows) if sequences > 1 else 0
        width = shape_of(insert.operands[0])[-1]
        with emitter.loop(first, emitter.add(first, rows)) as loop, body.scope():
            body.bind(block.arguments[0], loop.index)
            dynamic = iter(list(insert.operands)[2:])
            offsets = [
                body.scalar(next(dynamic)) if o == DYNAMIC else o for o in integers(insert.attributes["static_offsets"])
            ]
            kept = kept_dimensions(integers(insert.attributes["static_sizes"]), shape_of(insert.operands[0]))
            lanes = body.contiguous_lanes(insert.operands[0], self.along_width)
            with emitter.loop(0, width, lanes) as d, body.scope():
                source = [head, d.index]
                value = body.read(insert.operands[0], source, lanes)
                remaining = iter(source)
                place = [emitter.add(o, next(remaining)) if keep else o for o, keep in zip(offsets, kept, strict=True)]
                emitter.store(value, cache, place)

    def _context_bound(self, at: list[Index], row: Index) -> Index:
        """How many keys this block of queries can see, rounded up to whole vectors."""
        if self.bound is None:
            return self.attention.context
        emitter, body = self.emitter, self.body
        op, number = self.bound
        dims = dim_positions(indexing_maps(op)[number])
        with emitter.loop(0, self.queries, 1, [emitter.value(0)]) as loop, body.scope():
            place = self._at(at, emitter.add(row, loop.index))
            position = body.read(op.operands[number], [place[d] for d in dims])
            visible = emitter.add(emitter.op("arith.index_cast", [position], [emitter.index_type]), 1)
            loop.yielded = [emitter.max(loop.carried[0], visible)]
        step = self.along_context
        stop = emitter.mul(emitter.div(emitter.add(loop.results[0], step - 1), step), step)
        return emitter.min(stop, self.attention.context)

    def _stage_queries(self, at: list[Index], row: Index) -> None:
        """Compute each query once, together with what leads to it, and keep it for all keys."""
        emitter, body = self.emitter, self.body
        lanes = body.contiguous_lanes(self.attention.scores.operands[0], self.along_depth)
        with emitter.loop(0, self.queries) as q, emitter.loop(0, self.depth, lanes) as e, body.scope():
            place = self._at(at, emitter.add(row, q.index))
            query = self._read(self.attention.query(place, e.index), lanes)
            emitter.store(query, self.staged, [q.index, e.index])

    def _dot_products(self, at: list[Index], row: Index, stop: Index) -> None:
        emitter, body = self.emitter, self.body
        lanes = self.along_depth
        zero = emitter.constant(0.0, emitter.lanes_type(emitter.f32, lanes))
        count = self.query_tile * self.key_tile
        with emitter.loop(0, stop, self.key_tile) as t, emitter.loop(0, self.queries, self.query_tile) as q:
            queries = [emitter.add(q.index, i) for i in range(self.query_tile)]
            with emitter.loop(0, self.depth, lanes, [zero] * count) as e, body.scope():
                keys = [
                    self._read(self.attention.key(at, emitter.add(t.index, j), e.index), lanes)
                    for j in range(self.key_tile)
                ]
                sums = iter(e.carried)
                e.yielded = []
                for query in queries:
                    elements = emitter.load(self.staged, [query, e.index], lanes)
                    e.yielded += [emitter.fma(elements, key, next(sums)) for key in keys]
            for number, total in enumerate(e.results):
                i, j = divmod(number, self.key_tile)
                place = [queries[i], emitter.add(t.index, j)]
                emitter.store(emitter.reduce_lanes("add", total), self.scores, place)

    def _read(self, place: tuple[ir.Value, list], lanes: int) -> ir.Value:
        return self.emitter.to_f32(self.body.read(place[0], place[1], lanes))

    def _softmax(self, at: list[Index], row: Index, stop: Index) -> ir.Value:
        """Mask the scores, replace them by exp(score - maximum); the sums, one for each query, in a scratch."""
        emitter, body, lanes = self.emitter, self.body, self.along_context
        sums = emitter.scratch([self.queries], emitter.f32)
        f32, wide = emitter.f32, emitter.lanes_type(emitter.f32, lanes)
        with emitter.loop(0, self.queries) as q, body.scope():
            place = self._at(at, emitter.add(row, q.index))
            body.readings[self.attention.scores.results[0]] = lambda i, n: emitter.load(
                self.scores, [q.index, i[-1]], n
            )
            with emitter.loop(0, stop, lanes, [emitter.constant(-math.inf, wide)]) as t, body.scope():
                masked = body.read(self.attention.masked, [*place, t.index], lanes)
                emitter.store(masked, self.scores, [q.index, t.index])
                t.yielded = [emitter.op("arith.maximumf", [t.carried[0], masked], [wide])]
            peak = emitter.broadcast(emitter.reduce_lanes("maximumf", t.results[0]), lanes)
            with emitter.loop(0, stop, lanes, [emitter.constant(0.0, wide)]) as t:
                score = emitter.load(self.scores, [q.index, t.index], lanes)
                weight = emitter.op("math.exp", [emitter.op("arith.subf", [score, peak], [wide])], [wide])
                emitter.store(weight, self.scores, [q.index, t.index])
                t.yielded = [emitter.op("arith.addf", [t.carried[0], weight], [wide])]
            total = emitter.reduce_lanes("add", t.results[0])
            emitter.store(emitter.op("arith.divf", [emitter.constant(1.0, f32), total], [f32]), sums, [q.index])
        return sums

    def _weighted_sums(self, at: list[Index], row: Index, stop: Index, inverse: ir.Value) -> None:
        emitter, body, lanes = self.emitter, self.body, self.along_width
        pieces = self.head_width // lanes
        chunk = _divisor(pieces, 8)
        tile = _divisor(self.queries, max(1, 16 // chunk))
        wide = emitter.lanes_type(emitter.f32, lanes)
        destination = body.destinations[self.attention.weighted.results[0]]
        with emitter.loop(0, self.queries, tile) as q, emitter.loop(0, self.head_width, chunk * lanes) as d:
            columns = [emitter.add(d.index, c * lanes) for c in range(chunk)]
            queries = [emitter.add(q.index, i) for i in range(tile)]
            with emitter.loop(0, stop, 1, [emitter.constant(0.0, wide)] * (tile * chunk)) as t, body.scope():
                values = [self._read(self.attention.value(at, t.index, c), lanes) for c in columns]
                sums = iter(t.carried)
                t.yielded = []
                for query in queries:
                    weight = emitter.broadcast(emitter.load(self.scores, [query, t.index], 1), lanes)
                    t.yielded += [emitter.fma(weight, value, next(sums)) for value in values]
            for number, total in enumerate(t.results):
                query, column = queries[number // chunk], columns[number % chunk]
                scale = emitter.broadcast(emitter.load(inverse, [query], 1), lanes)
                place = [*self._at(at, emitter.add(row, query)), column]
                emitter.store(emitter.op("arith.mulf", [total, scale], [wide]), destination, place)


def _row_source(insert: ir.Operation) -> ir.Value:
    """The row that a cache write takes from its source, before conversions: the result of a tensor.extract_slice."""
    value = insert.operands[0]
    while defining_op(value).name != "tensor.extract_slice":
        value = defining_op(value).operands[0]
    return value


def _divisor(extent: int, limit: int) -> int:
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)
