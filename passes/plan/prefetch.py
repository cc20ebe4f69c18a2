"""Weights of the next step on their way to the cache while a step waits: what its body would read ahead of its wait."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import clone_with, defining_op
from lispgpt.passes.targets import Gpu

LOADS = ("memref.load", "vector.load")
Ids = Mapping[str, Sequence[ir.Value]]


def prefetch_loads(ops: Sequence[ir.Operation], memories: Mapping[ir.Value, ir.Value], ids: Ids, target: Gpu) -> None:
    """Ask for what a body's first ops load from its arguments at places that it reckons without loads.

    memories: for each argument the memory that it will be.  ids: values of gpu.thread_id and gpu.block_id, [x, y, z].
    """
    values = dict(memories)
    for op in ops:
        if op.name in LOADS and op.operands[0] in memories:
            place = [_same(value, values, ids) for value in list(op.operands)[1:]]
            if all(index is not None for index in place):
                _prefetch(memories[op.operands[0]], place, target)


def _same(value: ir.Value, values: dict[ir.Value, ir.Value], ids: Ids) -> ir.Value | None:
    """An index reckoned again; None where it depends on what is loaded or carried."""
    if value in values:
        return values[value]
    op = defining_op(value)
    if op is None or (op.name not in ids and not op.name.startswith("arith.")):
        return None
    if op.name in ids:
        values[value] = ids[op.name]["xyz".index(str(op.attributes["dimension"])[-2])]
    elif all(_same(operand, values, ids) is not None for operand in op.operands):
        clone_with(op, values)
    return values.get(value)


def _prefetch(memory: ir.Value, place: Sequence[ir.Value], target: Gpu) -> None:
    linear: b.Index = 0
    for index, extent in zip(place, memory.type.shape, strict=True):
        linear = b.add(b.mul(linear, extent), index)
    start = b.emit("memref.extract_aligned_pointer_as_index", [memory], [ir.IndexType.get()])
    address = b.add(start, b.mul(linear, b.item_bytes(memory.type)))
    i64 = ir.IntegerType.get_signless(64)
    target.prefetch(b.emit("arith.index_cast", [b.as_value(address)], [i64]))
