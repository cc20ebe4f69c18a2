"""F32 numbers that are stored as two BF16 parts, as store-parts makes them: the parts of a sum, and who makes them."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, is_elementwise, operations, viewed

ROUNDED = "rounded"
"""What makes numbers of blocks has this attribute where products of many rows may round them to BF16."""


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


def may_round(tensor: ir.Value) -> bool:
    """Whether products of many rows may take numbers in blocks for the closest in BF16 (see round-activations)."""
    op = defining_op(viewed(tensor))
    return op is not None and ROUNDED in op.attributes
