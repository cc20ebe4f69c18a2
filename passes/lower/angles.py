"""Angles and their functions as arithmetic: sine, cosine, tangent and their inverses.

Coefficients: Cephes' sinf, cosf, atanf and asinf (Moshier, 1989).
"""

from __future__ import annotations

import math

from lispgpt.ir.arithmetic import Number, fma, polynomial, where

SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
QUARTER = (1.5707963705062866, -4.371138828673793e-8, -1.7151244994428829e-15)
"""Half of π in three parts, each as near to the rest as F32 comes."""
NEAREST = 1.5 * 2**23
"""Adding this to a small number and taking it away rounds to the nearest integer, to some integer near it to a large
one."""
FAR = 2.0**30
"""From which on F32 are multiples of four."""


def sine(x: Number) -> Number:
    return _turned(x, 0)


def cosine(x: Number) -> Number:
    return _turned(x, 1)


def _turned(x: Number, quarters: int) -> Number:
    """sin(x + quarters · π/2): ± the sine or cosine of what is left of x past its nearest multiple of π/2."""
    count, near, flat = _parts(x)
    count = count + quarters
    odd, half_turn = count.bit(0), count.bit(1)
    value = where(odd, flat, near)
    return where(half_turn, -value, value)


def _parts(x: Number) -> tuple[Number, Number, Number]:
    """How often π/2 goes into x, to the nearest and but for multiples of four, and the sine and the cosine of what is
    left.  Past 10^6 one round leaves more than π/4, past 10^13 so do two: what is left is unknown then."""
    rest, counts = x, []
    for _ in range(2):
        whole = rest * (1 / QUARTER[0]) + NEAREST - NEAREST
        for part in QUARTER:
            rest = fma(whole, -part, rest)
        counts.append(whole.clamp(-FAR, FAR).whole())
    rest = rest.clamp(-1.0, 1.0)
    square = rest * rest
    near = fma(polynomial(SIN, square) * square, rest, rest)
    flat = fma(square, -0.5, 1.0)
    return counts[0] + counts[1], near, fma(polynomial(COS, square) * square, square, flat)


def tangent(x: Number) -> Number:
    count, near, flat = _parts(x)
    odd = count.bit(0)
    return where(odd, -flat, near) / where(odd, near, flat)


def arctangent(x: Number) -> Number:
    return _positive_arctangent(abs(x)).signed_as(x)


def _positive_arctangent(x: Number) -> Number:
    """For x ≥ 0: past tan 3π/8 by -1 / x, past tan π/8 by (x - 1) / (x + 1)."""
    far, middle = x.is_(">", math.tan(3 * math.pi / 8)), x.is_(">", math.tan(math.pi / 8))
    small = where(far, -1.0 / x, where(middle, (x - 1.0) / (x + 1.0), x))
    start = where(far, math.pi / 2, where(middle, Number(x.operand(math.pi / 4)), 0.0))
    square = small * small
    return start + fma(polynomial(ATAN, square) * square, small, small)


def arctangent2(y: Number, x: Number) -> Number:
    """The angle of the point (x, y), from -π to π."""
    across, up = abs(x), abs(y)
    low, high = across.emit("arith.minimumf", up), across.emit("arith.maximumf", up)
    ratio = where(high.is_("==", 0.0), 0.0, low / high)
    angle = _positive_arctangent(where(low.is_("==", math.inf), 1.0, ratio))
    angle = where(up.is_(">", across), math.pi / 2 - angle, angle)
    behind = Number(x.operand(1.0)).signed_as(x).is_("<", 0.0)
    return where(behind, math.pi - angle, angle).signed_as(y)


def _small_arcsine(x: Number, square: Number) -> Number:
    """For 0 ≤ x ≤ ½."""
    return fma(polynomial(ASIN, square) * square, x, x)


def _past_half(magnitude: Number) -> Number:
    """arcsin √((1 - |x|) / 2), half of arccos |x|; NaN past 1."""
    square = (1.0 - magnitude) * 0.5
    return _small_arcsine(square.emit("math.sqrt"), square)


def arcsine(x: Number) -> Number:
    magnitude = abs(x)
    near = _small_arcsine(magnitude, x * x)
    far = fma(-2.0, _past_half(magnitude), math.pi / 2)
    return where(magnitude.is_(">", 0.5), far, near).signed_as(x)


def arccosine(x: Number) -> Number:
    magnitude = abs(x)
    half = _past_half(magnitude)
    far = half + half
    far = where(x.is_("<", 0.0), math.pi - far, far)
    near = math.pi / 2 - _small_arcsine(magnitude, x * x).signed_as(x)
    return where(magnitude.is_(">", 0.5), far, near)
