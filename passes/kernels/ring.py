"""A ring of stages in shared memory, through which one warpgroup's copies hand steps of a product to the others.

A stage holds both operands' parts of a tile for one step of k.  Each has two barriers: `full`, whose phase ends when
copies have brought all of it, and `empty`, whose phase ends when all who read it are done.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.tensor_map import Boxes
from lispgpt.passes.targets.tensor_copies import TensorCopies


@dataclass(frozen=True)
class CopiedOperand:
    """How a tile of an operand lies in a stage: in swizzled lines of 128 bytes along k, or transposed, along its rows
    or columns; first all lines of the first 128 bytes, then those of the next.

    outer: rows or columns of the tile.  inner: elements of k.  sharing: blocks of a cluster that need the same tile,
    of which each brings a part to all.  rest: what is to be added to it, which lies behind it in the same way.
    """

    boxes: Boxes
    outer: int
    inner: int
    line: int
    sharing: int = 1
    rest: Boxes | None = None

    @property
    def tensors(self) -> list[Boxes]:
        return [self.boxes] if self.rest is None else [self.boxes, self.rest]

    @property
    def transposed(self) -> bool:
        return self.boxes.is_along(1)

    @property
    def item(self) -> int:
        """Bytes of an element."""
        return b.item_bytes(self.boxes.argument.type)

    @property
    def width(self) -> int:
        """Elements of a line."""
        return self.line // self.item

    @property
    def parts(self) -> int:
        """Pieces that are one line wide."""
        return -(-self.outer // self.width) if self.transposed else self.inner // self.width

    @property
    def part_bytes(self) -> int:
        return (self.inner if self.transposed else self.outer) * self.line

    @property
    def brought_bytes(self) -> int:
        """Of what copies bring."""
        return self.nbytes

    @property
    def tensor_bytes(self) -> int:
        """Of each of the tensors."""
        return self.parts * self.part_bytes

    @property
    def nbytes(self) -> int:
        return len(self.tensors) * self.tensor_bytes

    def maps(self, kernel: ir.Operation) -> list[ir.Value]:
        """Of each of the tensors."""
        box = (self.width, self.inner) if self.transposed else (self.outer // self.sharing, self.width)
        return [boxes.map(kernel, (1, *box)) for boxes in self.tensors]

    @property
    def numbers(self) -> int:
        """Tensors that add up to it."""
        return len(self.tensors)

    def load(
        self,
        copies: TensorCopies,
        maps: Sequence[ir.Value],
        first: Sequence[Index],
        shared: Index,
        barrier: Index,
        rank: Index,
    ) -> None:
        """Start to bring what starts at (batch, row or column, k) to `shared`; rank: this block's in its cluster."""
        for number, (boxes, map_) in enumerate(zip(self.tensors, maps, strict=True)):
            start = b.add(shared, number * self.tensor_bytes)
            self._load(copies, boxes, map_, first, start, barrier, rank)

    def _load(
        self,
        copies: TensorCopies,
        boxes: Boxes,
        map_: ir.Value,
        first: Sequence[Index],
        shared: Index,
        barrier: Index,
        rank: Index,
    ) -> None:
        batch, outer, k = first
        blocks = range(self.sharing) if self.sharing > 1 else ()
        own = self.parts // self.sharing if self.transposed else self.parts
        for number in range(own):
            if self.transposed:
                part = b.add(b.mul(rank, own), number) if self.sharing > 1 else number
                at, place = (b.add(outer, b.mul(part, self.width)), k), b.mul(part, self.part_bytes)
            else:
                skipped = b.mul(rank, self.outer // self.sharing) if self.sharing > 1 else 0
                at = (b.add(outer, skipped), b.add(k, number * self.width))
                place = b.add(b.mul(skipped, self.line), number * self.part_bytes)
            copies.load(map_, boxes.at((batch, *at)), b.add(shared, place), barrier, blocks)


@dataclass(frozen=True)
class WidenedOperand:
    """A tile that threads write to a stage, as copies would bring it: so many BF16 numbers an element, one tile of them
    behind the other, in lines along k.  Of a tile that blocks of a cluster share each writes a part, which a copy takes
    from there to the others.  The rest as of a CopiedOperand."""

    numbers: int
    outer: int
    inner: int
    line: int
    sharing: int = 1

    transposed: ClassVar[bool] = False

    @property
    def own(self) -> int:
        """Columns that a block's threads write."""
        return self.outer // self.sharing

    @property
    def brought_bytes(self) -> int:
        return self.nbytes - self.nbytes // self.sharing

    @property
    def tensor_bytes(self) -> int:
        return self.outer * self.line

    @property
    def nbytes(self) -> int:
        return self.numbers * self.tensor_bytes

    def maps(self, kernel: ir.Operation) -> list[ir.Value]:
        """There are none."""
        return []


@dataclass(frozen=True)
class StagePlace:
    """A stage's number, and the parity of the phase that its reader waits for."""

    slot: Index
    phase: Index

    def values(self) -> list[ir.Value]:
        return [b.as_value(self.slot), b.as_value(self.phase)]


@dataclass(frozen=True)
class Ring:
    """start: address of the first stage; a stage's left operand is followed by its right one.  barriers: address of the
    `full` ones, which the `empty` ones follow.  sharing: blocks of a cluster whose copies write each other's stages.
    widening: subgroups that write a part of each stage themselves."""

    copies: TensorCopies
    left: CopiedOperand
    right: CopiedOperand | WidenedOperand
    stages: int
    start: Index
    barriers: Index
    sharing: int
    widening: int = 0

    @property
    def stage_bytes(self) -> int:
        return self.left.nbytes + self.right.nbytes

    def make(self, readers: int) -> None:
        """By one thread.  readers: arrivals from each block that end a stage's use."""
        for slot in range(self.stages):
            self.copies.make_barrier(self.full(slot), 1 + self.widening)
            self.copies.make_barrier(self.empty(slot), readers * self.sharing)
        self.copies.publish_barriers()

    def full(self, slot: Index) -> Index:
        return b.add(self.barriers, b.mul(slot, self.copies.barrier_bytes))

    def empty(self, slot: Index) -> Index:
        return b.add(self.full(slot), self.stages * self.copies.barrier_bytes)

    def left_at(self, slot: Index) -> Index:
        return b.add(self.start, b.mul(slot, self.stage_bytes))

    def right_at(self, slot: Index) -> Index:
        return b.add(self.left_at(slot), self.left.nbytes)

    def after(self, place: StagePlace) -> StagePlace:
        following = b.add(place.slot, 1)
        wraps = b.equal(following, self.stages)
        slot = b.select(wraps, b.as_value(0), b.as_value(following))
        return StagePlace(slot, b.select(wraps, b.as_value(b.xor(place.phase, 1)), b.as_value(place.phase)))

    def wait_full(self, place: StagePlace) -> None:
        self.copies.wait(self.full(place.slot), place.phase)

    def wait_empty(self, place: StagePlace) -> None:
        """For the writer, whose phase is the other one."""
        self.copies.wait(self.empty(place.slot), b.xor(place.phase, 1))

    def expect(self, slot: Index) -> None:
        self.copies.expect(self.full(slot), self.left.brought_bytes + self.right.brought_bytes)

    def release(self, slot: Index, thread: Index) -> None:
        """By all threads of a warpgroup that is done with a stage; thread: the number of each."""
        if self.sharing == 1:
            b.if_then(b.equal(thread, 0), lambda: self.copies.arrive(self.empty(slot)))
        else:
            b.if_then(b.less(thread, self.sharing), lambda: self.copies.arrive(self.empty(slot), thread))
