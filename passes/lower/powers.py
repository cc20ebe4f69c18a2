"""Powers, roots and remainders: x^y by F64, integers' powers by squaring, cube roots by Halley's steps."""

from __future__ import annotations

import math

from lispgpt.ir.mlir import ir
from lispgpt.passes.lower.arithmetic import Arithmetic

ATANH_TERMS = 9
EXP_TERMS = 12
MANTISSA_BITS = 52
ROOT_HALF_BITS = 0x3FE6A09E667F3BCD
"""√½ as F64."""
THIRD_OF_BIAS = 709921077
"""Bits of an F32 divided by 3 and added to this are those of its cube root, within 6 %."""


def powf(a: Arithmetic, x: ir.Value, y: ir.Value) -> ir.Value:
    """|x|^y as 2^(y · log2 |x|), all in F64, which leaves the rounding of the result; signs and ends after C's pow."""
    wide = a.of(ir.F64Type.get())
    y64 = wide("arith.extf", y, result=wide.type)
    value = _positive_power(a, wide, a.magnitude(x), y64)
    whole = a.compare("eq", a("math.floor", y), y)
    half = a("arith.mulf", y, 0.5)
    odd = a("arith.andi", whole, a.compare("une", a("math.floor", half), half))
    return _signed_power(a, x, y, value, whole, odd)


def fpowi(a: Arithmetic, x: ir.Value, n: ir.Value) -> ir.Value:
    """x^n for a signed integer n."""
    wide = a.of(ir.F64Type.get())
    value = _positive_power(a, wide, a.magnitude(x), wide("arith.sitofp", n, result=wide.type))
    odd = a.bit(n, 0)
    negative = a("arith.andi", a.compare("lt", x, 0.0), odd)
    value = a.select(negative, a("arith.negf", value), value)
    return a.select(a.compare("eq", n, 0), 1.0, value)


def _signed_power(a: Arithmetic, x: ir.Value, y: ir.Value, value: ir.Value, whole: ir.Value, odd: ir.Value) -> ir.Value:
    below = a("arith.andi", a.compare("lt", x, 0.0), a.compare("une", x, -math.inf))
    value = a.select(odd, a.signed_as(value, x), value)
    fraction = a("arith.andi", below, a("arith.xori", whole, a.constant(1, whole.type)))
    value = a.select(fraction, math.nan, value)
    value = a.select(a.compare("uno", x, y), math.nan, value)
    unit = a("arith.andi", a.compare("eq", a.magnitude(y), math.inf), a.compare("eq", x, -1.0))
    one = a("arith.ori", a.compare("eq", y, 0.0), a.compare("eq", x, 1.0))
    return a.select(a("arith.ori", one, unit), 1.0, value)


def _positive_power(a: Arithmetic, wide: Arithmetic, x: ir.Value, y: ir.Value) -> ir.Value:
    """x^y rounded to F32 for x ≥ 0."""
    exponent = wide("arith.mulf", y, _log2(wide, wide("arith.extf", x, result=wide.type)))
    exponent = wide("arith.minimumf", wide("arith.maximumf", exponent, -1000.0), 1000.0)
    return a("arith.truncf", _exp2(wide, exponent), result=a.type)


def _log2(a: Arithmetic, x: ir.Value) -> ir.Value:
    """In F64, of what an F32 can be; 2 · artanh((m - 1) / (m + 1)) + e."""
    above = a("arith.subi", a("arith.bitcast", x, result=a.int_type), ROOT_HALF_BITS)
    exponent = a("arith.sitofp", a("arith.shrsi", above, MANTISSA_BITS), result=a.type)
    bits = a("arith.addi", a("arith.andi", above, (1 << MANTISSA_BITS) - 1), ROOT_HALF_BITS)
    m = a("arith.bitcast", bits, result=a.type)
    s = a("arith.divf", a("arith.subf", m, 1.0), a("arith.addf", m, 1.0))
    series = [2 / math.log(2) / (2 * i + 1) for i in reversed(range(ATANH_TERMS))]
    value = a("math.fma", s, a.polynomial(series, a("arith.mulf", s, s)), exponent)
    value = a.select(a.compare("eq", x, math.inf), math.inf, value)
    return a.select(a.compare("eq", x, 0.0), -math.inf, value)


def _exp2(a: Arithmetic, x: ir.Value) -> ir.Value:
    """In F64, for |x| ≤ 1000."""
    n = a("math.roundeven", x)
    r = a("arith.mulf", a("arith.subf", x, n), math.log(2))
    series = [1 / math.factorial(i) for i in reversed(range(EXP_TERMS))]
    whole = a("arith.fptosi", n, result=a.int_type)
    scale = a("arith.bitcast", a("arith.shli", a("arith.addi", whole, 1023), MANTISSA_BITS), result=a.type)
    return a("arith.mulf", a.polynomial(series, r), scale)


def ipowi(a: Arithmetic, x: ir.Value, n: ir.Value) -> ir.Value:
    """x^n of integers that wraps around; for n < 0, 1 / x^-n, of which 0 is left but for x = ±1."""
    kind = x.type.element_type if isinstance(x.type, ir.VectorType) else x.type
    result, power = a.constant(1, x.type), x
    for position in range(kind.width - 1):
        result = a.select(a.bit(n, position), a("arith.muli", result, power), result)
        power = a("arith.muli", power, power)
    unit = a("arith.ori", a.compare("eq", x, 1), a.compare("eq", x, -1))
    inverse = a.select(unit, a.select(a.bit(n, 0), x, 1), 0)
    return a.select(a.compare("lt", n, 0), inverse, result)


def cbrt(a: Arithmetic, x: ir.Value) -> ir.Value:
    """Three of Halley's steps from a third of the exponent; subnormals are scaled by 2^24."""
    magnitude = a.magnitude(x)
    tiny = a.compare("lt", magnitude, 2.0**-126)
    scaled = a.select(tiny, a("arith.mulf", magnitude, 2.0**24), magnitude)
    bits = a("arith.divui", a("arith.bitcast", scaled, result=a.int_type), 3)
    y = a("arith.bitcast", a("arith.addi", bits, THIRD_OF_BIAS), result=a.type)
    for _ in range(3):
        ratio = a("arith.divf", scaled, a("arith.mulf", y, y))
        step = a("arith.divf", a("arith.subf", ratio, y), a("math.fma", 2.0, y, ratio))
        y = a("math.fma", y, step, y)
    y = a.select(tiny, a("arith.mulf", y, 2.0**-8), y)
    ends = a("arith.ori", a.compare("eq", magnitude, 0.0), a.compare("ueq", magnitude, math.inf))
    return a.signed_as(a.select(ends, magnitude, y), x)


def remainder(a: Arithmetic, x: ir.Value, y: ir.Value) -> ir.Value:
    """x - y · trunc(x / y), with x's sign; exact where the quotient is a whole number of a float's digits."""
    size, step = a.magnitude(x), a.magnitude(y)
    count = a("math.trunc", a("arith.divf", size, step))
    rest = a("math.fma", a("arith.negf", count), step, size)
    rest = a.select(a.compare("lt", rest, 0.0), a("arith.addf", rest, step), rest)
    rest = a.select(a.compare("ge", rest, step), a("arith.subf", rest, step), rest)
    endless = a("arith.andi", a.compare("eq", step, math.inf), a.compare("lt", size, math.inf))
    return a.signed_as(a.select(endless, size, rest), x)
