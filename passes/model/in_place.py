"""Which of its arguments a kernel may change in place to make its results."""

from __future__ import annotations

from collections.abc import Collection

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    callee_of,
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
    symbol_of,
)
from lispgpt.passes.model.kernel_group import KernelGroup
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.recognise.cache_writes import is_scatter
from lispgpt.passes.recognise.placements import (
    is_returned_for,
    is_same_slice,
    lies_together,
    start_and_step,
    starts_aligned,
)


def read_arguments(group: KernelGroup, placements: set[ir.Operation]) -> set[ir.Value]:
    """The entry's arguments that a group reads, through views and through placements too."""
    found: set[ir.Value] = set()
    waiting = [value for op in group.ops for value in [*op.operands, *captured_values(op)]]
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if op is None:
            found.add(value)
        elif is_inline(op) or op in placements:
            waiting += op.operands
    return found


def is_by_element(group: KernelGroup) -> bool:
    """Whether each element of a group's results is made from elements at the same place of tensors of their shape."""
    shape = shape_of(group.ops[0].results[0])
    return all(
        op.name == "linalg.generic"
        and is_elementwise(op)
        and not any(isinstance(v.type, ir.RankedTensorType) for v in captured_values(op))
        and shape_of(op.results[0]) == shape
        and all(_is_in_place(map_, shape, v) for map_, v in zip(indexing_maps(op), op.operands, strict=True))
        for op in group.ops
    )


def _is_in_place(map_: ir.AffineMap, shape: tuple[int, ...], operand: ir.Value) -> bool:
    return shape_of(operand) != shape or dim_positions(map_) == list(range(len(shape)))


def replaced_by_element(
    outputs: list[ir.Value],
    arguments: list[ir.Value],
    own: list[ir.Value],
    replaceable: list[ir.Value],
    placements: Collection[ir.Operation],
) -> list[int]:
    """For each result of a kernel that computes element by element, the argument whose place it takes, or -1."""
    tied: list[int] = []
    for output in outputs:
        fitting = [
            number
            for number, argument in enumerate(arguments)
            if argument in replaceable
            and argument.type == output.type
            and number not in tied
            and all(use.owner.operation.name == "linalg.generic" for use in own[number].uses)
            and _returns_to(argument, output, placements)
        ]
        tied.append(fitting[0] if fitting else -1)
    return tied


def tied_argument(
    value: ir.Value,
    outer: ir.Value,
    arguments: list[ir.Value],
    placements: Collection[ir.Operation],
    module: ir.Module,
) -> int:
    """The index of the kernel's argument that a loop or a launch updates in place to make this value, or -1.

    outer: the value in the entry, which has to go back to where the argument (one of `arguments`) was taken from, by
    one of the entry's placements.
    """
    op = defining_op(value)
    if op is not None and op.name == "func.call":
        return _in_place_argument(ir.OpResult(value), outer, arguments, placements, module)
    if op is None or op.name != "scf.for":
        return -1
    if is_scatter(op):
        return ir.BlockArgument(op.operands[3]).arg_number
    while op is not None and op.name == "scf.for":
        value = op.operands[3]
        op = defining_op(value)
    if op is not None:
        return -1
    number = ir.BlockArgument(value).arg_number
    start = defining_op(arguments[number])
    homes = [use.owner.operation for use in outer.uses if use.owner.operation in placements]
    return number if start is not None and any(is_same_slice(start, home) for home in homes) else -1


def _in_place_argument(
    value: ir.OpResult,
    outer: ir.Value,
    arguments: list[ir.Value],
    placements: Collection[ir.Operation],
    module: ir.Module,
) -> int:
    """The index of the kernel's argument that a hand-written kernel changes in place to make a result, or -1."""
    call = value.owner
    callee = callee_of(call)
    hand = next(op for op in operations(module.body) if symbol_of(op) == callee)
    place = list(ir.DenseI64ArrayAttr(hand.attributes["in_place"]))[value.result_number]
    if place < 0:
        return -1
    given = call.operands[place]
    number = ir.BlockArgument(given).arg_number if defining_op(given) is None else -1
    start = arguments[number] if number >= 0 else None
    if start is None or not _returns_to(start, outer, placements):
        raise UserError(
            f"what {callee} changes in place {_misplaced(defining_op(given))}", users_span(outer.owner.location)
        )
    return number


def _misplaced(window: ir.Operation | None) -> str:
    """What has to be otherwise for a launch to change a tensor in place, of which the window may be the cause."""
    if window is not None and window.name == "tensor.extract_slice":
        whole = window.operands[0]
        if not lies_together(window, whole):
            return "has to lie together in memory, and this part of a tensor has gaps"
        if not starts_aligned(window, whole):
            start, step = start_and_step(window, whole)
            return (
                f"starts at element {start} of what it is a part of: for the alignment of vectors that has to be a "
                f"multiple of {step}"
            )
    return (
        "has to be an input, a weight or a state of the entry, or a part of one, and the launch's value what that is "
        "afterwards"
    )


def _returns_to(start: ir.Value, value: ir.Value, placements: Collection[ir.Operation]) -> bool:
    """Whether a value is what the entry has afterwards where another was taken from."""
    taken = defining_op(start)
    uses = [(use.owner.operation, use.operand_number) for use in value.uses]
    if taken is not None:
        return any(user in placements and is_same_slice(taken, user) for user, _ in uses)
    return any(user.name == "func.return" and is_returned_for(start, number) for user, number in uses)
