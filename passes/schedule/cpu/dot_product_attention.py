"""Some rows' softmax-weighted sums on instructions that multiply pairs of bf16: scores and weighted values as products.

Keys and values of a tile are packed once for all rows that a block holds; groups of rows then take it in, each as far
as it sees.  f32 numbers, and weights, become several bf16 ones that add up to them, where none may be rounded.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand
from lispgpt.passes.kernels.matrices import split
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.cpu.attention_rows import Places, RowSums, Tile, each
from lispgpt.passes.schedule.cpu.panels import DEPTH, Panel, PanelProduct, as_words, pairs_of_parts, parts_of_types
from lispgpt.passes.schedule.cpu.register_tiles import scratch, steps
from lispgpt.passes.targets.pairs import LINES, Pairs

GROUP = 2 * LINES
"""Rows that take in a tile's positions together."""


@dataclass(frozen=True)
class Parts:
    """How many bf16 numbers stand for one of queries and keys, of weights and values."""

    queries: int
    keys: int
    weights: int
    values: int

    @staticmethod
    def of(attention: Attention, most: int) -> Parts:
        """most: for an f32 number that may not be rounded."""

        def pair(left: str, right: Operand) -> tuple[int, int]:
            return (1, 1) if right.rounded else parts_of_types(left, str(right.element), most)

        weights = "f32" if attention.exact else "bf16"
        return Parts(*pair(str(attention.queries.element), attention.keys), *pair(weights, attention.values))

    @property
    def products(self) -> tuple[int, int]:
        """Of parts, for scores and for weighted values."""
        pairs = pairs_of_parts(self.queries, self.keys), pairs_of_parts(self.weights, self.values)
        return len(pairs[0]), len(pairs[1])


@dataclass(frozen=True)
class AttentionVectors:
    """An operand of attention as panels read products' ones: `at` gives leading indices and a position from a vector's
    number.  across: whether k runs through vectors, and not along them.  parts: 1 rounds."""

    operand: Operand
    at: Callable[[Index], tuple[Place, Index]]
    parts: int
    across: bool = False

    @property
    def along_outer(self) -> int:
        return LINES if self.across else 1  # of a depth of 1, too

    def read(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int = 1) -> ir.Value:
        place, position = self.at(outer)
        most = b.largest_width(self.operand.depth, b.item_bytes(self.operand.tensor.type), reader.target.vector_bytes)
        size = min(width, most)
        starts = [b.add(k, i) for i in range(0, width, size)]
        read = [read_operand(reader, self.operand, place, position, at, size) for at in starts]
        value = b.joined(read) if size > 1 else b.vector_of(read)
        return b.shortened(b.extend(value), ir.BF16Type.get()) if self.parts == 1 else value

    def read_across(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int) -> ir.Value:
        return self.read(reader, batch, k, outer, width)


