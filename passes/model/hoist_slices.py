"""hoist-slices: what is read of a slice alone is made for that slice alone.

Before:                                              After:
  %h = … contract(%n, %w) : tensor<1024x768xf32>       %r = tensor.extract_slice %n[1023, 0] [1, 768] [1, 1]
  %r = tensor.extract_slice %h[1023, 0] [1, 768] …     %h = … contract(%r, %w) : tensor<1x768xf32>

Of a prompt, only the last row has logits: behind the last layer's keys and values all is made for one row.

Requires: entries on tensors, before products are told apart.
Ensures: no linalg op, reshape or slice makes a tensor that other slices read, all of them the same part of it, which is
at most a `times`-th, if it could make that part from parts of its operands.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import (
    defining_op,
    element_type,
    entry_functions,
    indexing_maps,
    integers,
    kept_dimensions,
    nested_operations,
    operand_loops,
    operations,
    reshape_groups,
    shape_of,
)
from lispgpt.passes.base import Pass

DYNAMIC = ir.ShapedType.get_dynamic_size()


@dataclass(frozen=True)
class Part:
    """Of each dimension of a tensor, elements from an offset on, and how many."""

    offsets: tuple[int, ...]
    sizes: tuple[int, ...]

    def narrowed(self, shape: Sequence[int]) -> list[int]:
        """The dimensions of which it is not all."""
        return [d for d, (size, extent) in enumerate(zip(self.sizes, shape, strict=True)) if size != extent]


@dataclass(frozen=True)
class HoistSlices(Pass):
    """times: how many times as much as the slice a tensor has at least."""

    times: int = 2

    def run(self, module: ir.Module, target: object) -> None:
        for entry in entry_functions(module):
            for op in reversed(operations(entry.regions[0].blocks[0])):
                narrow = _NARROW.get(op.name, _narrow_linalg if op.name.startswith("linalg.") else None)
                part = None if narrow is None or len(op.results) != 1 else self._wanted(op.results[0])
                if narrow is not None and part is not None:
                    with ir.InsertionPoint(op), op.location:
                        if narrow(op, part):
                            _retype(op.results[0], part)

    def _wanted(self, value: ir.Value) -> Part | None:
        """The part of a tensor that all its uses read, by slices; None where there is no such part."""
        if not isinstance(value.type, ir.RankedTensorType):
            return None
        if DYNAMIC in shape_of(value):
            return None
        found = {_part_read(use.owner.operation, value) for use in value.uses}
        part = found.pop() if len(found) == 1 else None
        return part if part is not None and self.times * prod(part.sizes) <= prod(shape_of(value)) else None


def _part_read(op: ir.Operation, value: ir.Value) -> Part | None:
    """What an op reads of a tensor, where it is a slice at places known while compiling."""
    if op.name != "tensor.extract_slice" or op.operands[0] != value or len(op.operands) > 1:
        return None
    offsets, sizes, strides = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
    if DYNAMIC in (*offsets, *sizes) or set(strides) - {1}:
        return None
    return Part(tuple(offsets), tuple(sizes))


def _retype(value: ir.Value, part: Part) -> None:
    """Let a tensor be a part of what it was; what took that part takes all."""
    value.set_type(ir.RankedTensorType.get(list(part.sizes), element_type(value)))
    for op in [use.owner.operation for use in value.uses]:
        if op.results[0].type == value.type:
            op.results[0].replace_all_uses_with(value)
            op.erase()
        else:
            op.attributes["static_offsets"] = ir.DenseI64ArrayAttr.get([0] * len(part.offsets))


def _taken(value: ir.Value, part: Part) -> ir.Value:
    """A part of a tensor."""
    shape, op = shape_of(value), defining_op(value)
    if not part.narrowed(shape):
        return value
    type_ = ir.RankedTensorType.get(list(part.sizes), element_type(value))
    if op is not None and op.name == "tensor.empty":
        return b.emit("tensor.empty", [], [type_])
    if op is not None and op.name == "linalg.fill":
        empty = b.emit("tensor.empty", [], [type_])
        copy = op.clone().operation
        copy.operands[1] = empty
        copy.results[0].set_type(type_)
        return copy.results[0]
    segments = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([1, 0, 0, 0])}
    numbers = {"offsets": part.offsets, "sizes": part.sizes, "strides": [1] * len(shape)}
    static = {f"static_{name}": ir.DenseI64ArrayAttr.get(list(each)) for name, each in numbers.items()}
    return create_op("tensor.extract_slice", [value], [type_], segments | static).results[0]


# ---- each returns whether it has made the operands parts, of which the op makes the part


def _narrow_linalg(op: ir.Operation, part: Part) -> bool:
    loops = operand_loops(op)
    if loops is None or (DYNAMIC in (n for value in op.operands if _is_tensor(value) for n in shape_of(value))):
        return False
    result = op.results[0]
    narrow = {loops[-1][d]: (part.offsets[d], part.sizes[d]) for d in part.narrowed(shape_of(result))}
    if None in narrow or not _keeps(op, narrow):
        return False
    for number, (value, where) in enumerate(zip(op.operands, loops, strict=True)):
        if where:
            offsets, sizes = zip(
                *(narrow.get(loop, (0, n)) for loop, n in zip(where, shape_of(value), strict=True)), strict=True
            )
            op.operands[number] = _taken(value, Part(offsets, sizes))
    for inner in nested_operations(op):
        if inner.name == "linalg.index":
            offset, _ = narrow.get(ir.IntegerAttr(inner.attributes["dim"]).value, (0, 0))
            if offset:
                _count_from(inner, offset)
    return True


def _is_tensor(value: ir.Value) -> bool:
    return isinstance(value.type, ir.RankedTensorType)


def _keeps(op: ir.Operation, narrow: Mapping[int | None, object]) -> bool:
    """Whether running through a part of these loops makes a part of the result."""
    if op.name == "linalg.softmax":
        return ir.IntegerAttr(op.attributes["dimension"]).value not in narrow
    maps = indexing_maps(op) if "indexing_maps" in op.attributes else []
    plain = (ir.AffineDimExpr, ir.AffineConstantExpr)
    return all(isinstance(e, plain) for map_ in maps for e in map_.results)


def _count_from(index: ir.Operation, offset: int) -> None:
    """Let a loop's number be what it was before the loop ran through a part alone."""
    block, result = index.block, index.results[0]
    users = [(use.owner.operation, use.operand_number) for use in result.uses]
    after = operations(block)
    following = after[after.index(index) + 1]
    with ir.InsertionPoint(following), index.location:
        number = b.emit("arith.addi", [result, b.constant(offset, result.type)], [result.type])
    for user, operand in users:
        user.operands[operand] = number


