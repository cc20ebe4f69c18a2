"""schedule-attention: scores, mask, softmax and weighted sum of some rows in one block of a CPU kernel, tile by tile.

Before (inside a kernel = "attention"):            After:
  %c = scf.for … { tensor.insert_slice %k … }        scf.for %n … { vector.load %k, vector.store %cache }
  %s = linalg.contract ins(%q, %keys) …              scf.for %tile of positions … {
  %m = linalg.generic ins(%s, %positions) …            scf.for %t … { dot products, memref.store scratch }
  %p = linalg.softmax ins(%m) …                        scf.for %t … { mask, maximum }   scf.for %t … { exp, sum }
  %o = linalg.contract ins(%p, %values) …              scf.for %t … { sums · exp(old - new maximum) + weights · values }
                                                     }  vector.store %o

Requires: what outline-kernels and destination-passing ensure.
Ensures: an attention's `grid` holds one block for each sequence and key-value head, which writes its keys and values to
the cache where they are the rows' own; else several, for some rows each.  What a block keeps on its stack does not
depend on how many positions there are, and it reads none that no row of it sees where the mask bounds them.  Kernels of
kind "cache-write" have a block for each row.

The running maximum is that of "Online normalizer calculation for softmax", Milakov and Gimelshein 2018.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.attention import (
    bind_cache,
    cache_of,
    first_position,
    last_position,
    own_index,
    place_of_row,
    read_row,
)
from lispgpt.passes.kernels.cache_rows import schedule_writes_by_one
from lispgpt.passes.kernels.kernel import coordinates, reschedule
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.schedule.cpu.attention_rows import Places, RowSums, Tile, each
from lispgpt.passes.schedule.cpu.dot_product_attention import GROUP, DotProductAttention, Parts
from lispgpt.passes.schedule.cpu.panels import DEPTH
from lispgpt.passes.schedule.cpu.register_tiles import tiles_of
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Cpu, Target
from lispgpt.passes.targets.pairs import Pairs


@dataclass(frozen=True)
class ScheduleAttention(Pass):
    """queries: rows that a block works on at once; scores: of these rows that it holds at once; query_tile, key_tile:
    dot products in registers.  dot_product_rows: the fewest rows and positions for instructions that multiply pairs,
    with dot_product_queries rows and dot_product_keys positions at once.  parts: bf16 numbers for an f32 one that meets
    a shorter; products: the most of such parts that are still faster than f32 in vectors."""

    starts_from = (PLACED,)
    only_faster = True
    dot_product_rows: int = 64
    dot_product_queries: int = 256
    dot_product_keys: int = 128
    parts: int = 3
    products: int = 3
    queries: int = 32
    scores: int = 32768
    query_tile: int = 4
    key_tile: int = 4

    def run(self, module: ir.Module, target: Target) -> None:
        for kernel in unscheduled_kernels(module, "attention"):
            attention = attention_of(kernel)
            if attention is not None:
                _CpuAttention(self, kernel, attention, target).emit()
        for kernel in unscheduled_kernels(module, "cache-write"):
            schedule_writes_by_one(kernel, target)


class _CpuAttention:
    """One attention kernel.  Rows: what only queries have of leading loops, counted through."""

    def __init__(self, options: ScheduleAttention, kernel: ir.Operation, attention: Attention, target: Target) -> None:
        self.kernel, self.attention, self.target = kernel, attention, target
        self.shared = [attention.extents[d] for d in attention.shared]
        self.query_extents = [attention.extents[d] for d in attention.query_dims]
        self.rows = math.prod(self.query_extents)
        self.parts = Parts.of(attention, options.parts)
        self.unit = self._pairs(options)
        if self.unit is not None:
            self.tiles, queries = tiles_of(self.rows, options.dot_product_queries, GROUP)
            keys = min(options.dot_product_keys, -(-attention.context // DEPTH) * DEPTH)
            width = b.largest_width(attention.width, 4, target.vector_bytes)
            self.tile = Tile(attention, queries, 1, keys, 1, DEPTH, 1, width)
            return
        self.tiles, queries = tiles_of(self.rows, options.queries, options.query_tile)
        lanes = min(target.vector_bytes // 4, 1 << attention.context.bit_length() - 1)
        most = max(1, options.scores // queries // lanes) * lanes
        self.tile = Tile(
            attention,
            queries,
            min(options.query_tile, queries),
            min(most, -(-attention.context // lanes) * lanes),
            min(options.key_tile, lanes),
            lanes,
            *(b.largest_width(depth, 4, target.vector_bytes) for depth in (attention.depth, attention.width)),
        )

    def _pairs(self, options: ScheduleAttention) -> Pairs | None:
        """The target's instruction for pairs, where there are rows and positions enough to pack operands for it."""
        unit = self.target.pairs if isinstance(self.target, Cpu) else None
        if unit is None or self.rows < options.dot_product_rows or self.attention.context < options.dot_product_rows:
            return None
        most = options.products if unit.speed >= 4 * self.target.vector_bytes else 1
        return unit if max(self.parts.products) <= most else None

    def emit(self) -> None:
        blocks = math.prod(self.shared) * (1 if self.attention.own else self.tiles)
        if reschedule(self.kernel, [blocks], [1], self.target, self._body) and self.unit and self.unit.permission:
            self.kernel.attributes["permission"] = ir.StringAttr.get(self.unit.permission)

    def _body(self) -> None:
        attention = self.attention
        self.reader = Reader(self.target)
        bind_cache(attention, self.reader)
        if self.unit is None:
            self.sums = RowSums(self.tile, self.reader)
        else:
            seen = lambda places, rows: self._seen(places, rows)[1]  # noqa: E731
            self.sums = DotProductAttention(self.tile, self.reader, self.unit, self.parts, seen)
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
            each(self.reader, 0, self.tiles, 1, lambda tile: self._rows(place, self._first_row(tile)))

    def _first_row(self, tile: Index) -> Index:
        """The last tile begins early where it would not be full: rows that two tiles have come out the same."""
        first = b.mul(tile, self.tile.queries)
        return first if self.rows % self.tile.queries == 0 else b.at_most(first, self.rows - self.tile.queries)

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
        for number, lanes in enumerate((self.tile.key_lanes, self.tile.value_lanes)):
            depth = (self.attention.depth, self.attention.width)[number]

            def write(row: Index, number: int = number, lanes: int = lanes, depth: int = depth) -> None:
                each(self.reader, 0, depth, lanes, lambda d: self._write(number, place, row, d, lanes))

            each(self.reader, first, b.add(first, own.each), 1, write)

    def _write(self, number: int, place: list[Index], row: Index, d: Index, lanes: int) -> None:
        write, index = self.attention.writes[number], own_index(self.attention, number, place, d)
        value = read_row(write, self.reader, row, index, lanes)
        b.store(value, cache_of(self.attention), place_of_row(write, self.reader, row, index), aligned=False)

    # ---- some rows

    def _rows(self, place: list[Index], row: Index) -> None:
        def places(q: Index) -> list[Index]:
            return self._at(place, b.add(row, q))

        begin, end = self._seen(places, self.tile.queries)
        self.sums.start(places)
        if self.tile.alone:
            self.sums.take(places, 0, end)
        else:
            step = self.tile.keys
            each(self.reader, begin, end, step, lambda t: self.sums.take(places, t, b.at_most(b.sub(end, t), step)))
        self.sums.store(places, self.kernel)

    def _seen(self, places: Places, rows: int) -> tuple[Index, Index]:
        """The first position that any of so many rows sees, or one shortly before it, and the one after the last."""
        attention = self.attention
        bounded = [attention.lower is not None, attention.upper is not None]
        if not any(bounded):
            return 0, attention.context

        def step(q: ir.Value, first: ir.Value, last: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                positions = [seen(attention, self.reader, places(q)) for seen in (first_position, last_position)]
            return [
                b.emit(op, [so_far, b.as_value(position)], [ir.IndexType.get()])
                for op, so_far, position in zip(("arith.minsi", "arith.maxsi"), (first, last), positions, strict=True)
            ]

        first, last = b.loop(0, rows, 1, [b.as_value(attention.context - 1), b.as_value(0)], step)
        apart = self.tile.lanes if self.unit is None else self.tile.keys
        begin = b.mul(b.div(first, apart), apart) if bounded[0] else 0
        return begin, b.add(last, 1) if bounded[1] else attention.context
