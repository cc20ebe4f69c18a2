"""How many registers lanes fill that load rows of weights to multiply them, and the other operand's beside these.

A model of what LLVM makes of such loops for AMD's chips, by 87 kernels for gfx942, gfx1151 and gfx1201 (2026): of those
that have room by it none spilled; of 36 that have none 19 did.
"""

from __future__ import annotations

from math import gcd

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.tile.copies import WORD, PackedOperand

SCALES = {1: 1.5, 2: 6.0, 4: 10.0}
"""What a row's scale takes while it is on its way, and while it is unpacked, by the words that it comes in."""

BESIDE, AT_ONCE, SUM, LATER = 0.75, 1.5, 1.5, 80
"""The same of a word of the other operand, where one step of it follows another and where all of it comes at once; of a
sum; and of each step ahead but the first, beside its loads."""

COMPUTED, NORMED = 2, 3
"""Words for one of the other operand that is made of several, and that waits for its row's besides."""

FILLED = 0.93
"""How much of a lane's registers may be filled so."""


def filled(
    left: Operand, right: Operand, sizes: tuple[int, int], share: int, ahead: int, steps: int, parts: int, target: Gpu
) -> float:
    """Of so many rows of weights and columns, by a lane that has one of `steps` of so much k and `ahead` more.  parts:
    BF16 numbers that one of a column becomes."""
    unit, (rows, columns) = target.matrix, sizes
    assert unit is not None
    tiles, blocks = rows // unit.rows, share // unit.block
    numbers, packed = blocks * (columns // unit.columns) * unit.run, isinstance(left, PackedOperand)
    words = numbers * b.item_bytes(right.tensor.type) / WORD
    words *= NORMED if right.reduces() else COMPUTED if right.is_computed() else 1
    weights, lines = _weights(left, unit, share)
    held = min(ahead + 1, steps)
    step = tiles * weights + (BESIDE if steps > 1 else AT_ONCE) * words
    sums = rows * columns / target.subgroup * (2 if packed else 1)  # of one scale, and of all
    split = numbers * parts / 2 if packed else 0  # which all scales' sums are of
    return held * step + SUM * sums + split + tiles * lines + LATER * max(0, held - 2)


def has_room(registers: float, threads: int, resident: int, target: Gpu) -> bool:
    """Whether so many are there for each lane of a block of so many threads."""
    return registers <= FILLED * target.lane_registers(threads, resident)


def _weights(left: Operand, unit: MatrixUnit, share: int) -> tuple[float, int]:
    """(what a step of a tile takes, from how many rows)."""
    lines, blocks = len(unit.left_rows), share // unit.block
    if not isinstance(left, PackedOperand):
        return lines * blocks * unit.run * b.item_bytes(left.tensor.type) / WORD, lines
    pieces, packed = len(unit.pieces()), BlockWeights(left.tensor, left.blocks)
    run = unit.run // WORD + (find_dtype(left.blocks).item_bytes % WORD != 0)  # which lies across words
    each, own = gcd(share, packed.scaled), packed.format
    scales = pieces * SCALES[own.scales.words] * share / each
    return scales + lines * blocks * run * len(own.bits), lines + pieces
