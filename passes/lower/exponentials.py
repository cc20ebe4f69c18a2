"""e^x and its kin as arithmetic: exponentials, logarithms, powers, hyperbolic functions, the error function.

Coefficients: Cephes' expf, tanhf, sinhf, logf, log2f, log10f and erff (Moshier, 1989).
"""

from __future__ import annotations

import math
from collections.abc import Callable

from lispgpt.ir.mlir import ir
from lispgpt.passes.lower.arithmetic import Arithmetic

EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
SINH = (2.03721912945e-4, 8.33028376239e-3, 1.66667160211e-1)
LOG = (
    *(7.0376836292e-2, -1.1514610310e-1, 1.1676998740e-1, -1.2420140846e-1, 1.4249322787e-1),
    *(-1.6668057665e-1, 2.0000714765e-1, -2.4999993993e-1, 3.3333331174e-1),
)
ERF = (
    *(7.853861353153693e-5, -8.010193625184903e-4, 5.188327685732524e-3, -2.685381193529856e-2),
    *(1.128358514861418e-1, -3.761262582423300e-1, 1.128379165726710),
)
ERF_SLOPE = (1.128379225730896, -5.8635383e-8)
"""2 / √π in two parts, the first an F32."""
ERFC_NEAR = (
    *(2.326819970068386e-2, -1.387039388740657e-1, 3.687424674597105e-1, -5.824733027278666e-1),
    *(6.210004621745983e-1, -4.944515323274145e-1, 3.404879937665872e-1, -2.741127028184656e-1),
    5.638259427386472e-1,
)
ERFC_FAR = (
    *(-1.047766399936249e1, 1.297719955372516e1, -7.495518717768503, 2.921019019210786),
    *(-1.015265279202700, 4.218463358204948e-1, -2.820767439740514e-1, 5.641895067754075e-1),
)
LOG2_E, LN_2 = 1.44269504088896341, 0.69314718055994531
LN_2_HIGH, LN_2_LOW = 0.693359375, -2.12194440e-4
LOG2_E_LESS_1 = 0.44269504088896340736
LOG10_2 = (3.0078125e-1, 2.48745663981195213739e-4)
LOG10_E = (4.3359375e-1, 7.00731903251827651129e-4)
SMALLEST_NORMAL = 2.0**-126
ROOT_HALF_BITS = 0x3F3504F3
"""√½ as F32."""


def _exp_of_parts(a: Arithmetic, n: ir.Value, r: ir.Value) -> ir.Value:
    """2^n · e^r for |r| ≤ ln 2 / 2; two factors of 2^(n/2) reach infinity and the subnormals."""
    y = a("arith.addf", a("math.fma", a.polynomial(EXP, r), a("arith.mulf", r, r), r), 1.0)
    whole = a("arith.fptosi", n, result=a.int_type)
    half = a("arith.shrsi", whole, 1)
    y = a("arith.mulf", y, a.power_of_two(half))
    return a("arith.mulf", y, a.power_of_two(a("arith.subi", whole, half)))


