"""math-intrinsics: math in GPU kernels as LLVM's intrinsics, before a vendor's conversion makes library calls of it.

Before:  gpu.func … { %y = math.sqrt %x : f32 }
After:   gpu.func … { %y = llvm.call_intrinsic "llvm.sqrt.f32"(%x) }

Requires: what expand-math leaves, on f32 or f64 scalars and vectors of them, and counts of integers' bits.  A
function of another type than expand-math's is a user's error: no chip has it.  arith.remf is exact where the quotient
is below 2^24.
"""

from __future__ import annotations

import math
from collections.abc import Sequence, Set

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in, operations
from lispgpt.passes.base import Pass
from lispgpt.passes.lower.expand_math import EXPANSIONS
from lispgpt.passes.lower.powers import remainder

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
    "arith.maxnumf": "maxnum",
    "arith.minnumf": "minnum",
}
OF_BITS = {"math.ctpop": "ctpop", "math.ctlz": "ctlz", "math.cttz": "cttz"}


class MathIntrinsics(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for op in _kernels_ops(module, {"arith.remf"}):
            with op.location, ir.InsertionPoint(op):
                _replace(op, remainder(*map(Number, op.operands)).value)
        for op in _kernels_ops(module, EXACT.keys() | OF_BITS.keys() | EXPANSIONS.keys()):
            with op.location, ir.InsertionPoint(op):
                value = _exact(op) or _of_bits(op)
            if value is not None:
                _replace(op, value)
            elif op.name in EXPANSIONS:
                kind = b.element_of(op.operands[0].type)
                raise UserError(f"GPUs have no {op.name} of {kind}: cast to f32", users_span(op.location))


def _replace(op: ir.Operation, value: ir.Value) -> None:
    op.results[0].replace_all_uses_with(value)
    op.erase()


def _kernels_ops(module: ir.Module, names: Set[str]) -> list[ir.Operation]:
    """The ops of these names in GPU kernels."""
    modules = [op for op in operations(module.body) if op.name == "gpu.module"]
    return [op for gpu_module in modules for op in everything_in(gpu_module) if op.name in names]


def _exact(op: ir.Operation) -> ir.Value | None:
    type_ = op.results[0].type
    if op.name not in EXACT or not isinstance(b.element_of(type_), (ir.F32Type, ir.F64Type)):
        return None
    return _call(EXACT[op.name], list(op.operands), type_)


def _of_bits(op: ir.Operation) -> ir.Value | None:
    if op.name not in OF_BITS:
        return None
    flag = [] if op.name == "math.ctpop" else [b.constant(0, b.i1())]
    return _call(OF_BITS[op.name], [*op.operands, *flag], op.results[0].type)


def _call(name: str, operands: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    """LLVM's intrinsic of that name for a type."""
    suffix = f"v{math.prod(type_.shape)}{type_.element_type}" if isinstance(type_, ir.VectorType) else str(type_)
    return b.instruction(f"llvm.{name}.{suffix}", operands, type_)
