"""Functions by the instructions that a chip has for them: 2^x, 1/x and 1/√x; what it lacks stays an op of `math`."""

from __future__ import annotations

import math

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.targets import Target

LOG2_E = math.log2(math.e)


def is_approximate(op: ir.Operation) -> bool:
    """Whether an op allows approximations of its function."""
    flags = str(op.attributes["fastmath"]) if "fastmath" in op.attributes else ""
    return "afn" in flags or "<fast>" in flags


def exp(x: ir.Value, target: Target) -> ir.Value:
    return expand("math.exp", [x], target, x.type)


def exp2(x: ir.Value, target: Target) -> ir.Value:
    return expand("math.exp2", [x], target, x.type)


def expand(name: str, operands: list[ir.Value], target: Target, result: ir.Type, approximate: bool = False) -> ir.Value:
    """A `math` op on scalars or vectors, whose own type is `result`.  approximate: whether it may be off by as much as
    a chip's own instruction is."""
    x = operands[0]
    if not target.intrinsics or b.element_of(result) != b.f32():
        return b.emit(name, operands, [result])
    if name == "math.exp":
        scaled = b.binary("arith.mulf", x, b.constant(LOG2_E, x.type))
        return b.intrinsic(target.intrinsics["exp2"], [scaled], x.type)
    if name in ("math.exp2", "math.rsqrt", "math.sqrt"):
        return b.intrinsic(target.intrinsics[name.removeprefix("math.")], [x], x.type)
    if name == "math.tanh":
        rough = target.rough_tanh(x) if approximate else None
        return _tanh(x, target) if rough is None else rough
    if name == "math.fma":
        return b.fma(*operands)
    if name == "math.absf":
        return b.binary("arith.maximumf", x, b.emit("arith.negf", [x], [x.type]))
    return b.emit(name, operands, [result])


def _tanh(x: ir.Value, target: Target) -> ir.Value:
    """1 - 2 / (e^2x + 1): exact at both ends, absolute error about 1e-7 near zero."""
    one = b.constant(1.0, x.type)
    power = exp2(b.binary("arith.mulf", x, b.constant(2 * LOG2_E, x.type)), target)
    half = b.intrinsic(target.intrinsics["reciprocal"], [b.binary("arith.addf", power, one)], x.type)
    return b.fma(b.constant(-2.0, x.type), half, one)
