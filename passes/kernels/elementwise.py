"""An elementwise linalg op at some neighbouring elements: its body's ops, emitted on vectors of them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

from lispgpt.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import dim_positions, indexing_maps, operations
from lispgpt.passes.kernels.expand import expand
from lispgpt.passes.kernels.views import mapped
from lispgpt.passes.targets import Gpu


class Values(Protocol):
    """A Reader: what it makes of the tensors, scalars and indices that a body takes."""

    target: Gpu
    assumed: frozenset[ir.Value]

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value: ...

    def scalar(self, value: ir.Value) -> ir.Value: ...

    def index_of(self, value: ir.Value) -> Index: ...


@dataclass(frozen=True)
class Iota:
    """The indices base, base + 1, … of a vector's elements."""

    base: Index


def elementwise(reader: Values, op: ir.Operation, index: list[Index], width: int) -> ir.Value:
    """`width` neighbouring elements of the op's result, from `index` on along the last dimension."""
    block = op.regions[0].blocks[0]
    maps = indexing_maps(op)
    values: dict[ir.Value, Any] = {}
    used = {operand for nested in operations(block) for operand in nested.operands}
    for argument, operand, map_ in zip(block.arguments, op.operands, maps, strict=True):
        if argument in used:
            values[argument] = _operand(reader, operand, map_, index, width)
    for nested in operations(block)[:-1]:
        if nested.name == "arith.select" and nested.operands[0] in reader.assumed:
            first = nested.operands[1]
            values[nested.results[0]] = values[first] if first in values else reader.scalar(first)
        else:
            values[nested.results[0]] = _body_op(reader, nested, values, index, width)
    result = values.get(operations(block)[-1].operands[0])
    if result is None:
        result = reader.scalar(operations(block)[-1].operands[0])
    return b.splat(_materialized(result, width), width)


def _operand(reader: Values, operand: ir.Value, map_: ir.AffineMap, index: list[Index], width: int) -> ir.Value:
    if not isinstance(operand.type, ir.RankedTensorType):
        return reader.scalar(operand)
    positions = dim_positions(map_)
    inner = len(index) - 1
    where = mapped(map_, index)
    if width == 1 or inner not in positions:
        return reader.read(operand, where)
    if positions.index(inner) == len(positions) - 1 and positions.count(inner) == 1:
        return reader.read(operand, where, width)
    at = positions.index(inner)
    shifted = [[*where[:at], b.add(where[at], i), *where[at + 1 :]] for i in range(width)]
    return b.vector_of([reader.read(operand, s) for s in shifted])


def _body_op(reader: Values, op: ir.Operation, values: dict[ir.Value, Any], index: list[Index], width: int) -> Any:
    if op.name == "arith.constant":
        return reader.scalar(op.results[0])
    if op.name == "linalg.index":
        dim = ir.IntegerAttr(op.attributes["dim"]).value
        return Iota(index[dim]) if dim == len(index) - 1 and width > 1 else b.as_value(index[dim])
    operands = [values[o] if o in values else reader.scalar(o) for o in op.operands if op.name != "tensor.extract"]
    if op.name == "tensor.extract":
        where = [values[o] if o in values else reader.index_of(o) for o in op.operands[1:]]
        return _extract(reader, op.operands[0], where, width)
    operands = [_materialized(o, width) for o in operands]
    wide = max((b.width_of(o) for o in operands), default=1)
    operands = [b.splat(o, wide) for o in operands]
    if op.name in b.INTRINSIC_BINARIES:
        return b.binary(op.name, *operands)
    if op.name.startswith("math."):
        return expand(op.name, operands, reader.target)
    result = b.with_width(op.results[0].type, wide)
    return create_op(op.name, operands, [result], attributes_of(op)).results[0]


def _extract(reader: Values, tensor: ir.Value, where: list[Any], width: int) -> ir.Value:
    *outer, last = where
    if isinstance(last, Iota) and not any(
        isinstance(o, Iota) or b.width_of(o) > 1 for o in outer if not isinstance(o, int)
    ):
        return reader.read(tensor, [*outer, last.base], width)
    if any(isinstance(o, Iota) for o in where):
        raise InternalError("a kernel gathers along a dimension that is not the last")
    return reader.read(tensor, where)


def _materialized(value: Any, width: int) -> ir.Value:
    if not isinstance(value, Iota):
        return value
    type_ = ir.VectorType.get([width], ir.IndexType.get())
    steps = ir.DenseElementsAttr.get([ir.IntegerAttr.get(ir.IndexType.get(), i) for i in range(width)], type_)
    offsets = create_op("arith.constant", [], [type_], {"value": steps}).results[0]
    return b.binary("arith.addi", b.splat(b.as_value(value.base), width), offsets)


def attributes_of(op: ir.Operation) -> dict[str, ir.Attribute]:
    """As `create_op` takes them."""
    return {name: op.attributes[name] for name in op.attributes}
