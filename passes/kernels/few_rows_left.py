"""The left operand of a product of a few rows: how lanes get their runs of it, as bf16 numbers."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.few_rows_division import Division, LanePart, Share
from lispgpt.passes.kernels.matrices import split
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.matrix import MatrixUnit

Rows = list[list[ir.Value]]
"""Of a tile, for each row that a lane holds its runs, by step and part."""


@dataclass(frozen=True)
class LeftSizes:
    """Of a block's x.  parts: bf16 numbers of each of its own.  tiles: of as many rows as an instruction has.
    computed: whether reductions make it.  sliced: whether each lane keeps its own runs then; else they go through
    shared memory, where rows are `pitch` elements apart.  nbytes: of shared memory for either."""

    parts: int
    tiles: int
    size: int
    computed: bool
    sliced: bool
    pitch: int
    nbytes: int

    @staticmethod
    def of(product: Product, division: Division, target: Gpu, sliced: bool) -> LeftSizes:
        unit, left, size = target.matrix, product.left, division.share.left_size
        assert unit is not None
        parts, tiles = 1 if left.dtype == "bf16" else division.parts, -(-product.rows // size)
        pitch = product.inner + (unit.block if unit.row_major_lanes else unit.padding)
        computed, nbytes = left.reduces(), 2 * parts * tiles * size * pitch
        if computed and sliced:
            nbytes = 4 * prod(exchange_shape(unit, division.subgroups))
        return LeftSizes(parts, tiles, size, computed, computed and sliced, pitch, nbytes if computed else 0)

    @property
    def rows(self) -> int:
        return self.tiles * self.size

    def held(self, product: Product, share: Share) -> list[int]:
        """The rows that a lane has, counted from its first."""
        every = [tile * self.size + n for tile in range(self.tiles) for n in share.held_left]
        return [n for n in every if n < product.rows]


BUFFERS = 2
"""For numbers that subgroups exchange, which take turns: who writes to one has gone through a barrier behind all reads
of it."""


def exchange_shape(unit: MatrixUnit, subgroups: int) -> list[int]:
    """[buffer, row of the lanes, subgroup]."""
    return [BUFFERS, unit.columns, subgroups]


@dataclass
class LeftRows:
    """x straight from memory.  k: the lane's part of it."""

    product: Product
    division: Division
    target: Gpu
    sizes: LeftSizes
    k: LanePart
    batch: Index
    reader: Reader

    @property
    def left(self) -> Operand:
        return self.product.left

    def preload(self, wanted: Callable[[ir.Value], bool]) -> None:
        """Load of the buffers that are wanted what stands around x."""

    def prepare(self) -> None:
        """Emit what all of the block's threads do together, once x is there."""

    def tile(self, number: int, steps: Sequence[int]) -> Rows:
        """A lane's runs in some steps of a tile's rows."""
        held = [number * self.sizes.size + n for n in self.division.share.held_left]
        loaded = {n: [self.load(n, step) for step in steps] for n in held if n < self.product.rows}
        self.loaded(len(loaded) * len(steps))
        zero = b.constant(0.0, b.with_width(ir.BF16Type.get(), self.k.lanes.unit.run))
        nothing = [zero] * (len(steps) * self.sizes.parts)
        return [[v for runs in loaded[n] for v in self.parts(runs)] if n in loaded else nothing for n in held]

    def load(self, held: int, step: int) -> list[ir.Value]:
        """A run of the row that is so many behind the lane's first."""
        row = b.add(self.k.lanes.row, held)
        if self.product.rows % self.sizes.size:
            row = b.at_most(row, self.product.rows - 1)
        k, live = self.k.at(step)
        return [b.masked(live, run_of(self.left, self.reader, self.batch, (row, k), self.k.lanes.unit.run))]

    def loaded(self, runs: int) -> None:
        """Emit what keeps that many loads ahead of their use."""
        nbytes = runs * self.k.lanes.unit.run * b.item_bytes(self.left.tensor.type)
        if nbytes <= self.division.ahead * self.target.vector_bytes:
            self.target.loads_started()

    def parts(self, runs: list[ir.Value]) -> list[ir.Value]:
        """A run as so many bf16 ones, which it may be already."""
        return runs if self.sizes.parts == 1 else split(b.extend(runs[0]), self.sizes.parts)


@dataclass
class StagedRows(LeftRows):
    """x as reductions make it, each of the block's subgroups some rows.  memory: for all of them, by part."""

    memory: Callable[[], ir.Value]

    def __post_init__(self) -> None:
        team, inner = self.reader.team, self.product.inner
        assert isinstance(team, Team)
        self.own_rows = self._own_rows()
        self.width = b.largest_width(inner, b.item_bytes(self.left.tensor.type), self.target.vector_bytes)
        self.chunks = [team.chunk(i, inner, self.width) for i in range(team.chunk_count(inner, self.width))]

    def _own_rows(self) -> list[tuple[Index, Index]]:
        """(row in shared memory, row of x) of those that a subgroup computes for its block."""
        found, subgroups, subgroup = [], self.division.subgroups, self.k.subgroup
        for first in range(0, self.product.rows, subgroups):
            row = b.add(subgroup, first) if first else subgroup
            most = first + subgroups
            places = (row if most <= n else b.at_most(row, n - 1) for n in (self.sizes.rows, self.product.rows))
            found.append((next(places), next(places)))
        return found

    def preload(self, wanted: Callable[[ir.Value], bool]) -> None:
        if self.left.along_k % self.width == 0 and self.left.has_vectors(self.reader):
            for _, row in self.own_rows:
                for chunk in self.chunks:
                    where = self.left.index(self.batch, row, chunk.start)
                    self.reader.preload(self.left.tensor, where, self.width, wanted)

    def prepare(self) -> None:
        if len(self.own_rows) * len(self.chunks) in range(1, self.division.ahead + 1):
            self.target.loads_started()
        self.found = self.memory()
        for at, source in self.own_rows:
            for chunk in self.chunks:
                value = self.left.read(self.reader, self.batch, source, chunk.start, self.width)
                values = [value] if self.sizes.parts == 1 else split(b.extend(value), self.sizes.parts)
                b.if_live(chunk.live, partial(self._keep, values, at, chunk.start))
        b.barrier()

    def _keep(self, values: list[ir.Value], row: Index, start: Index) -> None:
        for part, value in enumerate(values):
            b.store(value, self.found, [part, row, start])

    def load(self, held: int, step: int) -> list[ir.Value]:
        row = b.add(self.k.lanes.row, held)
        k, live = self.k.at(step)
        starts = [b.add(k, i) for i in range(0, self.k.lanes.unit.run, 8)]
        runs = [b.joined([b.load(self.found, [n, row, i], 8) for i in starts]) for n in range(self.sizes.parts)]
        return [b.masked(live, run) for run in runs]

    def loaded(self, runs: int) -> None:
        pass

    def parts(self, runs: list[ir.Value]) -> list[ir.Value]:
        return runs


def run_of(operand: Operand, reader: Reader, batch: Index, place: tuple[Index, Index], run: int) -> ir.Value:
    """A lane's run of an operand from a (row, k) on, in loads as wide as they may be."""
    row, k = place
    width = min(run, reader.target.vector_bytes // b.item_bytes(operand.tensor.type))
    starts = range(0, run, width)
    return b.joined([operand.read(reader, batch, row, b.add(k, i), width) for i in starts])
