"""Writing tile programs: the words that a schedule is made of, each of which emits ops of the `tile` dialect.

A schedule says what a block computes and what is brought ahead; what becomes of that differs by what the chip can
copy: `Builder.pipeline` writes it as a warpgroup that fills a ring by bulk copies and others that multiply, as one loop
whose threads fill a ring by copies of their own, or as one loop that brings tiles through registers.  All of it can be
seen in the dump: lowering adds nothing.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field, replace
from functools import partial
from math import prod
from typing import Any, ClassVar

from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import attribute, create_op, ir
from lispgpt.ir.structure import shape_of
from lispgpt.passes.kernels.products import Operand, Product, has_place_in
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.views import buffers_behind
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.boxes import Box, Loads, clear, emit, fill, fill_one, view_of, wait_for
from lispgpt.passes.tile.copies import (
    ASYNC,
    BULK,
    COPIES,
    PIECE,
    REGISTERS,
    WORD,
    PackedOperand,
    boxes_of,
    has_whole_pieces,
    packed,
    stored_parts,
)
from lispgpt.passes.tile.cost import SPILLED, Work, seconds, unpacking, work_of
from lispgpt.passes.tile.lane_registers import filled, has_room
from lispgpt.passes.tile.tasks import BEGIN, FILL, MULTIPLY, RING, Roles, Task, TileOrder, check_steps
from lispgpt.passes.tile.types import (
    SPREAD,
    SUBGROUP,
    SUMS,
    SWIZZLE,
    WARPGROUP,
    RegisterTile,
    SharedTile,
    register_tile,
    ring_tiles,
)

BLOCKS_APART = 32
"""Bytes, modulo those of all banks, between rows of weights in blocks: lanes that share a row read as many."""

MOST_AHEAD, AHEAD_REGISTERS = 3, 48
"""Steps' boxes that come through registers beside a ring, and what they may take of a thread's."""

MOST_FACTORS = 2
"""How many tensors make an operand beside which lanes still have room: a gate times another."""

COPIERS = 128
"""Threads of the role that starts bulk copies: a warpgroup, which gives its registers to those that multiply."""


@dataclass
class Launch:
    """grid, threads, residency: how many blocks there are, threads of a block, and how many blocks are to fit a core at
    once (0: as many as do).  cluster: blocks that bring tiles for each other."""

    grid: list[int] = field(default_factory=list)
    threads: int = 0
    residency: int = 0
    cluster: int = 1

    @property
    def facts(self) -> ir.Attribute:
        """As a kernel's function has it."""
        every = vars(self)
        return attribute({name: every[name] for name in every if name != "cluster" or self.cluster > 1})


