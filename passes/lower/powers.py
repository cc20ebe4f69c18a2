"""Powers, roots and remainders: x^y by F64, integers' powers by squaring, cube roots by Halley's steps."""

from __future__ import annotations

import math

from lispgpt.ir.arithmetic import Number, fma, polynomial, where
from lispgpt.ir.mlir import ir

ATANH_TERMS = 9
EXP_TERMS = 12
MANTISSA_BITS = 52
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
"""√½ as F64."""
THIRD_OF_BIAS = 709921077
"""Bits of an F32 divided by 3 and added to this are those of its cube root, within 6 %."""


def powf(x: Number, y: Number) -> Number:
    """|x|^y as 2^(y · log2 |x|), all in F64, which leaves the rounding of the result; signs and ends after C's pow."""
    value = _positive_power(abs(x), y.emit("arith.extf", element=ir.F64Type.get()))
    whole = y.emit("math.floor").is_("==", y)
    half = y * 0.5
    odd = whole & half.emit("math.floor").is_("!=", half)
    below = x.is_("<", 0.0) & x.is_("!=", -math.inf)
    value = where(odd, value.signed_as(x), value)
    value = where(below & whole.emit("arith.xori", 1), math.nan, value)
    value = where(x.is_("uno", y), math.nan, value)
    unit = abs(y).is_("==", math.inf) & x.is_("==", -1.0)
    return where(y.is_("==", 0.0) | x.is_("==", 1.0) | unit, 1.0, value)


def fpowi(x: Number, n: Number) -> Number:
    """x^n for a signed integer n."""
    value = _positive_power(abs(x), n.emit("arith.sitofp", element=ir.F64Type.get()))
    value = where(x.is_("<", 0.0) & n.bit(0), -value, value)
    return where(n.is_("==", 0), 1.0, value)


def _positive_power(x: Number, y: Number) -> Number:
    """x^y rounded to F32 for an F32 x ≥ 0 and an F64 y."""
    exponent = y * _log2(x.emit("arith.extf", element=ir.F64Type.get()))
    return _exp2(exponent.clamp(-1000.0, 1000.0)).emit("arith.truncf", element=ir.F32Type.get())


def _log2(x: Number) -> Number:
    """In F64, of what an F32 can be; 2 · artanh((m - 1) / (m + 1)) + e."""
    above = x.bits() - ROOT_HALF_BITS
    exponent = above.signed_shift(MANTISSA_BITS).as_real("arith.sitofp")
    m = ((above & (1 << MANTISSA_BITS) - 1) + ROOT_HALF_BITS).as_real()
    s = (m - 1.0) / (m + 1.0)
    series = [2 / math.log(2) / (2 * i + 1) for i in reversed(range(ATANH_TERMS))]
    value = fma(s, polynomial(series, s * s), exponent)
    return where(x.is_("==", 0.0), -math.inf, where(x.is_("==", math.inf), math.inf, value))


def _exp2(x: Number) -> Number:
    """In F64, for |x| ≤ 1000."""
    n = x.emit("math.roundeven")
    series = [1 / math.factorial(i) for i in reversed(range(EXP_TERMS))]
    return polynomial(series, (x - n) * math.log(2)) * ((n.whole() + 1023) << MANTISSA_BITS).as_real()


def ipowi(x: Number, n: Number) -> Number:
    """x^n of integers that wraps around; for n < 0, 1 / x^-n, of which 0 is left but for x = ±1."""
    result, power = Number(x.operand(1)), x
    for position in range(x.element.width - 1):
        result = where(n.bit(position), result * power, result)
        power = power * power
    unit = x.is_("==", 1) | x.is_("==", -1)
    return where(n.is_("<", 0), where(unit, where(n.bit(0), x, 1), 0), result)


def cbrt(x: Number) -> Number:
    """Three of Halley's steps from a third of the exponent; subnormals are scaled by 2^24."""
    magnitude = abs(x)
    tiny = magnitude.is_("<", 2.0**-126)
    scaled = where(tiny, magnitude * 2.0**24, magnitude)
    y = (scaled.bits().emit("arith.divui", 3) + THIRD_OF_BIAS).as_real()
    for _ in range(3):
        ratio = scaled / (y * y)
        y = fma(y, (ratio - y) / fma(2.0, y, ratio), y)
    y = where(tiny, y * 2.0**-8, y)
    ends = magnitude.is_("==", 0.0) | magnitude.is_("ueq", math.inf)
    return where(ends, magnitude, y).signed_as(x)


def remainder(x: Number, y: Number) -> Number:
    """x - y · trunc(x / y), with x's sign; exact where the quotient is a whole number of a float's digits."""
    size, step = abs(x), abs(y)
    rest = fma(-(size / step).emit("math.trunc"), step, size)
    rest = where(rest.is_("<", 0.0), rest + step, rest)
    rest = where(rest.is_(">=", step), rest - step, rest)
    endless = step.is_("==", math.inf) & size.is_("<", math.inf)
    return where(endless, size, rest).signed_as(x)
