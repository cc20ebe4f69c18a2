"""Sums of matrix instructions in registers: of subgroups, and of warpgroups."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.epilogue import ResultRun, places
from lispgpt.passes.kernels.left_registers import LeftRegisters, Lines
from lispgpt.passes.kernels.matrices import flat, shaped
from lispgpt.passes.kernels.operand_a import Block
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.kernels.warpgroup_sums import Member, own_warpgroup
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.targets.warpgroup import WarpgroupUnit
from lispgpt.passes.targets.warpgroup_tiles import PARTS, products_of
from lispgpt.passes.tile.lower.memory import Slot
from lispgpt.passes.tile.lower.operand_runs import Group, Membership, OperandRuns, PackedRuns, membership, of_member
from lispgpt.passes.tile.lower.packed import PackedSlot
from lispgpt.passes.tile.types import SWIZZLE, WARPGROUP, RegisterTile, SharedTile

CHAINS = 4
"""Sums that are added to in turn, so that none waits for the instruction before."""

ADDED_WIDTH = 2
"""Neighbours that a thread adds up of the sums of several parts."""


@dataclass(frozen=True)
class Sums:
    """A thread's part of a register tile.  threads: of the block.  values: what it holds, in an order of its own.
    place: where in the tile that is, as each kind of sums has it."""

    tile: RegisterTile
    target: Gpu
    thread: Index
    threads: int
    values: list[ir.Value]
    place: Any = None

    def multiply(self, a: Slot | OperandRuns | PackedRuns, right: Slot | OperandRuns) -> Sums:
        """These and A · Bᵀ."""
        raise NotImplementedError

    def pieces(self) -> list[ResultRun]:
        """The sums by where they are in the tile."""
        raise NotImplementedError


def sums_of(tile: RegisterTile, target: Gpu, thread: Index, threads: int) -> Sums:
    """Zeros."""
    kind = WarpgroupSums if tile.unit == WARPGROUP else SubgroupSums
    sums = kind(tile, target, thread, threads, [])
    return replace(sums, values=sums.zeros(), place=sums.find_place())


class SubgroupSums(Sums):
    """values: accumulators of the target's matrix unit, by its tiles' rows and columns."""

    def zeros(self) -> list[ir.Value]:
        assert self.target.matrix is not None
        zero = b.constant(0.0, self.target.matrix.accumulator_type())
        return [zero] * (self.tiles[0] * self.tiles[1])

    @property
    def tiles(self) -> tuple[int, int]:
        """Of a subgroup, along its rows and columns."""
        unit, (_, rows, columns), teams = self.target.matrix, self.tile.shape, self.tile.teams
        assert unit is not None
        return rows // teams[0] // unit.rows, columns // teams[1] // unit.columns

    def find_place(self) -> Membership:
        return membership(self.tile, self.target, self.thread)

    def multiply_operand(self, blocks: Sequence[Sequence[Block]], right: Slot, across: bool) -> SubgroupSums:
        """These and A · Bᵀ, or across A · B, of A in registers: [rows of instructions][block of k][part][row]."""
        unit, (parts, _, columns) = self.target.matrix, self.tile.shape
        assert unit is not None
        lanes, part_of_k, _, column_part = self.place
        (_, wide), sums = self.tiles, list(self.values)
        first = b.mul(column_part, columns // self.tile.teams[1])
        share = (right.tile.rows if across else right.tile.columns) // parts

        def run(part: int, n: int, block: int) -> ir.Value:
            k, column = b.add(b.mul(part_of_k, share), block * unit.block), b.add(first, n * unit.columns)
            if across:
                where = (right.slot, part, b.add(k, lanes.lane), column)
                return unit.load_right(right.memory, list(map(b.as_value, where)))
            return right.run(part, b.add(column, lanes.row), b.add(k, b.mul(lanes.group, unit.run)), unit.run)

        for block in range(share // unit.block):
            for start in range(0, wide, CHAINS):
                some = range(start, min(start + CHAINS, wide))
                runs = [[run(q, n, block) for n in some] for q in range(right.tile.parts)]
                for m, own in enumerate(blocks):
                    most = max(len(own[block]), right.tile.parts)
                    for p, left in enumerate(own[block]):
                        for q in range(min(right.tile.parts, most - p)):
                            at = m * wide + start
                            totals = unit.multiply_row(left, runs[q], sums[at : at + len(some)])
                            sums[at : at + len(some)] = totals
        return replace(self, values=sums)

    def multiply(self, a: Slot | OperandRuns | PackedRuns, right: Slot | OperandRuns) -> Sums:
        unit, (parts, rows, columns) = self.target.matrix, self.tile.shape
        assert unit is not None
        lanes, part_of_k, row_part, column_part = self.place
        (m_tiles, n_tiles), sums = self.tiles, list(self.values)
        share = a.tile.numbers // parts if isinstance(a, Slot) else a.tile.shape[-1]
        column = b.add(b.mul(column_part, columns // self.tile.teams[1]), lanes.row)
        row = b.add(b.mul(row_part, rows // self.tile.teams[0]), lanes.row)
        k_of = [b.add(b.mul(part_of_k, share), block * unit.block) for block in range(share // unit.block)]

        def run_of(part: int, n: int, block: int) -> ir.Value:
            if isinstance(right, OperandRuns):
                return right.of(part, n, block)[0]
            k = b.add(k_of[block], b.mul(lanes.group, unit.run))
            return right.run(part, b.add(column, n * unit.columns), k, unit.run)

        if isinstance(a, PackedRuns):
            return replace(self, values=ScaledSums(self, a.groups(), right.parts, run_of).values())
        if isinstance(a, Slot) and a.tile.blocks:
            groups = of_member(
                PackedSlot(a, self.target), rows // self.tile.teams[0], share, row_part, part_of_k, lanes
            )
            return replace(self, values=ScaledSums(self, groups, right.parts, run_of).values())

        def rows_of(part: int, m: int, block: int) -> list[ir.Value]:
            if isinstance(a, OperandRuns):
                return a.of(part, m, block)
            k = b.add(k_of[block], b.mul(lanes.group, unit.run))
            return [a.run(part, b.add(row, m * unit.rows + r), k, unit.run) for r in unit.left_rows]

        for block in range(share // unit.block):
            for q in range(right.parts):
                runs = [run_of(q, n, block) for n in range(n_tiles)]
                # The products of smaller parts are below what the sum of parts keeps of a number.
                for p in range(min(a.parts, max(a.parts, right.parts) - q)):
                    for m in range(m_tiles):
                        own = rows_of(p, m, block)
                        for n, run in enumerate(runs):
                            at = m * n_tiles + n
                            sums[at] = unit.multiply(own, run, sums[at])
        return replace(self, values=sums)

    def pieces(self) -> list[ResultRun]:
        unit, (_, rows, columns) = self.target.matrix, self.tile.shape
        assert unit is not None
        lanes, _, row_part, column_part = self.place
        row = b.add(b.mul(row_part, rows // self.tile.teams[0]), lanes.result_row)
        column = b.add(b.mul(column_part, columns // self.tile.teams[1]), lanes.result_column)
        found = []
        for at, total in enumerate(self.values):
            m, n = divmod(at, self.tiles[1])
            for piece in unit.pieces():
                value = b.vector_of([b.lane_of(flat(total), e) for e in piece.elements])
                found.append(ResultRun(b.add(row, m * unit.rows + piece.row), b.add(column, n * unit.columns), value))
        return found

    def added(self, memory: ir.Value, meet: Callable[[], None]) -> Sums:
        """The sums of all parts of k, by way of shared memory, in the parts' order."""
        _, part, _, _ = self.place
        for piece in self.pieces():
            b.store(piece.value, memory, [part, piece.row, piece.output])
        meet()
        total = SpreadSums(
            RegisterTile(self.tile.shape[1:], self.tile.dtype, "spread"), self.target, self.thread, self.threads, []
        )
        values = []
        for row, column in total.places():
            shares = [b.load(memory, [p, row, column], ADDED_WIDTH) for p in range(self.tile.shape[0])]
            values.append(tree("arith.addf", shares))
        return replace(total, values=values)


