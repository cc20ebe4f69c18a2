"""Where the elements of a view are: from an index into a slice or a reshape to the index into its source."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, everything_in, integers, kept_dimensions, reshape_groups, shape_of
from lispgpt.passes.kernels.refusal import Refused

DYNAMIC = ir.ShapedType.get_dynamic_size()


class Indices(Protocol):
    """A Reader, of which views need only the values of the offsets that slices start at."""

    def index_of(self, value: ir.Value) -> Index: ...


def mapped(map_: ir.AffineMap, index: Sequence[Index]) -> list[Index]:
    """From an index into an elementwise op's iterations to the one into the operand with this indexing map."""
    return [_at(expression, index) for expression in map_.results]


def _at(expression: ir.AffineExpr, index: Sequence[Index]) -> Index:
    """The value of one of a map's results."""
    if isinstance(expression, ir.AffineDimExpr):
        return index[expression.position]
    if isinstance(expression, ir.AffineConstantExpr):
        return expression.value
    for kind, combine in _EXPRESSIONS.items():
        if isinstance(expression, kind):
            return combine(_at(expression.lhs, index), _at(expression.rhs, index))
    raise Refused(f"it reads through {expression}")


_EXPRESSIONS = {
    ir.AffineAddExpr: b.add,
    ir.AffineMulExpr: b.mul,
    ir.AffineFloorDivExpr: b.div,
    ir.AffineModExpr: b.mod,
}


def through_slice(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    return sliced_index(op, list(op.operands[1:]), shape_of(op.results[0]), index, reader)


def sliced_index(
    op: ir.Operation, dynamic_offsets: Sequence[ir.Value], shape: Sequence[int], index: Sequence[Index], reader: Indices
) -> list[Index]:
    """From an index into a slice (or what is inserted at one) of that shape to the index into the whole."""
    offsets, sizes, strides = slice_numbers(op)
    dynamic = iter(dynamic_offsets)
    kept = kept_dimensions(sizes, shape)
    inner = iter(index)
    where = []
    for offset, stride, keep in zip(offsets, strides, kept, strict=True):
        start = reader.index_of(next(dynamic)) if offset == DYNAMIC else offset
        where.append(b.add(start, b.mul(next(inner), stride)) if keep else start)
    return where


def slice_numbers(op: ir.Operation) -> tuple[list[int], list[int], list[int]]:
    """A slice's offsets (DYNAMIC where an operand gives it), sizes and strides."""
    offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
    if DYNAMIC in (*sizes, *strides):
        raise Refused(f"{op.name} has sizes or strides that are not known while compiling")
    return offsets, sizes, strides


def is_in_step(op: ir.Operation, width: int, aligned: bool) -> bool:
    """Whether every `width` neighbours in a slice's rows are neighbours in the source's, and aligned ones."""
    if width == 1:
        return True
    offsets, sizes, strides = slice_numbers(op)
    steps = (offsets[-1], shape_of(op.operands[0])[-1])
    kept = kept_dimensions(sizes, shape_of(op.results[0]))[-1]
    if not aligned:
        return kept and strides[-1] == 1
    return kept and strides[-1] == 1 and offsets[-1] != DYNAMIC and all(step % width == 0 for step in steps)


def keeps_step(op: ir.Operation, width: int) -> bool:
    """Whether vectors that start at multiples of their width in a view's rows do so in the source's."""
    if op.name == "tensor.extract_slice":
        offset = slice_numbers(op)[0][-1]
        return offset != DYNAMIC and offset % width == 0
    finer = op.results[0] if op.name == "tensor.expand_shape" else op.operands[0]
    return op.name == "tensor.cast" or shape_of(finer)[-1] % width == 0


def _through_expand(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    """From an expanded tensor's index to its source's."""
    shape = shape_of(op.results[0])
    return [_linear([index[i] for i in group], [shape[i] for i in group]) for group in reshape_groups(op)]


def _through_collapse(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    """From a collapsed tensor's index to its source's."""
    shape = shape_of(op.operands[0])
    if not index:
        return [0] * len(shape)
    where: list[Index] = []
    for group, linear in zip(reshape_groups(op), index, strict=True):
        where += _split(linear, [shape[i] for i in group])
    return where


def _linear(index: list[Index], shape: list[int]) -> Index:
    total: Index = 0
    for i, extent in zip(index, shape, strict=True):
        total = b.add(b.mul(total, extent), i if extent > 1 else 0)
    return total


def _split(linear: Index, shape: list[int]) -> list[Index]:
    where: list[Index] = []
    for position, extent in enumerate(reversed(shape)):
        outermost = position == len(shape) - 1 or all(e == 1 for e in shape[: len(shape) - 1 - position])
        where.insert(0, 0 if extent == 1 else linear if outermost else b.mod(linear, extent))
        linear = b.div(linear, extent)
    return where


VIEWS: dict[str, Callable[[ir.Operation, list[Index], Indices], list[Index]]] = {
    "tensor.extract_slice": through_slice,
    "tensor.expand_shape": _through_expand,
    "tensor.collapse_shape": _through_collapse,
    "tensor.cast": lambda op, index, reader: index,
}


def behind_views(tensor: ir.Value, index: Sequence[Index], reader: Indices) -> tuple[ir.Operation | None, list[Index]]:
    """The op that makes what a tensor is a view of, itself no view, and where an element is in that."""
    op, found = defining_op(tensor), list(index)
    while op is not None and op.name in VIEWS:
        found = VIEWS[op.name](op, found, reader)
        op = defining_op(op.operands[0])
    return op, found


def depends_only_on(tensor: ir.Value, buffers: set[ir.Value]) -> bool:
    """Whether all the memory that a tensor is computed from is among the buffers."""
    return defining_op(tensor) is not None and buffers_behind([tensor]) <= buffers


def buffers_behind(values: Iterable[ir.Value]) -> set[ir.Value]:
    """The buffers whose elements values of a kernel's body depend on."""
    waiting, seen, found = list(values), set(), set()
    while waiting:
        value = waiting.pop()
        if isinstance(value.type, ir.MemRefType):
            found.add(value)
        elif (op := defining_op(value)) is not None and op not in seen:
            seen.add(op)
            waiting += [operand for inner in everything_in(op) for operand in inner.operands]
    return found
