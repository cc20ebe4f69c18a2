"""F32 numbers that are stored as two BF16 parts, as store-parts makes them: the parts of a sum, and who makes them."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import is_elementwise, operations


def parts_of(op: ir.Operation) -> list[ir.Value] | None:
    """The two tensors whose sum, element by element, an op is, where that is what store-parts has made."""
    if not is_elementwise(op) or len(op.operands) != 3 or "inline" not in op.attributes:
        return None
    parts = list(op.operands)[:2]
    whole = _body(op) == ["arith.extf", "arith.extf", "arith.addf"]
    return parts if whole and all(part.type.element_type == ir.BF16Type.get() for part in parts) else None


def parts_made(value: ir.Value) -> tuple[ir.Operation, ir.Operation] | None:
    """The two ops that alone read a value and make its parts, the upper one first."""
    found = [use.owner.operation for use in value.uses]
    if len(found) != 2 or not all(is_elementwise(op) and len(op.operands) == 2 for op in found):
        return None
    upper, lower = sorted(found, key=lambda op: len(_body(op)))
    cut = ["arith.bitcast", "arith.andi", "arith.bitcast"]
    whole = _body(upper) == [*cut, "arith.truncf"] and _body(lower) == [*cut, "arith.subf", "arith.truncf"]
    return (upper, lower) if whole else None


def _body(op: ir.Operation) -> list[str]:
    """What an elementwise op computes, by names, without constants."""
    return [inner.name for inner in operations(op.regions[0].blocks[0]) if inner.name != "arith.constant"][:-1]