@dataclass(frozen=True)
class ScaledSums:
    """Sums of weights in blocks, A, which are whole numbers in BF16 on their way to matrix instructions: what these add
    up over numbers that share a scale is then multiplied by it, in F32.

    right: gives a tile's run of a part of B, by (BF16 part, tile, block of k).
    """

    sums: SubgroupSums
    groups: Iterable[Group]
    parts: int
    right: Callable[[int, int, int], ir.Value]

    @property
    def unit(self) -> MatrixUnit:
        assert self.sums.target.matrix is not None
        return self.sums.target.matrix

    def values(self) -> list[ir.Value]:
        m_tiles, n_tiles = self.sums.tiles
        totals = [flat(total) for total in self.sums.values]
        for block, live, runs, scales in self.groups:
            found, whole = self._products(runs, block, live, any(least for _, least in scales[0]))
            for m in range(m_tiles):
                scale, least = self._of_lane(scales[m])
                for n in range(n_tiles):
                    i = m * n_tiles + n
                    totals[i] = b.fma(scale, flat(found[i]), totals[i])
                    if least is not None:
                        totals[i] = b.fma(least, flat(whole[n]), totals[i])
        return [shaped(total, self.unit.accumulator_type()) for total in totals]

    def _products(
        self, own: list[list[list[ir.Value]]], first: int, live: ir.Value | None, has_least: bool
    ) -> tuple[list[ir.Value], list[ir.Value]]:
        """Sums over a group's blocks of k without scales; and where numbers have a least one, sums of B alone, for each
        of its tiles.  live: whether a lane's runs are of the group."""
        unit, (m_tiles, n_tiles) = self.unit, self.sums.tiles
        zero = b.constant(0.0, unit.accumulator_type())
        found, whole = [zero] * (m_tiles * n_tiles), [zero] * n_tiles
        ones = b.masked(live, b.constant(1.0, b.with_width(ir.BF16Type.get(), unit.run)))
        for block, rows in enumerate(own):
            runs = [[self.right(q, n, first + block) for n in range(n_tiles)] for q in range(self.parts)]
            for m in range(m_tiles):
                for part in runs:
                    for n, run in enumerate(part):
                        found[m * n_tiles + n] = unit.multiply(rows[m], run, found[m * n_tiles + n])
            if has_least:
                for part in runs:
                    whole = [
                        unit.multiply([ones] * len(unit.left_rows), r, w) for r, w in zip(part, whole, strict=True)
                    ]
        return found, whole

    def _of_lane(self, scales: list[tuple[ir.Value, ir.Value | None]]) -> tuple[ir.Value, ir.Value | None]:
        """Of each of a lane's results in a tile: the scale, and less what its numbers have at least."""
        of_element: dict[int, tuple[ir.Value, ir.Value | None]] = {}
        for piece, both in zip(self.unit.pieces(), scales, strict=True):
            of_element |= dict.fromkeys(piece.elements, both)
        of_lane = [of_element[i] for i in range(len(of_element))]
        scale = b.vector_of([one for one, _ in of_lane])
        least = [b.emit("arith.negf", [one], [one.type]) for _, one in of_lane if one is not None]
        return scale, b.vector_of(least) if least else None


