"""Weights in blocks: what their bytes stand for is computed wherever it is read, by functions of lib/blocks.lisp."""

from __future__ import annotations

import math
from typing import Any

from lispgpt.base.dtypes import BLOCK_DTYPES, find_dtype
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import VIEWS, defining_op
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.library import LIBRARY
from lispgpt.language.core.registry import NAMES
from lispgpt.language.core.values import BlockType, Weight
from lispgpt.language.forms import modules, shapes
from lispgpt.language.reader.forms import Form

NAMES.update({name: BlockType(name) for name in BLOCK_DTYPES})


def stored_type(evaluator: Evaluator, weight: Weight) -> ir.Type:
    """The type of the tensor that a weight's memory is: bytes of blocks, where it is in blocks."""
    dtype = find_dtype(weight.dtype)
    if dtype.block == 1:
        return shapes.tensor_type(evaluator, weight.shape, ir.Type.parse(dtype.mlir), weight.form)
    extents = (*weight.shape[:-1], weight.shape[-1] // dtype.block, dtype.item_bytes)
    return shapes.tensor_type(evaluator, extents, ir.IntegerType.get_signless(8), weight.form)


def is_in_blocks(weight: Any) -> bool:
    """Whether something is a weight in blocks."""
    return isinstance(weight, Weight) and weight.dtype in BLOCK_DTYPES


def unpacked(evaluator: Evaluator, weight: Weight, stored: ir.Value, form: Form) -> ir.Value:
    """The numbers that some of a weight's blocks stand for, in f32.

    stored: bytes, [… blocks bytes].  The ops that compute them are marked `inline`: every kernel has its own.  The last
    one of them says in `blocks` of which type they are.
    """
    library = modules.load(evaluator, LIBRARY / "blocks.lisp", form)
    *outer, count, nbytes = stored.type.shape
    rows = shapes.reshape(evaluator, stored, (math.prod(outer), count, nbytes), form)
    value = evaluator.value_of(evaluator.call(library.names[weight.dtype], [rows], form), form)
    mark_computed(value, rows, "blocks", weight.dtype)
    columns = count * find_dtype(weight.dtype).block
    return shapes.reshape(evaluator, value, (*outer, columns), form)


def mark_computed(value: ir.Value, source: ir.Value, attribute: str, dtype: str) -> None:
    """Mark the ops between what is stored and the numbers that it stands for `inline`, and have the last of them say of
    which type it is."""
    _mark_inline(value, source)
    made = defining_op(value)
    while made.name in VIEWS:
        made = defining_op(made.operands[0])
    made.attributes[attribute] = ir.StringAttr.get(dtype)


def _mark_inline(value: ir.Value, source: ir.Value) -> None:
    """Mark the ops between two values: every kernel that reads what they make has its own."""
    op = defining_op(value)
    if value == source or op is None or "inline" in op.attributes:
        return
    if op.name not in VIEWS and op.name.startswith("linalg."):
        op.attributes["inline"] = ir.UnitAttr.get()
    inside = [o for region in op.regions for block in region.blocks for nested in block for o in nested.operands]
    for operand in [*op.operands, *inside]:
        owner = defining_op(operand)
        if owner is not None and owner.parent.operation == op.parent.operation and owner.block == op.block:
            _mark_inline(operand, source)
