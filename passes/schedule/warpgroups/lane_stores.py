"""Stores of what a warpgroup instruction's threads hold in lines that are not whole boxes: by each subgroup's lanes.

Rows are put together in shared memory, from where neighbouring lanes store neighbouring vectors of them: what a thread
has of a row is two numbers beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.schedule.warpgroups.tile_stores import ROWS, words_of
from lispgpt.passes.targets.tensor_copies import TensorCopies

VECTOR = 16
"""Bytes that a lane stores at once, and between the ends of rows, which puts their starts on different banks."""
COLUMNS = 16
"""That a matrix instruction's pieces are stored by."""


def area_bytes(columns: int, item: int) -> int:
    """That a subgroup's rows of so many columns take at most, in areas of some of them each."""
    return ROWS * (columns * item + columns // COLUMNS * VECTOR)


@dataclass(frozen=True)
class LaneStores:
    """start: in the block's memory, of a subgroup's rows of `columns` columns of what goes to a buffer.  lane: in the
    subgroup.  extents: the buffer's rows and columns, where the tile may reach past them."""

    copies: TensorCopies
    memory: BlockMemory
    start: Index
    columns: int
    buffer: ir.Value
    lane: Index
    extents: tuple[int | None, int | None]

    @property
    def _item(self) -> int:
        return b.item_bytes(self.buffer.type)

    @property
    def _pitch(self) -> int:
        return self.columns * self._item + VECTOR

    def put(self, values: Sequence[ir.Value]) -> None:
        """Put all columns of the rows together.

        values: pairs of neighbours by eight columns, and of those by row and row + 8, as the instruction's results lie.
        """
        start = b.add(b.add(b.address_of(self.memory.memory), self.memory.start), self.start)
        if b.is_short(values[0].type):
            row, half = b.mod(self.lane, 16), b.div(self.lane, 16)
            line, words = b.add(b.add(start, b.mul(row, self._pitch)), b.mul(half, 16)), words_of(values)
            for first in range(0, len(words), 4):
                self.copies.put_matrices(b.add(line, first * 8), words[first : first + 4])
            return
        row, pair = b.div(self.lane, 4), b.mod(self.lane, 4)
        line = b.add(b.add(start, b.mul(row, self._pitch)), b.mul(pair, 8))
        for number, value in enumerate(values):
            eight, half = divmod(number, 2)
            address = b.add(line, 32 * eight + 8 * half * self._pitch)
            self.copies.put_pair(address, [b.lane_of(value, i) for i in range(2)])

    def store(self, row: Index, column: Index) -> None:
        """Store them, behind a barrier of the subgroup.  row, column: where the first goes."""
        width = VECTOR // self._item
        each = self.columns // width
        rows = self.memory.view(self.start, [ROWS, self._pitch // self._item], self.buffer.type.element_type)
        for number in range(-(-ROWS * each // 32)):
            place = b.add(self.lane, 32 * number)
            own, across = b.div(place, each), b.mul(b.mod(place, each), width)
            at = [b.add(row, own), b.add(column, across)]
            live = [b.less(x, extent) for x, extent in zip(at, self.extents, strict=True) if extent is not None]
            if ROWS * each % 32 and (number + 1) * 32 > ROWS * each:
                live.append(b.less(place, ROWS * each))
                own = b.at_most(own, ROWS - 1)
            value = b.load(rows, [own, across], width)
            b.if_live(b.both(*live), partial(b.store, value, self.buffer, at))
