"""What a block that computes a product of a few rows keeps in its shared memory, and where."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import fits
from lispgpt.passes.kernels.copied_vectors import constant_vectors, vector_bytes
from lispgpt.passes.kernels.copied_weights import Slots
from lispgpt.passes.kernels.few_rows_division import Division
from lispgpt.passes.kernels.few_rows_left import LeftSizes
from lispgpt.passes.kernels.few_rows_slices import fits_slices
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Room:
    """x, or what makes it, is first.  sums: shape of what subgroups add up.  vectors: constants that x is made with.
    slots: for w, or None where it goes to registers.  start_of: bytes from the first."""

    left: LeftSizes
    sums: list[int]
    vectors: list[ir.Value]
    slots: Slots | None
    item: int

    @property
    def start_of_sums(self) -> int:
        return self.left.nbytes

    @property
    def start_of_vectors(self) -> int:
        return self.start_of_sums + 4 * prod(self.sums)

    @property
    def start_of_slots(self) -> int:
        return self.start_of_vectors + sum(map(vector_bytes, self.vectors))

    @property
    def nbytes(self) -> int:
        return self.start_of_slots + (0 if self.slots is None else prod(self.slots.shape) * self.item)


def room_for(product: Product, division: Division, target: Gpu, constants: set[ir.Value]) -> Room | None:
    """The best that fits; None where nothing does."""
    choices = _choices(product, division, target, constants)
    return next((room for room in choices if _fits(room, division, target)), None)


def _fits(room: Room, division: Division, target: Gpu) -> bool:
    return fits(target, room.nbytes, False, max(1, division.resident) if room.slots is not None else 1)


def _choices(product: Product, division: Division, target: Gpu, constants: set[ir.Value]) -> Iterator[Room]:
    unit, copies, item = target.matrix, target.thread_copies, b.item_bytes(product.right.tensor.type)
    assert unit is not None
    plain, s = LeftSizes.of(product, division, target, False), division.share
    starts = [first + piece.row for first in range(0, plain.rows, unit.rows) for piece in unit.pieces()]
    rows = min((row for row in starts if row >= product.rows), default=plain.rows)
    sums = [division.subgroups, *((rows, s.outputs) if s.turned else (s.outputs, plain.rows))]
    sums = [2, *sums] if division.resident else sums
    early = product.right.buffer() in constants
    if copies is not None and early and unit.run * item % copies.nbytes == 0:
        sliced = division.sliced and unit.row_major_lanes and fits_slices(product)
        for left in [LeftSizes.of(product, division, target, True), plain] if sliced and plain.computed else [plain]:
            vectors = constant_vectors(product.left.tensor, constants, copies) if left.sliced else []
            for stages in division.stages(product, target):
                threads, per_copy = division.subgroups * target.subgroup, copies.nbytes // item
                slots = Slots(stages, s.vectors * division.steps, threads, unit.run, per_copy)
                yield Room(left, sums, vectors, slots, item)
    yield Room(plain, sums, [], None, item)
