"""Where the elements of a view are: from an index into a slice or a reshape to the index into its source."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol

from lispgpt.errors import InternalError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import integers, shape_of
from lispgpt.passes.kernels.kernel_body import kept_dimensions

DYNAMIC = -(2**63)


class Indices(Protocol):
    """A Reader, of which views need only the values of the offsets that slices start at."""

    def index_of(self, value: ir.Value) -> Index: ...


def mapped(map_: ir.AffineMap, index: Sequence[Index]) -> list[Index]:
    """From an index into an elementwise op's iterations to the one into the operand with this indexing map."""
    where: list[Index] = []
    for expression in map_.results:
        if isinstance(expression, ir.AffineDimExpr):
            where.append(index[expression.position])
        elif isinstance(expression, ir.AffineConstantExpr):
            where.append(expression.value)
        else:
            raise InternalError(f"a kernel reads through the map {map_}")
    return where


def through_slice(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    return sliced_index(op, list(op.operands[1:]), shape_of(op.results[0]), index, reader)


def sliced_index(
    op: ir.Operation, dynamic_offsets: Sequence[ir.Value], shape: Sequence[int], index: Sequence[Index], reader: Indices
) -> list[Index]:
    """From an index into a slice (or what is inserted at one) of that shape to the index into the whole."""
    offsets, sizes = (integers(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
    dynamic = iter(dynamic_offsets)
    kept = kept_dimensions(sizes, shape)
    inner = iter(index)
    where = []
    for offset, keep in zip(offsets, kept, strict=True):
        start = reader.index_of(next(dynamic)) if offset == DYNAMIC else offset
        where.append(b.add(start, next(inner)) if keep else start)
    return where


def is_in_step(op: ir.Operation, width: int) -> bool:
    """Whether every `width` neighbours in a slice's rows are aligned neighbours in the source's."""
    offsets, sizes = (integers(op.attributes[name]) for name in ("static_offsets", "static_sizes"))
    steps = (offsets[-1], shape_of(op.operands[0])[-1])
    kept = kept_dimensions(sizes, shape_of(op.results[0]))[-1]
    return width == 1 or (kept and offsets[-1] != DYNAMIC and all(step % width == 0 for step in steps))


def _through_expand(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    """From an expanded tensor's index to its source's."""
    shape = shape_of(op.results[0])
    return [_linear([index[i] for i in group], [shape[i] for i in group]) for group in _groups(op)]


def _through_collapse(op: ir.Operation, index: list[Index], reader: Indices) -> list[Index]:
    """From a collapsed tensor's index to its source's."""
    shape = shape_of(op.operands[0])
    where: list[Index] = []
    for group, linear in zip(_groups(op), index, strict=True):
        where += _split(linear, [shape[i] for i in group])
    return where


def _groups(op: ir.Operation) -> list[list[int]]:
    return [integers(group) for group in op.attributes["reassociation"]]


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
