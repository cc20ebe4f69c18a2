"""Loops over tensors whose rounds need the whole of what earlier rounds made: their rounds, one after the other."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    clone_with,
    constant_number,
    dim_positions,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
)

NUMBERS = ("tensor.extract", "tensor.from_elements")
"""What takes a number out of a tensor of no dimension, and puts it into one."""


def unroll_loops(kernel: ir.Operation, most_rounds: int) -> None:
    """Write out every such loop in a kernel's body that has a known number of rounds, and at most so many."""
    again = True
    while again:
        again = False
        for op in operations(kernel.regions[0].blocks[0]):
            rounds = _rounds(op) if op.name == "scf.for" and len(op.results) else None
            if rounds is not None and len(rounds) <= most_rounds and not is_pointwise(op):
                with op.location:
                    _unroll(op, rounds)
                again = True


def _rounds(loop: ir.Operation) -> range | None:
    low, high, step = (constant_number(v) for v in list(loop.operands)[:3])
    return None if low is None or high is None or step is None else range(low, high, step)


def _unroll(loop: ir.Operation, rounds: range) -> None:
    block = loop.regions[0].blocks[0]
    counter, *carried = block.arguments
    values = list(loop.operands)[3:]
    for number in rounds:
        with ir.InsertionPoint(loop):
            known = {counter: b.constant(number, counter.type), **dict(zip(carried, values, strict=True))}
            *ops, terminator = operations(block)
            for op in ops:
                clone_with(op, known)
        values = [known.get(v, v) for v in terminator.operands]
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()


def is_pointwise(loop: ir.Operation) -> bool:
    """Whether an element of what a loop makes needs, of what it carries, that element alone."""
    block = loop.regions[0].blocks[0]
    carried = set(list(block.arguments)[1:])
    shapes = {shape_of(v) for v in carried if isinstance(v.type, ir.RankedTensorType)}
    if len(shapes) > 1:
        return False
    for op in operations(block)[:-1]:
        if not any(v in carried for v in (*op.operands, *captured_values(op))):
            continue
        if not _keeps_places(op, carried):
            return False
        carried.update(op.results)
    return True


def _keeps_places(op: ir.Operation, carried: set[ir.Value]) -> bool:
    """Whether an op reads what is carried at its own result's place."""
    if any(v in carried for v in captured_values(op)):
        return False
    if op.name in ("tensor.extract", "tensor.from_elements") and not any(
        shape_of(v) for v in (*op.operands, *op.results)
    ):
        return True  # a number, in a tensor of no dimension
    tensors = [v for v in op.operands if isinstance(v.type, ir.RankedTensorType) and v in carried]
    if not tensors:
        return not any(isinstance(r.type, ir.RankedTensorType) for r in op.results) and not len(op.regions)
    if op.name == "tensor.insert_slice":
        return op.operands[0] not in carried and op.operands[1] in carried
    if op.name == "scf.for":
        return is_pointwise(op)
    if not is_elementwise(op):
        return False
    maps = zip(op.operands, indexing_maps(op), strict=True)
    return all(v not in carried or dim_positions(m) == list(range(m.n_dims)) for v, m in maps)
