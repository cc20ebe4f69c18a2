"""Tensors whose numbers weights in blocks stand for: of which type these are, and their bytes."""

from __future__ import annotations

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of, tensor_behind, viewed


def kind_of_blocks(tensor: ir.Value) -> str:
    """The type of the blocks whose numbers a tensor is; "" where it is something else."""
    op = defining_op(viewed(tensor))
    return ir.StringAttr(op.attributes["blocks"]).value if op is not None and "blocks" in op.attributes else ""


def bytes_of_blocks(tensor: ir.Value) -> ir.Value | None:
    """The bytes that a tensor [rows, numbers] of numbers in blocks is computed from; None where it is none."""
    kind = kind_of_blocks(tensor)
    if not kind:
        return None
    (rows, numbers), dtype = shape_of(tensor), find_dtype(kind)
    return tensor_behind(defining_op(viewed(tensor)), (rows, numbers // dtype.block, dtype.item_bytes))
