"""Tensors with a part replaced: which of them are states that change in place, or tensors that are put together."""

from __future__ import annotations

import math
from collections.abc import Sequence

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, shape_of, strings

WIDEST_VECTOR = 16
"""Elements that a schedule loads or stores at once, at most."""


def is_placement(op: ir.Operation) -> bool:
    """Whether the op puts a part that lies together, where vectors are aligned, into a state that goes on, or into a
    tensor that parts alone are put into and that nothing reads before.

    Such a part is written where it belongs; any other tensor with a part replaced is a tensor of its own.
    """
    if not _replaces_part(op):
        return False
    whole, alone = op.operands[1], True
    while not isinstance(whole.owner, ir.Block):
        before = defining_op(whole)
        if before.name == "tensor.empty":
            return alone and "entry" in op.parent.attributes
        if not _replaces_part(before):
            return False
        alone = alone and len(list(whole.uses)) == 1
        whole = before.operands[1]
    entry = op.parent
    return "entry" in entry.attributes and _becomes(op.results[0], whole, entry)


def _replaces_part(op: ir.Operation) -> bool:
    if op.name != "tensor.insert_slice" or len(op.operands) != 2:
        return False
    return lies_together(op, op.operands[1]) and starts_aligned(op, op.operands[1])


def lies_together(window: ir.Operation, whole: ir.Value) -> bool:
    """Whether the elements that a tensor.extract_slice or insert_slice names lie side by side in the whole tensor."""
    if set(ir.DenseI64ArrayAttr(window.attributes["static_strides"])) - {1}:
        return False
    sizes, extents = list(ir.DenseI64ArrayAttr(window.attributes["static_sizes"])), shape_of(whole)
    partial = [i for i, (size, extent) in enumerate(zip(sizes, extents, strict=True)) if size != extent]
    return not partial or all(size == 1 for size in sizes[: partial[-1]])


def starts_aligned(window: ir.Operation, whole: ir.Value) -> bool:
    """Whether vectors that divide a window that lies together are aligned in the whole tensor as in the window.

    A schedule may take several of the window's dimensions as one, so that its last extent alone limits no vector.
    """
    start, step = start_and_step(window, whole)
    return start % step == 0


def start_and_step(window: ir.Operation, whole: ir.Value) -> tuple[int, int]:
    """(the element of the whole tensor at which a window starts, the number that has to divide it)."""
    sizes = ir.DenseI64ArrayAttr(window.attributes["static_sizes"])
    return first_element(window, shape_of(whole)), math.gcd(math.prod(sizes), WIDEST_VECTOR)


def first_element(window: ir.Operation, shape: Sequence[int]) -> int:
    """The number of the element of a tensor of that shape at which a static window starts."""
    start = 0
    for offset, extent in zip(ir.DenseI64ArrayAttr(window.attributes["static_offsets"]), shape, strict=True):
        start = start * extent + offset
    return start


def _becomes(value: ir.Value, state: ir.Value, entry: ir.Operation) -> bool:
    """Whether a value, with whatever parts replaced later, is what the entry returns for an argument."""
    name = strings(entry.attributes["arguments"])[ir.BlockArgument(state).arg_number]
    results = strings(entry.attributes["results"])
    for use in value.uses:
        user, number = use.owner.operation, use.operand_number
        if user.name == "func.return" and results[number] == name:
            return True
        if _replaces_part(user) and number == 1 and _becomes(user.results[0], state, entry):
            return True
    return False


def is_same_slice(taken: ir.Operation, put: ir.Operation) -> bool:
    """Whether a tensor.insert_slice puts back what a tensor.extract_slice took."""
    names = ("static_offsets", "static_sizes", "static_strides")
    alike = taken.name == "tensor.extract_slice" and list(taken.operands)[1:] == list(put.operands)[2:]
    return alike and all(taken.attributes[n] == put.attributes[n] for n in names)


def row_slice(name: str, operands: list[ir.Value], type_: ir.Type, number: int, shape: Sequence[int]) -> ir.Value:
    """Emit that a row of a tensor of that shape is taken, by tensor.extract_slice, or put, by tensor.insert_slice."""
    attributes = {
        "static_offsets": [number, *[0] * (len(shape) - 1)],
        "static_sizes": [1, *shape[1:]],
        "static_strides": [1] * len(shape),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([*[1] * len(operands), 0, 0, 0]),
    }
    return create_op(name, operands, [type_], attributes).results[0]
