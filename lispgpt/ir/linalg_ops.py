"""Small functions that emit one linalg op each, on tensors or on memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import element_type

Body = Callable[[Sequence[ir.Value]], ir.Value]
"""From the elements of an op's inputs and of its output to what it yields."""


def generic(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap], summed: Sequence[int], body: Body
) -> ir.Value:
    """A linalg.generic.  maps: of inputs and output.  summed: the loops that are no parallel ones."""
    kinds = ["reduction" if loop in summed else "parallel" for loop in range(maps[-1].n_dims)]
    attributes = {
        "indexing_maps": _maps(maps),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{kind}>") for kind in kinds]),
    }
    return _op("linalg.generic", inputs, output, attributes, body)


def elementwise(inputs: Sequence[ir.Value], type_: ir.Type, body: Callable[..., ir.Value]) -> ir.Value:
    """A linalg.generic on tensors of one shape; body gets the inputs' elements and gives one of the type's."""
    maps = [ir.AffineMap.get_identity(len(type_.shape))] * (len(inputs) + 1)
    return generic(inputs, b.emit("tensor.empty", [], [type_]), maps, [], lambda values: body(*values[:-1]))


def elementwise_copy(value: ir.Value) -> ir.Value:
    """A tensor's values as a tensor of its own."""
    return elementwise([value], value.type, lambda element: element)


def contract(left: ir.Value, right: ir.Value, start: ir.Value, maps: Sequence[ir.AffineMap], body: Body) -> ir.Value:
    return _op("linalg.contract", [left, right], start, {"indexing_maps": _maps(maps)}, body)


def reduce(source: ir.Value, start: ir.Value, dimension: int, body: Body) -> ir.Value:
    attributes = {"dimensions": ir.DenseI64ArrayAttr.get([dimension])}
    return _op("linalg.reduce", [source], start, attributes, body)


def filled(shape: Sequence[int], element: ir.Type, number: float) -> ir.Value:
    """A tensor of one number."""
    return fill(number, b.emit("tensor.empty", [], [ir.RankedTensorType.get(list(shape), element)]))


def fill(number: float, output: ir.Value) -> ir.Value:
    value = b.constant(number, element_type(output))
    return _op("linalg.fill", [value], output, {}, lambda values: values[0])


def copy(source: ir.Value, output: ir.Value) -> ir.Value:
    return _op("linalg.copy", [source], output, {}, lambda values: values[0])


def rows_map(rank: int, without: int) -> ir.AffineMap:
    """From the loops over a shape to the index without one of its dimensions."""
    return ir.AffineMap.get(rank, 0, [ir.AffineExpr.get_dim(d) for d in range(rank) if d != without])


def _maps(maps: Sequence[ir.AffineMap]) -> ir.Attribute:
    return ir.ArrayAttr.get([ir.AffineMapAttr.get(map_) for map_ in maps])


def _op(name: str, inputs: Sequence[ir.Value], output: ir.Value, attributes: dict, body: Body) -> ir.Value:
    """The op's result, or its output where that is memory."""
    if name != "linalg.reduce":
        attributes["operandSegmentSizes"] = ir.DenseI32ArrayAttr.get([len(inputs), 1])
    operands, on_tensors = [*inputs, output], isinstance(output.type, ir.RankedTensorType)
    op = create_op(name, operands, [output.type] if on_tensors else [], attributes, regions=1)
    block = ir.Block.create_at_start(op.regions[0], [element_type(value) for value in operands])
    with ir.InsertionPoint(block):
        create_op("linalg.yield", [body(list(block.arguments))])
    return op.results[0] if on_tensors else output
