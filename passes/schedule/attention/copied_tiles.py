"""Tiles of bf16 operands that bulk copies bring to shared memory, in the layout that warpgroup instructions take.

A tile of `count` vectors of an operand has their first 64 numbers in lines of 128 bytes, one below the other, then the
next 64 of all of them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import attribute, ir
from lispgpt.ir.structure import shape_of
from lispgpt.ir.tensor_maps import address_of_map
from lispgpt.passes.kernels.attention import Place
from lispgpt.passes.kernels.tensor_map import NONE_HELD, strided
from lispgpt.passes.recognise.score_operands import DEPTH, POSITION, Operand
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit


@dataclass(frozen=True)
class MappedOperand:
    """Where an operand's numbers lie in a kernel's argument: element `start` and strides, by dimension.

    Copies see the argument, from a whole number of rows on, as rows, one for each vector along `along`, of as many
    elements as lie between two of them; what changes within a row, such as the head, is where in it a box starts.
    """

    operand: Operand
    argument: ir.Value
    along: int
    start: int
    strides: dict[int, int]

    @classmethod
    def of(
        cls, operand: Operand, along: int, copies: TensorCopies, held: Mapping[ir.Value, ir.Value]
    ) -> MappedOperand | None:
        """None where copies cannot see it so.  held: arguments that have tensors."""
        view = strided(operand.tensor, held=held)
        if view is None or str(operand.element) != "bf16":
            return None
        numbers = zip(operand.dims, view.strides, view.extents, strict=True)
        strides = {dim: stride if extent > 1 else 0 for dim, stride, extent in numbers}
        found = cls(operand, view.argument, along, view.offset, strides)
        return found if found._fits(copies) else None

    def _fits(self, copies: TensorCopies) -> bool:
        row = self.strides.get(self.along, 0)
        if not row:
            return False
        last = sum(self.strides[d] * (self.extent(d) - 1) for d in self.inner) + self.operand.depth - 1
        pitches = [self.strides[d] for d in (self.along, *self.outer)]
        return (
            self.strides[DEPTH] == 1
            and self._inside + last < row
            and 2 + len(self.outer) <= copies.rank
            and all(2 * pitch % copies.alignment == 0 for pitch in pitches)
        )

    def extent(self, dim: int) -> int:
        return shape_of(self.operand.tensor)[self.operand.dims.index(dim)]

    @property
    def _inside(self) -> int:
        """Elements of a row before the first."""
        return self.start % self.strides[self.along]

    @property
    def inner(self) -> list[int]:
        """Dimensions that lie within a row, but for the depth."""
        row = self.strides.get(self.along, 0)
        return [d for d, s in self.strides.items() if d not in (self.along, DEPTH) and 0 < s < row]

    @property
    def outer(self) -> list[int]:
        """Dimensions that lie beyond one, innermost first."""
        rest = [d for d, s in self.strides.items() if d not in (self.along, DEPTH, *self.inner) and s]
        return sorted(rest, key=self.strides.__getitem__)

    def map(self, kernel: ir.Operation, rows: int, columns: int) -> ir.Value:
        """The address of a map for boxes of so many vectors, and so many of their numbers."""
        dims = (self.along, *self.outer)
        fields = {
            "argument": ir.BlockArgument(self.argument).arg_number,
            "offset": 2 * (self.start - self._inside),
            "dtype": "bf16",
            "extents": [self.strides[self.along], *map(self.extent, dims)],
            "strides": [2 * self.strides[d] for d in dims],
            "box": [columns, rows, *[1] * len(self.outer)],
        }
        return address_of_map(kernel, attribute(fields))

    def at(self, place: Place, t: Index, d: int) -> list[Index]:
        """Where a box starts that has the number `d` of a vector first."""
        named = {**dict(enumerate(place)), POSITION: t}
        parts = [b.mul(named[dim], self.strides[dim]) for dim in self.inner]
        return [reduce(b.add, parts, self._inside + d), named[self.along], *(named[dim] for dim in self.outer)]


@dataclass(frozen=True)
class CopiedTiles:
    """`stages` tiles of each operand.  start: address of the first.  maps: of the operands, for boxes of `count` rows.

    place: gives the leading indices and the position of what is copied at an index.
    """

    operands: Sequence[MappedOperand]
    maps: Sequence[ir.Value]
    copies: TensorCopies
    unit: WarpgroupUnit
    count: int
    stages: int
    start: Index

    @property
    def stage_bytes(self) -> int:
        return sum(map(self._bytes, self.operands))

    def _bytes(self, mapped: MappedOperand) -> int:
        return 2 * self.count * mapped.operand.depth

    def load(self, at: tuple[Place, Index], stage: Index, barrier: Index) -> None:
        """By one thread: start to bring what is from a place on, of all operands, which a barrier is to count."""
        self.copies.expect(barrier, self.stage_bytes)
        for number, (mapped, map_) in enumerate(zip(self.operands, self.maps, strict=True)):
            for part in range(mapped.operand.depth // self.unit.inner):
                place = b.add(self.start, self._offset(number, stage, part, 0))
                self.copies.load(map_, mapped.at(*at, part * self.unit.inner), place, barrier)

    def line(self, operand: int, stage: Index, row: Index, block: int) -> ir.Value:
        """A descriptor of the vectors from `row` on, along which k goes, at the block-th 16 of their depth."""
        part, inside = divmod(block * self.unit.block, self.unit.inner)
        first = self.unit.descriptor_at(b.add(self.start, self._offset(operand, stage, part, row)))
        return self.unit.advanced(first, inside // self.unit.block)

    def transposed(self, operand: int, stage: Index, block: int, part: int) -> ir.Value:
        """A descriptor of the block-th 16 vectors, across which k goes, and of the part-th 64 of their depth."""
        return self.unit.descriptor_at(b.add(self.start, self._offset(operand, stage, part, block * self.unit.block)))

    def _offset(self, operand: int, stage: Index, part: int, row: Index) -> Index:
        """Bytes from the start."""
        line_bytes = 2 * self.unit.inner
        before = sum(self._bytes(mapped) for mapped in self.operands[:operand])
        return b.add(
            b.mul(stage, self.stage_bytes), b.add(b.mul(row, line_bytes), before + part * self.count * line_bytes)
        )


@dataclass(frozen=True)
class TileRing:
    """Stages that one thread fills and warpgroups read: tile n is in stage n modulo their number.

    barriers: address of those that end when a stage is full, which those that end when it is empty follow.
    """

    tiles: CopiedTiles
    barriers: Index

    def make(self, readers: int) -> None:
        """By one thread, which publishes them after that."""
        for slot in range(self.tiles.stages):
            self.tiles.copies.make_barrier(self.full(slot), 1)
            self.tiles.copies.make_barrier(self.full(b.add(slot, self.tiles.stages)), readers)

    def full(self, slot: Index) -> Index:
        return b.add(self.barriers, b.mul(slot, self.tiles.copies.barrier_bytes))

    def _round(self, number: Index) -> Index:
        return b.div(number, self.tiles.stages)

    def fill(self, at: tuple[Place, Index], number: Index) -> None:
        """By one thread: start to bring the number-th tile, once all are done with what is in its stage."""
        slot = b.mod(number, self.tiles.stages)
        empty = self.full(b.add(slot, self.tiles.stages))
        self.tiles.copies.wait(empty, b.mod(b.add(self._round(number), 1), 2))
        self.tiles.load(at, slot, self.full(slot))

    def wait(self, number: Index) -> Index:
        """By whole warps, until the number-th tile is there; its stage."""
        slot = b.mod(number, self.tiles.stages)
        self.tiles.copies.wait(self.full(slot), b.mod(self._round(number), 2))
        self.tiles.copies.subgroup_barrier()
        return slot

    def release(self, slot: Index, thread: Index) -> None:
        """By all threads of a warpgroup that is done with a stage; thread: the number of each."""
        empty = self.full(b.add(slot, self.tiles.stages))
        b.if_then(b.equal(thread, 0), lambda: self.tiles.copies.arrive(empty))


def mapped_operands(
    operands: Sequence[Operand], along: int, copies: TensorCopies, held: Mapping[ir.Value, ir.Value] = NONE_HELD
) -> list[MappedOperand] | None:
    """How copies see each; None where they cannot see some.  held: arguments that have tensors."""
    found = [MappedOperand.of(operand, along, copies, held) for operand in operands]
    return None if None in found else [one for one in found if one is not None]
