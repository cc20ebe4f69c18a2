"""How a block's copies bring the steps of its tiles to a ring of stages: one thread's, and one that begins beside it.

A copy takes its thread 25 ns to start.  The first stages' left operands, which wait for what the launch ahead has made,
are begun by a thread of their own, so that they do not also wait for the right operands, such as weights, to be begun.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.bulk_stores import BulkResult, TilePlace
from lispgpt.passes.kernels.ring import CopiedOperand, Ring, StagePlace
from lispgpt.passes.schedule.warpgroups.block_tiles import BlockTiles
from lispgpt.passes.schedule.warpgroups.operands import Operands
from lispgpt.passes.schedule.warpgroups.split_k import TileShare
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies


@dataclass(frozen=True)
class TileCopies:
    """maps: of both operands.  fetched: what results are made of beside sums.  known: whether no launch writes
    the right operand."""

    target: Gpu
    copies: TensorCopies
    operands: Operands
    maps: Sequence[Sequence[ir.Value]]
    ring: Ring
    tiles: BlockTiles
    fetched: Sequence[BulkResult]
    known: bool

    def start(self, thread: Index) -> None:
        """By the copies' warpgroup."""
        b.if_then(b.equal(thread, 0), self._fill)
        b.if_then(b.equal(thread, self.target.subgroup), self._begin_left)

    @property
    def _early(self) -> int:
        """Steps that find their stages empty."""
        return min(self.ring.stages, self.tiles.grid.steps)

    def _begin_left(self) -> None:
        first = self.tiles.place_of(self.tiles.first)
        self.target.dependency_wait()
        for step in range(self._early):
            self._load_left(first, step, step)

    def _fill(self) -> None:
        """By one thread: all of the stages, as they become empty, but for what the other thread begins with."""
        grid, first, early = self.tiles.grid, self.tiles.place_of(self.tiles.first), self._early
        if not self.known:
            self.target.dependency_wait()
        for step in range(early):
            self.ring.expect(step)
            self._load_right(first, step, step)
        if self.known:
            self.target.dependency_wait()

        def tile(number: Index, piece: TileShare, place: StagePlace) -> StagePlace:
            at = self.tiles.place_of(piece)
            self._fetch(at)
            start: Index = early
            if not grid.one_wave:
                start = b.select(self.tiles.is_first(number), b.as_value(early), b.as_value(0))

            def step(k: ir.Value, slot: ir.Value, phase: ir.Value) -> list[ir.Value]:
                here = StagePlace(slot, phase)
                self.ring.wait_empty(here)
                self.ring.expect(slot)
                self._load_left(at, k, slot)
                self._load_right(at, k, slot)
                return self.ring.after(here).values()

            return StagePlace(*b.loop(start, piece.steps, 1, place.values(), step))

        self.tiles.each(StagePlace(early % self.ring.stages, early // self.ring.stages), tile)

    def _fetch(self, tile: TilePlace) -> None:
        """Have what a tile's results are made of beside its sums in the cache by the time that these are there."""
        for one in self.fetched:
            for first in range(0, self.tiles.grid.tiling.outputs, one.width):
                at = (tile.batch, tile.row, b.add(tile.column, first))
                self.copies.fetch(one.map, one.boxes.at(at))

    def _load_left(self, tile: TilePlace, step: Index, slot: Index) -> None:
        at = (tile.batch, tile.row, b.add(tile.k, b.mul(step, self.tiles.grid.step)))
        self.operands.left.load(self.copies, self.maps[0], at, self.ring.left_at(slot), self.ring.full(slot), 0)

    def _load_right(self, tile: TilePlace, step: Index, slot: Index) -> None:
        at = (tile.batch, tile.column, b.add(tile.k, b.mul(step, self.tiles.grid.step)))
        full, right = self.ring.full(slot), self.operands.right
        assert isinstance(right, CopiedOperand)
        right.load(self.copies, self.maps[1], at, self.ring.right_at(slot), full, self.tiles.rank)
