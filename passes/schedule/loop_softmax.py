"""loop-softmax: linalg.softmax on memory, which MLIR cannot turn into loops, as four linalg.generic ops.

Before:  linalg.softmax dimension(1) ins(%x : memref<4x8xf32>) outs(%y : memref<4x8xf32>)
After:   m[i] = max over j of x[i, j];   y[i, j] = exp(x[i, j] - m[i])
         s[i] = sum over j of y[i, j];   y[i, j] = y[i, j] / s[i]

m and s are allocated and freed around the four.  Softmax on tensors is left as it is.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import everything_in
from lispgpt.passes.base import Pass

Body = Callable[[Sequence[ir.Value]], ir.Value]


class LoopSoftmax(Pass):
    def run(self, module: ir.Module, target: object) -> None:
        for op in everything_in(module.operation):
            if op.name == "linalg.softmax" and isinstance(op.operands[0].type, ir.MemRefType):
                with ir.InsertionPoint(op), op.location:
                    _expand(op)
                op.erase()


def _expand(op: ir.Operation) -> None:
    source, output = op.operands
    along = ir.IntegerAttr(op.attributes["dimension"]).value
    type_ = ir.MemRefType(source.type)
    element = type_.element_type
    whole = ir.AffineMap.get_identity(type_.rank)
    row = ir.AffineMap.get(type_.rank, 0, [ir.AffineExpr.get_dim(i) for i in range(type_.rank) if i != along])
    reduction = ["reduction" if i == along else "parallel" for i in range(type_.rank)]
    parallel = ["parallel"] * type_.rank

    def op_of(name: str) -> Body:
        return lambda values: create_op(name, values, [element]).results[0]

    def shifted_exponential(values: Sequence[ir.Value]) -> ir.Value:
        difference = create_op("arith.subf", list(values[:2]), [element]).results[0]
        return create_op("math.exp", [difference], [element]).results[0]

    largest = _row_buffer(source, along, float("-inf"))
    _generic([source], largest, [whole, row], reduction, op_of("arith.maximumf"))
    _generic([source, largest], output, [whole, row, whole], parallel, shifted_exponential)
    total = _row_buffer(source, along, 0.0)
    _generic([output], total, [whole, row], reduction, op_of("arith.addf"))
    _generic([total], output, [row, whole], parallel, lambda v: op_of("arith.divf")([v[1], v[0]]))
    create_op("memref.dealloc", [largest])
    create_op("memref.dealloc", [total])


def _row_buffer(source: ir.Value, along: int, fill: float) -> ir.Value:
    """A buffer of source's shape without one dimension, filled with a number."""
    type_, index = ir.MemRefType(source.type), ir.IndexType.get()
    kept = [i for i in range(type_.rank) if i != along]
    sizes = []
    for i in kept:
        if type_.is_dynamic_dim(i):
            number = create_op("arith.constant", [], [index], {"value": ir.IntegerAttr.get(index, i)}).results[0]
            sizes.append(create_op("memref.dim", [source, number], [index]).results[0])
    dynamic = ir.ShapedType.get_dynamic_size()
    shape = [dynamic if type_.is_dynamic_dim(i) else type_.shape[i] for i in kept]
    segments = ir.DenseI32ArrayAttr.get([len(sizes), 0])
    buffer_type = ir.MemRefType.get(shape, type_.element_type)
    buffer = create_op("memref.alloc", sizes, [buffer_type], {"operandSegmentSizes": segments}).results[0]
    value = {"value": ir.FloatAttr.get(type_.element_type, fill)}
    constant = create_op("arith.constant", [], [type_.element_type], value).results[0]
    identity = ir.AffineMap.get_identity(len(kept))
    scalar = ir.AffineMap.get(len(kept), 0, [])
    _generic([constant], buffer, [scalar, identity], ["parallel"] * len(kept), lambda values: values[0])
    return buffer


def _generic(
    inputs: Sequence[ir.Value], output: ir.Value, maps: Sequence[ir.AffineMap], iterators: Sequence[str], body: Body
) -> None:
    """A linalg.generic on memory; body gets the inputs' elements and then the output's."""
    attributes = {
        "indexing_maps": ir.ArrayAttr.get([ir.AffineMapAttr.get(m) for m in maps]),
        "iterator_types": ir.ArrayAttr.get([ir.Attribute.parse(f"#linalg.iterator_type<{i}>") for i in iterators]),
        "operandSegmentSizes": ir.DenseI32ArrayAttr.get([len(inputs), 1]),
    }
    op = create_op("linalg.generic", [*inputs, output], [], attributes, regions=1)
    operands = [*inputs, output]
    elements = [v.type.element_type if isinstance(v.type, ir.MemRefType) else v.type for v in operands]
    block = ir.Block.create_at_start(op.regions[0], elements)
    with ir.InsertionPoint(block):
        create_op("linalg.yield", [body(list(block.arguments))])
