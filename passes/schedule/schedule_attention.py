"""schedule-attention: scores, mask, softmax and weighted sum of some rows in one block of a CPU kernel, tile by tile.

Before (inside a kernel = "attention"):            After:
  %c = scf.for … { tensor.insert_slice %k … }        scf.for %n … { vector.load %k, vector.store %cache }
  %s = linalg.contract ins(%q, %keys) …              scf.for %tile of positions … {
  %m = linalg.generic ins(%s, %positions) …            scf.for %t … { dot products, memref.store scratch }
  %p = linalg.softmax ins(%m) …                        scf.for %t … { mask, maximum }   scf.for %t … { exp, sum }
  %o = linalg.contract ins(%p, %values) …              scf.for %t … { sums · exp(old - new maximum) + weights · values }
                                                     }  vector.store %o

Requires: what outline-kernels and destination-passing ensure.
Ensures: the kernel's `grid` holds one block for each sequence and key-value head, which writes its keys and values to
the cache where they are the rows' own; else several, for some rows each.  What a block keeps on its stack does not
depend on how many positions there are, and it reads none that no row of it sees where the mask bounds them.

The running maximum is that of "Online normalizer calculation for softmax", Milakov and Gimelshein 2018.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.attention import (
    bind_cache,
    cache_of,
    first_position,
    last_position,
    own_index,
    place_of_row,
    read_operand,
    read_row,
    result_buffer,
)
from lispgpt.passes.kernels.expand import exp
from lispgpt.passes.kernels.kernel import coordinates, reschedule
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.softmax import LOWEST
from lispgpt.passes.model.attention import Attention, attention_of

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target


@dataclass(frozen=True)
class ScheduleAttention(Pass):
    """queries: rows that a block works on at once; scores: of these rows that it holds at once; query_tile, key_tile:
    dot products in registers."""

    name: ClassVar[str] = "schedule-attention"
    queries: int = 32
    scores: int = 32768
    query_tile: int = 4
    key_tile: int = 4

    def run(self, module: ir.Module, target: Target) -> None:
        for kernel in kernel_functions(module, "attention"):
            attention = attention_of(kernel)
            if attention is not None and "grid" not in kernel.attributes:
                _Schedule(self, kernel, attention, target).emit()


class _Schedule:
    """One attention kernel.  Rows: what only queries have of leading loops, counted through.

    lanes: scores in a vector; key_lanes, value_lanes: numbers of a key and of a value in one.  ragged: whether the
    positions are no multiple of `lanes`.
    """

    def __init__(self, options: ScheduleAttention, kernel: ir.Operation, attention: Attention, target: Target) -> None:
        self.kernel, self.attention, self.target = kernel, attention, target
        self.key_lanes, self.value_lanes = (
            b.largest_width(depth, 4, target.vector_bytes) for depth in (attention.depth, attention.width)
        )
        self.lanes = min(target.vector_bytes // 4, 1 << attention.context.bit_length() - 1)
        self.ragged = attention.context % self.lanes != 0
        self.shared = [attention.extents[d] for d in attention.shared]
        self.query_extents = [attention.extents[d] for d in attention.query_dims]
        self.rows = math.prod(self.query_extents)
        self.key_tile = min(options.key_tile, self.lanes)
        self.tiles, self.queries = _tiles_of(self.rows, options.queries, options.query_tile)
        self.query_tile = min(options.query_tile, self.queries)
        most = max(1, options.scores // self.queries // self.lanes) * self.lanes
        self.keys = min(most, -(-attention.context // self.lanes) * self.lanes)
        self.one_tile = self.keys >= attention.context

    def emit(self) -> None:
        blocks = math.prod(self.shared) * (1 if self.attention.own else self.tiles)
        reschedule(self.kernel, [blocks], [1], self.target, self._body)

    def _body(self) -> None:
        attention = self.attention
        self.reader = Reader(self.target)
        bind_cache(attention, self.reader)
        self.buffer = result_buffer(self.kernel, attention)
        self.scores, self.staged = (_stack([self.queries, extent]) for extent in (self.keys, attention.depth))
        self.sums = _stack([self.queries, attention.width])
        self.tops, self.totals, self.scales = (_stack([self.queries]) for _ in range(3))
        block = b.block_id()
        place: list[Index] = [0] * len(attention.extents)
        split = attention.own is None and self.tiles > 1
        found = coordinates(block, [*self.shared, self.tiles] if split else self.shared)
        for d, coordinate in zip(attention.shared, found, strict=False):
            place[d] = coordinate
        self._write_rows(place)
        if split:
            self._rows(place, self._first_row(found[-1]))
        elif self.tiles == 1:
            self._rows(place, 0)
        else:
            self._loop(0, self.tiles, 1, lambda tile: self._rows(place, self._first_row(tile)))

    def _loop(self, low: Index, high: Index, step: int, body: Callable[[Index], None]) -> None:
        """A loop that carries nothing."""

        def run(index: ir.Value) -> Sequence[ir.Value]:
            with self.reader.scope():
                body(index)
            return []

        b.loop(low, high, step, [], run)

    def _first_row(self, tile: Index) -> Index:
        """The last tile begins early where it would not be full: rows that two tiles have come out the same."""
        first = b.mul(tile, self.queries)
        return first if self.rows % self.queries == 0 else b.at_most(first, self.rows - self.queries)

    def _at(self, place: list[Index], row: Index) -> list[Index]:
        """The leading indices with those of a row."""
        whole = list(place)
        for d, index in zip(self.attention.query_dims, coordinates(row, self.query_extents), strict=True):
            whole[d] = index
        return whole

    # ---- own keys and values

    def _write_rows(self, place: list[Index]) -> None:
        own = self.attention.own
        if own is None:
            return
        first = 0 if own.sequence is None else b.mul(place[own.sequence], own.each)
        for number, lanes in enumerate((self.key_lanes, self.value_lanes)):
            depth = (self.attention.depth, self.attention.width)[number]

            def write(row: Index, number: int = number, lanes: int = lanes, depth: int = depth) -> None:
                self._loop(0, depth, lanes, lambda d: self._write(number, place, row, d, lanes))

            self._loop(first, b.add(first, own.each), 1, write)

    def _write(self, number: int, place: list[Index], row: Index, d: Index, lanes: int) -> None:
        write, index = self.attention.writes[number], own_index(self.attention, number, place, d)
        value = read_row(write, self.reader, row, index, lanes)
        b.store(value, cache_of(self.attention), place_of_row(write, self.reader, row, index), aligned=False)

    # ---- some rows

    def _rows(self, place: list[Index], row: Index) -> None:
        begin, end = self._seen(place, row)
        self._loop(0, self.queries, 1, lambda q: self._stage_query(place, row, q))
        if self.one_tile and self.attention.lower is None:
            self._tile(place, row, 0, end)
        else:
            self._loop(0, self.queries, 1, self._clear)
            step = self.keys
            self._loop(begin, end, step, lambda t: self._tile(place, row, t, b.at_most(self._until(t, end), step)))
        self._loop(0, self.queries, 1, lambda q: self._store(self._at(place, b.add(row, q)), q))

    def _until(self, start: Index, end: Index) -> ir.Value:
        return b.emit("arith.subi", [b.as_value(end), b.as_value(start)], [ir.IndexType.get()])

    def _seen(self, place: list[Index], row: Index) -> tuple[Index, Index]:
        """The first position that any of the rows sees, or one shortly before it, and the one after the last."""
        attention = self.attention
        bounded = [attention.lower is not None, attention.upper is not None]
        if not any(bounded):
            return 0, attention.context

        def step(q: ir.Value, first: ir.Value, last: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                at = self._at(place, b.add(row, q))
                positions = (first_position(attention, self.reader, at), last_position(attention, self.reader, at))
            return [
                b.emit(op, [so_far, b.as_value(position)], [ir.IndexType.get()])
                for op, so_far, position in zip(("arith.minsi", "arith.maxsi"), (first, last), positions, strict=True)
            ]

        first, last = b.loop(0, self.queries, 1, [b.as_value(attention.context - 1), b.as_value(0)], step)
        begin = b.mul(b.div(first, self.lanes), self.lanes) if bounded[0] else 0
        return begin, b.add(last, 1) if bounded[1] else attention.context

    def _stage_query(self, place: list[Index], row: Index, q: Index) -> None:
        """Compute a query once, together with what leads to it, and keep it for all keys."""
        at = self._at(place, b.add(row, q))

        def stage(e: Index) -> None:
            query = read_operand(self.reader, self.attention.queries, at, None, e, self.key_lanes)
            b.store(b.extend(query), self.staged, [q, e], aligned=False)

        self._loop(0, self.attention.depth, self.key_lanes, stage)

    def _clear(self, q: Index) -> None:
        b.store(b.constant(LOWEST, b.f32()), self.tops, [q])
        b.store(b.constant(0.0, b.f32()), self.totals, [q])
        zero = b.constant(0.0, b.with_width(b.f32(), self.value_lanes))
        width, lanes = self.attention.width, self.value_lanes
        self._loop(0, width, lanes, lambda d: b.store(zero, self.sums, [q, d], aligned=False))

    def _tile(self, place: list[Index], row: Index, start: Index, count: Index) -> None:
        """Take in `count` positions from `start` on."""
        self._dot_products(place, start, count)
        self._loop(0, self.queries, 1, lambda q: self._weigh(self._at(place, b.add(row, q)), q, start, count))
        self._add_values(place, start, count)

    # ---- scores

    def _dot_products(self, place: list[Index], start: Index, count: Index) -> None:
        lanes, tiles = self.key_lanes, (self.query_tile, self.key_tile)
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))

        def products(t: Index, q: Index) -> None:
            keys = [self._inside(b.add(start, b.add(t, j))) for j in range(tiles[1])]
            queries = [b.add(q, i) for i in range(tiles[0])]

            def multiply(e: ir.Value, *sums: ir.Value) -> list[ir.Value]:
                with self.reader.scope():
                    read = [read_operand(self.reader, self.attention.keys, place, t, e, lanes) for t in keys]
                    wide = [b.extend(key) for key in read]
                    totals, so_far = [], iter(sums)
                    for query in queries:
                        elements = b.load(self.staged, [query, e], lanes, aligned=False)
                        totals += [b.fma(elements, key, next(so_far)) for key in wide]
                return totals

            totals = b.loop(0, self.attention.depth, lanes, [zero] * (tiles[0] * tiles[1]), multiply)
            for number, total in enumerate(totals):
                i, j = divmod(number, tiles[1])
                b.store(_over_lanes("add", total), self.scores, [queries[i], b.add(t, j)])

        self._loop(0, count, tiles[1], lambda t: self._loop(0, self.queries, tiles[0], lambda q: products(t, q)))

    def _inside(self, t: Index) -> Index:
        """A position that there is, in place of one past the last that only fills a tile of registers."""
        return b.at_most(t, self.attention.context - 1) if self.ragged else t

    # ---- softmax

    def _weigh(self, at: list[Index], q: Index, start: Index, count: Index) -> None:
        """Replace a row's scores by exp(score - maximum), with its maximum and sum, and the scale of older sums."""
        wide = b.with_width(b.f32(), self.lanes)
        peaks = self._mask(at, q, start, count)
        old = None if self._is_first() else b.load(self.tops, [q], 1)
        top = _over_lanes("maximumf", peaks)
        top = top if old is None else b.binary("arith.maximumf", old, top)
        below = b.splat(top, self.lanes)

        def step(t: ir.Value, total: ir.Value) -> list[ir.Value]:
            score = b.load(self.scores, [q, t], self.lanes, aligned=False)
            weight = exp(b.binary("arith.subf", score, below), self.target)
            b.store(weight, self.scores, [q, t], aligned=False)
            return [b.binary("arith.addf", total, weight)]

        (totals,) = b.loop(0, self._rounded(count), self.lanes, [b.constant(0.0, wide)], step)
        total = _over_lanes("add", totals)
        if old is not None:
            scale = exp(b.binary("arith.subf", old, top), self.target)
            b.store(scale, self.scales, [q])
            b.store(top, self.tops, [q])
            total = b.fma(b.load(self.totals, [q], 1), scale, total)
        b.store(total, self.totals, [q])

    def _is_first(self) -> bool:
        """Whether there is one tile, so that no sums are older."""
        return self.one_tile and self.attention.lower is None

    def _rounded(self, count: Index) -> Index:
        """Up to whole vectors of scores."""
        return b.mul(b.div(b.add(count, self.lanes - 1), self.lanes), self.lanes)

    def _mask(self, at: list[Index], q: Index, start: Index, count: Index) -> ir.Value:
        """Make of a row's scores what softmax takes; the largest in each lane."""
        lanes, reader = self.lanes, self.reader
        scores, read = self.attention.scores.results[0], self.attention.softmax.operands[0]
        lowest = b.constant(-math.inf, b.with_width(b.f32(), lanes))

        def masked(t: ir.Value, width: int) -> ir.Value:
            with reader.scope():
                reader.bind(scores, lambda index, wide: b.load(self.scores, [q, t], wide, aligned=False))
                value = reader.read(read, [*at, b.add(start, t)], width)
            b.store(value, self.scores, [q, t], aligned=False)
            return value

        def step(t: ir.Value, largest: ir.Value) -> list[ir.Value]:
            return [b.binary("arith.maximumf", largest, masked(t, lanes))]

        if not self.ragged:
            return b.loop(0, self._rounded(count), lanes, [lowest], step)[0]
        whole = b.mul(b.div(count, lanes), lanes)
        (largest,) = b.loop(0, whole, lanes, [lowest], step)
        hidden = b.constant(-math.inf, b.f32())
        self._loop(whole, count, 1, lambda t: masked(t, 1))
        self._loop(count, self._rounded(count), 1, lambda t: b.store(hidden, self.scores, [q, t]))

        def rest(t: ir.Value, largest: ir.Value) -> list[ir.Value]:
            return [b.binary("arith.maximumf", largest, b.load(self.scores, [q, t], lanes, aligned=False))]

        return b.loop(whole, self._rounded(count), lanes, [largest], rest)[0]

    # ---- weighted sums

    def _add_values(self, place: list[Index], start: Index, count: Index) -> None:
        lanes = self.value_lanes
        chunk = _divisor(self.attention.width // lanes, 8)
        tile = _divisor(self.queries, max(1, 16 // chunk))

        def add(q: Index, d: Index) -> None:
            columns = [b.add(d, c * lanes) for c in range(chunk)]
            queries = [b.add(q, i) for i in range(tile)]

            def multiply(t: ir.Value, *sums: ir.Value) -> list[ir.Value]:
                with self.reader.scope():
                    where = b.add(start, t)
                    read = [read_operand(self.reader, self.attention.values, place, where, c, lanes) for c in columns]
                    wide = [b.extend(value) for value in read]
                    totals, so_far = [], iter(sums)
                    for query in queries:
                        weight = b.splat(b.load(self.scores, [query, t], 1), lanes)
                        totals += [b.fma(weight, value, next(so_far)) for value in wide]
                return totals

            older = [self._older(query, column) for query in queries for column in columns]
            for number, total in enumerate(b.loop(0, count, 1, older, multiply)):
                where = [queries[number // chunk], columns[number % chunk]]
                b.store(total, self.sums, where, aligned=False)

        self._loop(
            0,
            self.queries,
            tile,
            lambda q: self._loop(0, self.attention.width, chunk * lanes, lambda d: add(q, d)),
        )

    def _older(self, query: Index, column: Index) -> ir.Value:
        """A part of a row's sums over earlier tiles, for its new maximum."""
        lanes = self.value_lanes
        if self._is_first():
            return b.constant(0.0, b.with_width(b.f32(), lanes))
        scale = b.splat(b.load(self.scales, [query], 1), lanes)
        return b.binary("arith.mulf", b.load(self.sums, [query, column], lanes, aligned=False), scale)

    def _store(self, at: list[Index], q: Index) -> None:
        """A row's sums over its total."""
        out, lanes = self.attention.out, self.value_lanes
        inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), b.load(self.totals, [q], 1))

        def store(d: Index) -> None:
            value = b.load(self.sums, [q, d], lanes, aligned=False)
            value = b.binary("arith.mulf", value, b.splat(inverse, lanes))
            if out.has_rows:
                b.store(value, self.buffer, out.index(at, None, d), aligned=False)
                return
            for lane in range(lanes):
                b.store(b.lane_of(value, lane), self.buffer, out.index(at, None, b.add(d, lane)))

        self._loop(0, self.attention.width, lanes, store)


def _stack(shape: Sequence[int]) -> ir.Value:
    """Memory of this block, in f32."""
    sizes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0])}
    alignment = ir.IntegerAttr.get(ir.IntegerType.get_signless(64), 64)
    return b.emit("memref.alloca", [], [ir.MemRefType.get(list(shape), b.f32())], alignment=alignment, **sizes)


def _over_lanes(kind: str, vector: ir.Value) -> ir.Value:
    """A vector's elements combined, in any order."""
    if not isinstance(vector.type, ir.VectorType):
        return vector
    attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{kind}>")}
    if kind == "add":
        attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<reassoc>")
    return b.emit("vector.reduction", [vector], [vector.type.element_type], **attributes)


def _tiles_of(rows: int, most: int, step: int) -> tuple[int, int]:
    """How many tiles there are, and how many rows each has: less than `step` or a multiple of it, at most about `most`;
    the last may reach past the end."""
    each = -(-rows // -(-rows // most))
    each = -(-each // step) * step if each >= step else each
    each = each if each <= rows else rows - rows % step
    return -(-rows // each), each


def _divisor(extent: int, limit: int) -> int:
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)
