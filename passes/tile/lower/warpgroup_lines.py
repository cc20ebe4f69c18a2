"""Sums that four subgroups have of 64 rows, with more by a warpgroup's instructions: A in their registers, B in lines
of shared memory."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import replace

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.matrices import flat, shaped
from lispgpt.passes.kernels.operand_a import Block
from lispgpt.passes.tile.lower.memory import Slot
from lispgpt.passes.tile.lower.units import SubgroupSums

WORD = 2
"""BF16 numbers of a register."""


def multiply_lines(
    sums: SubgroupSums, blocks: Sequence[Sequence[Block]], right: Slot, across: bool, adds: bool
) -> SubgroupSums:
    """sums, unless they are nothing (adds), + A · Bᵀ, or across A · B."""
    unit, matrix = sums.target.warpgroup, sums.target.matrix
    assert unit is not None and matrix is not None
    (own,) = blocks
    words = [[word for part in block for word in _words(part, matrix.run)] for block in own]
    values = [b.lane_of(flat(v), i) for v in sums.values for i in range(len(matrix.pieces()) * WORD)]
    kept = len(values) if adds else 0
    given_words = [word for block in words for word in block]
    if adds:  # what has just been made
        ready = unit.ready([*values, *given_words])
        totals, given_words = ready[:kept], ready[kept:]
    else:
        unit.fence()
        totals = []
    rest = iter(given_words)
    _, part_of_k, _, column_part = sums.place
    tile, line, steps = right.tile, unit.inner * 2, matrix.block // unit.block
    members = sums.tile.shape[0] if across else sums.tile.teams[1]
    mine = b.mul(part_of_k if across else column_part, tile.rows // members * line)
    start = b.add(b.add(right.memory, mine), b.mul(right.slot, tile.slot_bytes))
    length = tile.rows * line
    lower = unit.lower_word(start, length if across else 0)
    for number, block in enumerate(own):
        given = [[[next(rest) for _ in range(2 * len(part))] for _ in range(steps)] for part in block]
        for k in range(number * matrix.block, (number + 1) * matrix.block, unit.block):
            inside = k * line if across else k // unit.inner * length + k % unit.inner * 2
            for q in range(tile.parts):
                column = unit.with_lower(lower, inside + q * tile.slot_bytes // tile.parts)
                for left in given[: max(len(block), tile.parts) - q]:
                    words_of_k = left[k % matrix.block // unit.block]
                    if totals:
                        totals = unit.multiply(words_of_k, column, totals, transposed=across)
                    else:
                        totals = unit.start(words_of_k, column, len(values))
    unit.commit()
    done = unit.done(totals)
    size, type_ = len(matrix.pieces()) * WORD, matrix.accumulator_type()
    return replace(sums, values=[shaped(b.vector_of(done[i : i + size]), type_) for i in range(0, len(done), size)])


def _words(rows: Sequence[ir.Value], run: int) -> Iterator[ir.Value]:
    """A lane's registers of a block of k: for each instruction two of k of each row, then the two that are eight on."""
    i32 = ir.VectorType.get([1], b.i32())
    for start in range(0, run, 2 * WORD):
        for first in (start, start + WORD):
            for row in rows:
                pair = b.shuffled(row, row, range(first, first + WORD))
                yield b.lane_of(b.emit("vector.bitcast", [pair], [i32]), 0)
