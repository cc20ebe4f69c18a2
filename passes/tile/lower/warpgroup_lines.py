"""Sums that four subgroups have of 64 rows, with more by a warpgroup's instructions: A in their registers or, as B,
in lines of shared memory."""

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
    sums: SubgroupSums, left: Sequence[Sequence[Block]] | Slot, right: Slot, across: bool, adds: bool
) -> SubgroupSums:
    """sums, unless they are nothing (adds), + A · Bᵀ, or across A · B."""
    unit, matrix = sums.target.warpgroup, sums.target.matrix
    assert unit is not None and matrix is not None
    values = [b.lane_of(flat(v), i) for v in sums.values for i in range(len(matrix.pieces()) * WORD)]
    kept = len(values) if adds else 0
    given = [] if isinstance(left, Slot) else _words_of(left, sums)
    if adds:  # what has just been made
        ready = unit.ready([*values, *(word for block in given for part in block for word in part)])
        totals, rest = ready[:kept], iter(ready[kept:])
        given = [[[next(rest) for _ in part] for part in block] for block in given]
    else:
        unit.fence()
        totals = []
    blocks = _descriptors(left, sums) if isinstance(left, Slot) else given
    _, part_of_k, _, column_part = sums.place
    tile, line = right.tile, unit.inner * 2
    members = sums.tile.shape[0] if across else sums.tile.teams[1]
    mine = b.mul(part_of_k if across else column_part, tile.rows // members * line)
    start = b.add(b.add(right.memory, mine), b.mul(right.slot, tile.slot_bytes))
    length = tile.rows * line
    lower = unit.lower_word(start, length if across else 0)
    for number, block in enumerate(blocks):
        k = number * unit.block
        inside = k * line if across else k // unit.inner * length + k % unit.inner * 2
        for q in range(tile.parts):
            column = unit.with_lower(lower, inside + q * tile.slot_bytes // tile.parts)
            for own in block[: max(len(block), tile.parts) - q]:
                if totals:
                    totals = unit.multiply(own, column, totals, transposed=across)
                else:
                    totals = unit.start(own, column, len(values))
    unit.commit()
    done = unit.done(totals)
    size, type_ = len(matrix.pieces()) * WORD, matrix.accumulator_type()
    return replace(sums, values=[shaped(b.vector_of(done[i : i + size]), type_) for i in range(0, len(done), size)])


def _words_of(blocks: Sequence[Sequence[Block]], sums: SubgroupSums) -> list[list[list[ir.Value]]]:
    """A lane's registers of A, by instructions' k and parts."""
    (own,), unit, matrix = blocks, sums.target.warpgroup, sums.target.matrix
    assert unit is not None and matrix is not None
    found, steps = [], matrix.block // unit.block
    for block in own:
        parts = [list(_words(part, matrix.run)) for part in block]
        each = len(parts[0]) // steps
        found += [[words[i * each : (i + 1) * each] for words in parts] for i in range(steps)]
    return found


def _descriptors(left: Slot, sums: SubgroupSums) -> list[list[list[ir.Value]]]:
    """The same of A in lines: a descriptor in place of registers."""
    unit, tile = sums.target.warpgroup, left.tile
    assert unit is not None
    line, row = unit.inner * 2, b.mul(b.div(sums.place[2], unit.threads // sums.target.subgroup), unit.rows)
    start = b.add(b.add(left.memory, b.mul(row, line)), b.mul(left.slot, tile.slot_bytes))
    first, found = unit.lower_word(start), []
    for k in range(0, tile.columns, unit.block):
        inside = k // unit.inner * tile.rows * line + k % unit.inner * 2
        parts = range(0, tile.slot_bytes, tile.slot_bytes // tile.parts)
        found.append([[unit.with_lower(first, part + inside)] for part in parts])
    return found


def _words(rows: Sequence[ir.Value], run: int) -> Iterator[ir.Value]:
    """A lane's registers of a block of k: for each instruction two of k of each row, then the two that are eight on."""
    i32 = ir.VectorType.get([1], b.i32())
    for start in range(0, run, 2 * WORD):
        for first in (start, start + WORD):
            for row in rows:
                pair = b.shuffled(row, row, range(first, first + WORD))
                yield b.lane_of(b.emit("vector.bitcast", [pair], [i32]), 0)
