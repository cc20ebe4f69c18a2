"""expand-math: write exp, exp2, tanh, sin and cos on F32 as arithmetic, without a library call for each lane.

Before:                                    After:
  %y = math.exp %x : vector<16xf32>          %n = math.roundeven (%x · log2 e)     %r = %x - %n · ln 2 (in two steps)
                                             %p = polynomial(%r)                   %y = %p · 2^(n/2) · 2^(n - n/2)

Requires: f32 scalars or vectors of it; other types are left alone.
Ensures: errors of at most 2 units in the last place; exp of -infinity is 0; NaN stays NaN.  With `hardware-exp2` exp
and exp2 become math.exp2, which GPUs have as an instruction.  sin and cos are for arguments up to 10^6 either way.
Coefficients: Cephes' expf, tanhf, sinf and cosf (Moshier, 1989).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.base import Pass

EXP = (1.9875691500e-4, 1.3981999507e-3, 8.3334519073e-3, 4.1665795894e-2, 1.6666665459e-1, 5.0000001201e-1)
TANH = (-5.70498872745e-3, 2.06390887954e-2, -5.37397155531e-2, 1.33314422036e-1, -3.33332819422e-1)
SIN = (-1.9515295891e-4, 8.3321608736e-3, -1.6666654611e-1)
COS = (2.443315711809948e-5, -1.388731625493765e-3, 4.166664568298827e-2)
QUARTER = (1.5707963705062866, -4.371138828673793e-8, -1.7151244994428829e-15)
"""Half of π in three parts, each as near to the rest as F32 comes."""
NEAREST = 1.5 * 2**23
"""Adding this to a small number and taking it away rounds to the nearest integer."""
LOG2_E, LN_2 = 1.44269504088896341, 0.69314718055994531
LN_2_HIGH, LN_2_LOW = 0.693359375, -2.12194440e-4


@dataclass(frozen=True)
class ExpandMath(Pass):
    """hardware_exp2: keep math.exp2 as the primitive."""

    name: ClassVar[str] = "expand-math"
    hardware_exp2: bool = False

    def run(self, module: ir.Module, target: object) -> None:
        expansions = {"math.exp": _exp, "math.exp2": _exp2, "math.tanh": _tanh, "math.rsqrt": _rsqrt}
        expansions |= {"math.sin": sine, "math.cos": cosine}
        if self.hardware_exp2:
            expansions |= {"math.exp": _exp_by_exp2}
            del expansions["math.exp2"], expansions["math.rsqrt"]
        found: list[ir.Operation] = []

        def collect(op: ir.Operation) -> ir.WalkResult:
            if op.operation.name in expansions and _is_f32(op.operation.results[0].type):
                found.append(op.operation)
            return ir.WalkResult.ADVANCE

        module.operation.walk(collect)
        for op in found:
            with ir.InsertionPoint(op), op.location:
                value = expansions[op.name](Arithmetic(op.operands[0].type, self.hardware_exp2), op.operands[0])
            op.results[0].replace_all_uses_with(value)
            op.erase()


def _is_f32(type_: ir.Type) -> bool:
    return (type_.element_type if isinstance(type_, ir.VectorType) else type_) == ir.F32Type.get()


class Arithmetic:
    """Ops on one type, scalar or vector, with Python numbers as operands."""

    def __init__(self, type_: ir.Type, hardware_exp2: bool) -> None:
        self.type = type_
        self.hardware_exp2 = hardware_exp2
        i32 = ir.IntegerType.get_signless(32)
        self.int_type = ir.VectorType.get(type_.shape, i32) if isinstance(type_, ir.VectorType) else i32

    def constant(self, number: float | int, type_: ir.Type) -> ir.Value:
        element = type_.element_type if isinstance(type_, ir.VectorType) else type_
        make = ir.IntegerAttr if isinstance(element, ir.IntegerType) else ir.FloatAttr
        value = make.get(element, number)
        if isinstance(type_, ir.VectorType):
            value = ir.DenseElementsAttr.get_splat(type_, value)
        return create_op("arith.constant", [], [type_], {"value": value}).results[0]

    def __call__(self, name: str, *operands: ir.Value | float | int, result: ir.Type | None = None) -> ir.Value:
        kind = next((o.type for o in operands if isinstance(o, ir.Value)), self.type)
        values = [o if isinstance(o, ir.Value) else self.constant(o, kind) for o in operands]
        return create_op(name, values, [result or kind]).results[0]

    def polynomial(self, coefficients: Sequence[float], x: ir.Value) -> ir.Value:
        total = self.constant(coefficients[0], self.type)
        for coefficient in coefficients[1:]:
            total = self("math.fma", total, x, coefficient)
        return total

    def compare(self, predicate: int, a: ir.Value, b: float) -> ir.Value:
        i1 = ir.IntegerType.get_signless(1)
        type_ = ir.VectorType.get(self.type.shape, i1) if isinstance(self.type, ir.VectorType) else i1
        attribute = {"predicate": ir.IntegerAttr.get(ir.IntegerType.get_signless(64), predicate)}
        return create_op("arith.cmpf", [a, self.constant(b, self.type)], [type_], attribute).results[0]

    def bit(self, n: ir.Value, position: int) -> ir.Value:
        """Whether a bit of an integer is set."""
        shifted = self("arith.andi", self("arith.shrsi", n, position), 1)
        i1 = ir.IntegerType.get_signless(1)
        type_ = ir.VectorType.get(self.type.shape, i1) if isinstance(self.type, ir.VectorType) else i1
        return self("arith.trunci", shifted, result=type_)

    def power_of_two(self, n: ir.Value) -> ir.Value:
        """2^n for an integer -126 ≤ n ≤ 127."""
        bits = self("arith.shli", self("arith.addi", n, 127), 23)
        return self("arith.bitcast", bits, result=self.type)


def _exp_of_parts(a: Arithmetic, n: ir.Value, r: ir.Value) -> ir.Value:
    """2^n · e^r for |r| ≤ ln 2 / 2; two factors of 2^(n/2) reach infinity and the subnormals."""
    y = a("arith.addf", a("math.fma", a.polynomial(EXP, r), a("arith.mulf", r, r), r), 1.0)
    whole = a("arith.fptosi", n, result=a.int_type)
    half = a("arith.shrsi", whole, 1)
    y = a("arith.mulf", y, a.power_of_two(half))
    return a("arith.mulf", y, a.power_of_two(a("arith.subi", whole, half)))


def _exp(a: Arithmetic, x: ir.Value) -> ir.Value:
    x = a("arith.minimumf", a("arith.maximumf", x, -104.0), 89.0)
    n = a("math.roundeven", a("arith.mulf", x, LOG2_E))
    r = a("math.fma", n, -LN_2_LOW, a("math.fma", n, -LN_2_HIGH, x))
    return _exp_of_parts(a, n, r)


def _exp2(a: Arithmetic, x: ir.Value) -> ir.Value:
    x = a("arith.minimumf", a("arith.maximumf", x, -150.1), 129.0)
    n = a("math.roundeven", x)
    return _exp_of_parts(a, n, a("arith.mulf", a("arith.subf", x, n), LN_2))


def _exp_by_exp2(a: Arithmetic, x: ir.Value) -> ir.Value:
    return a("math.exp2", a("arith.mulf", x, LOG2_E))


def _tanh(a: Arithmetic, x: ir.Value) -> ir.Value:
    """A polynomial near 0, else ±(1 - 2 / (e^(2|x|) + 1))."""
    magnitude = a("math.absf", x)
    square = a("arith.mulf", x, x)
    near = a("math.fma", a("arith.mulf", a.polynomial(TANH, square), square), x, x)
    exponential: Callable[[Arithmetic, ir.Value], ir.Value] = _exp_by_exp2 if a.hardware_exp2 else _exp
    grown = exponential(a, a("arith.addf", magnitude, magnitude))
    far = a("arith.subf", 1.0, a("arith.divf", 2.0, a("arith.addf", grown, 1.0)))
    signed = a("math.copysign", far, x)
    less_than = 4
    return a("arith.select", a.compare(less_than, magnitude, 0.625), near, signed, result=a.type)


def _rsqrt(a: Arithmetic, x: ir.Value) -> ir.Value:
    return a("arith.divf", 1.0, a("math.sqrt", x))


def sine(a: Arithmetic, x: ir.Value) -> ir.Value:
    return _turned(a, x, 0)


def cosine(a: Arithmetic, x: ir.Value) -> ir.Value:
    return _turned(a, x, 1)


def _turned(a: Arithmetic, x: ir.Value, quarters: int) -> ir.Value:
    """sin(x + quarters · π/2): ± the sine or cosine of what is left of x past its nearest multiple of π/2."""
    whole = a("arith.subf", a("arith.addf", a("arith.mulf", x, 1 / QUARTER[0]), NEAREST), NEAREST)
    rest = x
    for part in QUARTER:
        rest = a("math.fma", whole, -part, rest)
    square = a("arith.mulf", rest, rest)
    near = a("math.fma", a("arith.mulf", a.polynomial(SIN, square), square), rest, rest)
    flat = a("math.fma", square, -0.5, 1.0)
    flat = a("math.fma", a("arith.mulf", a.polynomial(COS, square), square), square, flat)
    count = a("arith.addi", a("arith.fptosi", whole, result=a.int_type), quarters)
    odd, half_turn = a.bit(count, 0), a.bit(count, 1)
    value = a("arith.select", odd, flat, near, result=a.type)
    return a("arith.select", half_turn, a("arith.negf", value), value, result=a.type)
