"""How many registers lanes fill that load weights in blocks to multiply them, and other rows beside these.

A model of what LLVM makes of such loops for AMD's chips, by 87 kernels for gfx942, gfx1151 and gfx1201 (2026): of those
that have room by it none spilled; of 23 that have none 19 did.
"""

from __future__ import annotations

from math import gcd

from lispgpt.base.dtypes import find_dtype
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD, PackedOperand

SCALE = {"q4_k": 10.0, "int8": 1.5, "q8_0": 0.75, "q4_0": 0.75}
"""What a row's scale takes while it is on its way, and while it is unpacked: q4_k's lies in four words."""

BESIDE, SUM, LATER = 0.75, 1.5, 80
"""The same of a number of the other operand, and of a sum; and of each step ahead but the first, beside its loads."""

FILLED = 0.97
"""How much of a lane's registers may be filled so."""


def has_room(
    weights: PackedOperand, sizes: tuple[int, int], share: int, members: int, ahead: int, target: Gpu, resident: int
) -> bool:
    """Whether a lane's registers hold tiles of so many (rows, columns) and `ahead` steps more of them, of so much k for
    each of the members that share it out, in blocks of which so many share a core."""
    unit, (rows, columns) = target.matrix, sizes
    assert unit is not None
    tiles, pieces, lines, steps = rows // unit.rows, len(unit.pieces()), len(unit.left_rows), share // unit.block
    scaled = gcd(share, BlockWeights(weights.tensor, weights.blocks).scaled)
    shifted = find_dtype(weights.blocks).item_bytes % WORD != 0
    step = tiles * (pieces * SCALE[weights.blocks] * share / scaled + lines * steps * (unit.run // WORD + shifted))
    step += BESIDE * (columns // unit.columns) * steps * unit.run
    sums = SUM * 2 * rows * columns / target.subgroup  # of one scale, and of all
    filled = (ahead + 1) * step + sums + tiles * (lines + pieces) + LATER * (ahead - 1)
    return filled <= FILLED * target.lane_registers(members * target.subgroup, resident)
