"""What reductions the rows of a view are made of: the mean and the deviation of rows that a norm makes, say.

They are whole rows' and the same for all of a row's elements, so that a block computes them once, ahead of its boxes.
"""

from __future__ import annotations

from lispgpt.ir.combiners import combiner_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, shape_of
from lispgpt.passes.kernels.products import Operand


def row_reductions(operand: Operand) -> list[ir.Operation] | None:
    """The reductions that are read for elements of an operand; None where one is not of a row of its own.

    Each has one dimension of as many elements as there are rows, in their order.
    """
    found: list[ir.Operation] = []
    if not _collect(operand.tensor, found):
        return None
    fits = [_is_of_rows(op, operand) for op in found]
    return found if found and all(fits) else None


def _collect(tensor: ir.Value, found: list[ir.Operation]) -> bool:
    """Add the reductions that are read first; False where there is something else that rows reduce."""
    op = defining_op(tensor)
    if op is None or op.name == "bufferization.to_tensor" or op in found:
        return True
    if op.name == "linalg.reduce":
        found.append(op)
        return True
    return op.name != "linalg.softmax" and all(_collect(operand, found) for operand in op.operands)


def _is_of_rows(op: ir.Operation, operand: Operand) -> bool:
    shape, layout = shape_of(op.results[0]), operand.layout
    wide = [extent for extent in shape if extent > 1]
    rows = operand.extent
    alone = layout.extent(layout.batch) == 1 and len(integers(op.attributes["dimensions"])) == 1
    return alone and wide == ([rows] if rows > 1 else []) and len(op.results) == 1 and combiner_of(op) is not None
