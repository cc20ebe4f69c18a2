"""The rows of one head that a block of attention has: their places in the scores, and which positions they see."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import first_position, last_position
from lispgpt.passes.kernels.matrices import Lanes
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import subgroup_reduce, tree
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class BlockRows:
    """`count` rows from `first` on of the scores' dimension `row`, whose other leading indices are `others`.

    Where they do not divide the dimension, those past its end are its last row once more.
    """

    attention: Attention
    reader: Reader
    lanes: Lanes
    target: Gpu
    row: int
    others: Sequence[Index]
    first: Index
    count: int

    def place(self, row: Index) -> list[Index]:
        """The scores' leading indices for a row of the sequence."""
        positions = self.attention.extents[self.row]
        if positions % self.count:
            row = b.at_most(row, positions - 1)
        place: list[Index] = list(self.others)
        place.insert(self.row, row)
        return place

    def inside(self, row: Index) -> ir.Value | None:
        """Whether a row is one of the sequence's; None where all are."""
        positions = self.attention.extents[self.row]
        return b.less(row, positions) if positions % self.count else None

    def last_positions(self) -> tuple[ir.Value, ir.Value]:
        """The smallest and the largest of the last positions that the rows may see."""
        found = self._positions(last_position)
        return self._over_rows("arith.minsi", found), self._over_rows("arith.maxsi", found)

    def start(self, step: int) -> Index:
        """The first position, counted in steps, from which on any of the rows sees something."""
        if self.attention.lower is None:
            return 0
        return b.mul(b.div(self._over_rows("arith.minsi", self._positions(first_position)), step), step)

    def _positions(self, position: Callable[[Attention, Reader, list[Index]], Index]) -> list[ir.Value]:
        """The positions of the lane's share of the rows, in i32; of the last row where there are more lanes."""
        found = []
        for start in range(0, self.count, self.target.subgroup):
            number = b.add(start, self.lanes.lane)
            if start + self.target.subgroup > self.count:
                number = b.at_most(number, self.count - 1)
            row = b.add(self.first, number)
            value = position(self.attention, self.reader, self.place(row))
            found.append(b.emit("arith.index_cast", [b.as_value(value)], [b.i32()]))
        return found

    def _over_rows(self, combiner: str, found: list[ir.Value]) -> ir.Value:
        size = self.target.subgroup
        value = subgroup_reduce(combiner, tree(combiner, found), size, size)
        return b.emit("arith.index_cast", [value], [ir.IndexType.get()])
