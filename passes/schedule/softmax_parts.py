"""linalg.softmax as linalg.generic ops: the largest element, the sum of exponentials, and their quotient."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.linalg_ops import fill, filled, generic, rows_map
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import element_type, nested_operations, shape_of
from lispgpt.passes.kernels.read import softmax_dimension

Start = Callable[[ir.Type, float], ir.Value]
"""What holds a number of a type for each row."""


def take_apart_softmax(kernel: ir.Operation, everywhere: bool = False) -> None:
    """Replace every softmax over another dimension than the last in a kernel's body; everywhere: over that one too."""
    for op in list(nested_operations(kernel)):
        if op.name == "linalg.softmax" and (everywhere or softmax_dimension(op) != len(shape_of(op.operands[0])) - 1):
            rows = [extent for d, extent in enumerate(shape_of(op.operands[0])) if d != softmax_dimension(op)]
            with ir.InsertionPoint(op), op.location:
                op.results[0].replace_all_uses_with(_parts(op, partial(filled, rows)))
            op.erase()


def loop_softmax(op: ir.Operation) -> None:
    """Replace a softmax on memory; what holds its rows' numbers is allocated and freed around its parts."""
    made: list[ir.Value] = []

    def start(type_: ir.Type, number: float) -> ir.Value:
        made.append(_row_buffer(op.operands[0], softmax_dimension(op), type_))
        return fill(number, made[-1])

    with ir.InsertionPoint(op), op.location:
        _parts(op, start)
        for buffer in made:
            create_op("memref.dealloc", [buffer])
    op.erase()


def _parts(op: ir.Operation, start: Start) -> ir.Value:
    """Numbers of 16 bits are compared and summed in f32."""
    (source, output), along, element = op.operands, softmax_dimension(op), element_type(op.operands[0])
    wide = b.f32() if b.is_short(element) else element
    whole, row = ir.AffineMap.get_identity(source.type.rank), rows_map(source.type.rank, along)

    def power(x: ir.Value, top: ir.Value) -> ir.Value:
        return b.emit("math.exp", [b.binary("arith.subf", b.unshortened(x), top)], [wide])

    def largest(values: Sequence[ir.Value]) -> ir.Value:
        return b.emit("arith.maximumf", [b.unshortened(values[0]), values[1]], [wide])

    def sum_(values: Sequence[ir.Value]) -> ir.Value:
        return b.emit("arith.addf", [power(values[0], values[1]), values[2]], [wide])

    def quotient(values: Sequence[ir.Value]) -> ir.Value:
        return b.shortened(b.binary("arith.divf", power(values[0], values[1]), values[2]), element)

    top = generic([source], start(wide, float("-inf")), [whole, row], [along], largest)
    total = generic([source, top], start(wide, 0.0), [whole, row, row], [along], sum_)
    return generic([source, top, total], output, [whole, row, row, whole], [], quotient)


def _row_buffer(source: ir.Value, along: int, element: ir.Type) -> ir.Value:
    """Memory of source's shape without one dimension."""
    type_, dynamic = ir.MemRefType(source.type), ir.ShapedType.get_dynamic_size()
    kept = [d for d in range(type_.rank) if d != along]
    sizes = [
        b.emit("memref.dim", [source, b.as_value(d)], [ir.IndexType.get()]) for d in kept if type_.is_dynamic_dim(d)
    ]
    shape = [dynamic if type_.is_dynamic_dim(d) else type_.shape[d] for d in kept]
    segments = ir.DenseI32ArrayAttr.get([len(sizes), 0])
    return b.emit("memref.alloc", sizes, [ir.MemRefType.get(shape, element)], operandSegmentSizes=segments)
