"""schedule-gpu-few-rows: products of a few rows with a matrix that has k innermost, on matrix instructions.

Before: linalg.contract x[n, k] * w[o, k] of at most `most_rows` rows n, with what computes x ahead of it and
        elementwise ops behind it.
After:  each block takes some of w's rows, and each of its subgroups a part of k: it loads those vectors of w straight
        into registers, all of them at once (before it waits for x, where the target starts kernels early), multiplies
        them by all rows of x, and the block adds up in shared memory.  x in f32 is `parts` bf16 numbers that add up to
        it.  Where reductions make x, subgroups compute its rows once for their block.  Of a long w, blocks loop over
        tiles with the next one's loads under way.

Requires: what plan-arena and recognise-products ensure.
Ensures: such products, whose w is read as it is in memory, have only scalar, vector and matrix ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.block_memory import BlockMemory, fits
from lispgpt.passes.kernels.kernel import constant_arguments, refusable, reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of, split
from lispgpt.passes.kernels.products import Operand, Product, unscheduled_products, with_few_rows
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Team, tree
from lispgpt.passes.targets import Gpu

MOST_VECTORS = 24
"""Of w that a lane loads at once."""
MOST_KEPT = 16
"""Runs of x that a lane keeps from tile to tile of w."""

TILES = (1, 2, 4)
"""Of matrix instructions along w's rows that a block may take."""


@dataclass(frozen=True)
class ScheduleGpuFewRows(Pass):
    """least_rows, most_rows: of x.  parts: bf16 numbers that an f32 one is split into.  subgroups: of a block, or twice
    as many where a lane's share of one row of w would be more than `vectors` vectors.  outputs: rows of w of a block;
    0: by what a core has to load.  blocks_per_core: how many share a core where they loop.
    ahead: the most vectors of x that a lane is made to load before the first is multiplied."""

    name: ClassVar[str] = "schedule-gpu-few-rows"
    least_rows: int = 2
    most_rows: int = 16
    parts: int = 2
    subgroups: int = 8
    vectors: int = 4
    outputs: int = 0
    blocks_per_core: int = 2
    ahead: int = 24

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        constant = constant_arguments(module)
        for kernel, found in unscheduled_products(module):
            product = with_few_rows(found)
            if self.least_rows <= product.rows <= self.most_rows and _fits(product, target):
                with refusable(kernel):
                    _Schedule(kernel, product, constant(kernel), target, self).emit()


def _fits(product: Product, target: Gpu) -> bool:
    """Whether lanes' vectors of w lie as they are in memory, and there are rows enough of it for an instruction."""
    unit, right = target.matrix, product.right
    assert unit is not None
    as_it_is = right.buffer() is not None and not right.is_computed() and right.dtype != "f16"
    return as_it_is and right.along_k % unit.run == product.inner % unit.block == 0 and product.columns >= unit.rows


@dataclass(frozen=True)
class _Share:
    """How a block's tile lies in instructions.  tiles: along w's rows.  turned: whether those are the instruction's
    columns.  held: which rows of w, and held_left of x, a lane has of each instruction, counted from its own."""

    tiles: int
    turned: bool
    size: int
    left_size: int
    held: tuple[int, ...]
    held_left: tuple[int, ...]

    @property
    def outputs(self) -> int:
        return self.tiles * self.size


