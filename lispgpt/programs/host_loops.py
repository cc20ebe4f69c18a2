"""Loops that were meant for a GPU and stay on the host: which, and why, as warnings."""

from __future__ import annotations

from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import span_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, nested_operations

TO_GPU = "convert-parallel-loops-to-gpu"
"""The pass that makes kernels of mapped loops, as far as it can."""


def warnings(module: ir.Module) -> list[UserError]:
    """One for each loop that is mapped to a GPU's blocks and threads after that pass; what is inside one goes along."""
    found: list[UserError] = []

    def look(op: Any) -> Any:
        operation = op.operation
        if operation.name != "scf.parallel" or "mapping" not in operation.attributes:
            return ir.WalkResult.ADVANCE
        message = f"this loop stays on the host: {_reason(operation)}"
        found.append(UserError(message, span_of(operation.location)))
        return ir.WalkResult.SKIP

    module.operation.walk(look, ir.WalkOrder.PRE_ORDER)
    return found


def _reason(loop: ir.Operation) -> str:
    loops = [loop, *(op for op in nested_operations(loop) if op.name == "scf.parallel")]
    if any(len(each.results) for each in loops):
        return "it sums or folds its iterations into a value, which blocks and threads do not do by themselves"
    for each in loops:
        for number, operand in enumerate(list(each.operands)[: 3 * _rank(each)]):
            what = f"the {_PARTS[number // _rank(each)]} of its dimension {number % _rank(each) + 1}"
            op = defining_op(operand)
            if op is not None and op.name == "affine.min":
                return _uneven(loop, number % _rank(each))
            if op is None or _number(operand) is None:
                return f"{what} is not known while compiling"
            if op.name != "arith.constant" and op.block != loop.block:
                return f"{what} is computed in it; (pass canonicalize) before makes it a constant"
    return f"{TO_GPU} does not take it"


_PARTS = ("start", "end", "step")


def _rank(loop: ir.Operation) -> int:
    return len(loop.operands) // 3


def _uneven(loop: ir.Operation, position: int) -> str:
    """A tiled loop whose last tile would be smaller."""
    rank = _rank(loop)
    sizes = [_number(loop.operands[group * rank + position]) for group in range(3)]
    if None in sizes:
        return f"its tiles do not divide its dimension {position + 1}"
    start, end, tile = (size or 0 for size in sizes)
    return f"its tiles of {tile} do not divide the {end - start} iterations of its dimension {position + 1}"


def _number(value: ir.Value) -> int | None:
    """A value that is known while compiling: a constant, or a product of such."""
    op = defining_op(value)
    if op is None:
        return None
    if op.name == "arith.constant":
        return ir.IntegerAttr(op.attributes["value"]).value
    factors = [_number(operand) for operand in op.operands] if op.name == "arith.muli" else []
    return None if not factors or None in factors else (factors[0] or 0) * (factors[1] or 0)
