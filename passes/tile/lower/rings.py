"""Rings: slots of shared tiles that copies fill ahead of who reads them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.ring import CopiedOperand
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.tile.copies import boxes_of, flat
from lispgpt.passes.tile.lower.memory import Slot
from lispgpt.passes.tile.types import SWIZZLE


@dataclass(frozen=True)
class Ring:
    """tiles: its tiles, all slots of each.  views: what fills them.  thread, threads: this one, of the block."""

    target: Gpu
    tiles: Sequence[Slot]
    views: Sequence[Operand]
    thread: Index
    threads: int

    @property
    def slots(self) -> int:
        return self.tiles[0].tile.slots

    def at(self, number: Index) -> list[Slot]:
        slot = b.mod(number, self.slots)
        return [Slot(one.tile.slot, one.memory, slot) for one in self.tiles]

    def fill(self, member: int, place: Sequence[Index], number: Index, end: ir.Value | None = None) -> None:
        """Start to bring a box of a member's view; members are filled in order.  end: where the view's outer dimension
        ends, if not where its tensor's does."""
        raise NotImplementedError

    def wait(self, number: Index, ahead: int) -> list[Slot]:
        raise NotImplementedError


class AsyncRing(Ring):
    """Each thread copies pieces of each box, in one group a number."""

    def fill(self, member: int, place: Sequence[Index], number: Index, end: ir.Value | None = None) -> None:
        self._copy(self.at(number)[member], self.views[member], place, end)
        if member == len(self.tiles) - 1:
            self.target.async_copies.close()  # type: ignore[union-attr]

    def _copy(self, slot: Slot, view: Operand, place: Sequence[Index], end: ir.Value | None) -> None:
        copies, tile = self.target.async_copies, slot.tile
        assert copies is not None
        memory, of = flat(view)
        piece = copies.piece // tile.item_bytes
        row_pieces = tile.columns // piece
        count = tile.rows * row_pieces
        batch, outer, inner = place
        for first in range(0, count, self.threads):
            number = b.add(self.thread, first)
            row, k = b.div(number, row_pieces), b.mul(b.mod(number, row_pieces), piece)
            at_row, at_k = b.add(outer, row), b.add(inner, k)
            extents = view.extent if end is None else end, view.layout.extent(view.layout.sums)
            inside = b.both(*(b.less(at, extent) for at, extent in zip((at_row, at_k), extents, strict=True)))
            where = b.or_zero(inside, of(batch, at_row, at_k))

            def start(where: Index = where, row: Index = row, k: Index = k, inside: ir.Value | None = inside) -> None:
                copies.start(memory, [where], slot.memory, [slot.slot, 0, row, k], inside)

            b.if_live(None if first + self.threads <= count else b.less(number, count), start)

    def wait(self, number: Index, ahead: int) -> list[Slot]:
        self.target.async_copies.wait(ahead)  # type: ignore[union-attr]
        return self.at(number)


@dataclass(frozen=True)
class BulkRing(Ring):
    """One thread starts copies of whole boxes.  For each slot a barrier tells that it is full, and another that it is
    empty again: `barriers` is the address of the first.  operands: how copies see the views.  maps: of each.
    multiplying: threads that read slots.  rank: this block's in its cluster."""

    operands: Sequence[CopiedOperand]
    maps: Sequence[Sequence[ir.Value]]
    barriers: Index
    multiplying: int
    rank: Index = 0

    @property
    def copies(self) -> TensorCopies:
        assert self.target.copies is not None
        return self.target.copies

    @property
    def readers(self) -> int:
        """Warpgroups that release a slot."""
        assert self.target.warpgroup is not None
        return self.multiplying // self.target.warpgroup.threads

    @property
    def sharing(self) -> int:
        """Blocks whose copies write each other's slots."""
        return max(operand.sharing for operand in self.operands)

    def make(self) -> None:
        """By one thread: the barriers, and maps on their way."""
        for map_ in (one for maps in self.maps for one in maps):
            self.copies.prefetch(map_)
        for slot in range(self.slots):
            self.copies.make_barrier(self._full(slot), 1)
            self.copies.make_barrier(self._empty(slot), self.readers * self.sharing)
        self.copies.publish_barriers()

    def _full(self, slot: Index) -> Index:
        return b.add(self.barriers, b.mul(slot, self.copies.barrier_bytes))

    def _empty(self, slot: Index) -> Index:
        return b.add(self._full(slot), self.slots * self.copies.barrier_bytes)

    def _phase(self, number: Index) -> Index:
        return b.mod(b.div(number, self.slots), 2)

    def fill(self, member: int, place: Sequence[Index], number: Index, end: ir.Value | None = None) -> None:
        slots = self.at(number)
        slot, full, one = slots[0].slot, self._full(slots[0].slot), slots[member]
        if member == 0:
            if not (isinstance(number, int) and number < self.slots):  # where nobody has read yet
                self.copies.wait(self._empty(slot), b.xor(self._phase(number), 1))
            self.copies.expect(full, sum(each.tile.slot_bytes for each in slots))
        shared = b.add(one.memory, b.mul(slot, one.tile.slot_bytes))
        self.operands[member].load(self.copies, self.maps[member], place, shared, full, self.rank)

    def wait(self, number: Index, ahead: int) -> list[Slot]:
        slots = self.at(number)
        self.copies.wait(self._full(slots[0].slot), self._phase(number))
        return slots

    def release(self, number: Index) -> None:
        """By each warpgroup, which is done with a slot."""
        assert self.target.warpgroup is not None
        empty = self._empty(b.mod(number, self.slots))
        lane = b.mod(self.thread, self.target.warpgroup.threads)
        if self.sharing == 1:
            b.if_then(b.equal(lane, 0), lambda: self.copies.arrive(empty))
        else:
            b.if_then(b.less(lane, self.sharing), lambda: self.copies.arrive(empty, lane))


def copied_operands(
    views: Sequence[Operand], tiles: Sequence[Slot], sharing: Sequence[int], target: Gpu
) -> list[CopiedOperand]:
    """How bulk copies see views whose boxes fill tiles, which so many blocks bring for each other."""
    assert target.copies is not None
    found = []
    for view, one, blocks in zip(views, tiles, sharing, strict=True):
        boxes, *rest = boxes_of(view, target.copies, one.tile.across)
        sizes = one.tile.rows, one.tile.columns, SWIZZLE, blocks
        found.append(CopiedOperand(boxes, *sizes, *rest))
    return found