def _reduced(a: Arithmetic, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """n and r with x = n · ln 2 + r."""
    n = a("math.roundeven", a("arith.mulf", x, LOG2_E))
    return n, a("math.fma", n, -LN_2_LOW, a("math.fma", n, -LN_2_HIGH, x))


def exp(a: Arithmetic, x: ir.Value) -> ir.Value:
    x = a("arith.minimumf", a("arith.maximumf", x, -104.0), 89.0)
    return _exp_of_parts(a, *_reduced(a, x))


def _half_exp(a: Arithmetic, x: ir.Value) -> ir.Value:
    """e^x / 2, which is finite a little longer than e^x."""
    n, r = _reduced(a, a("arith.minimumf", a("arith.maximumf", x, -104.0), 90.0))
    return _exp_of_parts(a, a("arith.subf", n, 1.0), r)


def exp2(a: Arithmetic, x: ir.Value) -> ir.Value:
    x = a("arith.minimumf", a("arith.maximumf", x, -150.1), 129.0)
    n = a("math.roundeven", x)
    return _exp_of_parts(a, n, a("arith.mulf", a("arith.subf", x, n), LN_2))


def exp_by_exp2(a: Arithmetic, x: ir.Value) -> ir.Value:
    return a("math.exp2", a("arith.mulf", x, LOG2_E))


def expm1(a: Arithmetic, x: ir.Value) -> ir.Value:
    """2^n · (e^r - 1) + (2^n - 1), at half the size, so that 2^128 is not met on the way."""
    clamped = a("arith.minimumf", a("arith.maximumf", x, -30.0), 89.0)
    n, r = _reduced(a, clamped)
    less = a("math.fma", a.polynomial(EXP, r), a("arith.mulf", r, r), r)
    half = a.power_of_two(a("arith.subi", a("arith.fptosi", n, result=a.int_type), 1))
    total = a("math.fma", half, less, a("arith.subf", half, 0.5))
    grown = a("arith.addf", total, total)
    return a.select(a.compare("lt", a.magnitude(x), 1e-5), a("math.fma", a("arith.mulf", x, x), 0.5, x), grown)


def tanh(a: Arithmetic, x: ir.Value) -> ir.Value:
    """A polynomial near 0, else ±(1 - 2 / (e^(2|x|) + 1))."""
    magnitude = a("math.absf", x)
    square = a("arith.mulf", x, x)
    near = a("math.fma", a("arith.mulf", a.polynomial(TANH, square), square), x, x)
    exponential: Callable[[Arithmetic, ir.Value], ir.Value] = exp_by_exp2 if a.hardware_exp2 else exp
    grown = exponential(a, a("arith.addf", magnitude, magnitude))
    far = a("arith.subf", 1.0, a("arith.divf", 2.0, a("arith.addf", grown, 1.0)))
    signed = a("math.copysign", far, x)
    return a.select(a.compare("lt", magnitude, 0.625), near, signed)


def sinh(a: Arithmetic, x: ir.Value) -> ir.Value:
    """A polynomial near 0, else ±(e^|x| / 2 - e^-|x| / 2)."""
    magnitude = a.magnitude(x)
    square = a("arith.mulf", x, x)
    near = a("math.fma", a("arith.mulf", a.polynomial(SINH, square), square), x, x)
    half = _half_exp(a, magnitude)
    far = a("arith.subf", half, a("arith.divf", 0.25, half))
    return a.select(a.compare("lt", magnitude, 1.0), near, a.signed_as(far, x))


def cosh(a: Arithmetic, x: ir.Value) -> ir.Value:
    half = _half_exp(a, a.magnitude(x))
    return a("arith.addf", half, a("arith.divf", 0.25, half))


def rsqrt(a: Arithmetic, x: ir.Value) -> ir.Value:
    return a("arith.divf", 1.0, a("math.sqrt", x))


# ---- logarithms


def _mantissa(a: Arithmetic, x: ir.Value) -> tuple[ir.Value, ir.Value]:
    """m - 1 and e, both as floats, with x = m · 2^e and √½ ≤ m < √2, for a finite x > 0."""
    tiny = a.compare("lt", x, SMALLEST_NORMAL)
    bits = a("arith.bitcast", a.select(tiny, a("arith.mulf", x, 2.0**23), x), result=a.int_type)
    above = a("arith.subi", bits, ROOT_HALF_BITS)
    exponent = a("arith.shrsi", above, 23)
    mantissa = a("arith.addi", a("arith.andi", above, 0x7FFFFF), ROOT_HALF_BITS)
    whole = a("arith.sitofp", a("arith.subi", exponent, a.select(tiny, a.constant(23, a.int_type), 0)), result=a.type)
    return a("arith.subf", a("arith.bitcast", mantissa, result=a.type), 1.0), whole


def _log_tail(a: Arithmetic, x: ir.Value) -> ir.Value:
    """log(1 + x) - x for √½ - 1 ≤ x < √2 - 1."""
    square = a("arith.mulf", x, x)
    return a("math.fma", square, -0.5, a("arith.mulf", a("arith.mulf", a.polynomial(LOG, x), square), x))


def _at_ends(a: Arithmetic, x: ir.Value, value: ir.Value) -> ir.Value:
    """A logarithm where its argument is infinite, 0, negative or no number."""
    value = a.select(a.compare("eq", x, math.inf), math.inf, value)
    value = a.select(a.compare("eq", x, 0.0), -math.inf, value)
    return a.select(a.compare("ult", x, 0.0), math.nan, value)


def log(a: Arithmetic, x: ir.Value) -> ir.Value:
    m, e = _mantissa(a, x)
    low = a("math.fma", e, LN_2_LOW, _log_tail(a, m))
    return _at_ends(a, x, a("math.fma", e, LN_2_HIGH, a("arith.addf", m, low)))


def log2(a: Arithmetic, x: ir.Value) -> ir.Value:
    m, e = _mantissa(a, x)
    tail = _log_tail(a, m)
    total = a("math.fma", tail, LOG2_E_LESS_1, a("arith.mulf", m, LOG2_E_LESS_1))
    return _at_ends(a, x, a("arith.addf", e, a("arith.addf", m, a("arith.addf", total, tail))))


def log10(a: Arithmetic, x: ir.Value) -> ir.Value:
    m, e = _mantissa(a, x)
    tail = _log_tail(a, m)
    total = a("arith.mulf", a("arith.addf", m, tail), LOG10_E[1])
    for value, factor in ((tail, LOG10_E[0]), (m, LOG10_E[0]), (e, LOG10_2[1]), (e, LOG10_2[0])):
        total = a("math.fma", value, factor, total)
    return _at_ends(a, x, total)


def log1p(a: Arithmetic, x: ir.Value) -> ir.Value:
    """log u · x / (u - 1) with u = 1 + x rounded: "What Every Computer Scientist …", Goldberg 1991, theorem 4."""
    u = a("arith.addf", x, 1.0)
    less = a("arith.subf", u, 1.0)
    scaled = a("arith.mulf", log(a, u), a("arith.divf", x, less))
    near = a.compare("eq", less, 0.0)
    value = a.select(near, x, scaled)
    return a.select(a.compare("eq", x, math.inf), math.inf, value)


def asinh(a: Arithmetic, x: ir.Value) -> ir.Value:
    """±log(1 + |x| + x² / (1 + √(x² + 1)))."""
    magnitude = a.magnitude(x)
    square = a("arith.mulf", magnitude, magnitude)
    root = a("math.sqrt", a("arith.addf", square, 1.0))
    near = log1p(a, a("arith.addf", magnitude, a("arith.divf", square, a("arith.addf", root, 1.0))))
    far = a("arith.addf", log(a, magnitude), LN_2)
    return a.signed_as(a.select(a.compare("lt", magnitude, 1e9), near, far), x)


def acosh(a: Arithmetic, x: ir.Value) -> ir.Value:
    """log(1 + t + √(2t + t²)) with t = x - 1."""
    t = a("arith.subf", x, 1.0)
    root = a("math.sqrt", a("math.fma", t, t, a("arith.addf", t, t)))
    near = log1p(a, a("arith.addf", t, root))
    value = a.select(a.compare("lt", x, 1e9), near, a("arith.addf", log(a, x), LN_2))
    return a.select(a.compare("ult", x, 1.0), math.nan, value)


def atanh(a: Arithmetic, x: ir.Value) -> ir.Value:
    magnitude = a.magnitude(x)
    ratio = a("arith.divf", a("arith.addf", magnitude, magnitude), a("arith.subf", 1.0, magnitude))
    return a.signed_as(a("arith.mulf", log1p(a, ratio), 0.5), x)


# ---- the error function


def erf(a: Arithmetic, x: ir.Value) -> ir.Value:
    magnitude = a.magnitude(x)
    near = a("arith.mulf", x, a.polynomial(ERF, a("arith.mulf", x, x)))
    far = a("arith.subf", 1.0, _erfc_above_1(a, magnitude))
    return a.select(a.compare("lt", magnitude, 1.0), near, a.signed_as(far, x))


def erfc(a: Arithmetic, x: ir.Value) -> ir.Value:
    magnitude = a.magnitude(x)
    square = a("arith.mulf", x, x)
    near = a("math.fma", x, -ERF_SLOPE[0], 1.0)
    near = a("math.fma", x, -ERF_SLOPE[1], near)
    near = a("math.fma", a("arith.negf", a("arith.mulf", x, square)), a.polynomial(ERF[:-1], square), near)
    far = _erfc_above_1(a, magnitude)
    far = a.select(a.compare("lt", x, 0.0), a("arith.subf", 2.0, far), far)
    return a.select(a.compare("lt", magnitude, 1.0), near, far)


def _erfc_above_1(a: Arithmetic, x: ir.Value) -> ir.Value:
    """e^(-x²) · polynomial(1 / x²) / x for x ≥ 1; what the square lost in rounding is put back."""
    x = a("arith.minimumf", a("arith.maximumf", x, 1.0), 11.0)
    square = a("arith.mulf", x, x)
    lost = a("math.fma", x, x, a("arith.negf", square))
    power = exp(a, a("arith.negf", square))
    power = a("math.fma", power, a("arith.negf", lost), power)
    inverse = a("arith.divf", 1.0, x)
    squared = a("arith.mulf", inverse, inverse)
    factor = a.select(a.compare("lt", x, 2.0), a.polynomial(ERFC_NEAR, squared), a.polynomial(ERFC_FAR, squared))
    return a("arith.mulf", power, a("arith.mulf", inverse, factor))
