"""Operands of matrix instructions that lanes load from memory to their own registers."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace
from math import gcd

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_weights import BlockWeights
from lispgpt.passes.kernels.matrices import Lanes, lanes_of, split
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import flat
from lispgpt.passes.tile.lower.packed import Packed
from lispgpt.passes.tile.lower.staged_operand import is_pointwise
from lispgpt.passes.tile.types import A, RegisterTile

Membership = tuple[Lanes, Index, Index, Index]
"""A lane's share of instructions, and its subgroup's number along parts of k, rows and columns."""


def membership(tile: RegisterTile, target: Gpu, thread: Index) -> Membership:
    """A thread's, in the team of a tile."""
    unit, (rows, columns) = target.matrix, tile.teams
    assert unit is not None
    lanes = lanes_of(unit, b.mod(thread, target.subgroup))
    subgroup = b.div(thread, target.subgroup)
    along = b.mod(subgroup, rows), b.mod(b.div(subgroup, rows), columns)
    return lanes, b.div(subgroup, rows * columns), *along


@dataclass(frozen=True)
class OperandRuns:
    """What a lane has of an operand: for each block of k, each tile along it and each of its rows there a run.

    values: in that order; of an operand that waits what memory has of them; of one in BF16 numbers those of all first
    numbers, then those of all second ones.  whole: whether runs are of elements, not yet of BF16 numbers.
    """

    tile: RegisterTile
    operand: Operand
    target: Gpu
    place: Membership
    reader: Reader
    at: tuple[Index, Index]
    values: list[ir.Value]
    waits: bool = False

    @property
    def parts(self) -> int:
        """BF16 numbers of an element."""
        return self.tile.shape[0]

    def of(self, part: int, number: int, block: int) -> list[ir.Value]:
        """Runs of a BF16 part, of a tile along the operand and of a block of k."""
        rows = len(self._rows)
        at = ((part * self._blocks + block) * self._tiles + number) * rows
        return self.values[at : at + rows]

    def loaded(self, inner: Index) -> OperandRuns:
        """What is there from k = inner on, or what memory has to make it of where that needs no place."""
        waits = not self._is_ragged and is_pointwise(self.operand.tensor, self.reader)
        if not waits:
            return replace(self, values=self._runs(inner))
        found: list[ir.Value] = []

        def keep(buffer: ir.Value, index: Sequence[Index], width: int) -> ir.Value:
            found.append(b.load(buffer, index, width, self.target.aligned_rows))
            return found[-1]

        with self.reader.taking(keep):
            self._runs(inner)
        return replace(self, values=found, waits=True)

    def split(self, tile: RegisterTile) -> OperandRuns:
        """As BF16 numbers."""
        runs = self.values
        if self.waits:
            rest = iter(runs)
            with self.reader.taking(lambda buffer, index, width: next(rest)):
                runs = self._runs(0)
        if b.element_of(runs[0].type) != ir.BF16Type.get():
            numbers = [split(run, tile.shape[0]) for run in runs]
            runs = [one[i] for i in range(tile.shape[0]) for one in numbers]
        return replace(self, tile=tile, values=runs, waits=False)

    @property
    def _unit(self):  # type: ignore[no-untyped-def]
        assert self.target.matrix is not None
        return self.target.matrix

    @property
    def _rows(self) -> tuple[int, ...]:
        """A lane's in a tile, from its own on."""
        return self._unit.left_rows if self.tile.layout == A else (0,)

    @property
    def _team(self) -> int:
        """How many members lie along the operand."""
        return self.tile.teams[0 if self.tile.layout == A else 1]

    @property
    def _tile(self) -> int:
        """Rows of an instruction's."""
        rows: int = self._unit.rows if self.tile.layout == A else self._unit.columns
        return rows

    @property
    def _tiles(self) -> int:
        """Of a member."""
        return self.tile.shape[-2] // self._team // self._tile

    @property
    def _blocks(self) -> int:
        blocks: int = self.tile.shape[-1] // self._unit.block
        return blocks

    @property
    def _is_ragged(self) -> bool:
        """Whether the last step goes past the end of k."""
        parts, _, share = self.tile.shape[-3:]
        return self._inner % (parts * share) != 0

    @property
    def _inner(self) -> int:
        return self.operand.layout.extent(self.operand.layout.sums)

    def _runs(self, inner: Index) -> list[ir.Value]:
        """Past the last row they are the last one's; past the last k zeros of A, and anything of B."""
        lanes, part_of_k, *along = self.place
        unit, (_, rows, share) = self._unit, self.tile.shape[-3:]
        team = along[0 if self.tile.layout == A else 1]
        first = b.add(b.add(self.at[1], b.mul(team, rows // self._team)), lanes.row)
        start = b.add(b.add(inner, b.mul(part_of_k, share)), b.mul(lanes.group, unit.run))
        found = []
        for block in range(self._blocks):
            k = b.add(start, block * unit.block)
            live = b.less(k, self._inner) if self._is_ragged else None
            at_k = b.or_zero(live, k)
            for number in range(self._tiles):
                for row in self._rows:
                    at = b.add(first, number * self._tile + row)
                    if self.operand.extent % rows:
                        at = b.at_most(at, self.operand.extent - 1)
                    run = self.operand.read(self.reader, self.at[0], at, at_k, unit.run)
                    found.append(b.masked(live, run) if self.tile.layout == A else run)
        return found


@dataclass(frozen=True)
class PackedRuns(Packed):
    """A lane's part of an operand in blocks: values are what memory has of them, in the order in which `of_member` asks
    for it; places are by the tile's rows and bytes.

    Steps are of whole blocks, so that what is made of the values does not depend on which step it is.
    """

    tile: RegisterTile
    operand: Operand
    target: Gpu
    place: Membership
    at: tuple[Index, Index]
    values: list[ir.Value]
    source: Callable[[Index, Index, int], ir.Value] | None = None

    @property
    def blocks(self) -> BlockWeights:  # type: ignore[override]
        return BlockWeights(self.operand.tensor, self.tile.blocks)

    def load(self, row: Index, byte: Index, width: int) -> ir.Value:
        assert self.source is not None
        return self.source(row, byte, width)

    def loaded(self, inner: Index) -> PackedRuns:
        """From a byte of each row on; past the last row it is the last one's."""
        memory, of = flat(self.operand)
        found: list[ir.Value] = []

        def keep(row: Index, byte: Index, width: int) -> ir.Value:
            at = b.add(self.at[1], row)
            if self.operand.extent % self.tile.shape[-2]:
                at = b.at_most(at, self.operand.extent - 1)
            found.append(b.load(memory, [of(self.at[0], at, b.add(inner, byte))], width))
            return found[-1]

        for _ in self._groups(keep):
            pass
        return replace(self, values=found)

    def groups(self) -> Iterator[Group]:
        """What was loaded."""
        rest = iter(self.values)
        return self._groups(lambda row, byte, width: next(rest))

    def _groups(self, source: Callable[[Index, Index, int], ir.Value]) -> Iterator[Group]:
        lanes, part_of_k, row_part, _ = self.place
        rows = self.tile.shape[-2] // self.tile.teams[0]
        return of_member(replace(self, source=source), rows, self.tile.shape[-1], row_part, part_of_k, lanes)


Group = tuple[int, ir.Value | None, list[list[list[ir.Value]]], list[list[tuple[ir.Value, ir.Value | None]]]]
"""Of numbers that share scales: the first block of k, and whether a lane's runs are of them, None where all are; for
each block, each tile along A and each of a lane's rows there a run; and for each tile the scale, and what is taken
away, of each piece of results."""


def of_member(
    weights: Packed, rows: int, share: int, row_part: Index, part_of_k: Index, lanes: Lanes
) -> Iterator[Group]:
    """Each of a member's groups, along its share of k and in its rows.  Of fewer numbers than a block of k has, all
    other runs of this are zeros."""
    unit = lanes.unit
    each = gcd(share, weights.blocks.scaled)
    scaled = each // unit.run  # runs
    starts = [b.add(b.mul(row_part, rows), m * unit.rows) for m in range(rows // unit.rows)]
    for start in range(0, share, each):
        begin = b.add(b.mul(part_of_k, share), start)
        runs, own = [], None
        if each < unit.block:
            own = b.equal(b.div(lanes.group, scaled), start % unit.block // each)
        for block in range(-(-each // unit.block)):
            first = b.mul(b.div(begin, unit.block), unit.block) if each < unit.block else begin
            k = b.add(b.add(first, block * unit.block), b.mul(lanes.group, unit.run))
            at = [[b.add(b.add(m, lanes.row), r) for r in unit.left_rows] for m in starts]
            runs.append([[b.masked(own, weights.run(row, k, unit.run)) for row in of_tile] for of_tile in at])
        places = [[b.add(b.add(m, lanes.result_row), piece.row) for piece in unit.pieces()] for m in starts]
        yield start // unit.block, own, runs, [[weights.scale(row, begin) for row in of_tile] for of_tile in places]
