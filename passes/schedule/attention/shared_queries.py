"""A block's queries in shared memory, in bf16 parts, for lanes that have no registers to keep their own in."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import read_operand
from lispgpt.passes.kernels.block_rows import BlockRows
from lispgpt.passes.kernels.matrices import Lanes
from lispgpt.passes.kernels.operand_a import WIDTH, Block, in_parts, parts_of
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets.matrix import MatrixUnit

PIECE = 8
"""Numbers that a lane loads at once: 16 bytes."""


@dataclass(frozen=True)
class SharedQueries:
    """operand: the queries.  rows: how many of them a block has."""

    operand: Operand
    unit: MatrixUnit
    rows: int

    @staticmethod
    def suits(operand: Operand, unit: MatrixUnit) -> bool:
        """Whether they are worth it: made of what memory has, by a norm or by turning, which lanes that read them again
        for each tile, several of them the same row, would do as often; and of whole instructions' numbers."""
        return strided(operand.tensor) is None and operand.depth % unit.block == 0

    @property
    def shape(self) -> list[int]:
        return [parts_of(self.operand), self.rows, self.operand.depth + self.unit.padding]

    @property
    def nbytes(self) -> int:
        return 2 * prod(self.shape)

    def fill(self, memory: ir.Value, rows: BlockRows, thread: Index, threads: int) -> None:
        """By so many threads of the block, none of which waits for the others."""
        each = self.operand.depth // WIDTH
        count = self.rows * each

        def bring(first: Index) -> None:
            linear = b.add(first, thread)
            live = b.less(linear, count) if count % threads else None
            at = b.or_zero(live, linear)
            row, column = b.div(at, each), b.mul(b.mod(at, each), WIDTH)
            place = rows.place(b.add(rows.first, row))
            value = read_operand(rows.reader, self.operand, place, 0, column, WIDTH)
            parts = parts_of(self.operand)
            for part, (piece,) in enumerate(in_parts([value if parts == 1 else b.extend(value)], parts)):
                b.if_live(live, partial(b.store, piece, memory, [part, row, column]))

        with rows.reader.scope():
            b.each(0, count, threads, bring)

    def blocks(self, memory: ir.Value, row: Index, lanes: Lanes) -> Callable[[int], Block]:
        """Gives each block of the depth: a lane's runs of its rows from that one of the block's on."""

        def run(part: int, own: int, block: int) -> ir.Value:
            d = b.add(block * self.unit.block, b.mul(lanes.group, self.unit.run))
            where = [part, b.add(b.add(row, lanes.row), own)]
            return b.joined([b.load(memory, [*where, b.add(d, i)], PIECE) for i in range(0, self.unit.run, PIECE)])

        def of(block: int) -> Block:
            parts = range(parts_of(self.operand))
            return [[run(part, own, block) for own in self.unit.left_rows] for part in parts]

        return of
