"""The numbers of rows in a whole batch, of which a device has a part: for what an op makes of its loops' counters."""

from __future__ import annotations

from collections.abc import Mapping

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import loop_extents, nested_operations
from lispgpt.passes.distribute.batch_dims import ALL, BatchDim, fail
from lispgpt.passes.distribute.sharded_values import ShardedValues


def number_rows(values: ShardedValues, op: ir.Operation, loops: Mapping[int, BatchDim]) -> None:
    """Have what an op makes of the numbers of its rows be made of those that they have in the whole batch."""
    extents = loop_extents(op)
    for inner in list(nested_operations(op)):
        loop = int(ir.IntegerAttr(inner.attributes["dim"]).value) if inner.name == "linalg.index" else -1
        if loop not in loops:
            continue
        number = inner.results[0]
        uses = [(use.owner.operation, use.operand_number) for use in number.uses]
        read = [(user, place) for user, place in uses if not _reads_own(values, user, place)]
        if read:
            if loops[loop].span(values.devices * extents[loop]) != ALL:
                fail(op, "it reckons with the numbers of rows in a part of the batch")
            with ir.InsertionPoint.after(inner), inner.location:
                whole = _in_batch(values, op, number, loops[loop], extents[loop])
            for user, place in read:
                user.operands[place] = whole


def _reads_own(values: ShardedValues, user: ir.Operation, place: int) -> bool:
    """Whether an index says which of this device's rows is read."""
    return user.name == "tensor.extract" and place > 0 and place - 1 in values.dims_of(user.operands[0])


def _in_batch(values: ShardedValues, op: ir.Operation, number: ir.Value, dim: BatchDim, extent: int) -> ir.Value:
    """The number in the whole batch of one of the rows that a device has; extent: how many those are."""
    own = values.number_of_device(op)
    device = b.emit("arith.index_cast", [b.emit("tensor.extract", [own], [own.type.element_type])], [number.type])
    together = extent if dim.offset else min(extent, dim.count * dim.inner // values.devices)
    first = b.emit("arith.muli", [device, b.as_value(together)], [number.type])
    if together < extent:
        rounds = b.emit("arith.divui", [number, b.as_value(together)], [number.type])
        others = b.as_value(together * (values.devices - 1))
        first = b.emit("arith.addi", [first, b.emit("arith.muli", [rounds, others], [number.type])], [number.type])
    return b.emit("arith.addi", [number, first], [number.type])
