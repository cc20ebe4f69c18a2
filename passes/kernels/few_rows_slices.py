"""Rows that reductions make, of which each lane keeps the runs that it multiplies itself: no row goes through memory.

A row's elements lie with some lanes of every subgroup of a block.  Each reduction adds up a lane's own, then those of
the lanes that share the row, and the block's subgroups exchange one number for each row.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import cached_property, reduce

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.combiners import combiner_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, integers, is_elementwise, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.few_rows_division import Division, LanePart
from lispgpt.passes.kernels.few_rows_left import BUFFERS, LeftRows, LeftSizes, StagedRows, exchange_shape
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader, softmax_dimension
from lispgpt.passes.kernels.team import Row, Rows, Team, depends_on_thread, subgroup_reduce, tree
from lispgpt.passes.kernels.views import VIEWS
from lispgpt.passes.targets import Gpu


def fits_slices(product: Product) -> bool:
    """Whether x is made of rows as long as k by elementwise ops and reductions along them."""
    left, layout = product.left, product.layout
    lone = all(sum(layout.extents[i] > 1 for i in dims) <= 1 for dims in (layout.rows, layout.sums))
    return lone and left.along_k > 1 and _is_of_rows(left.tensor, product.inner)


def _is_of_rows(tensor: ir.Value, extent: int) -> bool:
    op = defining_op(tensor)
    if op is None or op.name in ("bufferization.to_tensor", "linalg.fill", "tensor.empty"):
        return True
    if op.name == "linalg.reduce":
        whole = integers(op.attributes["dimensions"]) == [len(shape_of(op.operands[0])) - 1]
        if not whole or combiner_of(op) is None or shape_of(op.operands[0])[-1] != extent:
            return False
    elif op.name == "linalg.softmax":
        if softmax_dimension(op) != len(shape_of(tensor)) - 1 or shape_of(tensor)[-1] != extent:
            return False
    elif not is_elementwise(op) and op.name not in VIEWS:
        return False
    return all(_is_of_rows(o, extent) for o in op.operands if isinstance(o.type, ir.RankedTensorType))


@dataclass
class RowSlices:
    """Lanes that reduce over a row together.  subgroup: lanes of one.  subgroups: of the block.  width: elements that a
    lane reads at once of its runs.  memory: numbers of the block's subgroups [buffer row subgroup]."""

    k: LanePart
    subgroup: int
    subgroups: int
    width: int
    memory: ir.Value
    count: int = 0

    @cached_property
    def pieces(self) -> list[list[tuple[Index, ir.Value | None]]]:
        """By step, where what a lane reads at once starts, and whether it is there."""
        starts = [self.k.at(step) for step in range(self.k.steps)]
        offsets = range(0, self.k.lanes.unit.run, self.width)
        return [[(b.add(k, i), live) for i in offsets] for k, live in starts]

    def shares(self, row: Sequence[Index]) -> bool:
        """Whether these are indices of the lane's row, or one row for all lanes."""
        return not any(depends_on_thread(i, b.as_value(self.k.lanes.row)) for i in row if not isinstance(i, int))

    def over_row(self, rows: Rows, combiner: str, start: ir.Value, extent: int, row: Row) -> ir.Value:
        """Combine a row's elements, starting with `start`, which changes nothing; every lane gets its row's result."""
        idle, values = b.splat(start, self.width), []
        for at, live in (piece for step in self.pieces for piece in step):
            value = row.read(at, self.width)
            values.append(value if live is None else b.select(live, value, idle))
        value = b.horizontal(combiner, reduce(lambda one, other: b.binary(combiner, one, other), values))
        lanes = self.k.lanes
        value = subgroup_reduce(combiner, value, lanes.unit.groups, self.subgroup)
        if self.subgroups == 1:
            return value
        place = [self.count % BUFFERS, lanes.row]
        self.count += 1
        b.if_then(b.equal(lanes.group, 0), lambda: b.store(value, self.memory, [*place, self.k.subgroup]))
        b.barrier()
        width = b.largest_width(self.subgroups, 4, 16)
        found = [b.load(self.memory, [*place, i], width) for i in range(0, self.subgroups, width)]
        return tree(combiner, [b.lane_of(v, i) if width > 1 else v for v in found for i in range(width)])


@dataclass
class SlicedRows(LeftRows):
    """x by lanes' runs."""

    def __post_init__(self) -> None:
        team = self.reader.team
        assert isinstance(team, RowSlices)
        self.team = team
        self.rows: dict[int, Index] = {}
        for held in self.sizes.held(self.product, self.division.share):
            row, ends = b.add(self.k.lanes.row, held), self.product.rows % self.sizes.size
            self.rows[held] = b.at_most(row, self.product.rows - 1) if ends else row

    def preload(self, wanted: Callable[[ir.Value], bool]) -> None:
        if not self.left.has_vectors(self.reader):
            return
        for row in self.rows.values():
            for k, _ in (piece for step in self.team.pieces for piece in step):
                self.reader.preload(self.left.tensor, self.left.index(self.batch, row, k), self.team.width, wanted)

    def prepare(self) -> None:
        for row in self.rows.values():
            self.reader.prepare(self.left.tensor, self.left.index(self.batch, row, 0)[:-1])

    def load(self, held: int, step: int) -> list[ir.Value]:
        row, pieces = self.rows[held], self.team.pieces[step]
        values = [self.left.read(self.reader, self.batch, row, k, self.team.width) for k, _ in pieces]
        return [b.masked(pieces[0][1], b.joined(values))]

    def loaded(self, runs: int) -> None:
        pass


def left_rows(
    product: Product,
    division: Division,
    target: Gpu,
    sizes: LeftSizes,
    k: LanePart,
    batch: Index,
    memory: BlockMemory,
) -> LeftRows:
    """How lanes get x, as its sizes say, which has the first of a block's memory."""
    given, size, subgroups = (product, division, target, sizes, k, batch), target.subgroup, division.subgroups
    if sizes.sliced:
        exchanged = memory.view(0, exchange_shape(k.lanes.unit, subgroups), b.f32())
        width = b.largest_width(k.lanes.unit.run, b.item_bytes(product.left.tensor.type), target.vector_bytes)
        return SlicedRows(*given, Reader(target, RowSlices(k, size, subgroups, width, exchanged)))
    number = k.subgroup if isinstance(k.subgroup, ir.Value) else None
    reader = Reader(target, Team(k.lanes.lane, size, size, number))
    if not sizes.computed:
        return LeftRows(*given, reader)
    shape = [sizes.parts, sizes.rows, sizes.pitch]
    return StagedRows(*given, reader, lambda: memory.view(0, shape, ir.BF16Type.get()))
