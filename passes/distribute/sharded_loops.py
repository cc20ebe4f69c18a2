"""Loops over the rows of a batch that add each to what they carry, as the gradients of gathers do."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    captured_values,
    constant_number,
    defining_op,
    integers,
    operations,
    replace_captured,
)
from lispgpt.passes.distribute.batch_dims import fail
from lispgpt.passes.distribute.linearity import LINEAR, NOTHING, results_of
from lispgpt.passes.distribute.sharded_values import ShardedValues, add_up_all, same, takes_parts
from lispgpt.passes.recognise.placements import is_same_slice


def divide_loop(values: ShardedValues, op: ir.Operation) -> None:
    """A loop over rows that adds each to what it carries, where that row says."""
    block = op.regions[0].blocks[0]
    counter, carried = block.arguments[0], list(block.arguments)[1:]
    counted = [
        (dim, values.shape(inner.operands[0])[d])
        for inner in operations(block)
        if inner.name in ("tensor.extract", "tensor.extract_slice")
        for d, dim in values.dims_of(inner.operands[0]).items()
        if _is_counted(inner, d, counter)
    ]
    captured = captured_values(op)
    if not counted:
        add_up_all(values, op)
        if any(v in values.dims for v in [*op.operands, *captured]):
            fail(op, "it is a loop over something else than the batch")
        return
    for dim, _ in counted:
        same({0: counted[0][0]}, 0, dim, op)
    if any(v in values.parts for v in captured):
        replace_captured(op, {v: values.add_up(v) for v in captured if v in values.parts})
    start = op.operands[3]
    first, last, step = map(constant_number, list(op.operands)[:3])
    if len(carried) != 1 or not _adds_rows(op) or values.kind(start) not in (LINEAR, NOTHING) or last is None:
        fail(op, "it is a loop over the batch, and no sum")
    if (first, step) != (0, 1) or any(extent != last for _, extent in counted):
        fail(op, "it is a loop over some of the batch")
    for inner in operations(block):
        for d in values.dims_of(inner.operands[0]) if inner.name.startswith("tensor.extract") else ():
            if not _is_counted(inner, d, counter):
                fail(op, "it reads sequences of the batch by reckoned numbers")
    if last % values.devices:
        fail(op, f"{last} rows cannot be shared by {values.devices} devices alike")
    index = ir.IntegerAttr.get(ir.IndexType.get(), last // values.devices)
    with ir.InsertionPoint(op), op.location:
        op.operands[1] = create_op("arith.constant", [], [index.type], {"value": index}).results[0]
    takes_parts(values, op)
    values.parts.add(op.results[0])


def _is_counted(op: ir.Operation, dimension: int, counter: ir.Value) -> bool:
    """Whether a dimension of what an op takes an element or a slice of goes with a loop's counter."""
    indices: list[Any] = list(op.operands)[1:]
    if op.name == "tensor.extract":
        return bool(indices[dimension] == counter)
    offsets = integers(op.attributes["static_offsets"])
    dynamic = [d for d, offset in enumerate(offsets) if offset < 0]
    return dimension in dynamic and bool(indices[dynamic.index(dimension)] == counter)


def _adds_rows(op: ir.Operation) -> bool:
    """Whether what a loop carries is changed by additions to a slice of it alone."""
    block = op.regions[0].blocks[0]
    carried, made = block.arguments[1], defining_op(operations(block)[-1].operands[0])
    if made is None or made.name != "tensor.insert_slice" or made.operands[1] != carried:
        return False
    total = defining_op(made.operands[0])
    if total is None or total.name != "linalg.generic":
        return False
    old = [v for v in total.operands if (o := defining_op(v)) is not None and carried in list(o.operands)]
    taken = [defining_op(v) for v in old]
    users = {use.owner.operation for use in carried.uses} - {made}
    if len(old) != 1 or taken[0].name != "tensor.extract_slice" or users != {taken[0]}:
        return False
    linear = results_of(total, lambda v: LINEAR if v in old else NOTHING) == [LINEAR]
    return linear and is_same_slice(taken[0], made)
