"""expand-math: write functions of F32 as arithmetic, the same for every target, without a library call for each lane.

Before:                                    After:
  %y = math.exp %x : vector<16xf32>          %n = math.roundeven (%x · log2 e)     %r = %x - %n · ln 2 (in two steps)
                                             %p = polynomial(%r)                   %y = %p · 2^(n/2) · 2^(n - n/2)

Requires: f32 scalars or vectors of it (integers for ipowi and absi); other types are left alone.
Ensures: what is left of `math` on them is what chips have: fma, sqrt, absf, copysign, rounding, bits' counts, and with
`hardware-exp2` exp2, of which exp is made; with `shifted-bf16` no scalar bf16 is widened but by a shift.  Errors are at
most 2 units in the last place for exp, exp2, tanh, rsqrt and
logarithms and 4 for the others, within the range where those are finite; NaN stays NaN.  sin, cos and tan are for
arguments up to 10^6, near whose multiples of π/2 they are exact to 10^-7 of 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in
from lispgpt.passes.base import Pass
from lispgpt.passes.lower import angles, exponentials, powers
from lispgpt.passes.lower.arithmetic import Arithmetic


def _round(a: Arithmetic, x: ir.Value) -> ir.Value:
    """Halves away from 0; the largest F32 below ½ is added, which leaves whole numbers as they are."""
    return a("math.trunc", a("arith.addf", x, a.signed_as(a.constant(0.5 - 2.0**-25, a.type), x)))


def _is_normal(a: Arithmetic, x: ir.Value) -> ir.Value:
    size = a.magnitude(x)
    return a("arith.andi", a.compare("ge", size, exponentials.SMALLEST_NORMAL), a.compare("lt", size, math.inf))


EXPANSIONS: dict[str, Callable[..., ir.Value]] = {
    "math.exp": exponentials.exp,
    "math.exp2": exponentials.exp2,
    "math.expm1": exponentials.expm1,
    "math.tanh": exponentials.tanh,
    "math.sinh": exponentials.sinh,
    "math.cosh": exponentials.cosh,
    "math.rsqrt": exponentials.rsqrt,
    "math.log": exponentials.log,
    "math.log2": exponentials.log2,
    "math.log10": exponentials.log10,
    "math.log1p": exponentials.log1p,
    "math.asinh": exponentials.asinh,
    "math.acosh": exponentials.acosh,
    "math.atanh": exponentials.atanh,
    "math.erf": exponentials.erf,
    "math.erfc": exponentials.erfc,
    "math.sin": angles.sine,
    "math.cos": angles.cosine,
    "math.tan": angles.tangent,
    "math.atan": angles.arctangent,
    "math.atan2": angles.arctangent2,
    "math.asin": angles.arcsine,
    "math.acos": angles.arccosine,
    "math.powf": powers.powf,
    "math.fpowi": powers.fpowi,
    "math.cbrt": powers.cbrt,
    "math.round": _round,
    "math.clampf": lambda a, x, low, high: a("arith.minnumf", a("arith.maxnumf", x, low), high),
    "math.isnan": lambda a, x: a.compare("uno", x, x),
    "math.isinf": lambda a, x: a.compare("eq", a.magnitude(x), math.inf),
    "math.isfinite": lambda a, x: a.compare("lt", a.magnitude(x), math.inf),
    "math.isnormal": _is_normal,
}
OF_INTEGERS: dict[str, Callable[..., ir.Value]] = {
    "math.absi": lambda a, x: a("arith.maxsi", x, a("arith.subi", a.constant(0, x.type), x)),
    "math.ipowi": powers.ipowi,
}


@dataclass(frozen=True)
class ExpandMath(Pass):
    """hardware_exp2: keep math.exp2 as the primitive.  shifted_bf16: widen scalars of bf16 as whole numbers, for x86,
    whose code generator fails on some vectors that LLVM joins their conversions to."""

    hardware_exp2: bool = False
    shifted_bf16: bool = False

    def run(self, module: ir.Module, target: object) -> None:
        expansions = dict(EXPANSIONS)
        if self.hardware_exp2:
            expansions["math.exp"] = exponentials.exp_by_exp2
            del expansions["math.exp2"], expansions["math.rsqrt"]
        for op in everything_in(module.operation):
            if op.name.startswith("math.") or (self.shifted_bf16 and op.name == "arith.extf"):
                self._expand(op, expansions)

    def _expand(self, op: ir.Operation, expansions: dict[str, Callable[..., ir.Value]]) -> None:
        type_ = op.operands[0].type
        arithmetic = Arithmetic(type_, self.hardware_exp2)
        with ir.InsertionPoint(op), op.location:
            if op.name in OF_INTEGERS:
                values = [OF_INTEGERS[op.name](arithmetic, *op.operands)]
            elif op.name == "math.sincos" and _is_f32(type_):
                values = [make(arithmetic, op.operands[0]) for make in (angles.sine, angles.cosine)]
            elif op.name == "arith.extf":
                if type_ != ir.BF16Type.get() or op.results[0].type != ir.F32Type.get():
                    return
                values = [_shifted(arithmetic, op.operands[0])]
            elif op.name in expansions and _is_f32(type_):
                values = [expansions[op.name](arithmetic, *op.operands)]
            else:
                return
        for result, value in zip(op.results, values, strict=True):
            result.replace_all_uses_with(value)
        op.erase()


def _shifted(a: Arithmetic, x: ir.Value) -> ir.Value:
    """A bf16 as f32: its bits are the upper half."""
    bits = a("arith.bitcast", x, result=ir.IntegerType.get_signless(16))
    wide = a("arith.shli", a("arith.extui", bits, result=a.int_type), 16)
    return a("arith.bitcast", wide, result=ir.F32Type.get())


def _is_f32(type_: ir.Type) -> bool:
    return (type_.element_type if isinstance(type_, ir.VectorType) else type_) == ir.F32Type.get()
