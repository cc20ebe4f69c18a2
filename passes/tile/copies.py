"""How boxes of a view can be brought to shared memory, by where the view's elements lie."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, shape_of
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, strided
from lispgpt.passes.recognise.product_layout import ProductLayout
from lispgpt.passes.targets.tensor_copies import TensorCopies

BULK, ASYNC, REGISTERS = "bulk", "async", "registers"
"""Whole boxes by one thread, which a barrier counts; pieces of PIECE bytes by each thread, in groups that it waits for;
loads into registers, of anything that can be read."""

COPIES = (REGISTERS, ASYNC, BULK)

PIECE = 16
"""Bytes that one asynchronous copy of a thread brings."""


def operand_of(view: ir.Value) -> Operand:
    """What a tile.view shows: a tensor by (batch, outer, inner)."""
    op = defining_op(view)
    kinds = [tuple(integers(op.attributes[name])) for name in ("batch", "outer", "inner")]
    tensor, dims = op.operands[0], tuple(range(len(shape_of(op.operands[0]))))
    layout = ProductLayout(shape_of(tensor), kinds[0], kinds[1], (), kinds[2], dims, (), ())
    return Operand(tensor, layout, dims, kinds[1])


def boxes_of(operand: Operand, copies: TensorCopies) -> Boxes | None:
    """The operand as bulk copies of boxes with its inner dimension innermost see it; None where they cannot."""
    kinds = (operand.layout.batch, operand.outer, operand.layout.sums)
    found = find_boxes(strided(operand.tensor), operand.layout, operand.dimensions, kinds, copies)
    return found if found is not None and found.is_along(2) else None


def has_whole_pieces(operand: Operand) -> bool:
    """Whether its inner dimension lies in memory in aligned pieces of PIECE bytes."""
    view = strided(operand.tensor)
    if view is None or view.strides[-1] != 1:
        return False
    piece = PIECE // b.item_bytes(view.argument.type)
    wide = [n for n, extent in zip(view.strides[:-1], view.extents[:-1], strict=True) if extent > 1]
    return operand.along_k % piece == 0 and all(n % piece == 0 for n in (view.offset, *wide))
