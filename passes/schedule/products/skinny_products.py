"""A product of a few rows with a matrix that has k innermost, on matrix instructions: what each block computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory, fits
from lispgpt.passes.kernels.epilogue import store_results
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of, split
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Team, tree
from lispgpt.passes.schedule.products.skinny_division import Division
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Place:
    """sums: where a result's sums lie behind each subgroup's number.  where: in the product.  inside: whether it is
    one at all (None: it is)."""

    sums: list[Index]
    where: list[Index]
    inside: ir.Value | None


Rows = list[list[ir.Value]]
"""A tile of x: for each row that a lane holds its runs, by step and part."""


class SkinnyProduct:
    def __init__(
        self, kernel: ir.Operation, product: Product, constants: set[ir.Value], target: Gpu, division: Division
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.product, self.target, self.constants = kernel, product, target, constants
        self.unit, self.left, self.right = target.matrix, product.left, product.right
        self.left_parts, self.right_parts = (
            1 if o.dtype == "bf16" else division.parts for o in (self.left, self.right)
        )
        self.division, self.share, self.steps = division, division.share, division.steps
        self.subgroups, self.loops = division.subgroups, division.resident > 0
        self.threads = self.subgroups * target.subgroup
        self.ragged_steps = product.inner != self.subgroups * self.steps * self.unit.block
        self.left_tiles = -(-product.rows // self.share.left_size)
        self.tiles = -(-product.columns // self.share.outputs)
        self.grid = target.cores * division.resident if self.loops else self.tiles
        self.staged = self.left.reduces()
        self.outputs = outputs_of(kernel)
        self.slots = product.rows * self.share.outputs

    def emit(self) -> None:
        s, inner = self.share, self.product.inner
        rows = self.left_tiles * s.left_size
        self.pitch = inner + (self.unit.block if self.unit.row_major_lanes else self.unit.padding)
        staged_bytes = 2 * self.left_parts * rows * self.pitch if self.staged else 0
        self.sums_shape = [self.subgroups, s.outputs, rows] if not s.transposed else [self.subgroups, rows, s.outputs]
        sums_bytes = 4 * self.subgroups * rows * s.outputs * (2 if self.loops else 1)
        if not fits(self.target, staged_bytes + sums_bytes, False):
            raise Refused("a block's rows of a product do not fit in shared memory")
        self.staged_bytes, self.nbytes = staged_bytes, staged_bytes + sums_bytes
        if reschedule(self.kernel, [self.grid * self.product.batches], [self.threads], self.target, self._body):
            self.memory.record(self.kernel)
            if self.loops:
                self.target.set_residency(self.kernel, self.division.resident)

    def _body(self) -> None:
        self.thread = b.thread_id()
        lane, self.subgroup = b.mod(self.thread, self.target.subgroup), b.div(self.thread, self.target.subgroup)
        self.lanes = lanes_of(self.unit, lane)
        self.batch, block = self.product.of_batch(b.block_id(), self.grid)
        self.memory = BlockMemory(self.target, self.nbytes, False)
        number = self.subgroup if isinstance(self.subgroup, ir.Value) else None
        team = Team(lane, self.target.subgroup, self.target.subgroup, number)
        self.reader = Reader(self.target, team)
        self.own_rows = self._own_rows() if self.staged else []
        self.width = b.largest_width(self.product.inner, b.item_bytes(self.left.tensor.type), self.target.vector_bytes)
        count = team.chunk_count(self.product.inner, self.width) if self.staged else 0
        self.chunks = [team.chunk(i, self.product.inner, self.width) for i in range(count)]
        early = self.right.buffer() in self.constants
        weights = self._weights(block) if early else []
        self.target.dependency_release()
        places = None if self.loops else self._places(block)
        self._preload(places, constant=True)
        self.target.dependency_wait()
        weights = weights or self._weights(block)
        self._preload(places, constant=False)
        if len(self.own_rows) * len(self.chunks) in range(1, self.division.ahead + 1):
            self.target.loads_started()
        load = self._stage() if self.staged else self._load_left
        left = (self._left(load, tile) for tile in range(self.left_tiles))
        if places is None:
            self._loop(block, weights, list(left))
        else:
            self._publish(weights, left, 0)
            self._finish(places, 0)

    def _k(self, step: int) -> tuple[Index, ir.Value | None]:
        """Where a lane's vector of a step starts along k, and whether there is one (None: always)."""
        number = b.add(b.mul(self.subgroup, self.steps), step)
        k = b.add(b.mul(number, self.unit.block), b.mul(self.lanes.group, self.unit.run))
        if not self.ragged_steps:
            return k, None
        live = b.less(k, self.product.inner)
        return b.or_zero(live, k), live

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

    def _left(self, load: Callable[[Index, int], list[ir.Value]], tile: int) -> Rows:
        """A lane's runs of a tile of x, bf16."""
        held = [tile * self.share.left_size + n for n in self.share.held_left]
        loaded = {
            n: [load(b.add(self.lanes.row, n), step) for step in range(self.steps)]
            for n in held
            if n < self.product.rows
        }
        nbytes = len(loaded) * self.steps * self.unit.run * b.item_bytes(self.left.tensor.type)
        if not self.staged and nbytes <= self.division.ahead * self.target.vector_bytes:
            self.target.loads_started()
        zero = b.constant(0.0, b.with_width(ir.BF16Type.get(), self.unit.run))
        nothing = [zero] * (self.steps * self.left_parts)
        return [[v for runs in loaded[n] for v in self._parts(runs)] if n in loaded else nothing for n in held]

    def _parts(self, runs: list[ir.Value]) -> list[ir.Value]:
        """A run of x as so many bf16 ones, which it may be already."""
        return runs if self.staged or self.left_parts == 1 else split(b.extend(runs[0]), self.left_parts)

    def _load_left(self, row: Index, step: int) -> list[ir.Value]:
        """A lane's run of x straight from memory."""
        if self.product.rows % self.share.left_size:
            row = b.at_most(row, self.product.rows - 1)
        k, live = self._k(step)
        value = self._run(self.left, row, k)
        return [b.masked(live, value)]

    def _own_rows(self) -> list[tuple[Index, Index]]:
        """(row in shared memory, row of x) of those that a subgroup computes for its block."""
        found, rows = [], self.left_tiles * self.share.left_size
        for first in range(0, self.product.rows, self.subgroups):
            row = b.add(self.subgroup, first) if first else self.subgroup
            most = first + self.subgroups
            places = (row if most <= n else b.at_most(row, n - 1) for n in (rows, self.product.rows))
            found.append((next(places), next(places)))
        return found

    def _stage(self) -> Callable[[Index, int], list[ir.Value]]:
        """Compute x once in the block, each subgroup some rows of it; how a lane gets its runs from there."""
        rows, bf16 = self.left_tiles * self.share.left_size, ir.BF16Type.get()
        memory = self.memory.view(0, [self.left_parts, rows, self.pitch], bf16)
        for at, source in self.own_rows:
            for chunk in self.chunks:
                value = self.left.read(self.reader, self.batch, source, chunk.start, self.width)
                values = [value] if self.left_parts == 1 else split(b.extend(value), self.left_parts)
                b.if_live(chunk.live, partial(self._keep, values, memory, at, chunk.start))
        b.barrier()

        def load(row: Index, step: int) -> list[ir.Value]:
            k, live = self._k(step)
            starts = [b.add(k, i) for i in range(0, self.unit.run, 8)]
            runs = [b.joined([b.load(memory, [n, row, i], 8) for i in starts]) for n in range(self.left_parts)]
            return [b.masked(live, run) for run in runs]

        return load

    @staticmethod
    def _keep(values: list[ir.Value], memory: ir.Value, row: Index, start: Index) -> None:
        for part, value in enumerate(values):
            b.store(value, memory, [part, row, start])

    def _sums(self, weights: list[ir.Value], left: Iterable[Rows]) -> list[list[ir.Value]]:
        """[tile of w's rows][tile of x's rows]: this subgroup's sums over its part of k."""
        share, held = self.share, len(self.share.held)
        split_weights = [[w] if self.right_parts == 1 else split(b.extend(w), self.right_parts) for w in weights]
        zero = b.constant(0.0, self.unit.accumulator_type())
        totals = [[zero] * self.left_tiles for _ in range(share.tiles)]
        for m, rows in enumerate(left):
            for step in range(self.steps):
                for n in range(share.tiles):
                    own = [split_weights[(n * held + h) * self.steps + step] for h in range(held)]
                    for i in range(self.right_parts):
                        # The products of two small parts are below what the sum of parts keeps of a number.
                        for j in range(self.left_parts if i == 0 else 1):
                            mine, others = [w[i] for w in own], [row[step * self.left_parts + j] for row in rows]
                            first, second = (others, mine[0]) if share.transposed else (mine, others[0])
                            totals[n][m] = self.unit.multiply(first, second, totals[n][m])
        return totals

    def _partial_sums(self, buffer: Index) -> tuple[ir.Value, list[Index]]:
        """What subgroups exchange sums through, and the index ahead of theirs where there are two of it."""
        if not self.loops:
            return self.memory.view(self.staged_bytes, self.sums_shape, b.f32()), []
        return self.memory.view(self.staged_bytes, [2, *self.sums_shape], b.f32()), [buffer]

    def _publish(self, weights: list[ir.Value], left: Iterable[Rows], buffer: Index) -> None:
        """Put a subgroup's sums where the block's threads add them up."""
        memory, ahead = self._partial_sums(buffer)
        unit, share = self.unit, self.share
        for n, row_totals in enumerate(self._sums(weights, left)):
            for m, total in enumerate(row_totals):
                down, across = (m, n) if share.transposed else (n, m)
                for piece in unit.pieces():
                    value = b.vector_of([b.lane_of(flat(total), e) for e in piece.elements])
                    row = b.add(self.lanes.result_row, down * unit.rows + piece.row)
                    column = b.add(self.lanes.result_column, across * unit.columns)
                    b.store(value, memory, [*ahead, self.subgroup, row, column])
        b.barrier()

    def _places(self, tile: Index) -> list[Place]:
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
                inside = b.both(inside, b.less(column, self.product.columns))
                column = b.at_most(column, self.product.columns - 1)
            at = [row, output] if self.share.transposed else [output, row]
            found.append(Place(at, self.product.place(self.batch, row, column), inside))
        return found

    def _finish(self, places: list[Place], buffer: Index) -> None:
        """Add up subgroups' sums and write what follows from them."""
        memory, ahead = self._partial_sums(buffer)
        finished = []
        for place in places:
            shares = [b.load(memory, [*ahead, n, *place.sums], 1) for n in range(self.subgroups)]
            self.reader.hold(self.product.result, tree("arith.addf", shares))
            finished.append([self.reader.read(tensor, place.where) for tensor, _ in self.outputs])
        for place, values in zip(places, finished, strict=True):
            store_results(values, self.outputs, place.where, place.inside)

    def _loop(self, block: Index, weights: list[ir.Value], left: Iterable[Rows]) -> None:
        """Go through w's tiles, the next one's loads ahead of this one's arithmetic."""

        def body(tile: ir.Value, *current: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._weights(b.add(tile, self.grid))
                buffer = b.mod(b.div(tile, self.grid), 2)
                self._publish(list(current), left, buffer)
                self._finish(self._places(tile), buffer)
            return following

        b.loop(block, self.tiles, self.grid, weights, body)

    def _preload(self, places: list[Place] | None, constant: bool) -> None:
        """Load what stands around the product ahead of it: before the wait only what no launch writes."""

        def wanted(buffer: ir.Value) -> bool:
            return (buffer in self.constants) == constant

        if self.left.along_k % self.width == 0 and self.left.has_vectors(self.reader):
            for _, row in self.own_rows:
                for chunk in self.chunks:
                    where = self.left.index(self.batch, row, chunk.start)
                    self.reader.preload(self.left.tensor, where, self.width, wanted)
        if places is None:
            return
        self.reader.hold(self.product.result, b.constant(0.0, b.f32()))
        for place in places:
            for tensor, _ in self.outputs:
                self.reader.preload(tensor, place.where, 1, wanted)