def _narrow_expanded(op: ir.Operation, part: Part) -> bool:
    source, shape = op.operands[0], shape_of(op.results[0])
    offsets, sizes = [], []
    for group in reshape_groups(op):
        extents = [shape[d] for d in group]
        run = _run_of([part.offsets[d] for d in group], [part.sizes[d] for d in group], extents)
        if run is None:
            return False
        offsets.append(run[0])
        sizes.append(run[1])
    op.operands[0] = _taken(source, Part(tuple(offsets), tuple(sizes)))
    op.attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(part.sizes))
    return True


def _run_of(offsets: Sequence[int], sizes: Sequence[int], extents: Sequence[int]) -> tuple[int, int] | None:
    """Where a part of neighbouring dimensions starts as one, and its size; None where it does not lie together."""
    start, size, whole = 0, 1, True
    for offset, each, extent in zip(offsets, sizes, extents, strict=True):
        start, size = start * extent + offset, size * each
    for each, extent in reversed(list(zip(sizes, extents, strict=True))):
        if each > 1 and not whole:
            return None
        whole = whole and each == extent
    return start, size


def _narrow_collapsed(op: ir.Operation, part: Part) -> bool:
    source = op.operands[0]
    shape = shape_of(source)
    offsets, sizes = [0] * len(shape), list(shape)
    for d, group in enumerate(reshape_groups(op)):
        box = _box_of(part.offsets[d], part.sizes[d], [shape[each] for each in group])
        if box is None:
            return False
        for each, (offset, size) in zip(group, box, strict=True):
            offsets[each], sizes[each] = offset, size
    op.operands[0] = _taken(source, Part(tuple(offsets), tuple(sizes)))
    return True


def _box_of(offset: int, size: int, extents: Sequence[int]) -> list[tuple[int, int]] | None:
    """The part of several dimensions that is a run of elements of all of them as one; None where it is no box."""
    found: list[tuple[int, int]] = []
    for extent in reversed(extents):
        if offset % extent == 0 and size % extent == 0:
            found.append((0, extent))
            offset, size = offset // extent, size // extent
        elif offset % extent + size <= extent:
            found.append((offset % extent, size))
            offset, size = offset // extent, 1
        else:
            return None
    return found[::-1]


def _narrow_slice(op: ir.Operation, part: Part) -> bool:
    outer = _part_read(op, op.operands[0])
    if outer is None:
        return False
    offsets, sizes, dims = list(outer.offsets), list(outer.sizes), zip(part.offsets, part.sizes, strict=True)
    for d, kept in enumerate(kept_dimensions(outer.sizes, shape_of(op.results[0]))):
        if kept:
            offset, sizes[d] = next(dims)
            offsets[d] += offset
    op.attributes["static_offsets"], op.attributes["static_sizes"] = map(ir.DenseI64ArrayAttr.get, (offsets, sizes))
    return True


_NARROW = {
    "tensor.expand_shape": _narrow_expanded,
    "tensor.collapse_shape": _narrow_collapsed,
    "tensor.extract_slice": _narrow_slice,
}
