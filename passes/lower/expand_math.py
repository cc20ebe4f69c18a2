"""expand-math: write functions of F32 as arithmetic, the same for every target, without a library call for each lane.

Before:                                    After:
  %y = math.exp %x : vector<16xf32>          %n = math.roundeven (%x · log2 e)     %r = %x - %n · ln 2 (in two steps)
                                             %p = polynomial(%r)                   %y = %p · 2^(n/2) · 2^(n - n/2)

Requires: f32 scalars or vectors of it (integers for ipowi and absi); other types are left alone.
Ensures: what is left of `math` on them is what chips have: fma, sqrt, absf, copysign, rounding, bits' counts; with
`shifted-bf16` no scalar bf16 is widened but by a shift, nor put into a vector but as a whole number, and on CPUs no f32
is rounded to bf16 but by an instruction or as a whole number; where the target asks for it, one of two vectors of
masked words is chosen number by number.  Errors are at most 2 units in the last place for exp, exp2, tanh, rsqrt and
logarithms and 4 for the others, within the range where those are finite; NaN stays NaN.
sin, cos and tan are for arguments up to 10^6, near whose multiples of π/2 they are exact to 10^-7 of 1; up to 10^9 they
are exact to 10^-5, and of all numbers sines and cosines are from -1 to 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number, is_finite, where
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, everything_in
from lispgpt.passes.base import Pass
from lispgpt.passes.lower import angles, exponentials, powers
from lispgpt.passes.targets import Cpu, Target


def _round(x: Number) -> Number:
    """Halves away from 0; the largest F32 below ½ is added, which leaves whole numbers as they are."""
    return (x + Number(x.operand(0.5 - 2.0**-25)).signed_as(x)).emit("math.trunc")


EXPANSIONS: dict[str, Callable[..., Number]] = {
    "math.exp": exponentials.exp,
    "math.exp2": exponentials.exp2,
    "math.expm1": exponentials.expm1,
    "math.tanh": exponentials.tanh,
    "math.sinh": exponentials.sinh,
    "math.cosh": exponentials.cosh,
    "math.rsqrt": lambda x: 1.0 / x.emit("math.sqrt"),
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
    "math.clampf": lambda x, low, high: x.emit("arith.maxnumf", low).emit("arith.minnumf", high),
    "math.isnan": lambda x: x.is_("uno", x),
    "math.isinf": lambda x: abs(x).is_("==", math.inf),
    "math.isfinite": is_finite,
    "math.isnormal": lambda x: abs(x).is_(">=", exponentials.SMALLEST_NORMAL) & is_finite(x),
}
OF_INTEGERS: dict[str, Callable[..., Number]] = {
    "math.absi": lambda x: x.emit("arith.maxsi", 0 - x),
    "math.ipowi": powers.ipowi,
}


@dataclass(frozen=True)
class ExpandMath(Pass):
    """shifted_bf16: widen scalars of bf16 as whole numbers, and put vectors together of them so, for x86, whose code
    generator fails on some vectors that LLVM makes of these; and round to bf16 as whole numbers where a CPU cannot:
    LLVM would call a function that is not there."""

    shifted_bf16: bool = False

    def run(self, module: ir.Module, target: Target) -> None:
        rounds = self.shifted_bf16 and isinstance(target, Cpu) and not target.rounds_to_bf16
        for op in everything_in(module.operation):
            if op.name in OF_INTEGERS:
                _replace(op, OF_INTEGERS[op.name])
            elif op.name == "math.sincos" and _is_f32(op):
                _replace(op, angles.sine, angles.cosine)
            elif op.name in EXPANSIONS and _is_f32(op):
                _replace(op, EXPANSIONS[op.name])
            elif self.shifted_bf16 and op.name == "arith.extf" and _is_from_bf16_to_f32(op):
                _replace(op, _shifted)
            elif self.shifted_bf16 and op.name == "vector.from_elements" and op.operands[0].type == _bf16():
                _replace(op, _put_together)
            elif rounds and op.name == "arith.truncf" and _is_f32(op) and b.element_of(op.results[0].type) == _bf16():
                _replace(op, _rounded)
            elif target.chooses_masked_words_apart and op.name == "arith.select" and _is_of_masked_words(op):
                _replace(op, _chosen_apart)


def _replace(op: ir.Operation, *expansions: Callable[..., Number]) -> None:
    """Take what an expansion makes of an op's operands for each of its results."""
    with ir.InsertionPoint(op), op.location:
        made = [expansion(*map(Number, op.operands)) for expansion in expansions]
    for result, number in zip(op.results, made, strict=True):
        result.replace_all_uses_with(number.value)
    op.erase()


def _is_f32(op: ir.Operation) -> bool:
    return bool(b.element_of(op.operands[0].type) == b.f32())


def _shifted(x: Number) -> Number:
    """A bf16 as f32: its bits are the upper half."""
    return (x.bits().emit("arith.extui", element=b.i32()) << 16).as_real()


def _put_together(*elements: Number) -> Number:
    """A vector of single bf16, as whole numbers."""
    whole = Number(b.vector_of([x.bits().value for x in elements]))
    return whole.emit("arith.bitcast", element=_bf16())


def _rounded(x: Number) -> Number:
    """An f32 as the nearest bf16, the even one of two: NaN stays NaN, which adding to its bits could make infinite."""
    bits = x.bits()
    nearest = (bits + 0x7FFF + (bits.signed_shift(16) & 1)).signed_shift(16)
    found = where(x.is_("uno", x), bits.signed_shift(16) | 0x40, nearest)
    return found.emit("arith.trunci", element=ir.IntegerType.get_signless(16)).emit("arith.bitcast", element=_bf16())


def _is_of_masked_words(op: ir.Operation) -> bool:
    """Whether it chooses between vectors of whole numbers, one of which has bits set, cleared or turned."""
    makers = [made.name for operand in op.operands if (made := defining_op(operand)) is not None]
    return b.width_of(op.results[0]) > 1 and any(name in ("arith.andi", "arith.ori", "arith.xori") for name in makers)


def _chosen_apart(condition: Number, first: Number, second: Number) -> Number:
    """One of two vectors, number by number."""
    lanes = ([b.lane_of(x.value, i) for x in (condition, first, second)] for i in range(b.width_of(first.value)))
    return Number(b.vector_of([b.select(*lane) for lane in lanes]))


def _bf16() -> ir.Type:
    return ir.BF16Type.get()


def _is_from_bf16_to_f32(op: ir.Operation) -> bool:
    return bool(op.operands[0].type == _bf16() and op.results[0].type == b.f32())