@dataclass(frozen=True)
class Builder:
    """Writes one kernel's tile program at the insertion point.

    parts: BF16 numbers that an F32 one is split into.  most: the best of COPIES that it may use.  copiers: whether bulk
    copies are started by threads of their own, and not by one of those that multiply.  launch: what the
    program asks for.  own: what of the product a block has.  is_transposed: whether the product's rows stand for the
    kernel's columns.  packs: whether weights in blocks are seen as their bytes.  known: the fastest tilings that
    schedules have found, which are asked for more than once.
    """

    of: ClassVar[str] = "product"
    """What kernels it is for."""

    product: Product
    target: Gpu
    parts: int
    most: str = BULK
    copiers: bool = True
    launch: Launch = field(default_factory=Launch)
    own: Task = field(default_factory=Task)
    is_transposed: bool = False
    packs: bool = False
    known: dict[Any, Any] = field(default_factory=dict, compare=False, repr=False)

    # ---- what a schedule asks

    @property
    def products(self) -> list[Builder]:
        """A kernel of several products, which share an operand or both, as one of each; one of one is alone."""
        return [replace(self, product=each) for each in self.product.all]

    @property
    def left(self) -> Operand:
        return packed(self.product.left) if self.packs else self.product.left

    @property
    def right(self) -> Operand:
        return packed(self.product.right) if self.packs else self.product.right

    @property
    def transposed(self) -> Builder:
        """The same kernel with rows for columns, which is written to from there on."""
        return replace(self, product=self.product.transposed(), is_transposed=not self.is_transposed)

    @property
    def instruction(self) -> tuple[int, int, int]:
        """Rows, columns and k of what a subgroup multiplies at once."""
        unit = self.target.matrix
        assert unit is not None
        return unit.rows, unit.columns, unit.block

    def nanoseconds(self, rows: int, columns: int, step: int, resident: int) -> int:
        """What the product should take by tiles of such a size in such steps (see cost.py), `resident` blocks of which
        share a core; 0 where the chip's rates are not known."""
        p = self.product
        blocks = p.batches * -(-p.rows // rows) * -(-p.columns // columns)
        sides = self._brought(rows, columns)
        each = sum(n * _row_bytes(x) * (2 if x.reduces() else 1) for x, n, _ in sides)
        unique = sum(p.batches * extent * _row_bytes(x) for x, _, extent in sides)
        products = max(map(self.parts_of, (self.left, self.right))) * len(p.all)
        work = Work(blocks, each, unique, rows * columns * p.inner * products, -(-p.inner // step), resident)
        return round(1e9 * (seconds(work, self.target) or 0.0))

    def fastest(self, tilings: Callable[[], Sequence[Any]], time: Callable[[Any], int]) -> Any:
        """The first of some tilings that take the least time; None where there are none.  What these functions give
        depends on the kernel alone: they are asked once."""
        key = tilings, self.left.tensor, self.most, self.is_transposed, self.packs
        if key not in self.known:
            self.known[key] = min(tilings(), key=time, default=None)
        return self.known[key]

    def direct_nanoseconds(self, rows: int, columns: int, share: int, members: int, ahead: int, resident: int) -> int:
        """The same of tiles that lanes load to their registers, so many steps of so much k for each of the members that
        share it out ahead."""
        p = self.product
        sides = self._brought(rows, columns)
        each = sum(n * _row_bytes(x) * (2 if x.reduces() else 1) for x, n, _ in sides)
        ways = [(x, ahead * share * members * n * _row_bytes(x) / p.inner) for x, n, _ in sides]
        flight = sum(each_way for _, each_way in ways)
        unique = sum(p.batches * extent * _row_bytes(x) for x, _, extent in sides)
        blocks = p.batches * -(-p.rows // rows) * -(-p.columns // columns)
        count = len(p.all)
        multiply_adds = count * rows * columns * p.inner * max(map(self.parts_of, (self.left, self.right)))
        reduces = any(x.reduces() for x, _, _ in sides)
        depth = ahead * share
        kind = self.left.blocks if isinstance(self.left, PackedOperand) else ""
        others = count * unpacking(kind, reduces) * rows * p.inner if kind else 0
        once = members if p.inner <= depth * members and not (reduces or kind) else 0
        work = Work(blocks, each, unique, multiply_adds, 0, resident, others, flight, depth, reduces, once)
        time = seconds(work, self.target) or 0.0
        numbers = count * rows * columns * (2 if kind else 1) / self.target.subgroup
        turns = 0.5 if once else (1 + ahead) / ahead  # what is multiplied first makes room for the rest
        held = turns * sum(n * _tensors(x) for x, n in ways) / (members * self.target.subgroup * WORD)
        room = self.target.lane_registers(members * self.target.subgroup, resident)
        return round(1e9 * time * (SPILLED if held + numbers > room else 1))

    def _brought(self, rows: int, columns: int) -> list[tuple[Operand, int, int]]:
        """(operand, rows of it that a tile needs, rows of all of it): the right's in whole tiles, since a schedule that
        chose by how many of their columns there are would sum k in another order beside others.  What several products
        share is there once."""
        whole, lefts = -(-self.right.extent // columns) * columns, {p.left.tensor for p in self.products}
        return [
            (x, min(n, x.extent), x.extent) if x.tensor in lefts else (x, n, whole)
            for x, n in self.sides(rows, columns)
        ]

    def direct_words(self, rows: int, columns: int, share: int) -> int:
        """Registers of a lane that a step of so much k takes of such tiles: three times as many of what norms make, of
        which each element is of two and waits for its row's."""
        p, unit = self.product, self.target.matrix
        assert unit is not None
        held = self.sides(rows // unit.rows * len(unit.left_rows), columns // unit.columns)
        numbers = share // unit.block * unit.run
        return sum(n * numbers * _row_bytes(x) * (3 if x.reduces() else 1) // (4 * p.inner) for x, n in held)

    def has_registers(self, rows: int, columns: int, share: int, members: int, ahead: int, resident: int) -> bool:
        """Whether lanes have registers for such tiles; where the compiler makes do with fewer that is left to
        `direct_nanoseconds`."""
        if self.target.makes_room:
            return True
        steps = -(-self.product.inner // (share * members))
        parts = self.parts_of(self.right)
        apart = len({each.left.tensor for each in self.products})
        sizes = rows * apart, columns * (len(self.products) // apart)
        registers = filled(self.left, self.right, sizes, share, ahead, steps, parts, self.target)
        return has_room(registers, members * self.target.subgroup, resident, self.target)

    def sides(self, rows: int, columns: int) -> list[tuple[Operand, int]]:
        """The kernel's operands, left ones with a number of rows and right ones with one of columns; what several
        products share is there once."""
        found = [(p.left, rows) for p in self.products] + [(p.right, columns) for p in self.products]
        return list({x.tensor: (x, n) for x, n in found}.values())

    def copies(self, boxes: Sequence[Box]) -> str:
        """How this chip brings such boxes to shared memory: BULK where it can all of them, ASYNC where it can some, the
        others coming through registers beside them, else REGISTERS."""
        copies, allowed = self.target.copies, COPIES[: COPIES.index(self.most) + 1]
        operands = [box.operand for box in boxes]
        lines = copies is not None and self.target.warpgroup is not None and boxes[0].columns * 2 == SWIZZLE
        if BULK in allowed and lines and all(map(self._in_lines, operands)):
            return BULK
        return ASYNC if ASYNC in allowed and any(map(self._in_pieces, boxes)) else REGISTERS

    @property
    def made_beside(self) -> list[ir.Value]:
        """What the kernel's results are of that has another shape than the product."""
        if self.of != "product":
            return []
        return [t for t, _ in outputs_of(self.product.op.operation.parent) if not has_place_in(self.product.op, t)]

    def _in_lines(self, operand: Operand) -> bool:
        """Whether bulk copies bring it as warpgroups take it."""
        copies = self.target.copies
        short = operand.dtype == "bf16" or stored_parts(operand) > 1 or operand.tensor == self.left.tensor
        return copies is not None and short and (bool(boxes_of(operand, copies)) or self.lies_across(operand))

    @property
    def short_right(self) -> Builder:
        """The same with what is in BF16 on the right."""
        return self.transposed if self.right.dtype == "f32" else self

    def lies_across(self, operand: Operand) -> bool:
        """Whether bulk copies bring it in lines along its rows."""
        copies = self.target.copies
        return copies is not None and self.of == "product" and bool(boxes_of(operand, copies, across=True))

    def seconds_of(self, program: Sequence[ir.Operation]) -> float | None:
        """What a program that has been written should take; None where the chip's rates are not known."""
        return seconds(work_of(program, self.launch.grid, self.launch.residency), self.target)

    def _in_pieces(self, box: Box) -> bool:
        """Whether threads can copy pieces of it."""
        operand = box.operand
        short, whole = operand.dtype in ("bf16", "i8"), box.columns * b.item_bytes(operand.tensor.type) % PIECE == 0
        return self.target.async_copies is not None and short and whole and has_whole_pieces(operand)

    def parts_of(self, operand: Operand) -> int:
        """BF16 numbers that an element of it becomes in shared memory, or on its way from there."""
        return 1 if operand.dtype in ("bf16", "i8") else self.parts

    def shared_bytes(self, boxes: Sequence[Box], slots: int) -> int:
        """Of what a pipeline with so many slots keeps of such boxes."""
        ring = self._way(boxes, slots) != REGISTERS
        each = [self._ring_tile(x, slots, ASYNC) if ring and self._in_pieces(x) else self._tile(x, slots)
                for x in boxes]  # fmt: skip
        return sum(tile.slots * tile.slot_bytes for tile in each)

    @property
    def room(self) -> int:
        """Bytes of shared memory that a block can have."""
        return max(self.target.shared_bytes, self.target.dynamic_shared_bytes)

    # ---- tiles

    def task(self, rows: int, columns: int) -> tuple[Index, Index, Index]:
        """(batch, row, column) of this block's tile of the product, where each block has one of that size."""
        p = self.product
        row_tiles = -(-p.rows // rows)
        self.launch.grid = [row_tiles * p.batches, -(-p.columns // columns)]
        batch, tile = p.of_batch(b.block_id("x"), row_tiles)
        self.own.place = batch, b.mul(tile, rows), b.mul(b.block_id("y"), columns)
        self.own.sizes, self.own.pipelines = (rows, columns), 0
        return self.own.place

    def tasks(
        self,
        rows: int,
        columns: int,
        cluster: tuple[int, int],
        unit: str,
        body: Callable[[tuple[Index, Index, Index]], None],
    ) -> None:
        """body at (batch, row, column) of each of a block's tiles of that size: of one, or where warpgroups multiply
        what bulk copies bring, of one after another, whose copies are under way while what is ahead of them is stored.
        cluster: blocks that have tiles below each other, and bring columns for each other; and blocks that share out
        the k of one."""
        boxes = [Box.of(x, (0, 0, 0), 1, SWIZZLE // 2) for x in (self.left, self.right)]
        if unit != WARPGROUP or self.copies(boxes) != BULK:
            body(self.task(rows, columns))
            return
        (together, splits), product = cluster, self.product
        tiles = TileOrder(product, rows, columns, together, splits, self.target)
        roles = Roles(together, splits, tiles.rank)
        self.launch.grid, self.launch.cluster = [tiles.clusters * together * splits], together * splits
        self.own.sizes, self.own.roles = (rows, columns), roles

        def write(part: str, turn: Index, place: tuple[Index, Index, Index] | None) -> None:
            roles.part, roles.turn = part, turn
            self.own.place, self.own.pipelines = place, 0
            body(place or (0, 0, 0))

        def copy() -> None:
            write(BEGIN, 0, tiles.first)
            tiles.each(partial(write, FILL))

        write(RING, 0, None)
        self._divide(lambda: tiles.each(partial(write, MULTIPLY)), copy)
        self.own.roles = None

    def sums(self, rows: int, columns: int, parts: int, teams: tuple[int, int], unit: str) -> ir.Value:
        """Zeros in F32: [parts, rows, columns] of a team's `teams` (along rows, along columns) times parts members."""
        tile = RegisterTile((parts, rows, columns), b.f32(), SUMS, teams, unit)
        size = self.target.warpgroup.threads if unit == WARPGROUP and self.target.warpgroup else self.target.subgroup
        self.launch.threads = tile.members * size
        return emit("zeros", [], tile.type)

    def mma(self, sums: ir.Value, a: ir.Value, b_: ir.Value, across: bool = False) -> ir.Value:
        """sums + A · Bᵀ of tiles A [rows, k], shared or in registers, and B [columns, k]; members that share out k have
        each a part of it.  across: B is [k, columns].

        Of A's and B's parts those products are summed that are no smaller than what the parts leave out.
        """
        facts = {"across": True} if across else {}
        if self.own.roles is not None:
            facts["later"] = True
        return create_op("tile.mma", [sums, a, b_], [sums.type], facts).results[0]

    def add_parts(self, sums: ir.Value) -> ir.Value:
        """Sums of all parts, added in their order by way of shared memory; sums of one part as they are."""
        tile = register_tile(sums)
        if tile.shape[0] == 1:
            return sums
        return emit("add_parts", [sums], RegisterTile(tile.shape[1:], tile.dtype, SPREAD).type)

    def store(self, registers: ir.Value | Sequence[ir.Value], at: tuple[Index, Index, Index]) -> None:
        """Take these for the product's elements from (batch, row, column) on, or those of each of the kernel's
        products, and store what the kernel's results are of them; what lies past the product's end is not stored."""
        sums, products = registers if isinstance(registers, tuple) else (registers,), self.product.all
        if len(sums) != len(products):
            raise UserError(f"the kernel has {len(products)} products, and this stores sums of {len(sums)}")
        for each in sums:
            self.own.check_stored(at, register_tile(each).shape[-2:])
        if self.own.roles is None and self.made_beside:
            raise Refused("a result has another shape than the product")
        facts: dict[str, bool | int] = {"transposed": True} if self.is_transposed else {}
        if self.own.roles is not None and self.own.roles.splits > 1:
            facts["splits"] = self.own.roles.splits
        create_op("tile.store", [sums[0], products[0].result, *map(b.as_value, at), *sums[1:]], [], facts)

    # ---- what is brought ahead

    def pipeline(
        self,
        slots: int,
        steps: int,
        boxes: Callable[[Index], Sequence[Box]],
        start: Callable[[], ir.Value | Sequence[ir.Value]],
        step: Callable[[ir.Value | Sequence[ir.Value], Sequence[ir.Value]], ir.Value | Sequence[ir.Value]],
        finish: Callable[[ir.Value | Sequence[ir.Value]], None],
    ) -> None:
        """For each of `steps`: bring boxes(number) to shared memory, ahead by as much as `slots` allow, and carry on
        with step(carried, tiles); carried begins as start(), one value or several, and finish takes the last.
        UserError where they do not bring the product's k, rows and columns (see tasks.py)."""
        if self.of == "product":
            self.own.pipelines += 1
            for each in self.products:
                self.own.check_boxes(boxes(0), each.left, each.right)
            check_steps(steps, boxes, self.product.inner)
        listed = [False]

        def begin() -> Sequence[ir.Value]:
            given = start()
            listed[0] = isinstance(given, tuple)
            return _listed(given)

        def turn(number: Index, carried: Sequence[ir.Value], tiles: Sequence[ir.Value]) -> Sequence[ir.Value]:
            return _listed(step(tuple(carried) if listed[0] else carried[0], tiles))

        self.walk(slots, steps, boxes, begin, turn, lambda x: finish(tuple(x) if listed[0] else x[0]))

    def walk(
        self,
        slots: int,
        steps: Index,
        boxes: Callable[[Index], Sequence[Box]],
        start: Callable[[], Sequence[ir.Value]],
        step: Callable[[ir.Value, Sequence[ir.Value], Sequence[ir.Value]], Sequence[ir.Value]],
        finish: Callable[[Sequence[ir.Value]], None],
    ) -> None:
        """The same for as many steps as a block finds that it has, and with several values carried on by step(number,
        carried, tiles).  No slots: a tile is brought when it is its turn, where registers have no room for the next."""
        if any(box.direct for box in boxes(0)):
            self._by_lanes(slots, steps, boxes, start, step, finish)
            return
        how = self._way(boxes(0), slots)
        in_bulk = self._by_roles if self.copiers else self._by_turns
        in_bulk = self._of_task if self.own.roles is not None else in_bulk
        write = {BULK: in_bulk, ASYNC: self._by_copies, REGISTERS: self._by_registers}[how]

        def begin() -> list[ir.Value]:
            carried = list(start())
            if register_tile(carried[-1]).unit == WARPGROUP and how != BULK and self.of == "product":
                raise Refused("warpgroups multiply what bulk copies bring, and this cannot be copied so")
            return carried

        write(slots, steps, boxes, begin, step, finish)

    def _way(self, boxes: Sequence[Box], slots: int) -> str:
        """How a pipeline brings boxes: more than two slots ask for a ring."""
        return self.copies(boxes) if slots > 2 else REGISTERS

    def _by_roles(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """One role fills, the others multiply: neither waits for the other but by the ring."""
        ring = self._ring(boxes(0), slots, BULK)
        views = [view_of(box) for box in boxes(0)]

        def copy() -> None:
            b.each(0, steps, 1, lambda n: fill(ring, views, n, boxes(n)))

        def multiply() -> None:
            def turn(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
                tiles = wait_for(ring, number)
                clear(tiles, boxes(number))
                results = step(number, carried, tiles)
                create_op("tile.release", [ring, number])
                return list(results)

            finish(tuple(b.loop(0, steps, 1, start(), turn)))

        self._divide(multiply, copy)

    def _of_task(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """What the role that is being written does of a tile.  Who multiplies starts a step's instructions while those
        of the step before are under way, whose slots it releases behind them.  Who fills begins with one operand of all
        slots, and then the other: weights that no launch ahead makes need not wait for it."""
        own = self.own.roles
        assert own is not None
        if own.part == RING:
            own.views = [view_of(box) for box in boxes(0)]
            own.ring = self._ring(boxes(0), slots, BULK, own.together)
            return
        steps, boxes = -(-steps // own.splits), own.part_of_k(boxes, -(-steps // own.splits))
        ring, first, early = own.ring, b.mul(own.turn, steps), min(slots, steps)
        assert ring is not None
        if own.part == BEGIN:
            for member in range(len(own.views)):
                for n in range(early):
                    fill_one(ring, own.views, member, b.as_value(n), boxes(n))
            return
        if own.part == FILL:
            assert self.own.place is not None
            create_op("tile.fetch", [self.product.result, *map(b.as_value, self.own.place)])
            start = b.select(b.equal(own.turn, 0), b.as_value(early), b.as_value(0))
            b.each(start, steps, 1, lambda n: fill(ring, own.views, b.as_value(b.add(first, n)), boxes(n)))
            return

        def release(number: Index) -> None:
            create_op("tile.release", [ring, b.as_value(number)])

        def turn(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            tiles = wait_for(ring, b.as_value(b.add(first, number)))
            results = step(number, carried, tiles)
            b.if_then(b.less(0, number), lambda: release(b.sub(b.add(first, number), 1)))
            return list(results)

        def turns(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            """As many as registers are made for while those of the one ahead are in use."""
            for n in range(together):
                carried = tuple(turn(b.as_value(b.add(b.mul(number, together), n)), *carried))
            return list(carried)

        together = 2 if any(tile.wide for tile in ring_tiles(ring)) else 1
        carried = b.loop(0, steps // together, 1, start(), turns)
        if steps % together:
            carried = turn(b.as_value(steps - 1), *carried)
        sums = [emit("settle", [each], each.type) for each in carried]
        release(b.add(first, b.sub(steps, 1)))
        finish(sums)

    def _divide(self, multiply: Callable[[], None], copy: Callable[[], None]) -> None:
        """Two roles: some threads bring what the others multiply."""
        role = create_op("tile.role", [], [ir.IndexType.get()])
        switch = create_op("scf.index_switch", [role.results[0]], [], {"cases": [0]}, regions=2)
        for region, body in zip(switch.regions, (multiply, copy), strict=True):
            with ir.InsertionPoint(region.blocks.append()):
                body()
                create_op("scf.yield")
        role.attributes["threads"] = attribute([COPIERS, self.launch.threads])
        self.launch.threads += COPIERS

    def _by_turns(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Those who multiply fill the ring, too, ahead of their use by as many steps as leave what was read the step
        before alone: so nobody waits for who has just read a slot."""
        ring = self._ring(boxes(0), slots, BULK)
        views, ahead = [view_of(box) for box in boxes(0)], slots - 2

        def bring(number: Index) -> None:
            b.if_then(b.less(number, steps), lambda: fill(ring, views, b.as_value(number), boxes(number)))

        for number in range(ahead):
            bring(number)
        carried = start()

        def turn(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            bring(b.add(number, ahead))
            tiles = wait_for(ring, number)
            clear(tiles, boxes(number))
            results = step(number, carried, tiles)
            create_op("tile.release", [ring, number])
            return list(results)

        finish(tuple(b.loop(0, steps, 1, carried, turn)))

    def _by_copies(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Each thread starts its share of copies so many steps ahead; a barrier a step makes all shares visible, and
        says that what is filled next has been read.  What cannot be copied comes through registers meanwhile."""
        ahead, first = slots - 1, boxes(0)
        copied = [self._in_pieces(box) for box in first]

        def chosen(number: Index, by_copies: bool) -> list[Box]:
            return [box for box, one in zip(boxes(number), copied, strict=True) if one == by_copies]

        ring = self._ring(chosen(0, True), slots, ASYNC)
        views = [view_of(box) for box in chosen(0, True)]
        loads = replace(self._loads(chosen(0, False), lambda number: chosen(number, False), 2), later=True)
        first_carried = start()
        for number in range(ahead):
            fill(ring, views, b.as_value(number), chosen(number, True))
        self._reduce(first)
        early = self._loaded_ahead(chosen(0, False))
        patches = loads.begin(early)

        def turn(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            filled = iter(wait_for(ring, number, ahead - 1))
            b.barrier()
            following = loads.load(b.add(number, early + 1))
            later = b.add(number, ahead)
            fill(ring, views, later, chosen(later, True))
            here = iter(loads.slots(number))
            count = len(following)
            loads.put(carried[:count], b.add(number, 1))
            tiles = tuple(next(filled) if one else next(here) for one in copied)
            return [*carried[count : len(patches)], *following, *step(number, carried[len(patches) :], tiles)]

        totals = b.loop(0, steps, 1, [*patches, *first_carried], turn)[len(patches) :]
        create_op("tile.drain", [ring])
        finish(tuple(totals))

    def _by_registers(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Each thread loads its share into registers, and stores it in shared memory a step later; with two slots it
        stores in one while tiles in the other are multiplied."""
        loads = self._loads(boxes(0), boxes, max(1, min(slots, 2)))
        count = len(loads.tiles) if slots else 0

        def at_once(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            coming = loads.load(number)
            b.barrier()
            here = loads.put(coming, 0)
            b.barrier()
            return list(step(number, carried, tuple(here)))

        def one_slot(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            b.barrier()
            here = loads.put(carried[:count], 0)
            b.barrier()
            following = loads.load(b.add(number, 1))
            return [*following, *step(number, carried[count:], tuple(here))]

        def two_slots(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            here = loads.slots(number)
            loads.put(carried[:count], b.add(number, 1))
            following = loads.load(b.add(number, 2))
            totals = step(number, carried[count:], tuple(here))
            b.barrier()
            return [*following, *totals]

        self._reduce(boxes(0))
        patches = loads.begin() if slots > 1 else loads.load(0) if slots else []
        if slots > 1:
            b.barrier()
        turn = (at_once, one_slot, two_slots)[min(slots, 2)]
        finish(tuple(b.loop(0, steps, 1, [*patches, *start()], turn)[count:]))

    def _by_lanes(self, slots: int, steps: Index, boxes, start, step, finish) -> None:  # type: ignore[no-untyped-def]
        """Each lane loads what it multiplies, `slots` steps of it ahead: no thread waits for another."""
        first, totals = boxes(0), tuple(start())
        views, sums, count = [view_of(box) for box in first], register_tile(totals[-1]), len(first)
        if not all(box.direct for box in first) or sums.unit != SUBGROUP or not isinstance(steps, int):
            raise Refused("all boxes come to lanes' registers, for subgroups in steps that are known, or none does")
        ahead = min(slots, steps)

        def load(number: Index, wanted: Sequence[bool]) -> list[ir.Value]:
            every = zip(views, boxes(number), wanted, strict=True)
            return [self._operand(view, box, sums) for view, box, one in every if one]

        def multiply(number: Index, totals: Sequence[ir.Value], held: Sequence[ir.Value]) -> tuple[ir.Value, ...]:
            return tuple(step(b.as_value(number), totals, tuple(map(self._split, held))))

        def turn(number: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            held, totals = carried[: ahead * count], carried[ahead * count :]
            totals = multiply(number, totals, held[:count])
            return [*held[count:], *load(b.add(number, ahead), [True] * count), *totals]

        # What waits for reductions comes behind what does not.
        early = [not box.operand.reduces() for box in first]
        before = [load(number, early) for number in range(ahead)]
        self._reduce(first)
        behind = [load(number, [not one for one in early]) for number in range(ahead)]
        both = [(iter(x), iter(y)) for x, y in zip(before, behind, strict=True)]
        carried = [*(next(x if one else y) for x, y in both for one in early), *totals]
        if steps > ahead:
            carried = b.loop(0, steps - ahead, 1, carried, turn)
        held, totals = carried[: ahead * count], tuple(carried[ahead * count :])
        for number in range(ahead):
            totals = multiply(steps - ahead + number, totals, held[number * count : (number + 1) * count])
        finish(totals)

    def _operand(self, view: ir.Value, box: Box, sums: RegisterTile) -> ir.Value:
        parts, unit = sums.shape[0], self.target.matrix
        if unit is None or self.product.inner % unit.run:
            raise Refused("what is summed is no whole number of what a lane loads at once")
        if box.numbers % parts or (box.blocks and self.product.inner % box.numbers):
            raise Refused(f"{parts} members cannot share out steps of {box.numbers}")
        shape = (parts, box.rows, box.numbers // parts)
        tile = RegisterTile(shape, view.type.element_type, box.direct, sums.teams, blocks=box.blocks)
        return create_op("tile.operand", [view, *map(b.as_value, box.at)], [tile.type]).results[0]

    def _split(self, operand: ir.Value) -> ir.Value:
        """An operand as BF16 numbers; in blocks, as it is."""
        tile = register_tile(operand)
        if tile.blocks:
            return operand
        numbers = self.parts if tile.dtype == b.f32() else 1
        return emit("split", [operand], replace(tile, shape=(numbers, *tile.shape), dtype=ir.BF16Type.get()).type)

    def _loaded_ahead(self, boxes: Sequence[Box]) -> int:
        """How many steps' boxes a thread's registers have room for, on their way."""
        each = sum(box.rows * box.columns for box in boxes) // self.launch.threads
        return max(1, min(MOST_AHEAD, AHEAD_REGISTERS // max(1, each)))

    @staticmethod
    def _reduce(boxes: Sequence[Box]) -> None:
        """What boxes' rows are made of by reductions, once for the block."""
        for box in boxes:
            if box.operand.reduces():
                place = map(b.as_value, box.at[:2])
                create_op("tile.reduce_rows", [view_of(box), *place], [], {"rows": box.rows})

    def _loads(self, first: Sequence[Box], boxes: Callable[[Index], Sequence[Box]], slots: int) -> Loads:
        tiles = [emit("shared", [], self._tile(box, slots).type) for box in first]
        return Loads(tiles, [view_of(box) for box in first], boxes)

    def _ring(self, boxes: Sequence[Box], slots: int, how: str, together: int = 1) -> ir.Value:
        """together: blocks that bring the right operand for each other."""
        types, facts = [self._ring_tile(box, slots, how).type for box in boxes], {"copies": how}
        if together > 1:
            columns = {each.right.tensor for each in self.products}
            shared = [together if box.operand.tensor in columns else 1 for box in boxes]
            facts["sharing"] = shared  # type: ignore[assignment]
        return create_op("tile.ring", [], [ir.TupleType.get_tuple(types)], facts).results[0]

    def _ring_tile(self, box: Box, slots: int, how: str) -> SharedTile:
        """Of lines as boxes bring them, or of rows that keep lanes with neighbouring runs off each other's banks."""
        if how == BULK:
            across, parts = self.lies_across(box.operand), stored_parts(box.operand)
            wide = parts == 1 and box.operand.dtype == "f32"
            return SharedTile(slots, parts, box.rows, box.columns, SWIZZLE, across=across, wide=wide)
        unit, tile = self.target.matrix, self._tile(box, slots)
        if unit is not None and unit.row_major_lanes and not box.blocks and 2 * box.columns % SWIZZLE == 0:
            tile = replace(tile, padding=unit.block)
        return replace(tile, slots=slots)

    def _tile(self, box: Box, slots: int) -> SharedTile:
        """Of what comes through registers, for which two slots are enough."""
        padding = self.target.matrix.padding if self.target.matrix else 0
        if box.blocks:
            padding = (BLOCKS_APART - box.columns) % SWIZZLE
        parts = self.parts_of(box.operand)
        return SharedTile(min(slots, 2), parts, box.rows, box.columns, padding=padding, blocks=box.blocks)


def _listed(values: ir.Value | Sequence[ir.Value]) -> Sequence[ir.Value]:
    return values if isinstance(values, tuple) else (values,)


def _tensors(operand: Operand) -> int:
    """How many tensors as large as it are loaded for it, where it is made of more than two."""
    size = operand.extent * operand.layout.extent(operand.layout.sums)
    made_of = [x for x in buffers_behind([operand.tensor]) if prod(shape_of(x)) >= size]
    return len(made_of) if len(made_of) > MOST_FACTORS else 1


def _row_bytes(operand: Operand) -> int:
    """Of one row or column in memory."""
    return operand.layout.extent(operand.layout.sums) * b.item_bytes(operand.tensor.type)
