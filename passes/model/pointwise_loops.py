"""Loops over tensors of which an element needs, of what is carried, that element alone: one kernel runs all rounds."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    captured_values,
    constant_number,
    dim_positions,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
)


def rounds_of(loop: ir.Operation) -> range | None:
    """What the counter of a loop is in its rounds; None where they are counted when it runs."""
    low, high, step = (constant_number(v) for v in list(loop.operands)[:3])
    return None if low is None or high is None or step is None else range(low, high, step)


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
