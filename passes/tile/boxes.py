"""Boxes of views, and the ops that bring them to shared memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.tile.copies import PackedOperand
from lispgpt.passes.tile.types import PATCHES, RegisterTile, ring_tiles, shared_tile


@dataclass(frozen=True)
class Box:
    """Part of a view: `rows` by `columns` from (batch, outer, inner) on.  What lies past the view's end is zeros.

    end: where the view ends along its outer dimension (or if `ends_inner`, along its inner one); None: where its tensor
    does.
    direct: as which of OPERANDS lanes load it to their registers; "": it goes to shared memory.
    lines: whether it lies there in swizzled lines, which bulk copies bring and warpgroups read.  across: whether
    instructions take it as it lies, with k along its rows.
    """

    operand: Operand
    at: tuple[Index, Index, Index]
    rows: int
    columns: int
    end: ir.Value | None = None
    ends_inner: bool = False
    direct: str = ""
    lines: bool = False
    across: bool = False

    @staticmethod
    def of(operand: Operand, at: tuple[Index, Index, Index], rows: int, columns: int) -> Box:
        """Of so many rows and of elements along k, which may be in blocks."""
        if not isinstance(operand, PackedOperand):
            return Box(operand, at, rows, columns)
        dtype, (batch, outer, inner) = find_dtype(operand.blocks), at
        if columns % dtype.block:
            raise Refused(f"a step of {columns} has no whole blocks of {operand.blocks}")
        start = b.mul(b.div(inner, dtype.block), dtype.item_bytes)
        return Box(operand, (batch, outer, start), rows, columns // dtype.block * dtype.item_bytes)

    @property
    def blocks(self) -> str:
        """The type of those whose bytes the view shows; "": it shows numbers."""
        return self.operand.blocks if isinstance(self.operand, PackedOperand) else ""

    @property
    def numbers(self) -> int:
        """Of a row."""
        if not self.blocks:
            return self.columns
        dtype = find_dtype(self.blocks)
        return self.columns // dtype.item_bytes * dtype.block


def emit(name: str, operands: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    """An op of the dialect, and its result."""
    return create_op(f"tile.{name}", operands, [type_]).results[0]


def view_of(box: Box) -> ir.Value:
    """The operand as [batch, outer, inner]."""
    operand, layout = box.operand, box.operand.layout
    kinds = {"batch": layout.batch, "outer": operand.outer, "inner": layout.sums}
    dims = {name: [operand.dimensions.index(loop) for loop in loops] for name, loops in kinds.items()}
    shape = [prod(operand.tensor.type.shape[d] for d in dims[name]) for name in kinds]
    type_ = ir.RankedTensorType.get(shape, operand.tensor.type.element_type)
    view = create_op("tile.view", [operand.tensor], [type_], dims).results[0]
    if box.end is None:
        return view
    return create_op("tile.limit", [view, box.end], [type_], {"inner": box.ends_inner}).results[0]


def fill(ring: ir.Value, views: Sequence[ir.Value], number: ir.Value, boxes: Sequence[Box]) -> None:
    """Start to fill a number of a ring."""
    for member in range(len(boxes)):
        fill_one(ring, views, member, number, boxes)


def fill_one(ring: ir.Value, views: Sequence[ir.Value], member: int, number: ir.Value, boxes: Sequence[Box]) -> None:
    """The same of one of its tiles."""
    create_op("tile.fill", [ring, views[member], *map(b.as_value, boxes[member].at), number], [], {"member": member})


def wait_for(ring: ir.Value, number: ir.Value, ahead: int = 0) -> tuple[ir.Value, ...]:
    """The tiles of a number of a ring."""
    types = [tile.slot.type for tile in ring_tiles(ring)]
    slots = create_op("tile.wait", [ring, number], [ir.TupleType.get_tuple(types)], {"ahead": ahead}).results[0]
    return tuple(create_op("tile.member", [slots], [type_], {"member": i}).results[0] for i, type_ in enumerate(types))


def clear(tiles: Sequence[ir.Value], boxes: Sequence[Box]) -> None:
    """Let what lies in tiles past their views' ends be zeros, where copies bring whatever is there."""
    for tile, box in zip(tiles, boxes, strict=True):
        if box.end is not None:
            create_op("tile.clear", [tile, b.as_value(box.at[1]), box.end])


@dataclass(frozen=True)
class Loads:
    """Boxes on their way through registers to shared tiles of a few slots.  later: whether what is made of memory's
    elements is made when they are put."""

    tiles: Sequence[ir.Value]
    views: Sequence[ir.Value]
    boxes: Callable[[Index], Sequence[Box]]
    later: bool = False

    def begin(self, ahead: int = 1) -> list[ir.Value]:
        """Put the first number's boxes, and load so many numbers' behind it."""
        self.put(self.load(0), 0)
        return [one for number in range(1, ahead + 1) for one in self.load(number)]

    def load(self, number: Index) -> list[ir.Value]:
        found = []
        for view, box in zip(self.views, self.boxes(number), strict=True):
            tile = RegisterTile((box.rows, box.columns), view.type.element_type, PATCHES)
            facts = {"later": True} if self.later else {}
            found.append(create_op("tile.load", [view, *map(b.as_value, box.at)], [tile.type], facts).results[0])
        return found

    def put(self, patches: Sequence[ir.Value], number: Index) -> list[ir.Value]:
        """The slots that they are put to."""
        found = self.slots(number)
        for one, slot in zip(patches, found, strict=True):
            create_op("tile.put", [one, slot])
        return found

    def slots(self, number: Index) -> list[ir.Value]:
        return [emit("slot", [tile, b.as_value(number)], shared_tile(tile).slot.type) for tile in self.tiles]
