"""linalg.softmax on tensors as linalg.generic ops: the largest element, the sum of exponentials, and their quotient."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import element_type, nested_operations, shape_of
from lispgpt.passes.kernels.read import softmax_dimension

Body = Callable[[Sequence[ir.Value]], ir.Value]


def take_apart_softmax(kernel: ir.Operation, everywhere: bool = False) -> None:
    """Replace every softmax over another dimension than the last in a kernel's body; everywhere: over that one too."""
    for op in list(nested_operations(kernel)):
        if op.name == "linalg.softmax" and (everywhere or softmax_dimension(op) != len(shape_of(op.operands[0])) - 1):
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_parts(op))
            op.erase()


def _parts(op: ir.Operation) -> ir.Value:
    """Numbers of 16 bits are compared and summed in f32."""
    source, along = op.operands[0], softmax_dimension(op)
    shape, element = shape_of(source), element_type(source)
    wide = b.f32() if b.is_short(element) else element
    whole = ir.AffineMap.get_identity(len(shape))
    rest = ir.AffineMap.get(len(shape), 0, [ir.AffineExpr.get_dim(d) for d in range(len(shape)) if d != along])
    reduction = ["reduction" if d == along else "parallel" for d in range(len(shape))]
    rows = [extent for d, extent in enumerate(shape) if d != along]

    def power(x: ir.Value, top: ir.Value) -> ir.Value:
        return b.emit("math.exp", [b.binary("arith.subf", b.unshortened(x), top)], [wide])

    def quotient(values: Sequence[ir.Value]) -> ir.Value:
        x, top, total, _ = values
        return b.shortened(b.binary("arith.divf", power(x, top), total), element)

    top = _generic(
        [source],
        _filled(rows, wide, float("-inf")),
        [whole, rest],
        reduction,
        lambda v: b.emit("arith.maximumf", [b.unshortened(v[0]), v[1]], [wide]),
    )
    total = _generic(
        [source, top],
        _filled(rows, wide, 0.0),
        [whole, rest, rest],
        reduction,
        lambda v: b.emit("arith.addf", [power(v[0], v[1]), v[2]], [wide]),
    )
    parallel = ["parallel"] * len(shape)
    return _generic([source, top, total], op.operands[1], [whole, rest, rest, whole], parallel, quotient)


def _filled(shape: Sequence[int], element: ir.Type, number: float) -> ir.Value:
    type_ = ir.RankedTensorType.get(list(shape), element)
    empty = create_op("tensor.empty", [], [type_]).results[0]
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 1])}
    fill = create_op("linalg.fill", [b.constant(number, element), empty], [type_], segments, regions=1)
    block = ir.Block.create_at_start(fill.regions[0], [element, element])
    with ir.InsertionPoint(block):
        create_op("linalg.yield", [block.arguments[0]])
    return fill.results[0]


def _generic(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str], body: Body
) -> ir.Value:
    """A linalg.generic on tensors; body gets the inputs' elements and then the output's."""
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
    }
    op = create_op("linalg.generic", [*inputs, output], [output.type], attributes, regions=1)
    block = ir.Block.create_at_start(op.regions[0], [element_type(v) for v in (*inputs, output)])
    with ir.InsertionPoint(block):
        create_op("linalg.yield", [body(list(block.arguments))])
    return op.results[0]