class DotProductAttention(RowSums):
    """seen: gives the position after the last that any of so many rows sees."""

    def __init__(
        self, tile: Tile, reader: Reader, unit: Pairs, parts: Parts, seen: Callable[[Places, int], Index]
    ) -> None:
        self.tile, self.attention, self.reader, self.unit, self.seen = tile, tile.attention, reader, unit, seen
        self.parts = parts
        self.place: Place = []
        self.first: Index = 0
        self.end: Index = 0
        rows, depth, width = tile.queries, tile.attention.depth, tile.attention.width
        self.scores = scratch([rows, tile.keys])
        self.sums = scratch([rows, -(-width // LINES) * LINES])
        self.tops, self.totals, self.scales = (scratch([rows]) for _ in range(3))
        attention, by_pairs = tile.attention, {"by_pairs": True}
        queries = AttentionVectors(attention.queries, lambda q: (self.rows(q), None), parts.queries)  # type: ignore[arg-type]
        keys = AttentionVectors(attention.keys, self._position, parts.keys)
        values = AttentionVectors(attention.values, self._position, parts.values, across=True)
        self.queries = Panel(queries, reader, (rows, depth), parts.queries, by_pairs=False)
        self.keys = Panel(keys, reader, (tile.keys, depth), parts.keys, **by_pairs)
        self.values = Panel(values, reader, (width, tile.keys), parts.values, **by_pairs)
        self.weights = scratch([-(-rows // LINES), tile.keys // DEPTH, parts.weights, LINES, LINES], b.i32())
        product = partial(PanelProduct, unit)
        self.dots = product(self.queries.memory, self.keys.memory, pairs_of_parts(parts.queries, parts.keys))
        self.probabilities = product(self.weights, self.values.memory, pairs_of_parts(parts.weights, parts.values))

    def start(self, places: Places) -> None:
        self.rows = places
        self.queries.pack(0, 0, self.tile.queries, 0, self.attention.depth)
        if not self.tile.alone:
            self._each_row(self._clear)

    def take(self, places: Places, start: Index, count: Index) -> None:
        self.place, self.first, self.end = places(0), start, b.add(start, count)
        self.keys.pack(0, 0, self.tile.keys, 0, self.attention.depth)
        self.values.pack(0, 0, self.attention.width, 0, self.tile.keys)
        each(self.reader, 0, self.tile.queries, GROUP, lambda row: self._group(places, row))

    def _position(self, t: Index) -> tuple[Place, Index]:
        """Of a tile; past the last that any row sees the last, for which no row has a weight."""
        return self.place, b.at_most(b.add(self.first, t), b.sub(self.end, 1))

    def _group(self, places: Places, row: Index) -> None:
        """Take in a tile for some rows from `row` on."""
        end = self.seen(lambda q: places(b.add(row, q)), GROUP)
        if isinstance(end, int):
            self._take(places, row, b.sub(self.end, self.first))
            return
        end = b.emit("arith.minsi", [b.as_value(end), b.as_value(self.end)], [ir.IndexType.get()])
        some = b.less(self.first, end)
        b.if_then(some, lambda: self._take(places, row, b.sub(end, self.first)))

    def _take(self, places: Places, row: Index, count: Index) -> None:
        tiles, wide = b.div(b.add(count, DEPTH - 1), DEPTH), DEPTH // LINES
        depth, unit = -(-self.attention.depth // DEPTH), self.unit

        def scores(t: Index) -> None:
            self._lines(row, lambda at, height: self.dots.tile(self.scores, depth, False, at, height, t, wide))

        each(self.reader, 0, b.mul(tiles, wide), wide, scores)
        each(self.reader, row, b.add(row, GROUP), 1, lambda q: self._weigh(places(q), q, self.first, count))
        adds = not self.tile.alone

        def columns(column: Index, width: int) -> None:
            self._lines(
                row, lambda at, height: self.probabilities.tile(self.sums, tiles, adds, at, height, column, width)
            )

        steps(self.sums.type.shape[1] // LINES, unit.column_tiles, columns)

    def _lines(self, row: Index, body: Callable[[Index, int], None]) -> None:
        """body(first, count) for the group's lines, as the unit counts them."""
        first, unit = b.div(row, self.unit.rows), self.unit
        steps(GROUP // unit.rows, unit.row_tiles, lambda at, height: body(b.add(first, at), height))

    def _keep(self, q: Index, t: Index, weight: ir.Value) -> None:
        """Weights of 32 positions from the t-th on, part by part."""
        place = [b.div(q, LINES), b.div(t, DEPTH)]
        parts = [b.shortened(weight, ir.BF16Type.get())]
        if self.parts.weights > 1:
            parts = split(weight, self.parts.weights, b.extend)
        for number, part in enumerate(parts):
            b.store(as_words(part), self.weights, [*place, number, b.mod(q, LINES), 0])

    def _rescale(self, q: Index, scale: ir.Value) -> None:
        lanes = self.tile.value_lanes

        def step(d: Index) -> None:
            value = b.load(self.sums, [q, d], lanes, aligned=False)
            b.store(b.binary("arith.mulf", value, b.splat(scale, lanes)), self.sums, [q, d], aligned=False)

        each(self.reader, 0, self.attention.width, lanes, step)
