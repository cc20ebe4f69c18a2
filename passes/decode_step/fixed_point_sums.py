"""Sums of F32 to which blocks add in any order, and which show by themselves whether all have.

A sum is a word of 64 bits in memory that blocks share.  Its lowest bits count who has added, those above hold what they
have added, in whole numbers of 2^-28, whose sum is the same in any order.  What is read is the difference to what was
there before, so that nobody has to clear the word.  A part that is no number, or of 2^21 and more, makes its sum a NaN;
every other one is at most 2^-29 off, however small it is.
"""

from __future__ import annotations

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import fused, real
from lispgpt.passes.targets import ptx

MOST_PARTS, COUNT_BITS = 16, 5
"""Of a sum, at most, and bits that count them."""
FRACTION = 28
UNITS = 2.0**FRACTION
MOST, LOST = 2.0**21, 2.0**26
"""Parts are below; what is added for one that is not, so that the sum is LOST / 2 or more whatever the others are."""


def part_of_sum(value: Number) -> Number:
    """What is added for an F32, as i64."""
    kept = (abs(value) < MOST).where(ptx.rounded(value * UNITS, 64), int(LOST * UNITS))
    return (kept << COUNT_BITS) + 1


def lacks(now: Number, before: Number, parts: int) -> Number:
    """0 where so many parts have been added.  now, before: what is read of the sum."""
    return ((ptx.low_of(now) - ptx.low_of(before)) & ((1 << COUNT_BITS) - 1)) ^ parts


def value_of_sum(now: Number, before: Number) -> Number:
    """What the parts add up to, as F32: of a whole number and a rest of 28 bits with a sign, as a core converts words
    of 64 bits slowly."""
    added = now - before
    rest = ptx.low_of(added >> (COUNT_BITS + FRACTION - 32)).signed_shift(32 - FRACTION)
    whole = (ptx.low_of(added >> 32) + 1).signed_shift(COUNT_BITS + FRACTION - 32)
    value = fused(rest.as_real("arith.sitofp"), real(1 / UNITS), whole.as_real("arith.sitofp"))
    return (abs(value) < LOST / 2).where(value, real(float("nan")))
