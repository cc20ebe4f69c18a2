"""Attention's two products for a team's rows: scores from queries and keys, and what weights make of values."""

from __future__ import annotations

from collections.abc import Callable
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import attention_left as left_of
from lispgpt.passes.kernels.attention_tiles import Tiles
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

PRODUCTS = ((0, 0), (0, 1), (1, 0))
"""Which parts of the left operand meet which of the right one: the smallest product is left out."""

CHAINS = 4
"""Sums that are added to in turn, so that none waits for the instruction before."""

Weights = list[list[ir.Value]]
"""[row][score]: softmax weights of a lane's rows, tile by tile."""


class Products(Protocol):
    """Of the team's tile.  Scores and sums are accumulators, one for each tile of the matrix unit."""

    def scores(self) -> list[ir.Value]: ...

    def add_values(self, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]: ...


class SubgroupProducts:
    """On instructions of one subgroup.  memory: of the block's weights; number: the subgroup's in the block."""

    def __init__(
        self,
        tiles: Tiles,
        queries: left_of.Parts,
        memory: Callable[[], ir.Value],
        number: Index,
        wait: Callable[[], None],
    ) -> None:
        self.tiles, self.queries, self.lanes = tiles, queries, tiles.lanes
        self.unit, self.layout = tiles.unit, tiles.layout
        self.memory, self.number, self.wait = memory, number, wait
        self.products = [p for p in PRODUCTS if p[1] < self.layout.parts]

    def scores(self) -> list[ir.Value]:
        count = self.layout.positions // self.unit.columns
        sums = [b.constant(0.0, self.unit.accumulator_type())] * count
        for block in range(self.layout.padded // self.unit.block):
            self._multiply(self.queries, block, sums, self.tiles.key_run)
        return sums

    def add_values(self, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]:
        sums, keys = list(sums), self.layout.positions
        if self.unit.result_as_left:
            left = left_of.weights_in_registers(self.unit, weights, keys)
        else:
            memory = self.memory()
            left_of.store_weights(memory, self.number, self.lanes, weights, keys)
            self.wait()
            left = left_of.load_weights(memory, self.number, self.lanes, keys)
        for block in range(keys // self.unit.block):
            self._multiply(left, block, sums, self.tiles.value_run)
        return sums

    def _multiply(
        self, left: left_of.Parts, block: int, sums: list[ir.Value], run: Callable[[int, int, int], ir.Value]
    ) -> None:
        """Add to `sums`, some at a time, the products of block `block` of k."""
        for first in range(0, len(sums), CHAINS):
            numbers = range(first, min(first + CHAINS, len(sums)))
            runs = [[run(part, n, block) for n in numbers] for part in range(self.layout.parts)]
            for mine, other in self.products:
                totals = self.unit.multiply_row(left[mine][block], runs[other], [sums[n] for n in numbers])
                sums[first : first + CHAINS] = totals


class WarpgroupProducts:
    """On instructions of a warpgroup, which is the team; both tiles are their right operands as they lie."""

    def __init__(self, unit: WarpgroupUnit, tiles: Tiles, queries: left_of.Words) -> None:
        self.unit, self.tiles, self.queries, self.layout = unit, tiles, queries, tiles.layout
        self.lanes: Lanes = tiles.lanes
        self.products = [p for p in PRODUCTS if p[1] < self.layout.parts]

    def scores(self) -> list[ir.Value]:
        sums: list[ir.Value] = []
        self.unit.fence()
        for other in range(self.layout.parts):
            keys = self.unit.descriptor(self.tiles.memories[0], self.tiles.offset(0, other))
            for block, words in enumerate(self.queries):
                column = self.unit.advanced(keys, block)
                for mine in [left for left, right in self.products if right == other]:
                    if sums:
                        sums = self.unit.multiply(words[mine], column, sums)
                    else:
                        sums = self.unit.start(words[mine], column, self.layout.positions // 2)
        self.unit.commit()
        return self._tiles(self.unit.done(sums))

    def add_values(self, weights: Weights, sums: list[ir.Value]) -> list[ir.Value]:
        words = left_of.weight_words(self.unit, weights, self.layout.positions)
        plain, words = self._ready(self._plain(sums), words)
        for other in range(self.layout.parts):
            offset = self.tiles.offset(1, other)
            for block, parts in enumerate(words):
                rows = b.add(offset, block * self.unit.block * self.unit.inner * 2)
                values = self.unit.descriptor(self.tiles.memories[1], rows)
                for mine in [left for left, right in self.products if right == other]:
                    plain = self.unit.multiply(parts[mine], values, plain, turned=True)
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
