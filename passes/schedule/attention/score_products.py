"""Attention's two products for a team's rows: scores from queries and keys, and what weights make of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import operand_a as left_of
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.schedule.attention.key_tiles import Tiles
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

PRODUCTS = ((0, 0), (0, 1), (1, 0))
"""Which parts of the left operand meet which of the right one: the smallest product is left out."""

CHAINS = 4
"""Sums that are added to in turn, so that none waits for the instruction before."""

Weights = list[list[ir.Value]]
"""[row][score]: softmax weights of a lane's rows, tile by tile."""


class Products(Protocol):
    """Of the team's tile.  Scores and sums are accumulators, one for each tile of the matrix unit; a number says which
    of the tile's operands is meant."""

    def scores(self, number: int) -> list[ir.Value]: ...

    def add(self, number: int, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]: ...


class SubgroupProducts:
    """On instructions of one subgroup.  left: for each operand that makes scores, what gives blocks of the left one.
    parts: of weights, in bf16.  memory: of the block's weights; number: the subgroup's in the block.  between: what is
    emitted between the blocks of positions that weights are multiplied by."""

    def __init__(
        self,
        tiles: Tiles,
        left: list[Callable[[int], left_of.Block]],
        parts: int,
        memory: Callable[[], ir.Value],
        number: Index,
        wait: Callable[[], None],
        between: Callable[[], None] = lambda: None,
    ) -> None:
        self.between = between
        self.tiles, self.left, self.parts, self.lanes = tiles, left, parts, tiles.lanes
        self.unit, self.layout = tiles.unit, tiles.layout
        self.memory, self.number, self.wait = memory, number, wait

    def scores(self, number: int) -> list[ir.Value]:
        sums = [b.constant(0.0, self.unit.accumulator_type())] * (self.layout.count // self.unit.columns)
        for block in range(self.layout.operands[number].padded // self.unit.block):
            self._multiply(self.left[number](block), number, block, sums, self.tiles.score_run)
        return sums

    def add(self, number: int, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]:
        sums, count = list(sums), self.layout.count
        if self.unit.result_as_left:
            left = left_of.weights_in_registers(self.unit, weights, count, self.parts)
        else:
            memory = self.memory()
            left_of.store_weights(memory, self.number, self.lanes, weights, count, self.parts)
            self.wait()
            left = left_of.load_weights(memory, self.number, self.lanes, count, self.parts)
        for block in range(count // self.unit.block):
            if block > 0:
                self.between()
            self._multiply(left[block], number, block, sums, self.tiles.sum_run)
        return sums

    def _multiply(
        self,
        left: left_of.Block,
        number: int,
        block: int,
        sums: list[ir.Value],
        run: Callable[[int, int, int, int], ir.Value],
    ) -> None:
        """Add to `sums`, some at a time, the products of block `block` of k."""
        parts = self.layout.operands[number].parts
        products = [p for p in PRODUCTS if p[0] < len(left) and p[1] < parts]
        for first in range(0, len(sums), CHAINS):
            numbers = range(first, min(first + CHAINS, len(sums)))
            runs = [[run(number, part, n, block) for n in numbers] for part in range(parts)]
            for mine, other in products:
                totals = self.unit.multiply_row(left[mine], runs[other], [sums[n] for n in numbers])
                sums[first : first + CHAINS] = totals


class WarpgroupProducts:
    """On instructions of a warpgroup, which is the team; both tiles are their right operands as they lie."""

    def __init__(self, unit: WarpgroupUnit, tiles: Tiles, queries: left_of.Words, count: int) -> None:
        """count: of weights' parts."""
        self.unit, self.tiles, self.queries, self.layout, self.count = unit, tiles, queries, tiles.layout, count
        self.lanes: Lanes = tiles.lanes
        self.parts = tiles.layout.operands[0].parts
        self.products = [p for p in PRODUCTS if p[1] < self.parts]

    def scores(self, number: int) -> list[ir.Value]:
        sums: list[ir.Value] = []
        self.unit.fence()
        for other in range(self.parts):
            keys = self.unit.descriptor(self.tiles.memories[number][0], self.tiles.offset(number, other))
            for block, words in enumerate(self.queries):
                column = self.unit.advanced(keys, block)
                for mine in [left for left, right in self.products if right == other and left < len(words)]:
                    if sums:
                        sums = self.unit.multiply(words[mine], column, sums)
                    else:
                        sums = self.unit.start(words[mine], column, self.layout.count // 2)
        self.unit.commit()
        return self._tiles(self.unit.done(sums))

    def add(self, number: int, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]:
        words = left_of.weight_words(self.unit, weights, self.layout.count, self.count)
        plain, words = self._ready(self._plain(sums), words)
        for other in range(self.parts):
            offset = self.tiles.offset(number, other)
            for block, parts in enumerate(words):
                rows = b.add(offset, block * self.unit.block * self.unit.inner * 2)
                values = self.unit.descriptor(self.tiles.memories[number][0], rows)
                for mine in [left for left, right in self.products if right == other and left < self.count]:
                    plain = self.unit.multiply(parts[mine], values, plain, transposed=True)
        self.unit.commit()
        return self._tiles(self.unit.done(plain))

    def _ready(self, sums: list[ir.Value], words: left_of.Words) -> tuple[list[ir.Value], left_of.Words]:
        """What instructions may take from here on."""
        ready = self.unit.ready([*sums, *(word for parts in words for part in parts for word in part)])
        rest = iter(ready[len(sums) :])
        return ready[: len(sums)], [[[next(rest) for _ in part] for part in parts] for parts in words]

    def _plain(self, tiles: list[ir.Value]) -> list[ir.Value]:
        vectors = [flat(tile) for tile in tiles]
        return [b.lane_of(vector, i) for vector in vectors for i in range(b.width_of(vector))]

    def _tiles(self, plain: list[ir.Value]) -> list[ir.Value]:
        type_ = self.lanes.unit.accumulator_type()
        return [shaped(b.vector_of(plain[i : i + 4]), type_) for i in range(0, len(plain), 4)]
