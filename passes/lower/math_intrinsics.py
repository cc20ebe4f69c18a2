"""math-intrinsics: math in GPU kernels as LLVM's intrinsics, before a vendor's conversion makes library calls of it.

Before:  gpu.func … { %y = math.sqrt %x : f32     %z = math.log %x : f32 }
After:   gpu.func … { %y = llvm.call_intrinsic "llvm.sqrt.f32"(%x)
                      %l = llvm.call_intrinsic "llvm.nvvm.lg2.approx.f"(%x)    %z = arith.mulf %l, 0.693147 }

Requires: f32 or f64 scalars and vectors of them for what every chip computes exactly; f32 scalars for logarithms,
powers and angles, whose instructions are accurate to about 1e-6.  Other ops and types are left alone.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, ClassVar

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import operations
from lispgpt.passes.base import Pass

if TYPE_CHECKING:
    from lispgpt.passes.targets import Gpu

EXACT = {
    "math.fma": "fma",
    "math.sqrt": "sqrt",
    "math.absf": "fabs",
    "math.floor": "floor",
    "math.ceil": "ceil",
    "math.roundeven": "roundeven",
    "math.trunc": "trunc",
    "math.copysign": "copysign",
    "math.exp2": "exp2",
}
LOGARITHMS = {"math.log2": 1.0, "math.log": math.log(2), "math.log10": math.log10(2)}


@dataclass(frozen=True)
class MathIntrinsics(Pass):
    name: ClassVar[str] = "math-intrinsics"

    def run(self, module: ir.Module, target: Gpu) -> None:
        found: list[ir.Operation] = []

        def look(op: Any) -> Any:
            if op.operation.name.startswith("math."):
                found.append(op.operation)
            return ir.WalkResult.ADVANCE

        for op in operations(module.body):
            if op.name == "gpu.module":
                op.walk(look)
        for op in found:
            with op.location, ir.InsertionPoint(op):
                value = _exact(op) or _approximate(op, target.device_functions)
            if value is not None:
                op.results[0].replace_all_uses_with(value)
                op.erase()


def _exact(op: ir.Operation) -> ir.Value | None:
    type_ = op.results[0].type
    element = type_.element_type if isinstance(type_, ir.VectorType) else type_
    if op.name not in EXACT or not isinstance(element, (ir.F32Type, ir.F64Type)):
        return None
    lanes = f"v{math.prod(type_.shape)}" if isinstance(type_, ir.VectorType) else ""
    return _call(f"llvm.{EXACT[op.name]}.{lanes}{element}", list(op.operands), type_)


def _approximate(op: ir.Operation, names: dict[str, str]) -> ir.Value | None:
    f32 = ir.F32Type.get()
    if op.results[0].type != f32:
        return None
    x = op.operands[0]
    if op.name in LOGARITHMS:
        return _times(_call(names["log2"], [x], f32), LOGARITHMS[op.name])
    if op.name == "math.powf":
        power = create_op("arith.mulf", [op.operands[1], _call(names["log2"], [x], f32)], [f32]).results[0]
        return _call("llvm.exp2.f32", [power], f32)
    kind = op.name.removeprefix("math.")
    return _call(names[kind], [x], f32) if kind in ("sin", "cos") else None


def _times(value: ir.Value, factor: float) -> ir.Value:
    constant = {"value": ir.FloatAttr.get(value.type, factor)}
    number = create_op("arith.constant", [], [value.type], constant).results[0]
    return create_op("arith.mulf", [value, number], [value.type]).results[0]


def _call(name: str, operands: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    attributes = {
        "intrin": ir.StringAttr.get(name),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(operands), 0]),
        "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
    }
    return create_op("llvm.call_intrinsic", operands, [type_], attributes).results[0]