class _Schedule:
    def __init__(
        self,
        kernel: ir.Operation,
        product: Product,
        constants: set[ir.Value],
        target: Gpu,
        options: ScheduleGpuFewRows,
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.product, self.target, self.constants = kernel, product, target, constants
        self.unit, self.left, self.right, self.parts = target.matrix, product.left, product.right, options.parts
        self.left_parts, self.right_parts = (1 if o.dtype == "bf16" else options.parts for o in (self.left, self.right))
        steps = product.inner // self.unit.block
        wide = -(-steps // options.subgroups) > options.vectors
        self.subgroups = min(steps, options.subgroups * (2 if wide else 1))
        self.threads = self.subgroups * target.subgroup
        self.steps = -(-steps // self.subgroups)
        self.ragged_steps = steps % self.subgroups != 0
        most = target.cores * options.blocks_per_core
        self.loops = product.columns > 2 * most * self.unit.rows
        self.share = self._chosen(options.outputs)
        self.left_tiles = -(-product.rows // self.share.left_size)
        self.tiles = -(-product.columns // self.share.outputs)
        self.grid = most if self.loops else self.tiles
        if self.loops and self.left_tiles * len(self.share.held_left) * self.steps * self.left_parts > MOST_KEPT:
            raise Refused("a subgroup's part of a product's rows is too long to be kept in registers")
        self.options = options
        self.staged = self.left.reduces()
        self.outputs = outputs_of(kernel)
        self.slots = product.rows * self.share.outputs

    def _chosen(self, outputs: int) -> _Share:
        """The tile with which a core has least to load: its blocks' rows of w, and all of x for each of them."""
        unit = self.unit
        along_rows = [_Share(n, False, unit.rows, unit.columns, unit.left_rows, (0,)) for n in TILES]
        along_columns = [_Share(1, True, unit.columns, unit.rows, (0,), unit.left_rows)]
        shares = along_rows[:1] if self.loops else (along_columns if unit.columns < unit.rows else []) + along_rows
        shares = [s for s in shares if outputs in (0, s.outputs)] or shares
        registers = [s for s in shares if s.tiles * len(s.held) * self.steps <= MOST_VECTORS]
        if not registers:
            raise Refused("a subgroup's part of a product's rows is too long for its registers")
        return min(registers, key=self._loaded)

    def _loaded(self, share: _Share) -> int:
        """Bytes that the core with most blocks loads."""
        blocks = self.product.batches * -(-self.product.columns // share.outputs)
        size, left_size = (b.item_bytes(o.tensor.type) for o in (self.right, self.left))
        each = self.product.inner * (share.outputs * size + self.product.rows * left_size)
        return -(-blocks // self.target.cores) * each

    def emit(self) -> None:
        s, inner = self.share, self.product.inner
        rows = self.left_tiles * s.left_size
        self.pitch = inner + (self.unit.block if self.unit.row_major_lanes else self.unit.padding)
        staged_bytes = 2 * self.left_parts * rows * self.pitch if self.staged else 0
        self.sums_shape = [self.subgroups, s.outputs, rows] if not s.turned else [self.subgroups, rows, s.outputs]
        sums_bytes = 4 * self.subgroups * rows * s.outputs * (2 if self.loops else 1)
        if not fits(self.target, staged_bytes + sums_bytes, False):
            raise Refused("a block's rows of a product do not fit in shared memory")
        self.staged_bytes, self.nbytes = staged_bytes, staged_bytes + sums_bytes
        if reschedule(self.kernel, [self.grid * self.product.batches], [self.threads], self.target, self._body):
            self.memory.record(self.kernel)
            if self.loops:
                self.target.set_residency(self.kernel, self.options.blocks_per_core)

    def _body(self) -> None:
        self.thread = b.thread_id()
        lane, self.subgroup = b.mod(self.thread, self.target.subgroup), b.div(self.thread, self.target.subgroup)
        self.lanes = lanes_of(self.unit, lane)
        self.batch, block = 0, b.block_id()
        if self.product.batches > 1:
            self.batch, block = b.div(block, self.grid), b.mod(block, self.grid)
        self.memory = BlockMemory(self.target, self.nbytes, False)
        number = self.subgroup if isinstance(self.subgroup, ir.Value) else None
        self.reader = Reader(self.target, Team(lane, self.target.subgroup, self.target.subgroup, number))
        early = self.right.buffer() in self.constants
        weights = self._weights(block) if early else []
        self.target.dependency_release()
        places = None if self.loops else self._places(block)
        self._preload(places, constant=True)
        self.target.dependency_wait()
        weights = weights or self._weights(block)
        self._preload(places, constant=False)
        load = self._stage() if self.staged else self._load_left
        if places is None:
            self._loop(block, weights, self._left(load))
        else:
            self._publish(weights, self._left(load), 0)
            self._finish(places, 0)

    def _k(self, step: int) -> tuple[Index, ir.Value | None]:
        """Where a lane's vector of a step starts along k, and whether there is one (None: always)."""
        number = b.add(b.mul(self.subgroup, self.steps), step)
        k = b.add(b.mul(number, self.unit.block), b.mul(self.lanes.group, self.unit.run))
        if not self.ragged_steps:
            return k, None
        live = b.less(k, self.product.inner)
        return b.select(live, b.as_value(k), b.as_value(0)), live

    def _weights(self, tile: Index) -> list[ir.Value]:
        """A lane's vectors of w in a tile: of each row that it holds one for each step; past the last, the last's."""
        found = []
        for n in range(self.share.tiles):
            for held in self.share.held:
                column = b.add(b.mul(tile, self.share.outputs), b.add(self.lanes.row, n * self.share.size + held))
                if self.loops or self.product.columns % self.share.outputs:
                    column = b.at_most(column, self.product.columns - 1)
                found += [self._run(self.right, column, self._k(step)[0]) for step in range(self.steps)]
        return found

    def _run(self, operand: Operand, outer: Index, k: Index) -> ir.Value:
        """A lane's run of an operand in loads as wide as they may be."""
        width = min(self.unit.run, self.target.vector_bytes // b.item_bytes(operand.tensor.type))
        starts = range(0, self.unit.run, width)
        return b.joined([operand.read(self.reader, self.batch, outer, b.add(k, i), width) for i in starts])

    def _left(self, load: Callable[[Index, int], list[ir.Value]]) -> list[list[list[ir.Value]]]:
        """[tile of x's rows][held row][step and part]: a lane's runs of x, bf16."""
        share = self.share
        zero = b.constant(0.0, b.with_width(ir.BF16Type.get(), self.unit.run))
        firsts = [[tile * share.left_size + held for held in share.held_left] for tile in range(self.left_tiles)]
        there = [first for rows in firsts for first in rows if first < self.product.rows]
        loaded = {n: [load(b.add(self.lanes.row, n), step) for step in range(self.steps)] for n in there}
        nbytes = len(there) * self.steps * self.unit.run * b.item_bytes(self.left.tensor.type)
        if not self.staged and nbytes <= self.options.ahead * self.target.vector_bytes:
            self.target.loads_started()
        nothing = [zero] * (self.steps * self.left_parts)
        return [
            [[v for runs in loaded[n] for v in self._parts(runs)] if n in loaded else nothing for n in rows]
            for rows in firsts
        ]

    def _parts(self, runs: list[ir.Value]) -> list[ir.Value]:
        """A run of x as so many bf16 ones, which it may be already."""
        return runs if self.staged or self.left_parts == 1 else split(b.extend(runs[0]), self.left_parts)

    def _load_left(self, row: Index, step: int) -> list[ir.Value]:
        """A lane's run of x straight from memory."""
        if self.product.rows % self.share.left_size:
            row = b.at_most(row, self.product.rows - 1)
        k, live = self._k(step)
        value = self._run(self.left, row, k)
        return [value if live is None else b.select(live, value, b.constant(0.0, value.type))]

    def _stage(self) -> Callable[[Index, int], list[ir.Value]]:
        """Compute x once in the block, each subgroup some rows of it; how a lane gets its runs from there."""
        rows, inner = self.left_tiles * self.share.left_size, self.product.inner
        bf16 = ir.BF16Type.get()
        memory = self.memory.view(0, [self.left_parts, rows, self.pitch], bf16)
        width = b.largest_width(inner, b.item_bytes(self.left.tensor.type), self.target.vector_bytes)
        team = self.reader.team
        assert isinstance(team, Team)
        for number in range(-(-self.product.rows // self.subgroups)):
            row = b.add(self.subgroup, number * self.subgroups) if number else self.subgroup
            at = row if (number + 1) * self.subgroups <= rows else b.at_most(row, rows - 1)
            source = at if (number + 1) * self.subgroups <= self.product.rows else b.at_most(row, self.product.rows - 1)
            for piece in range(team.chunk_count(inner, width)):
                chunk = team.chunk(piece, inner, width)
                value = self.left.read(self.reader, self.batch, source, chunk.start, width)
                values = [value] if self.left_parts == 1 else split(b.extend(value), self.left_parts)
                b.if_live(chunk.live, partial(self._keep, values, memory, at, chunk.start))
        b.barrier()

        def load(row: Index, step: int) -> list[ir.Value]:
            k, live = self._k(step)
            starts = [b.add(k, i) for i in range(0, self.unit.run, 8)]
            runs = [b.joined([b.load(memory, [n, row, i], 8) for i in starts]) for n in range(self.left_parts)]
            return runs if live is None else [b.select(live, run, b.constant(0.0, run.type)) for run in runs]

        return load

    @staticmethod
    def _keep(values: list[ir.Value], memory: ir.Value, row: Index, start: Index) -> None:
        for part, value in enumerate(values):
            b.store(value, memory, [part, row, start])

    def _sums(self, weights: list[ir.Value], left: list[list[list[ir.Value]]]) -> list[list[ir.Value]]:
        """[tile of w's rows][tile of x's rows]: this subgroup's sums over its part of k."""
        share, held = self.share, len(self.share.held)
        split_weights = [[w] if self.right_parts == 1 else split(b.extend(w), self.right_parts) for w in weights]
        zero = b.constant(0.0, self.unit.accumulator_type())
        totals = [[zero] * self.left_tiles for _ in range(share.tiles)]
        for step in range(self.steps):
            for n in range(share.tiles):
                own = [split_weights[(n * held + h) * self.steps + step] for h in range(held)]
                for m, rows in enumerate(left):
                    for i in range(self.right_parts):
                        # The products of two small parts are below what the sum of parts keeps of a number.
                        for j in range(self.left_parts if i == 0 else 1):
                            mine, others = [w[i] for w in own], [row[step * self.left_parts + j] for row in rows]
                            first, second = (others, mine[0]) if share.turned else (mine, others[0])
                            totals[n][m] = self.unit.multiply(first, second, totals[n][m])
        return totals

    def _partial_sums(self, buffer: Index) -> tuple[ir.Value, list[Index]]:
        """What subgroups exchange sums through, and the index ahead of theirs where there are two of it."""
        if not self.loops:
            return self.memory.view(self.staged_bytes, self.sums_shape, b.f32()), []
        return self.memory.view(self.staged_bytes, [2, *self.sums_shape], b.f32()), [buffer]

    def _publish(self, weights: list[ir.Value], left: list[list[list[ir.Value]]], buffer: Index) -> None:
        """Put a subgroup's sums where the block's threads add them up."""
        memory, ahead = self._partial_sums(buffer)
        unit, share = self.unit, self.share
        for n, row_totals in enumerate(self._sums(weights, left)):
            for m, total in enumerate(row_totals):
                down, across = (m, n) if share.turned else (n, m)
                for piece in unit.pieces():
                    value = b.vector_of([b.lane_of(flat(total), e) for e in piece.elements])
                    row = b.add(self.lanes.result_row, down * unit.rows + piece.row)
                    column = b.add(self.lanes.result_column, across * unit.columns)
                    b.store(value, memory, [*ahead, self.subgroup, row, column])
        b.barrier()

    def _places(self, tile: Index) -> list[_Place]:
        """Which results this thread finishes."""
        found = []
        for number in range(-(-self.slots // self.threads)):
            slot, inside = b.add(self.thread, number * self.threads) if number else self.thread, None
            if (number + 1) * self.threads > self.slots:
                inside = b.less(slot, self.slots)
                slot = b.at_most(slot, self.slots - 1)
            row, output = b.div(slot, self.share.outputs), b.mod(slot, self.share.outputs)
            column = b.add(b.mul(tile, self.share.outputs), output)
            if self.product.columns % self.share.outputs:
                there = b.less(column, self.product.columns)
                inside = there if inside is None else b.binary("arith.andi", inside, there)
                column = b.at_most(column, self.product.columns - 1)
            at = [row, output] if self.share.turned else [output, row]
            found.append(_Place(at, self.product.place(self.batch, row, column), inside))
        return found

    def _finish(self, places: list[_Place], buffer: Index) -> None:
        """Add up subgroups' sums and write what follows from them."""
        memory, ahead = self._partial_sums(buffer)
        finished = []
        for place in places:
            shares = [b.load(memory, [*ahead, n, *place.sums], 1) for n in range(self.subgroups)]
            self.reader.hold(self.product.result, tree("arith.addf", shares))
            finished.append([self.reader.read(tensor, place.where) for tensor, _ in self.outputs])
        for place, values in zip(places, finished, strict=True):
            b.if_live(place.inside, partial(self._write, values, place.where))

    def _write(self, values: list[ir.Value], where: list[Index]) -> None:
        for value, (_, buffer) in zip(values, self.outputs, strict=True):
            b.store(value, buffer, where)

    def _loop(self, block: Index, weights: list[ir.Value], left: list[list[list[ir.Value]]]) -> None:
        """Go through w's tiles, the next one's loads ahead of this one's arithmetic."""

        def body(tile: ir.Value, *current: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._weights(b.add(tile, self.grid))
                buffer = b.mod(b.div(tile, self.grid), 2)
                self._publish(list(current), left, buffer)
                self._finish(self._places(tile), buffer)
            return following

        b.loop(block, self.tiles, self.grid, weights, body)

    def _preload(self, places: list[_Place] | None, constant: bool) -> None:
        """Load what follows the product ahead of it: before the wait only what no launch writes."""
        if places is None:
            return

        def wanted(buffer: ir.Value) -> bool:
            return (buffer in self.constants) == constant

        self.reader.hold(self.product.result, b.constant(0.0, b.f32()))
        for place in places:
            for tensor, _ in self.outputs:
                self.reader.preload(tensor, place.where, 1, wanted)


@dataclass(frozen=True)
class _Place:
    """sums: where a result's sums lie behind each subgroup's number.  where: in the product.  inside: whether it is
    one at all (None: it is)."""

    sums: list[Index]
    where: list[Index]
    inside: ir.Value | None
