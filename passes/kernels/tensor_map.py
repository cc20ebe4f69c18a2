"""Tensors as bulk copies see them: maps of dimensions and strides, of which each copy takes a box."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.model.product_layout import ProductLayout
from lispgpt.passes.targets.tensor_copies import TensorCopies


@dataclass(frozen=True)
class Boxes:
    """A kernel's argument that holds one of a product's tensors, row-major, as boxes of it are copied.

    groups: its dimensions, outermost first, as loops of the product that lie side by side and belong to one kind.
    kinds: the loops of each kind, of which all but the first, the batch, are one group or none.
    """

    argument: ir.Value
    layout: ProductLayout
    groups: tuple[tuple[int, ...], ...]
    kinds: tuple[tuple[int, ...], ...]

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
        i64 = ir.IntegerType.get_signless(64)
        fields: dict[str, ir.Attribute] = {
            "argument": ir.IntegerAttr.get(i64, ir.BlockArgument(self.argument).arg_number),
            "dtype": ir.StringAttr.get(str(self.argument.type.element_type)),
            "extents": ir.DenseI64ArrayAttr.get(extents),
            "strides": ir.DenseI64ArrayAttr.get([prod(extents[:i]) * item for i in range(1, len(extents))]),
            "box": ir.DenseI64ArrayAttr.get([sizes[group[0]] for group in reversed(self.groups)]),
        }
        return address_of_map(kernel, ir.DictAttr.get(fields))


def find_boxes(
    buffer: ir.Value | None,
    layout: ProductLayout,
    dimensions: Sequence[int],
    kinds: Sequence[tuple[int, ...]],
    copies: TensorCopies,
) -> Boxes | None:
    """How to copy boxes of a buffer with one loop for each dimension; None where copies cannot.

    kinds: the loops that are the batch, then those of which a box has several.
    """
    if buffer is None or defining_op(buffer) is not None:
        return None
    if buffer.type.affine_map != ir.AffineMap.get_identity(len(buffer.type.shape)):
        return None
    kept = [[loop for loop in kind if layout.extents[loop] > 1] for kind in kinds]
    groups: list[list[int]] = []
    for loop in (loop for loop in dimensions if layout.extents[loop] > 1):
        (kind,) = [k for k in kept if loop in k]
        if groups and groups[-1][-1] in kind and kind.index(groups[-1][-1]) + 1 == kind.index(loop):
            groups[-1].append(loop)
        else:
            groups.append([loop])
    sides = [[g for g in groups if g[0] in kind] for kind in kept[1:]]
    if any(len(side) != 1 for side in sides) or not 1 < len(groups) <= copies.rank or groups[-1][0] in kept[0]:
        return None
    pitch = layout.extent(tuple(groups[-1])) * b.item_bytes(buffer.type)
    if pitch % copies.alignment:
        return None
    return Boxes(buffer, layout, tuple(map(tuple, groups)), tuple(map(tuple, kept)))
