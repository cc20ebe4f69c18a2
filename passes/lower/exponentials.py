"""e^x and its kin as arithmetic: exponentials, logarithms, powers, hyperbolic functions, the error function.

Coefficients: Cephes' expf, tanhf, sinhf, logf, log2f, log10f and erff (Moshier, 1989).
"""

from __future__ import annotations

import math

from lispgpt.ir.arithmetic import Number, fma, polynomial, where

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


def _exp_of_parts(n: Number, r: Number) -> Number:
    """2^n · e^r for |r| ≤ ln 2 / 2; two factors of 2^(n/2) reach infinity and the subnormals."""
    y = fma(polynomial(EXP, r), r * r, r) + 1.0
    whole = n.whole()
    half = whole.signed_shift(1)
    return y * half.power_of_two() * (whole - half).power_of_two()


def _reduced(x: Number) -> tuple[Number, Number]:
    """n and r with x = n · ln 2 + r."""
    n = (x * LOG2_E).emit("math.roundeven")
    return n, fma(n, -LN_2_LOW, fma(n, -LN_2_HIGH, x))


def exp(x: Number) -> Number:
    return _exp_of_parts(*_reduced(x.clamp(-104.0, 89.0)))


def _half_exp(x: Number) -> Number:
    """e^x / 2, which is finite a little longer than e^x."""
    n, r = _reduced(x.clamp(-104.0, 90.0))
    return _exp_of_parts(n - 1.0, r)


def exp2(x: Number) -> Number:
    x = x.clamp(-150.1, 129.0)
    n = x.emit("math.roundeven")
    return _exp_of_parts(n, (x - n) * LN_2)


def expm1(x: Number) -> Number:
    """2^n · (e^r - 1) + (2^n - 1), at half the size, so that 2^128 is not met on the way."""
    n, r = _reduced(x.clamp(-30.0, 89.0))
    less = fma(polynomial(EXP, r), r * r, r)
    half = (n.whole() - 1).power_of_two()
    total = fma(half, less, half - 0.5)
    return where(abs(x).is_("<", 1e-5), fma(x * x, 0.5, x), total + total)


def tanh(x: Number) -> Number:
    """A polynomial near 0, else ±(1 - 2 / (e^(2|x|) + 1))."""
    magnitude, square = abs(x), x * x
    near = fma(polynomial(TANH, square) * square, x, x)
    far = 1.0 - 2.0 / (exp(magnitude + magnitude) + 1.0)
    return where(magnitude.is_("<", 0.625), near, far.signed_as(x))


def sinh(x: Number) -> Number:
    """A polynomial near 0, else ±(e^|x| / 2 - e^-|x| / 2)."""
    magnitude, square = abs(x), x * x
    near = fma(polynomial(SINH, square) * square, x, x)
    half = _half_exp(magnitude)
    return where(magnitude.is_("<", 1.0), near, (half - 0.25 / half).signed_as(x))


def cosh(x: Number) -> Number:
    half = _half_exp(abs(x))
    return half + 0.25 / half


# ---- logarithms


def _mantissa(x: Number) -> tuple[Number, Number]:
    """m - 1 and e, both as floats, with x = m · 2^e and √½ ≤ m < √2, for a finite x > 0."""
    tiny = x.is_("<", SMALLEST_NORMAL)
    above = where(tiny, x * 2.0**23, x).bits() - ROOT_HALF_BITS
    exponent = above.signed_shift(23) - where(tiny, Number(above.operand(23)), 0)
    mantissa = (above & 0x7FFFFF) + ROOT_HALF_BITS
    return mantissa.as_real() - 1.0, exponent.as_real("arith.sitofp")


def _log_tail(x: Number) -> Number:
    """log(1 + x) - x for √½ - 1 ≤ x < √2 - 1."""
    square = x * x
    return fma(square, -0.5, polynomial(LOG, x) * square * x)


def _at_ends(x: Number, value: Number) -> Number:
    """A logarithm where its argument is infinite, 0, negative or no number."""
    value = where(x.is_("==", 0.0), -math.inf, where(x.is_("==", math.inf), math.inf, value))
    return where(x.is_("ult", 0.0), math.nan, value)


def log(x: Number) -> Number:
    m, e = _mantissa(x)
    return _at_ends(x, fma(e, LN_2_HIGH, m + fma(e, LN_2_LOW, _log_tail(m))))


def log2(x: Number) -> Number:
    m, e = _mantissa(x)
    tail = _log_tail(m)
    return _at_ends(x, e + (m + (fma(tail, LOG2_E_LESS_1, m * LOG2_E_LESS_1) + tail)))


def log10(x: Number) -> Number:
    m, e = _mantissa(x)
    tail = _log_tail(m)
    total = (m + tail) * LOG10_E[1]
    for value, factor in ((tail, LOG10_E[0]), (m, LOG10_E[0]), (e, LOG10_2[1]), (e, LOG10_2[0])):
        total = fma(value, factor, total)
    return _at_ends(x, total)


def log1p(x: Number) -> Number:
    """log u · x / (u - 1) with u = 1 + x rounded: "What Every Computer Scientist …", Goldberg 1991, theorem 4."""
    u = x + 1.0
    less = u - 1.0
    value = where(less.is_("==", 0.0), x, log(u) * (x / less))
    return where(x.is_("==", math.inf), math.inf, value)


def asinh(x: Number) -> Number:
    """±log(1 + |x| + x² / (1 + √(x² + 1)))."""
    magnitude = abs(x)
    square = magnitude * magnitude
    root = (square + 1.0).emit("math.sqrt")
    near = log1p(magnitude + square / (root + 1.0))
    return where(magnitude.is_("<", 1e9), near, log(magnitude) + LN_2).signed_as(x)


def acosh(x: Number) -> Number:
    """log(1 + t + √(2t + t²)) with t = x - 1."""
    t = x - 1.0
    near = log1p(t + fma(t, t, t + t).emit("math.sqrt"))
    value = where(x.is_("<", 1e9), near, log(x) + LN_2)
    return where(x.is_("ult", 1.0), math.nan, value)


def atanh(x: Number) -> Number:
    magnitude = abs(x)
    return (log1p((magnitude + magnitude) / (1.0 - magnitude)) * 0.5).signed_as(x)


# ---- the error function


def erf(x: Number) -> Number:
    magnitude = abs(x)
    near = x * polynomial(ERF, x * x)
    return where(magnitude.is_("<", 1.0), near, (1.0 - _erfc_above_1(magnitude)).signed_as(x))


def erfc(x: Number) -> Number:
    magnitude, square = abs(x), x * x
    near = fma(x, -ERF_SLOPE[1], fma(x, -ERF_SLOPE[0], 1.0))
    near = fma(-(x * square), polynomial(ERF[:-1], square), near)
    far = _erfc_above_1(magnitude)
    far = where(x.is_("<", 0.0), 2.0 - far, far)
    return where(magnitude.is_("<", 1.0), near, far)


def _erfc_above_1(x: Number) -> Number:
    """e^(-x²) · polynomial(1 / x²) / x for x ≥ 1; what the square lost in rounding is put back."""
    x = x.clamp(1.0, 11.0)
    square = x * x
    lost = fma(x, x, -square)
    power = exp(-square)
    power = fma(power, -lost, power)
    inverse = 1.0 / x
    squared = inverse * inverse
    factor = where(x.is_("<", 2.0), polynomial(ERFC_NEAR, squared), polynomial(ERFC_FAR, squared))
    return power * (inverse * factor)
