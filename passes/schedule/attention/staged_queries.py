"""A block's queries in shared memory, in bf16 parts, as the left operand of warpgroup instructions."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import read_operand
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.matrices import split
from lispgpt.passes.kernels.operand_a import parts_of
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

WIDTH, TURNS = 8, 8
"""Numbers of a vector of 16 bytes, and rows after which vectors are exchanged as before."""


@dataclass(frozen=True)
class StagedQueries:
    """memory: [part, row, number], from an address that swizzling allows on."""

    operand: Operand
    unit: WarpgroupUnit
    memory: ir.Value

    @property
    def parts(self) -> int:
        return parts_of(self.operand)

    def fill(self, rows: BlockRows, thread: Index, threads: int) -> None:
        """By all threads of a block, which publish it after that."""
        each = self.unit.inner // WIDTH
        for first in range(0, rows.count * each, threads):
            linear = b.add(thread, first)
            row, column = b.div(linear, each), b.mul(b.mod(linear, each), WIDTH)
            inside = b.xor(column, b.mul(b.mod(row, TURNS), WIDTH))
            place = rows.place(b.add(rows.first, row))
            halves = [read_operand(rows.reader, self.operand, place, 0, b.add(column, i), 4) for i in (0, 4)]
            for part, piece in enumerate(self._pieces(b.joined(halves))):
                live = b.less(linear, rows.count * each) if first + threads > rows.count * each else None
                b.if_live(live, partial(b.store, piece, self.memory, [part, row, inside]))

    def _pieces(self, value: ir.Value) -> list[ir.Value]:
        return split(b.extend(value)) if self.parts == 2 else [b.shortened(value, ir.BF16Type.get())]

    def lines(self) -> ir.Value:
        """Descriptors' lower word for the first part, which the other comes after."""
        return self.unit.lower_word(b.address_of(self.memory))


def query_bytes(unit: WarpgroupUnit) -> int:
    """What one part of a block's queries takes of shared memory."""
    return 2 * unit.rows * unit.inner
