"""Register tiles of attention on subgroups: numbers of rows, operands, and what maps and masks them."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import operand_a
from lispgpt.passes.kernels.expand import expand
from lispgpt.passes.kernels.matrices import Lanes, flat, lanes_of, shaped
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.score_masks import Mask
from lispgpt.passes.kernels.team import subgroup_reduce, tree
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.matrix import MatrixUnit
from lispgpt.passes.tile.lower.units import SubgroupSums, Sums
from lispgpt.passes.tile.types import ROWS, RegisterTile


@dataclass(frozen=True)
class Seat:
    """Where a thread is among those who have tiles: its lane, and its subgroup's number along rows and among the
    members that share a row."""

    lanes: Lanes
    row_part: Index
    member: Index

    @staticmethod
    def of(tile: RegisterTile, target: Gpu, thread: Index) -> Seat:
        assert target.matrix is not None
        subgroup = b.div(thread, target.subgroup)
        lanes = lanes_of(target.matrix, b.mod(thread, target.subgroup))
        return Seat(lanes, b.mod(subgroup, tile.teams[0]), b.div(subgroup, tile.teams[0]))

    @property
    def unit(self) -> MatrixUnit:
        return self.lanes.unit

    def result_rows(self, tile: RegisterTile) -> list[Index]:
        """In a tile, those of which the lane has results: instruction by instruction."""
        each = tile.shape[1] // tile.teams[0]
        start = b.add(b.mul(self.row_part, each), self.lanes.result_row)
        return [b.add(start, m + piece.row) for m in range(0, each, self.unit.rows) for piece in self.unit.pieces()]


@dataclass(frozen=True)
class RowNumbers:
    """values: one for each of a lane's rows."""

    tile: RegisterTile
    target: Gpu
    seat: Seat
    values: list[ir.Value]

    @staticmethod
    def filled(tile: RegisterTile, target: Gpu, thread: Index, number: float) -> RowNumbers:
        seat = Seat.of(tile, target, thread)
        return RowNumbers(tile, target, seat, [b.constant(number, b.f32())] * len(seat.result_rows(tile)))

    def broadcast(self, like: SubgroupSums | RowNumbers, tile: RegisterTile) -> SubgroupSums | RowNumbers:
        """As a tile of sums, each row's number all along it; or as shares of rows."""
        if isinstance(like, RowNumbers):
            return replace(self, tile=tile)
        unit, (high, wide) = self.seat.unit, like.tiles
        each, found = len(unit.pieces()), []
        for m in range(high):
            of = {e: self.values[m * each + i] for i, piece in enumerate(unit.pieces()) for e in piece.elements}
            vector = shaped(b.vector_of([of[e] for e in range(len(of))]), unit.accumulator_type())
            found += [vector] * wide
        return replace(like, values=found)

    def whole(self, combiner: str) -> RowNumbers:
        """Of shares: all lanes' together."""
        lanes = self.seat.lanes.sharing
        values = [subgroup_reduce(combiner, v, lanes, self.target.subgroup) for v in self.values]
        return replace(self, tile=replace(self.tile, layout=ROWS), values=values)

    def over_members(self, combiner: str, memory: ir.Value, meet: Callable[[], None]) -> RowNumbers:
        """memory: [members, rows].  meet: has all members wait for each other."""
        rows, first = self.seat.result_rows(self.tile), b.equal(self.seat.lanes.result_column, 0)

        def tell() -> None:
            for row, value in zip(rows, self.values, strict=True):
                b.store(value, memory, [self.seat.member, row])

        b.if_then(first, tell)
        meet()
        members = range(self.tile.shape[0])
        return replace(self, values=[tree(combiner, [b.load(memory, [m, row], 1) for m in members]) for row in rows])


@dataclass(frozen=True)
class RowVector:
    """values: what a thread has of its team's row, one vector of it or one number."""

    target: Gpu
    values: list[ir.Value]


def reduced(sums: SubgroupSums, combiner: str, tile: RegisterTile, seat: Seat) -> RowNumbers:
    """Each of a lane's rows over its columns, and over the other lanes' too unless they are to keep shares."""
    high, wide = sums.tiles
    found = []
    for m in range(high):
        vectors = [flat(v) for v in sums.values[m * wide : (m + 1) * wide]]
        for piece in seat.unit.pieces():
            found.append(tree(combiner, [b.lane_of(v, e) for v in vectors for e in piece.elements]))
    rows = RowNumbers(tile, sums.target, seat, found)
    return rows.whole(combiner) if tile.layout == ROWS else rows


