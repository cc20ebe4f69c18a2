"""Tensors as bulk copies see them: maps of dimensions and strides, of which each copy takes a box."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import defining_op, integers, kept_dimensions, reshape_groups, shape_of
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.kernels.views import DYNAMIC
from lispgpt.passes.recognise.bf16_parts import parts_of
from lispgpt.passes.recognise.product_layout import ProductLayout
from lispgpt.passes.targets.tensor_copies import TensorCopies


@dataclass(frozen=True)
class Strided:
    """Where in a kernel's argument the elements of a view of it lie: from its offset-th element on.  extents, strides:
    of each of the view's dimensions, strides counted in elements."""

    argument: ir.Value
    offset: int
    extents: tuple[int, ...]
    strides: tuple[int, ...]


@dataclass(frozen=True)
class Boxes:
    """A view of a kernel's argument that is one of a product's tensors, as boxes of it are copied.

    groups: its dimensions, outermost first, as loops of the product that one index runs through and that belong to one
    kind; strides: theirs.  kinds: the loops of each kind, of which all but the first, the batch, are one group.
    """

    view: Strided
    layout: ProductLayout
    groups: tuple[tuple[int, ...], ...]
    strides: tuple[int, ...]
    kinds: tuple[tuple[int, ...], ...]

    @property
    def argument(self) -> ir.Value:
        return self.view.argument

    @property
    def along(self) -> tuple[int, ...]:
        """The loops of the innermost dimension."""
        return self.groups[-1]

    def is_along(self, kind: int) -> bool:
        return set(self.along) <= set(self.kinds[kind])

    def at(self, indices: Sequence[Index]) -> list[Index]:
        """Where a box starts, innermost dimension first, from an index for each kind."""
        where: dict[int, Index] = {}
        found = []
        for kind, index in zip(self.kinds, indices, strict=True):
            if kind in self.groups:
                where[kind[0]] = index
            else:
                extents = [self.layout.extents[loop] for loop in kind]
                where.update(zip(kind, coordinates(index, extents), strict=True))
        for group in reversed(self.groups):
            place: Index = 0
            for loop in group if group not in self.kinds else group[:1]:
                place = b.add(b.mul(place, self.layout.extents[loop]), where[loop])
            found.append(place)
        return found

    def map(self, kernel: ir.Operation, box: Sequence[int]) -> ir.Value:
        """The address of a map for boxes of so many elements along each kind."""
        sizes = {loop: n for kind, n in zip(self.kinds, box, strict=True) for loop in kind}
        extents = [self.layout.extent(group) for group in reversed(self.groups)]
        item = b.item_bytes(self.argument.type)
        fields = {
            "argument": ir.BlockArgument(self.argument).arg_number,
            "dtype": str(self.argument.type.element_type),
            "extents": extents,
            "offset": self.view.offset * item,
            "strides": [stride * item for stride in reversed(self.strides[:-1])],
            "box": [sizes[group[0]] for group in reversed(self.groups)],
        }
        return address_of_map(kernel, attribute(fields))


NONE_HELD: Mapping[ir.Value, ir.Value] = {}


def find_boxes(
    view: Strided | None,
    layout: ProductLayout,
    dimensions: Sequence[int],
    kinds: Sequence[tuple[int, ...]],
    copies: TensorCopies,
) -> Boxes | None:
    """How to copy boxes of a view with one loop for each dimension; None where copies cannot.

    kinds: the loops that are the batch, then those of which a box has several.
    """
    if view is None:
        return None
    kept = [tuple(loop for loop in kind if layout.extents[loop] > 1) for kind in kinds]
    groups: list[list[int]] = []
    strides: list[int] = []
    for loop, stride in zip(dimensions, view.strides, strict=True):
        if layout.extents[loop] == 1:
            continue
        (kind,) = [k for k in kept if loop in k]
        last = groups[-1][-1] if groups else -1
        follows = last in kind and kind.index(last) + 1 == kind.index(loop)
        if follows and strides[-1] == stride * layout.extents[loop]:
            groups[-1].append(loop)
            strides[-1] = stride
        else:
            groups.append([loop])
            strides.append(stride)
    sides = [[g for g in groups if g[0] in kind] for kind in kept[1:]]
    if any(len(side) != 1 for side in sides) or not 1 < len(groups) <= copies.rank or groups[-1][0] in kept[0]:
        return None
    item = b.item_bytes(view.argument.type)
    if strides[-1] != 1 or any(n * item % copies.alignment for n in (view.offset, *strides[:-1])):
        return None
    return Boxes(view, layout, tuple(map(tuple, groups)), tuple(strides), tuple(kept))


def strided(tensor: ir.Value, part: int | None = None, held: Mapping[ir.Value, ir.Value] = NONE_HELD) -> Strided | None:
    """A tensor as a view of an argument through reshapes and slices that are known while compiling, if it is one.

    part: which of the two to take of what is the sum of stored parts; None: there are none.  held: arguments that have
    tensors which the kernel makes in them.
    """
    if tensor in held:
        return whole(held[tensor])
    op = defining_op(tensor)
    if op is None:
        return None
    if op.name == "bufferization.to_tensor":
        return whole(op.operands[0]) if part is None else None
    parts = None if part is None else parts_of(op)
    if parts is not None:
        return strided(parts[part or 0], held=held)
    source = strided(op.operands[0], part, held) if op.name in _THROUGH else None
    return None if source is None else _THROUGH[op.name](op, source)


def whole(buffer: ir.Value) -> Strided | None:
    """An argument as it is, where it is row-major."""
    if defining_op(buffer) is not None:
        return None
    shape = tuple(buffer.type.shape)
    if buffer.type.affine_map != ir.AffineMap.get_identity(len(shape)):
        return None
    return Strided(buffer, 0, shape, tuple(prod(shape[i + 1 :]) for i in range(len(shape))))


def _sliced(op: ir.Operation, source: Strided) -> Strided | None:
    offsets, sizes, steps = (integers(op.attributes[f"static_{n}"]) for n in ("offsets", "sizes", "strides"))
    if DYNAMIC in (*offsets, *sizes, *steps):
        return None
    offset = source.offset + sum(n * stride for n, stride in zip(offsets, source.strides, strict=True))
    kept = kept_dimensions(sizes, shape_of(op.results[0]))
    strides = [n * stride for n, stride, keep in zip(steps, source.strides, kept, strict=True) if keep]
    return Strided(source.argument, offset, shape_of(op.results[0]), tuple(strides))


def _expanded(op: ir.Operation, source: Strided) -> Strided | None:
    shape, strides = shape_of(op.results[0]), []
    for group, stride in zip(reshape_groups(op), source.strides, strict=True):
        extents = [shape[i] for i in group]
        strides += [stride * prod(extents[i + 1 :]) for i in range(len(extents))]
    return Strided(source.argument, source.offset, shape, tuple(strides))


def _collapsed(op: ir.Operation, source: Strided) -> Strided | None:
    strides = []
    for group in reshape_groups(op):
        parts = [(source.extents[i], source.strides[i]) for i in group if source.extents[i] > 1]
        if any(a[1] != c[0] * c[1] for a, c in pairwise(parts)):
            return None
        strides.append(parts[-1][1] if parts else 1)
    return Strided(source.argument, source.offset, shape_of(op.results[0]), tuple(strides))


_THROUGH = {
    "tensor.extract_slice": _sliced,
    "tensor.expand_shape": _expanded,
    "tensor.collapse_shape": _collapsed,
}