class SpreadSums(Sums):
    """values: vectors of ADDED_WIDTH neighbours."""

    def places(self) -> list[tuple[Index, Index]]:
        rows, columns = self.tile.shape
        return list(places(self.thread, self.threads, rows * columns // ADDED_WIDTH, columns, ADDED_WIDTH))

    def pieces(self) -> list[ResultRun]:
        return [ResultRun(*place, value) for place, value in zip(self.places(), self.values, strict=True)]


class WarpgroupSums(Sums):
    """values: for each 64 rows of a warpgroup the f32 that an instruction leaves with a thread."""

    @property
    def _unit(self) -> WarpgroupUnit:
        assert self.target.warpgroup is not None
        return self.target.warpgroup

    @property
    def _sizes(self) -> tuple[int, int]:
        """How many instructions lie along a warpgroup's rows, and its columns."""
        (_, rows, columns), teams = self.tile.shape, self.tile.teams
        return rows // teams[0] // self._unit.rows, columns // teams[1]

    def zeros(self) -> list[ir.Value]:
        high, columns = self._sizes
        return [b.constant(0.0, b.f32())] * (high * columns * self._unit.rows // self._unit.threads)

    def find_place(self) -> tuple[Index, Index]:
        """The warpgroup's number along rows and columns.  Warpgroup 0 brings copies."""
        group = b.sub(own_warpgroup(self.thread, self.target), 1)
        return b.mod(group, self.tile.teams[0]), b.div(group, self.tile.teams[0])

    def multiply(self, a: Slot | OperandRuns | PackedRuns, right: Slot | OperandRuns) -> WarpgroupSums:
        return self.started(a, right).settled()

    def started(self, a: Slot | OperandRuns | PackedRuns, right: Slot | OperandRuns) -> WarpgroupSums:
        """These and A · Bᵀ, instructions of which are under way."""
        assert isinstance(a, Slot) and isinstance(right, Slot)
        if 2 * a.tile.columns > SWIZZLE:
            raise Refused("warpgroups multiply one line of a product's operands at a time")
        unit, (row_part, column_part), (high, columns) = self._unit, self.place, self._sizes
        line = unit.inner * 2
        across = a.tile.across, right.tile.across
        column = unit.descriptor_at(b.add(_address(right), b.mul(column_part, columns * line)), across[1])
        rows = b.add(_address(a), b.mul(row_part, high * unit.rows * line))
        own = [unit.descriptor_at(b.add(rows, m * unit.rows * line), across[0]) for m in range(high)]
        if a.tile.wide:
            return replace(self, values=self._from_registers(a.tile, _address(a), right, column))
        sums = unit.ready(self.values)
        count = len(sums) // high
        further = [tile.slot_bytes // tile.parts for tile in (a.tile, right.tile)]
        for block in range(a.tile.columns // unit.block):
            for p, q in products_of(a.parts, right.parts):
                there = unit.advanced(unit.further(column, q * further[1]), block, across[1])
                for m in range(high):
                    here = unit.advanced(unit.further(own[m], p * further[0]), block, across[0])
                    mine = slice(m * count, (m + 1) * count)
                    sums[mine] = unit.multiply([here], there, sums[mine], across[1], across[0])
        unit.commit()
        return replace(self, values=sums)

    def _from_registers(self, tile: SharedTile, start: Index, right: Slot, column: ir.Value) -> list[ir.Value]:
        """The same of F32 numbers, which become two parts on their way to registers."""
        unit, member, copies = self._unit, self.member(), self.target.copies
        assert copies is not None
        beside = (tile.columns if tile.across else tile.rows) * SWIZZLE
        lines = Lines(SWIZZLE // tile.item_bytes, SWIZZLE, beside, tile.across)
        words = LeftRegisters(unit, copies, lines, member.row, member.pair).load(start)
        ready = unit.ready([*words, *self.values])
        words, sums = ready[: len(words)], ready[len(words) :]
        further = right.tile.slot_bytes // right.tile.parts
        for block in range(tile.columns // unit.block):
            for p, q in products_of(PARTS, right.parts):
                at = (block * PARTS + p) * unit.row_words
                there = unit.advanced(unit.further(column, q * further), block, right.tile.across)
                sums = unit.multiply(words[at : at + unit.row_words], there, sums, right.tile.across)
        unit.commit()
        return sums

    def settled(self) -> WarpgroupSums:
        """Those that no instruction changes any more."""
        return replace(self, values=self._unit.done(self.values))

    def member(self) -> Member:
        """This thread's part of the tile."""
        (row_part, column_part), number = self.place, b.mod(self.thread, self._unit.threads)
        row, pair = self._unit.lane_places(number)
        return Member(number, row_part, column_part, b.add(b.mul(row_part, self._unit.rows), row), pair)

    def pieces(self) -> list[ResultRun]:
        unit, (row_part, column_part), (high, columns) = self._unit, self.place, self._sizes
        row, pair = unit.lane_places(b.mod(self.thread, unit.threads))
        row = b.add(b.mul(row_part, high * unit.rows), row)
        column = b.add(b.mul(column_part, columns), b.mul(pair, 2))
        found = []
        for m in range(high):
            for n in range(columns // 8):
                for half in (0, 1):
                    first = (m * (columns // 8) + n) * 4 + 2 * half
                    value = b.vector_of(self.values[first : first + 2])
                    found.append(ResultRun(b.add(row, m * unit.rows + 8 * half), b.add(column, 8 * n), value))
        return found


def _address(slot: Slot) -> Index:
    return b.add(slot.memory, b.mul(slot.slot, slot.tile.slot_bytes))
