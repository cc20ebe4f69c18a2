"""Weights in blocks on their way to the ring of stages: widened once a tile by the warpgroup that starts copies.

Each of its threads loads runs of a step's numbers and of what scales them while it waits for the step's stage, and
stores them there in BF16, swizzled as copies would have brought them; the other operand is copied as always.  Of two
blocks that need the same columns each widens half of them, and copies these to the other's stage.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.bulk_stores import TilePlace
from lispgpt.passes.kernels.matrices import split
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.ring import CopiedOperand, StagePlace, WidenedOperand
from lispgpt.passes.schedule.warpgroups.split_k import TileShare
from lispgpt.passes.schedule.warpgroups.tile_copies import TileCopies
from lispgpt.passes.tile.lower.packed import PackedMemory, Runs

RUN, PIECE = 16, 8
"""Neighbours along k that a thread widens at once, and those in one piece of a swizzled line."""

MOST = 32
"""Numbers of runs that a thread makes of the same bytes: of a step of k."""

HELD = 34
"""Words that a thread has loaded of a step, beside as many of the next one."""


def buffer_of(right: Operand, operand: CopiedOperand | WidenedOperand) -> ir.Value | None:
    """The memory in which the right operand lies, or its blocks do."""
    if isinstance(operand, CopiedOperand):
        return operand.boxes.argument
    weights = BlockWeights.of(right)
    op = None if weights is None else defining_op(weights.blocks)
    return None if op is None else op.operands[0]


@dataclass(frozen=True)
class WidenedCopies(TileCopies):
    """right: the weights."""

    right: Operand

    def start(self, thread: Index) -> None:
        """By the copies' warpgroup, all of it."""
        if not self.known:
            self.target.dependency_wait()

        def tile(number: Index, piece: TileShare, place: StagePlace) -> StagePlace:
            at, last, ahead = self.tiles.place_of(piece), b.sub(piece.steps, 1), self._ahead(piece)
            first = [self._load(thread, at, b.at_most(step, last)) for step in range(ahead)]
            self.target.dependency_wait()
            b.if_then(b.equal(thread, 0), lambda: self._fetch(at))

            def steps(k: ir.Value, slot: ir.Value, phase: ir.Value, *held: ir.Value) -> list[ir.Value]:
                here, each, following = StagePlace(slot, phase), len(first[0]), list[ir.Value]()
                for n in range(ahead):
                    step = b.add(k, n)
                    self.ring.wait_empty(here)
                    b.if_then(b.equal(thread, 0), partial(self._bring_left, at, step, here.slot))
                    self._store(thread, at, step, here.slot, list(held[n * each : (n + 1) * each]))
                    # Behind their last use: else registers would be moved, which waits for what is on its way to them.
                    following += self._load(thread, at, b.at_most(b.add(step, ahead), last))
                    here = self.ring.after(here)
                return [*here.values(), *following]

            begun = [value for loads in first for value in loads]
            slot, phase, *_ = b.loop(0, piece.steps, ahead, [*place.values(), *begun], steps)
            return StagePlace(slot, phase)

        self.tiles.each(StagePlace(0, 0), tile)

    def _bring_left(self, at: TilePlace, k: ir.Value, slot: ir.Value) -> None:
        self.ring.expect(slot)
        self._load_left(at, k, slot)

    @property
    def _weights(self) -> BlockWeights:
        found = BlockWeights.of(self.right)
        assert found is not None
        return found

    @property
    def _runs(self) -> Runs:
        """That a thread widens at once: of blocks whose rows are no whole words it is one."""
        return Runs(self._weights, RUN, RUN if self._memory is None else MOST, self._right.inner)

    @property
    def _memory(self) -> PackedMemory | None:
        own = PackedMemory.operand_of(self.right)
        return None if own is None else PackedMemory(own, Reader(self.target), self.target)

    def _ahead(self, piece: TileShare) -> int:
        """Steps of which a thread holds what it has loaded: what its registers have room for, and divides all."""
        words = self._runs.words * -(-self._columns // self._together)
        return 2 if isinstance(piece.steps, int) and piece.steps % 2 == 0 and words <= HELD else 1

    def _starts(self, thread: Index) -> list[tuple[Index, Index]]:
        """(column of the tile, k of the step) where each of a thread's runs start: neighbours go along k."""
        each = self._right.inner // self._runs.numbers
        lane = b.mod(thread, self.target.subgroup)
        k, first = self._runs.first(b.mod(lane, each)), b.add(self._first_column(thread), b.div(lane, each))
        return [(b.add(first, n), k) for n in range(0, self._columns, self._together)]

    def _first_column(self, thread: Index) -> Index:
        """Of the tile, that a subgroup widens: it has some that lie together."""
        own = b.mul(b.div(thread, self.target.subgroup), self._columns)
        return own if self._right.sharing == 1 else b.add(own, b.mul(self.tiles.rank, self._right.own))

    @property
    def _right(self) -> WidenedOperand:
        assert isinstance(self.ring.right, WidenedOperand)
        return self.ring.right

    @property
    def _columns(self) -> int:
        """That a subgroup widens."""
        unit = self.target.warpgroup
        assert unit is not None
        return self._right.own * self.target.subgroup // unit.threads

    @property
    def _together(self) -> int:
        """Columns of which a subgroup widens runs at once."""
        return self.target.subgroup * self._runs.numbers // self._right.inner

    def _place(self, at: TilePlace, column: Index, k: Index, step: Index) -> tuple[Index, Index]:
        """(column, k) of the weights; past the last column it is the last one's."""
        place = b.add(at.column, column)
        if self.right.extent % self._right.outer or self._columns % self._together:
            place = b.at_most(place, self.right.extent - 1)
        return place, b.add(b.add(at.k, b.mul(step, self.tiles.grid.step)), k)

    def _load(self, thread: Index, at: TilePlace, step: Index) -> list[ir.Value]:
        """What memory has of a step's runs, and of their blocks' scales."""
        found, memory = [], self._memory
        for start in self._starts(thread):
            column, k = self._place(at, *start, step)
            if memory is None:
                found += self._weights.words(Reader(self.target), column, k, RUN)
            else:
                found += memory.loads(column, k, self._runs)
        return found

    def _store(self, thread: Index, at: TilePlace, step: ir.Value, slot: ir.Value, held: list[ir.Value]) -> None:
        """Widen what was loaded of a step, and say that it is in its stage."""
        unit, runs, memory = self.target.warpgroup, self._runs, self._memory
        assert unit is not None
        start, end = self.ring.right_at(slot), b.add(self._first_column(thread), self._columns)
        starts = self._starts(thread)
        each = len(held) // len(starts)
        for number, (column, k) in enumerate(starts):
            _, place = self._place(at, column, k, step)
            own = held[number * each : (number + 1) * each]
            whole = (number + 1) * self._together <= self._columns
            live = None if whole else b.less(column, end)
            for run, words in zip(runs.starts, [own] if memory is None else memory.made(own, place, runs), strict=True):
                numbers = self._weights.widened(words, b.add(place, run), self.target, self._right.numbers)
                b.if_live(live, partial(self._store_run, numbers, start, column, b.add(k, run)))
        unit.publish()
        self.copies.subgroup_barrier()
        lane = b.mod(thread, self.target.subgroup)
        b.if_then(b.equal(lane, 0), lambda: self._hand_on(thread, start, slot))

    def _hand_on(self, thread: Index, start: Index, slot: ir.Value) -> None:
        """By one lane: say that the subgroup's columns are in the stage, and bring them to the other block's."""
        right, full = self._right, self.ring.full(slot)
        self.copies.arrive(full)
        if right.sharing > 1:
            first = b.add(start, b.mul(self._first_column(thread), right.line))
            for number in range(right.numbers):
                tensor = b.add(first, number * right.tensor_bytes)
                self.copies.send(tensor, self._columns * right.line, full, b.sub(1, self.tiles.rank))

    def _store_run(self, numbers: ir.Value, start: Index, column: Index, k: Index) -> None:
        """To the pieces of a column's line in the stage that starts there."""
        right = self.ring.right
        line = b.add(start, b.mul(column, right.line))
        for part, short in enumerate(split(numbers, right.numbers)):
            for i in range(0, RUN, PIECE):
                piece = b.xor(b.div(b.add(k, i), PIECE), b.mod(column, right.line // (2 * PIECE)))
                where = b.add(b.add(line, b.mul(piece, 2 * PIECE)), part * right.tensor_bytes)
                some = b.shuffled(short, short, range(i, i + PIECE))
                create_op("llvm.store", [some, self.copies.pointer(where)], [], {"alignment": 2 * PIECE})
