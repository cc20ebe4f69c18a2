"""The left operands of attention's products, in bf16 parts: vectors from memory, weights from scores."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.matrices import Lanes, split
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.targets.matrix import MatrixUnit

WIDTH = 4
"""Numbers of a vector that are read at once."""

Block = list[list[ir.Value]]
"""[part]: a lane's runs in a block of k, one for each row that it holds of a left operand."""


def parts_of(operand: Operand) -> int:
    """In how many bf16 parts an operand's numbers are multiplied."""
    return 1 if operand.rounded or str(operand.element) == "bf16" else 2


def words_of(operand: Operand, unit: MatrixUnit) -> int:
    """Registers that a lane's share of an operand's vectors takes."""
    blocks = -(-operand.depth // unit.block)
    return blocks * len(unit.left_rows) * unit.run * parts_of(operand) // 2


def in_parts(runs: list[ir.Value], count: int) -> Block:
    """A lane's runs in so many parts, rounded where there is one."""
    pieces = [split(run) if count == 2 else [b.shortened(run, ir.BF16Type.get())] for run in runs]
    return [[piece[number] for piece in pieces] for number in range(count)]


def weights_in_registers(unit: MatrixUnit, weights: list[list[ir.Value]], keys: int, count: int) -> list[Block]:
    """weights[i]: the lane's weights of its i-th row, tile by tile.  count: of parts."""
    blocks = range(0, keys // unit.block * unit.run, unit.run)
    return [in_parts([b.vector_of(row[first : first + unit.run]) for row in weights], count) for first in blocks]


def store_weights(
    memory: ir.Value, subgroup: Index, lanes: Lanes, weights: list[list[ir.Value]], keys: int, count: int
) -> None:
    """To where the subgroup's lanes read them; every thread of the team waits before it does."""
    unit = lanes.unit
    for i, piece in enumerate(unit.pieces()):
        run = len(piece.elements)
        for n in range(keys // unit.columns):
            where = [b.add(lanes.result_row, piece.row), b.add(lanes.result_column, n * unit.columns)]
            values = b.vector_of(weights[i][n * run : (n + 1) * run])
            for part, half in enumerate(split(values) if count == 2 else [b.shortened(values, ir.BF16Type.get())]):
                b.store(half, memory, [subgroup, part, *where])


def load_weights(memory: ir.Value, subgroup: Index, lanes: Lanes, keys: int, count: int) -> list[Block]:
    unit = lanes.unit

    def run(part: int, row: int, block: int) -> ir.Value:
        t = b.add(block * unit.block, b.mul(lanes.group, unit.run))
        where = [subgroup, part, b.add(lanes.row, row)]
        return b.joined([b.load(memory, [*where, b.add(t, i)], 8) for i in range(0, unit.run, 8)])

    return [
        [[run(part, row, block) for row in unit.left_rows] for part in range(count)]
        for block in range(keys // unit.block)
    ]
