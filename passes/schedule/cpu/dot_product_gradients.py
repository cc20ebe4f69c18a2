"""Weighed sums of some rows on instructions that multiply pairs of bf16: scores and sums are products of tiles."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.attention_gradients import AttentionGradients
from lispgpt.passes.schedule.cpu.attention_rows import each
from lispgpt.passes.schedule.cpu.dot_product_attention import AttentionVectors
from lispgpt.passes.schedule.cpu.panels import DEPTH, Panel, PanelProduct
from lispgpt.passes.schedule.cpu.register_tiles import steps
from lispgpt.passes.schedule.cpu.score_tiles import ScoreTile, ScoreTiles
from lispgpt.passes.targets.pairs import LINES, Pairs


def suits_pairs(sums: AttentionGradients) -> bool:
    """Whether all that is multiplied is in bf16, or rounded to it."""
    operands = [side for one in sums.products for side in (one.queries, one.keys)] + [one.other for one in sums.sums]
    types = [*(operand.element for operand in operands), *(one.weights.type.element_type for one in sums.sums)]
    return all(isinstance(type_, ir.BF16Type) for type_ in types)


@dataclass(frozen=True)
class _Weights:
    """A tile's weights, in f32 [query position], as panels read products' operands.  across: whether their queries are
    summed over."""

    memory: ir.Value
    across: bool

    @property
    def along_outer(self) -> int:
        return LINES if self.across else 1

    def read(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int = 1) -> ir.Value:
        return b.shortened(b.load(self.memory, [outer, k], width, aligned=False), ir.BF16Type.get())

    def read_across(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int) -> ir.Value:
        return self.read(reader, batch, k, outer, width)


class DotProductGradients(ScoreTiles):
    """Like `ScoreTiles`; rows and what they are sums over are whole tiles of a unit."""

    def __init__(self, tile: ScoreTile, reader: Reader, unit: Pairs, task: Index, first: Index) -> None:
        super().__init__(tile, reader, task, first)
        self.unit, self.staged = unit, []
        self.round: Index = 0
        self.start: Index = 0
        over = self.sums.over_positions
        self.own, self.others, self.dots = [], [], []
        for number, product in enumerate(self.sums.products):
            mine, other = (
                AttentionVectors(*given, 1) for given in zip(self.walk.sides(number), self._places(), strict=True)
            )
            own = Panel(mine, reader, (tile.kept, product.depth), 1, by_pairs=not over)
            along = Panel(other, reader, (tile.along, product.depth), 1, by_pairs=over)
            left, right = (own, along) if over else (along, own)
            self.own.append(own)
            self.others.append(along)
            self.dots.append(PanelProduct(unit, left.memory, right.memory, [(0, 0)]))
        self.packed, self.adds = [], []
        for one, weights in zip(self.sums.sums, self.weights, strict=True):
            left = Panel(_Weights(weights, not over), reader, (tile.kept, tile.along), 1, by_pairs=False)
            vectors = AttentionVectors(one.other, self._along, 1, across=True)
            right = Panel(vectors, reader, (one.other.depth, tile.along), 1, by_pairs=True)
            self.packed.append((left, right))
            self.adds.append(PanelProduct(unit, left.memory, right.memory, [(0, 0)]))

    def _places(self) -> tuple:
        """Gives places of rows, and of what they are sums over, by their numbers in a tile."""
        return lambda i: self._place(self.round, i, 0), self._along

    def _along(self, j: Index) -> tuple[Place, Index]:
        last = self.walk.extent(self.walk.along) - 1
        return self._place(self.round, 0, b.at_most(b.add(self.start, j), last))

    def _start(self, low: Index) -> Index:
        """At a multiple of tiles: two calls that have the same row then add in the same order, pair by pair."""
        return b.mul(b.div(low, self.tile.along), self.tile.along)

    def _stage(self, round_: Index) -> None:
        self.round = round_
        for panel, product in zip(self.own, self.sums.products, strict=True):
            panel.pack(0, 0, self.tile.kept, 0, product.depth)

    def _take(self, round_: Index, start: Index, count: Index) -> None:
        self.start = start
        super()._take(round_, start, count)

    def _dot_products(self, number: int, round_: Index, start: Index, count: Index) -> None:
        depth, memory = self.sums.products[number].depth, self.scores[number]
        self.others[number].pack(0, 0, self.tile.along, 0, depth)
        self._multiply(self.dots[number], memory, -(-depth // DEPTH), False)

    def _multiply(self, product: PanelProduct, memory: ir.Value, depth: Index, adds: bool) -> None:
        """All of a product's sums."""
        rows, columns = memory.type.shape

        def tiles(column: Index, width: int) -> None:
            tile = partial(product.tile, memory, depth, adds)
            steps(rows // self.unit.rows, self.unit.row_tiles, lambda row, height: tile(row, height, column, width))

        steps(columns // LINES, self.unit.column_tiles, tiles)

    def _weigh(self, round_: Index, start: Index, count: Index) -> None:
        """What is past the last that there is weighs nothing."""
        super()._weigh(round_, start, count)
        whole = b.mul(b.div(b.add(count, DEPTH - 1), DEPTH), DEPTH)
        zero, over = b.constant(0.0, b.f32()), self.sums.over_positions
        for memory in self.weights:
            rows, columns = memory.type.shape
            low, high = ((0, count), (rows, whole)) if over else ((count, 0), (whole, columns))

            def clear(q: Index, memory: ir.Value = memory, low: Index = low[1], high: Index = high[1]) -> None:
                each(self.reader, low, high, 1, lambda t: b.store(zero, memory, [q, t]))

            each(self.reader, low[0], high[0], 1, clear)

    def _accumulate(self, number: int, round_: Index, start: Index, count: Index) -> None:
        left, right = self.packed[number]
        left.pack(0, 0, self.tile.kept, 0, self.tile.along)
        right.pack(0, 0, self.sums.sums[number].other.depth, 0, self.tile.along)
        depth = b.div(b.add(count, DEPTH - 1), DEPTH)
        self._multiply(self.adds[number], self.totals[number], depth, True)
