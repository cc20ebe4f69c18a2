"""Writing tile programs: the words that a schedule is made of, each of which emits ops of the `tile` dialect.

A schedule says what a block computes and what is brought ahead; what becomes of that differs by what the chip can
copy: `Builder.pipeline` writes it as a warpgroup that fills a ring by bulk copies and others that multiply, as one loop
whose threads fill a ring by copies of their own, or as one loop that brings tiles through registers.  All of it can be
seen in the dump: lowering adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import ASYNC, BULK, COPIES, REGISTERS, boxes_of, has_whole_pieces
from lispgpt.passes.tile.types import (
    PATCHES,
    SPREAD,
    SUMS,
    SWIZZLE,
    WARPGROUP,
    RegisterTile,
    SharedTile,
    register_tile,
    ring_tiles,
    shared_tile,
)

COPIERS = 128
"""Threads of the role that starts bulk copies: a warpgroup, which gives its registers to those that multiply."""


@dataclass(frozen=True)
class Box:
    """Part of a view: `rows` by `columns` from (batch, outer, inner) on.  What lies past the view's end is zeros."""

    operand: Operand
    at: tuple[Index, Index, Index]
    rows: int
    columns: int


@dataclass
class Builder:
    """Writes one kernel's tile program at the insertion point.

    parts: BF16 numbers that an F32 one is split into.  most: the best of COPIES that it may use.

    grid, threads, residency: how many blocks there are, threads of a block, and how many blocks are to fit a core at
    once (0: as many as do).
    """

    product: Product
    target: Gpu
    parts: int
    most: str = BULK
    grid: list[int] = field(default_factory=list)
    threads: int = 0
    residency: int = 0

    # ---- what a schedule asks

    def copies(self, operands: Sequence[Operand], columns: int) -> str:
        """How this chip brings boxes of so many columns of these to shared memory: BULK, ASYNC or REGISTERS."""
        if any(o.dtype != "bf16" or strided(o.tensor) is None for o in operands):
            return REGISTERS
        copies, allowed = self.target.copies, COPIES[: COPIES.index(self.most) + 1]
        boxes = copies is not None and self.target.warpgroup is not None and columns * 2 == SWIZZLE
        if BULK in allowed and boxes and all(boxes_of(o, copies) for o in operands if copies):
            return BULK
        pieces = self.target.async_copies is not None and all(map(has_whole_pieces, operands))
        return ASYNC if ASYNC in allowed and pieces else REGISTERS

    def parts_of(self, operand: Operand) -> int:
        """BF16 numbers that an element of it becomes in shared memory."""
        return 1 if operand.dtype == "bf16" else self.parts

    def shared_bytes(self, boxes: Sequence[tuple[Operand, int, int]], slots: int) -> int:
        """Of so many slots for boxes of each operand of some rows and columns, brought through registers."""
        padding = self.target.matrix.padding if self.target.matrix else 0
        return slots * sum(2 * self.parts_of(o) * rows * (columns + padding) for o, rows, columns in boxes)

    @property
    def room(self) -> int:
        """Bytes of shared memory that a block can have."""
        return max(self.target.shared_bytes, self.target.dynamic_shared_bytes)

    # ---- tiles

    def task(self, rows: int, columns: int) -> tuple[Index, Index, Index]:
        """(batch, row, column) of this block's tile of the product, where each block has one of that size."""
        p = self.product
        row_tiles = -(-p.rows // rows)
        self.grid = [row_tiles * p.batches, -(-p.columns // columns)]
        batch, tile = p.of_batch(b.block_id("x"), row_tiles)
        return batch, b.mul(tile, rows), b.mul(b.block_id("y"), columns)

    def sums(self, rows: int, columns: int, parts: int, teams: tuple[int, int], unit: str) -> ir.Value:
        """Zeros in F32: [parts, rows, columns] of a team's `teams` (along rows, along columns) times parts members."""
        tile = RegisterTile((parts, rows, columns), b.f32(), SUMS, teams, unit)
        size = self.target.warpgroup.threads if unit == WARPGROUP and self.target.warpgroup else self.target.subgroup
        self.threads = tile.members * size
        return _emit("zeros", [], tile.type)

    def mma(self, sums: ir.Value, a: ir.Value, b_: ir.Value) -> ir.Value:
        """sums + A · Bᵀ of tiles A [rows, k] and B [columns, k]; members that share out k have each a part of it.

        Of A's and B's parts those products are summed that are no smaller than what the parts leave out.
        """
        return _emit("mma", [sums, a, b_], sums.type)

    def add_parts(self, sums: ir.Value) -> ir.Value:
        """Sums of all parts, added in their order by way of shared memory; sums of one part as they are."""
        tile = register_tile(sums)
        if tile.shape[0] == 1:
            return sums
        return _emit("add_parts", [sums], RegisterTile(tile.shape[1:], tile.dtype, SPREAD, (1, 1)).type)

    def store(self, registers: ir.Value, at: tuple[Index, Index, Index]) -> None:
        """Take these for the product's elements from (batch, row, column) on, and store what the kernel's results are
        of them; what lies past the product's end is not stored."""
        create_op("tile.store", [registers, self.product.result, *map(b.as_value, at)])

    # ---- what is brought ahead

    def pipeline(
        self,
        slots: int,
        steps: int,
        boxes: Callable[[Index], Sequence[Box]],
        start: Callable[[], ir.Value],
        step: Callable[[ir.Value, Sequence[ir.Value]], ir.Value],
        finish: Callable[[ir.Value], None],
    ) -> None:
        """For each of `steps`: bring boxes(number) to shared memory, ahead by as much as `slots` allow, and carry on
        with step(carried, tiles); carried begins as start(), and finish takes the last."""
        first = boxes(0)
        how = self.copies([box.operand for box in first], first[0].columns) if slots > 2 else REGISTERS
        write = {BULK: self._by_roles, ASYNC: self._by_copies, REGISTERS: self._by_registers}[how]

        def begin() -> ir.Value:
            carried = start()
            if register_tile(carried).unit == WARPGROUP and how != BULK:
                raise Refused("warpgroups multiply what bulk copies bring, and this cannot be copied so")
            return carried

        write(slots, steps, boxes, begin, step, finish)

    def _by_roles(self, slots: int, steps: int, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """One role fills, the others multiply: neither waits for the other but by the ring."""
        ring = self._ring(boxes(0), slots, BULK)
        views = [self._view(box) for box in boxes(0)]
        role = create_op("tile.role", [], [ir.IndexType.get()])

        def fill() -> None:
            b.each(0, steps, 1, lambda n: self._fill(ring, views, n, boxes(n)))

        def multiply() -> None:
            def turn(number: ir.Value, carried: ir.Value) -> list[ir.Value]:
                result = step(carried, self._wait(ring, number))
                create_op("tile.release", [ring, number])
                return [result]

            finish(b.loop(0, steps, 1, [start()], turn)[0])

        switch = create_op("scf.index_switch", [role.results[0]], [], {"cases": [0]}, regions=2)
        for region, body in zip(switch.regions, (multiply, fill), strict=True):
            with ir.InsertionPoint(region.blocks.append()):
                body()
                create_op("scf.yield")
        role.attributes["threads"] = attribute([COPIERS, self.threads])
        self.threads += COPIERS

    def _by_copies(self, slots: int, steps: int, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Each thread starts its share of copies so many steps ahead; a barrier a step makes all shares visible, and
        says that what is filled next has been read."""
        ahead = slots - 1
        ring = self._ring(boxes(0), slots, ASYNC)
        views = [self._view(box) for box in boxes(0)]
        carried = start()
        for number in range(ahead):
            self._fill(ring, views, b.as_value(number), boxes(number))

        def turn(number: ir.Value, carried: ir.Value) -> list[ir.Value]:
            tiles = self._wait(ring, number, ahead - 1)
            b.barrier()
            later = b.add(number, ahead)
            self._fill(ring, views, later, boxes(later))
            return [step(carried, tiles)]

        total = b.loop(0, steps, 1, [carried], turn)[0]
        create_op("tile.drain", [ring])
        finish(total)

    def _by_registers(self, slots: int, steps: int, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Each thread loads its share into registers, and stores it in shared memory a step later; with two slots it
        stores in one while tiles in the other are multiplied."""
        tiles = [_emit("shared", [], self._tile(box, min(slots, 2)).type) for box in boxes(0)]
        views = [self._view(box) for box in boxes(0)]

        def load(number: Index) -> list[ir.Value]:
            return [self._load(view, box) for view, box in zip(views, boxes(number), strict=True)]

        def put(patches: Sequence[ir.Value], number: Index) -> list[ir.Value]:
            found = self._slots(tiles, number)
            for one, slot in zip(patches, found, strict=True):
                create_op("tile.put", [one, slot])
            return found

        def one_slot(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            b.barrier()
            here = put(carried[:-1], 0)
            b.barrier()
            following = load(b.add(number, 1))
            return [*following, step(carried[-1], tuple(here))]

        def two_slots(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            here = self._slots(tiles, number)
            put(carried[:-1], b.add(number, 1))
            following = load(b.add(number, 2))
            total = step(carried[-1], tuple(here))
            b.barrier()
            return [*following, total]

        patches = load(0)
        if slots > 1:
            put(patches, 0)
            patches = load(1)
            b.barrier()
        finish(b.loop(0, steps, 1, [*patches, start()], two_slots if slots > 1 else one_slot)[-1])

    def _ring(self, boxes: Sequence[Box], slots: int, how: str) -> ir.Value:
        types = [self._tile(box, slots, SWIZZLE if how == BULK else 0).type for box in boxes]
        return create_op("tile.ring", [], [ir.TupleType.get_tuple(types)], {"copies": how}).results[0]

    def _tile(self, box: Box, slots: int, swizzle: int = 0) -> SharedTile:
        padding = self.target.matrix.padding if self.target.matrix and not swizzle else 0
        return SharedTile(slots, self.parts_of(box.operand), box.rows, box.columns, swizzle, padding)

    def _view(self, box: Box) -> ir.Value:
        """The operand as [batch, outer, inner]."""
        operand, layout = box.operand, box.operand.layout
        kinds = {"batch": layout.batch, "outer": operand.outer, "inner": layout.sums}
        dims = {name: [operand.dimensions.index(loop) for loop in loops] for name, loops in kinds.items()}
        shape = [prod(operand.tensor.type.shape[d] for d in dims[name]) for name in kinds]
        type_ = ir.RankedTensorType.get(shape, operand.tensor.type.element_type)
        return create_op("tile.view", [operand.tensor], [type_], dims).results[0]

    def _load(self, view: ir.Value, box: Box) -> ir.Value:
        tile = RegisterTile((box.rows, box.columns), view.type.element_type, PATCHES, (1, 1))
        return _emit("load", [view, *map(b.as_value, box.at)], tile.type)

    def _slots(self, tiles: Sequence[ir.Value], number: Index) -> list[ir.Value]:
        return [_emit("slot", [tile, b.as_value(number)], shared_tile(tile).slot.type) for tile in tiles]

    @staticmethod
    def _fill(ring: ir.Value, views: Sequence[ir.Value], number: ir.Value, boxes: Sequence[Box]) -> None:
        for member, (view, box) in enumerate(zip(views, boxes, strict=True)):
            create_op("tile.fill", [ring, view, *map(b.as_value, box.at), number], [], {"member": member})

    @staticmethod
    def _wait(ring: ir.Value, number: ir.Value, ahead: int = 0) -> tuple[ir.Value, ...]:
        types = [tile.slot.type for tile in ring_tiles(ring)]
        slots = create_op("tile.wait", [ring, number], [ir.TupleType.get_tuple(types)], {"ahead": ahead}).results[0]
        return tuple(
            create_op("tile.member", [slots], [type_], {"member": i}).results[0] for i, type_ in enumerate(types)
        )


def _emit(name: str, operands: Sequence[ir.Value], type_: ir.Type) -> ir.Value:
    return create_op(f"tile.{name}", operands, [type_]).results[0]