def mapped(op: ir.Operation, operands: list[Sums | RowNumbers | RowVector]) -> Sums | RowNumbers | RowVector:
    """A function of numbers, for all that a thread has."""
    found = []
    for group in zip(*(one.values for one in operands), strict=True):
        plain = [flat(v) if isinstance(v.type, ir.VectorType) else v for v in group]
        value = (
            expand(op.name, plain, operands[0].target, plain[0].type)
            if op.name.startswith("math.")
            else b.emit(op.name, plain, [plain[0].type])
        )
        found.append(shaped(value, group[0].type) if isinstance(value.type, ir.VectorType) else value)
    return replace(operands[0], values=found)


@dataclass(frozen=True)
class RegisterOperand:
    """A of matrix instructions.  blocks: [rows of instructions][block of k][part][row], what a lane has of each."""

    blocks: list[list[operand_a.Block]]


def read_operand(
    tile: RegisterTile, view: Operand, reader: Reader, seat: Seat, at: tuple[Index, ...], as_results: bool = False
) -> RegisterOperand:
    """From memory; rows past a view's last are the last one's, and numbers past its end zeros.  as_results: a lane has
    the columns that it would have of results, as warpgroups' instructions want them, in place of neighbours."""
    unit, (parts, rows, k), (batch, outer, inner) = seat.unit, tile.shape, at
    each, extent = rows // tile.teams[0], view.layout.extent(view.layout.sums)
    first = b.add(b.add(outer, b.mul(seat.row_part, each)), seat.lanes.row)

    def run(row: Index, start: Index) -> ir.Value:
        row = row if view.extent % rows == 0 else b.at_most(row, view.extent - 1)
        pieces, width = [], len(unit.pieces()[0].elements) if as_results else operand_a.WIDTH
        for i in range(0, unit.run, width):
            d = b.add(start, i // width * unit.columns if as_results else i)
            inside = None if extent % k == 0 else b.less(d, extent)
            value = view.read(reader, batch, row, b.or_zero(inside, d), width)
            pieces.append(b.masked(inside, value if parts == 1 and view.dtype == "bf16" else b.extend(value)))
        return b.joined(pieces)

    def block(m: int, number: int) -> operand_a.Block:
        own = seat.lanes.result_column if as_results else b.mul(seat.lanes.group, unit.run)
        start = b.add(b.add(inner, number * unit.block), own)
        return operand_a.in_parts([run(b.add(first, m + row), start) for row in unit.left_rows], parts)

    return RegisterOperand([[block(m, number) for number in range(k // unit.block)] for m in range(0, each, unit.rows)])


def as_operand(sums: SubgroupSums, tile: RegisterTile, seat: Seat, memory: ir.Value | None) -> RegisterOperand:
    """Results as A of another product: as lanes have them, or by way of memory, [subgroups, parts, rows, k]."""
    (high, wide), unit, parts = sums.tiles, seat.unit, tile.shape[0]
    keys, subgroup = wide * unit.columns, b.add(b.mul(seat.member, tile.teams[0]), seat.row_part)
    rows = []
    for m in range(high):
        vectors = [flat(v) for v in sums.values[m * wide : (m + 1) * wide]]
        rows.append([[b.lane_of(v, e) for v in vectors for e in piece.elements] for piece in unit.pieces()])
    if memory is None:
        return RegisterOperand([operand_a.weights_in_registers(unit, one, keys, parts) for one in rows])
    assert high == 1
    operand_a.store_weights(memory, subgroup, seat.lanes, rows[0], keys, parts)
    b.barrier()
    return RegisterOperand([operand_a.load_weights(memory, subgroup, seat.lanes, keys, parts)])


def masked(sums: SubgroupSums, masks: list[Mask], position: Index, seat: Seat) -> SubgroupSums:
    """masks: of the rows of each row of instructions."""
    (high, wide), unit = sums.tiles, seat.unit
    start = b.add(position, b.mul(seat.member, wide * unit.columns)) if sums.tile.teams[1] > 1 else position
    found = []
    for m in range(high):
        rows = masks[m].rows(sums.values[m * wide : (m + 1) * wide], start)
        run = len(unit.pieces()[0].elements)
        for n in range(wide):
            own = {
                e: rows[i][n * run + j] for i, piece in enumerate(unit.pieces()) for j, e in enumerate(piece.elements)
            }
            found.append(shaped(b.vector_of([own[e] for e in range(len(own))]), unit.accumulator_type()))
    return replace(sums, values=found)
