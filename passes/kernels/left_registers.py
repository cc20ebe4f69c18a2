"""A product's f32 operand on its way from shared memory to the registers that warpgroup instructions take."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.ring import CopiedOperand
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

SWIZZLED = 16
"""Bytes that stay together where lines are swizzled, eight to a line."""


@dataclass(frozen=True)
class Lines:
    """How a tile lies: elements and bytes of a line, bytes of all lines that are beside each other, and whether they
    are along its rows."""

    width: int
    line: int
    part_bytes: int
    transposed: bool


class LeftRegisters:
    """A thread's share of steps of k, each number as two bf16 ones that add up to it.

    row: of the tile, the thread's first; it has that and the eighth after it.  pair: of eight elements of k it has two
    from 2·pair.
    """

    def __init__(
        self, unit: WarpgroupUnit, copies: TensorCopies, operand: CopiedOperand | Lines, row: Index, pair: Index
    ) -> None:
        self.unit, self.copies, self.operand = unit, copies, operand
        self.per_line = operand.width
        if operand.transposed:
            self._place_transposed(row, pair)
        else:
            self._place(row, pair)

    def load(self, stage: Index) -> list[ir.Value]:
        """What a stage's left operand, at that address, gives: by block of k, part, register."""
        found = []
        for block in range(self.unit.inner // self.unit.block):
            parts: list[list[ir.Value]] = [[], []]
            for column in (0, 8):
                for row in (0, 8):
                    value = self._pair(stage, row, block * self.unit.block + column)
                    for part, words in zip(parts, self.unit.split(value), strict=True):
                        part.append(words)
            found += [*parts[0], *parts[1]]
        return found

    def _place(self, row: Index, pair: Index) -> None:
        """Offsets in lines along k, by the piece of a line that the pair of a block of eight lies in."""
        line = b.add(b.mul(row, self.operand.line), b.mul(b.mod(pair, 2), 8))
        self.offsets = [
            b.add(line, b.mul(b.xor(b.add(b.div(pair, 2), 2 * eight), b.mod(row, 8)), SWIZZLED))
            for eight in range(self.per_line // 8)
        ]

    def _place_transposed(self, row: Index, pair: Index) -> None:
        """Offsets in lines along rows, of either element of the pair and either row."""
        self.offsets = []
        for element in range(2):
            for more in (0, 8):
                k, at = b.add(b.mul(pair, 2), element), b.add(row, more)
                within = b.mod(at, self.per_line)
                piece = b.xor(b.div(within, 4), b.mod(k, 8))
                offset = b.add(b.mul(b.div(at, self.per_line), self.operand.part_bytes), b.mul(k, self.operand.line))
                self.offsets.append(b.add(b.add(offset, b.mul(piece, SWIZZLED)), b.mul(b.mod(within, 4), 4)))

    def _pair(self, stage: Index, row: int, k: int) -> ir.Value:
        """Two neighbours along k, from a multiple of eight on and `row` rows below the thread's first."""
        if self.operand.transposed:
            at = [self.offsets[2 * element + row // 8] for element in range(2)]
            return b.vector_of([self._load(b.add(b.add(stage, offset), k * self.operand.line), 1) for offset in at])
        part, within = divmod(k, self.per_line)
        offset = b.add(self.offsets[within // 8], part * self.operand.part_bytes + row * self.operand.line)
        return self._load(b.add(stage, offset), 2)

    def _load(self, address: Index, width: int) -> ir.Value:
        type_ = b.with_width(b.f32(), width)
        return b.emit("llvm.load", [self.copies.pointer(address)], [type_], alignment=4 * width)
