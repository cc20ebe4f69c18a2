"""What kernels and loops of an entry find in memory: views of what is there, or tensors that are computed for them."""

from __future__ import annotations

from collections.abc import Collection

from lispgpt.ir.linalg_ops import elementwise_copy
from lispgpt.ir.loops import is_loop_call, loop_facts
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import RESHAPES, callee_of, defining_op, operations, shape_of, strings, viewed
from lispgpt.passes.model.kernel_groups import is_inline
from lispgpt.passes.recognise.cache_writes import is_scatter
from lispgpt.passes.recognise.placements import is_same_slice, lies_together, placements_among, starts_aligned


def _identity(value: ir.Value, before: ir.Operation) -> ir.Value:
    with ir.InsertionPoint(before), before.location:
        return elementwise_copy(value)


def compute_views(entry: ir.Operation, loops: dict[str, ir.Operation]) -> None:
    """Give a kernel something to run where a result, or what goes into a state, is only a view or a constant, and a
    scatter memory of its own to change."""
    ops = operations(entry.regions[0].blocks[0])
    names, results = strings(entry.attributes["arguments"]), strings(entry.attributes["results"])
    arguments = list(entry.regions[0].blocks[0].arguments)
    placements = placements_among(ops)
    for op in ops:
        if op in placements:
            taken = defining_op(op.operands[0])
            unchanged = taken is not None and is_same_slice(taken, op) and taken.operands[0] == op.operands[1]
            if not unchanged and (taken is None or is_inline(taken)):
                op.operands[0] = _identity(op.operands[0], op)
        elif is_scatter(op):
            _own(op, 3, placements)
        elif is_loop_call(op):
            _give_memory(op, loops[callee_of(op)], placements)
    for i, (name, value) in enumerate(zip(results, ops[-1].operands, strict=True)):
        op = defining_op(value)
        own = op is None and names[arguments.index(value)] == name
        if not own and (op is None or is_inline(op)):
            ops[-1].operands[i] = _identity(value, ops[-1])


def _own(op: ir.Operation, place: int, placements: Collection[ir.Operation]) -> None:
    """Have what an op changes be memory that it alone reads."""
    start = defining_op(op.operands[place])
    if start is None or is_inline(start) or start in placements or len(list(op.operands[place].uses)) > 1:
        op.operands[place] = _identity(op.operands[place], op)


def _give_memory(call: ir.Operation, loop: ir.Operation, placements: Collection[ir.Operation]) -> None:
    """Have what a loop changes be its own, and what it reads be in memory."""
    ties = loop_facts(loop).ties
    for place, value in enumerate(call.operands):
        made = defining_op(viewed(value, RESHAPES))
        if place in ties:
            _own(call, place, placements)
        elif made is not None and is_inline(made) and not is_entry_view(made, placements):
            call.operands[place] = _identity(value, call)


def is_entry_view(op: ir.Operation, placements: Collection[ir.Operation]) -> bool:
    """Whether the op is a slice that is only an offset, at which vectors are aligned, of an entry's argument, or some
    rows of one or of what another kernel makes: one kernel then does for all of them."""
    if op.name != "tensor.extract_slice" or len(op.operands) != 1:
        return False
    whole = op.operands[0]
    source = defining_op(whole)
    if source is not None and source not in placements and not (_takes_rows(op) and _is_in_memory(whole)):
        return False
    return lies_together(op, whole) and starts_aligned(op, whole)


def _takes_rows(op: ir.Operation) -> bool:
    """Whether a slice has the whole of each dimension but the first, and several rows of that."""
    shape, whole = shape_of(op.results[0]), shape_of(op.operands[0])
    return len(shape) == len(whole) and shape[1:] == whole[1:] and shape[0] > 1


def _is_in_memory(value: ir.Value) -> bool:
    """Whether a value, or what it is a reshape of, is an entry's argument or what a kernel makes."""
    op = defining_op(viewed(value, RESHAPES))
    return op is None or not is_inline(op)
