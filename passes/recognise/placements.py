"""Tensors with a part replaced: which of them are states that change in place, or tensors that are put together."""

from __future__ import annotations

import math
from collections.abc import Collection, Sequence

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, shape_of

WIDEST_VECTOR = 16
"""Elements that a schedule loads or stores at once, at most."""


def placements_among(ops: Sequence[ir.Operation]) -> set[ir.Operation]:
    """Those of an entry's ops that put a part that lies together, where vectors are aligned, into a state that goes on,
    or into a tensor that parts alone are put into and that nothing reads before.

    Such a part is written where it belongs; any other tensor with a part replaced is a tensor of its own.
    """
    starts: dict[ir.Operation, ir.Value | None] = {}
    for op in ops:
        if _replaces_part(op):
            starts[op] = _start(op, starts)
    going_on: set[ir.Operation] = set()
    for op in reversed(list(starts)):
        state = starts[op]
        if state is not None and isinstance(state.owner, ir.Block) and _goes_on(op, state, starts, going_on):
            going_on.add(op)
    entry = ops[0].parent if ops else None
    made = {op for op, start in starts.items() if start is not None and not isinstance(start.owner, ir.Block)}
    return going_on | made if entry is not None and "entry" in entry.attributes else set()


def _start(op: ir.Operation, starts: dict[ir.Operation, ir.Value | None]) -> ir.Value | None:
    """What an op's part, and those of the ops ahead, are put into: an argument, or what tensor.empty gives where
    nothing else reads it on the way; None where that is something else.  starts: of the ops ahead."""
    whole = op.operands[1]
    before = defining_op(whole)
    if before is None or before.name == "tensor.empty":
        return whole
    start = starts.get(before)
    alone = start is None or isinstance(start.owner, ir.Block) or len(list(whole.uses)) == 1
    return start if alone else None


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


def _goes_on(op: ir.Operation, state: ir.Value, starts: Collection[ir.Operation], later: set[ir.Operation]) -> bool:
    """Whether what an op gives, with whatever parts replaced later, is what the entry returns for an argument.
    later: those of the ops behind it for which that holds."""
    for use in op.results[0].uses:
        user, number = use.owner.operation, use.operand_number
        if user.name == "func.return" and is_returned_for(state, number):
            return True
        if number == 1 and user in starts and user in later:
            return True
    return False


def is_returned_for(argument: ir.Value, number: int) -> bool:
    """Whether an entry's result of that number is what it has afterwards for an argument."""
    entry = ir.BlockArgument(argument).owner.owner
    results = entry.attributes["results"]
    name = entry.attributes["arguments"][ir.BlockArgument(argument).arg_number]
    return bool(results[number] == name)


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
