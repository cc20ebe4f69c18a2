"""Angles and their functions as arithmetic: sine, cosine, tangent and their inverses.

Coefficients: Cephes' sinf, cosf, atanf and asinf (Moshier, 1989).
"""

from __future__ import annotations

import math

from lispgpt.ir.mlir import ir
from lispgpt.passes.lower.arithmetic import Arithmetic

SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
ATAN = (8.05374449538e-2, -1.38776856032e-1, 1.99777106478e-1, -3.33329491539e-1)
ASIN = (4.2163199048e-2, 2.4181311049e-2, 4.5470025998e-2, 7.4953002686e-2, 1.6666752422e-1)
QUARTER = (1.5707963705062866, -4.371138828673793e-8, -1.7151244994428829e-15)
"""Half of π in three parts, each as near to the rest as F32 comes."""
NEAREST = 1.5 * 2**23
"""Adding this to a small number and taking it away rounds to the nearest integer."""


def sine(a: Arithmetic, x: ir.Value) -> ir.Value:
    return _turned(a, x, 0)


def cosine(a: Arithmetic, x: ir.Value) -> ir.Value:
    return _turned(a, x, 1)


def _turned(a: Arithmetic, x: ir.Value, quarters: int) -> ir.Value:
    """sin(x + quarters · π/2): ± the sine or cosine of what is left of x past its nearest multiple of π/2."""
    whole, near, flat = _parts(a, x)
    count = a("arith.addi", a("arith.fptosi", whole, result=a.int_type), quarters)
    odd, half_turn = a.bit(count, 0), a.bit(count, 1)
    value = a("arith.select", odd, flat, near, result=a.type)
    return a("arith.select", half_turn, a("arith.negf", value), value, result=a.type)


def _parts(a: Arithmetic, x: ir.Value) -> tuple[ir.Value, ir.Value, ir.Value]:
    """How often π/2 goes into x, to the nearest, and the sine and the cosine of what is left."""
    whole = a("arith.subf", a("arith.addf", a("arith.mulf", x, 1 / QUARTER[0]), NEAREST), NEAREST)
    rest = x
    for part in QUARTER:
        rest = a("math.fma", whole, -part, rest)
    square = a("arith.mulf", rest, rest)
    near = a("math.fma", a("arith.mulf", a.polynomial(SIN, square), square), rest, rest)
    flat = a("math.fma", square, -0.5, 1.0)
    return whole, near, a("math.fma", a("arith.mulf", a.polynomial(COS, square), square), square, flat)


def tangent(a: Arithmetic, x: ir.Value) -> ir.Value:
    whole, near, flat = _parts(a, x)
    odd = a.bit(a("arith.fptosi", whole, result=a.int_type), 0)
    above, below = a.select(odd, a("arith.negf", flat), near), a.select(odd, near, flat)
    return a("arith.divf", above, below)


def arctangent(a: Arithmetic, x: ir.Value) -> ir.Value:
    return a.signed_as(_positive_arctangent(a, a.magnitude(x)), x)


def _positive_arctangent(a: Arithmetic, x: ir.Value) -> ir.Value:
    """For x ≥ 0: past tan 3π/8 by -1 / x, past tan π/8 by (x - 1) / (x + 1)."""
    far, middle = a.compare("gt", x, math.tan(3 * math.pi / 8)), a.compare("gt", x, math.tan(math.pi / 8))
    turned = a("arith.divf", a("arith.subf", x, 1.0), a("arith.addf", x, 1.0))
    small = a.select(far, a("arith.divf", -1.0, x), a.select(middle, turned, x))
    start = a.select(far, math.pi / 2, a.select(middle, a.constant(math.pi / 4, a.type), 0.0))
    square = a("arith.mulf", small, small)
    rest = a("math.fma", a("arith.mulf", a.polynomial(ATAN, square), square), small, small)
    return a("arith.addf", start, rest)


def arctangent2(a: Arithmetic, y: ir.Value, x: ir.Value) -> ir.Value:
    """The angle of the point (x, y), from -π to π."""
    across, up = a.magnitude(x), a.magnitude(y)
    low, high = a("arith.minimumf", across, up), a("arith.maximumf", across, up)
    ratio = a("arith.divf", low, high)
    ratio = a.select(a.compare("eq", high, 0.0), 0.0, ratio)
    ratio = a.select(a.compare("eq", low, math.inf), 1.0, ratio)
    angle = _positive_arctangent(a, ratio)
    angle = a.select(a.compare("gt", up, across), a("arith.subf", math.pi / 2, angle), angle)
    behind = a.compare("lt", a("math.copysign", a.constant(1.0, a.type), x), 0.0)
    angle = a.select(behind, a("arith.subf", math.pi, angle), angle)
    return a.signed_as(angle, y)


def _small_arcsine(a: Arithmetic, x: ir.Value, square: ir.Value) -> ir.Value:
    """For 0 ≤ x ≤ ½."""
    return a("math.fma", a("arith.mulf", a.polynomial(ASIN, square), square), x, x)


def _past_half(a: Arithmetic, magnitude: ir.Value) -> ir.Value:
    """arcsin √((1 - |x|) / 2), half of arccos |x|; NaN past 1."""
    square = a("arith.mulf", a("arith.subf", 1.0, magnitude), 0.5)
    return _small_arcsine(a, a("math.sqrt", square), square)


def arcsine(a: Arithmetic, x: ir.Value) -> ir.Value:
    magnitude = a.magnitude(x)
    near = _small_arcsine(a, magnitude, a("arith.mulf", x, x))
    far = a("math.fma", -2.0, _past_half(a, magnitude), math.pi / 2)
    return a.signed_as(a.select(a.compare("gt", magnitude, 0.5), far, near), x)


def arccosine(a: Arithmetic, x: ir.Value) -> ir.Value:
    magnitude = a.magnitude(x)
    half = _past_half(a, magnitude)
    far = a("arith.addf", half, half)
    far = a.select(a.compare("lt", x, 0.0), a("arith.subf", math.pi, far), far)
    near = a("arith.subf", math.pi / 2, a.signed_as(_small_arcsine(a, magnitude, a("arith.mulf", x, x)), x))
    return a.select(a.compare("gt", magnitude, 0.5), far, near)
