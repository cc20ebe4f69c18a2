"""A product of a few rows with a matrix that has k innermost, on matrix instructions: what each block computes."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.copied_vectors import CopiedVectors
from lispgpt.passes.kernels.copied_weights import CopiedWeights, Slots
from lispgpt.passes.kernels.epilogue import store_results
from lispgpt.passes.kernels.few_rows_division import Division, LanePart
from lispgpt.passes.kernels.few_rows_left import Rows, run_of
from lispgpt.passes.kernels.few_rows_room import room_for
from lispgpt.passes.kernels.few_rows_slices import left_rows
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of, split
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Place:
    """sums: where a result's sums lie behind each subgroup's number.  where: in the product.  inside: whether it is
    one at all (None: it is)."""

    sums: list[Index]
    where: list[Index]
    inside: ir.Value | None


Turn = tuple[int, Sequence[int], Rows]
"""(tile of x, steps, the lane's runs in them)."""
Weights = Callable[[int], ir.Value]
"""A lane's vectors of w by number: of each row that it holds one for each step."""
Sums = list[list[ir.Value]]
"""[tile of w's rows][tile of x's rows]: a subgroup's sums over its part of k."""


class FewRows:
    def __init__(
        self, kernel: ir.Operation, product: Product, constants: set[ir.Value], target: Gpu, division: Division
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.product, self.target, self.constants = kernel, product, target, constants
        self.unit, self.left, self.right = target.matrix, product.left, product.right
        self.right_parts = 1 if self.right.dtype == "bf16" else division.parts
        self.division, self.share, self.steps = division, division.share, division.steps
        self.subgroups, self.loops = division.subgroups, division.resident > 0
        self.threads = self.subgroups * target.subgroup
        self.tiles = -(-product.columns // self.share.outputs)
        self.grid = target.cores * division.resident if self.loops else self.tiles
        self.early = self.right.buffer() in constants
        self.outputs = outputs_of(kernel)
        self.slots = product.rows * self.share.outputs

    def emit(self) -> None:
        room = room_for(self.product, self.division, self.target, self.constants)
        if room is None:
            raise Refused("a block's rows of a product do not fit in shared memory")
        self.room = room
        if reschedule(self.kernel, [self.grid * self.product.batches], [self.threads], self.target, self._body):
            self.memory.record(self.kernel)
            threads = self.threads * len(room.left.held(self.product, self.share))
            blocks = self.division.resident if self.loops else self.division.beside // threads
            if self.loops or (room.slots is not None and blocks):
                self.target.set_residency(self.kernel, blocks)

    def _body(self) -> None:
        self.thread = b.thread_id()
        lane, subgroup = b.mod(self.thread, self.target.subgroup), b.div(self.thread, self.target.subgroup)
        self.lanes, self.subgroup = lanes_of(self.unit, lane), subgroup
        self.batch, block = self.product.of_batch(b.block_id(), self.grid)
        self.memory = BlockMemory(self.target, self.room.nbytes, False)
        ragged = self.product.inner != self.subgroups * self.steps * self.unit.block
        self.k = LanePart(self.lanes, subgroup, self.steps, self.product.inner, ragged)
        self.x = left_rows(self.product, self.division, self.target, self.room.left, self.k, self.batch, self.memory)
        self.reader = self.x.reader
        if self.room.slots is None:
            self._through_registers(block)
        else:
            self._through_memory(block, self.room.slots)

    def _through_registers(self, block: Index) -> None:
        """Load w, before the wait where nobody makes it, and multiply."""
        weights = self._weights(block) if self.early else []
        self.target.dependency_release()
        places = None if self.loops else self._places(block)
        self._preload(places, constant=True)
        self.target.dependency_wait()
        weights = weights or self._weights(block)
        self._preload(places, constant=False)
        self.x.prepare()
        turns = self._by_tile()
        if places is None:
            self._loop(block, weights, list(turns))
        else:
            self._publish(self._sums(weights.__getitem__, turns), 0)
            self._finish(places, 0)

    def _through_memory(self, block: Index, slots: Slots) -> None:
        """Start to copy w before the wait, and multiply."""
        copies = self.target.thread_copies
        assert copies is not None
        self.target.dependency_release()
        vectors = CopiedVectors(copies, self.room.vectors, self.memory, self.room.start_of_vectors)
        if self.room.vectors:
            vectors.start(self.thread, self.threads)
            vectors.bind(self.reader)
        self.copied = CopiedWeights(copies, self.right, slots, self.memory, self.room.start_of_slots, self.thread)
        for stage in range(slots.stages):
            self._start(stage, b.add(block, self.grid * stage), stage > 0)
        places = None if self.loops else self._places(block)
        self._preload(places, constant=True)
        self.target.dependency_wait()
        self._preload(places, constant=False)
        if self.room.vectors:
            vectors.publish(slots.stages)
        self.x.prepare()
        if places is None:
            self._loop_copied(block, slots.stages, list(self._by_tile()))
            return
        turns = self._waiting(self._by_step() if self.room.left.computed else self._by_tile())
        sums = self._sums(lambda number: self.copied.vector(0, number), turns, self.division.chains)
        self._publish(sums, 0)
        self._finish(places, 0)

    def _right_places(self, tile: Index) -> Iterator[tuple[Index, Index]]:
        """(row of w, k) of each of a lane's vectors in a tile; past the last row the last one's."""
        for n in range(self.share.tiles):
            for held in self.share.held:
                column = b.add(b.mul(tile, self.share.outputs), b.add(self.lanes.row, n * self.share.size + held))
                if self.loops or self.product.columns % self.share.outputs:
                    column = b.at_most(column, self.product.columns - 1)
                for step in range(self.steps):
                    yield column, self.k.at(step)[0]

    def _weights(self, tile: Index) -> list[ir.Value]:
        places = self._right_places(tile)
        return [run_of(self.right, self.reader, self.batch, place, self.unit.run) for place in places]

    def _start(self, stage: Index, tile: Index, checks: bool) -> None:
        """Start to copy a tile of w.  checks: that there is one."""

        def start() -> None:
            self.copied.start(stage, self.batch, self._right_places(tile))

        if checks:
            b.if_then(b.less(tile, self.tiles), start)
        else:
            start()
        self.copied.copies.close()

    def _by_tile(self) -> Iterator[Turn]:
        """All of a lane's runs in a tile of x, one tile after the other."""
        for m in range(self.room.left.tiles):
            yield m, range(self.steps), self.x.tile(m, range(self.steps))

    def _by_step(self) -> Iterator[Turn]:
        """A lane's runs of one step, of one tile of x after the other."""
        for step in range(self.steps):
            for m in range(self.room.left.tiles):
                yield m, [step], self.x.tile(m, [step])

    def _waiting(self, turns: Iterable[Turn]) -> Iterator[Turn]:
        """The same, with the wait for copies of w behind the first one's loads."""
        for number, turn in enumerate(turns):
            if number == 0:
                self.copied.copies.wait(0)
            yield turn

    def _sums(self, weights: Weights, turns: Iterable[Turn], chains: int = 1) -> Sums:
        """chains: sums that each is made of, so that neighbouring instructions do not wait for each other."""
        share, held, parts = self.share, len(self.share.held), self.room.left.parts
        zero = b.constant(0.0, self.unit.accumulator_type())
        totals = [[[zero] * chains for _ in range(self.room.left.tiles)] for _ in range(share.tiles)]
        for m, steps, rows in turns:
            for at, step in enumerate(steps):
                for n in range(share.tiles):
                    own = [self._parts(weights((n * held + h) * self.steps + step)) for h in range(held)]
                    for i in range(self.right_parts):
                        # The products of two small parts are below what the sum of parts keeps of a number.
                        for j in range(parts if i == 0 else 1):
                            mine, others = [w[i] for w in own], [row[at * parts + j] for row in rows]
                            first, second = (others, mine[0]) if share.turned else (mine, others[0])
                            total = totals[n][m].pop(0)
                            totals[n][m].append(self.unit.multiply(first, second, total))
        return [[tree("arith.addf", total) for total in row] for row in totals]

    def _parts(self, vector: ir.Value) -> list[ir.Value]:
        """A lane's vector of w as so many bf16 ones."""
        return [vector] if self.right_parts == 1 else split(b.extend(vector), self.right_parts)

    def _partial_sums(self, buffer: Index) -> tuple[ir.Value, list[Index]]:
        """What subgroups exchange sums through, and the index ahead of theirs where there are two of it."""
        memory = self.memory.view(self.room.start_of_sums, self.room.sums, b.f32())
        return memory, [buffer] if self.loops else []

    def _publish(self, sums: Sums, buffer: Index) -> None:
        """Put a subgroup's sums where the block's threads add them up."""
        memory, ahead = self._partial_sums(buffer)
        unit, share = self.unit, self.share
        for n, row_totals in enumerate(sums):
            for m, total in enumerate(row_totals):
                down, across = (m, n) if share.turned else (n, m)
                for piece in unit.pieces():
                    if share.turned and down * unit.rows + piece.row >= self.product.rows:
                        continue
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
            at = [row, output] if self.share.turned else [output, row]
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

    def _loop(self, block: Index, weights: list[ir.Value], turns: Sequence[Turn]) -> None:
        """Go through w's tiles, the next one's loads ahead of this one's arithmetic."""

        def body(tile: ir.Value, *current: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._weights(b.add(tile, self.grid))
                buffer = b.mod(b.div(tile, self.grid), 2)
                self._publish(self._sums(current.__getitem__, turns), buffer)
                self._finish(self._places(tile), buffer)
            return following

        b.loop(block, self.tiles, self.grid, weights, body)

    def _loop_copied(self, block: Index, stages: int, turns: Sequence[Turn]) -> None:
        """Go through w's tiles, the next ones on their way to memory."""

        def body(tile: Index) -> None:
            number = b.div(tile, self.grid)
            stage, buffer = b.mod(number, stages), b.mod(number, 2)
            self.copied.copies.wait(stages - 1)
            with self.reader.scope():
                sums = self._sums(lambda number: self.copied.vector(stage, number), turns, self.division.chains)
                self._start(stage, b.add(tile, self.grid * stages), True)
                self._publish(sums, buffer)
                self._finish(self._places(tile), buffer)

        b.each(block, self.tiles, self.grid, body)

    def _preload(self, places: list[Place] | None, constant: bool) -> None:
        """Load what stands around the product ahead of it: before the wait only what no launch writes."""

        def wanted(buffer: ir.Value) -> bool:
            return (buffer in self.constants) == constant

        self.x.preload(wanted)
        if places is None:
            return
        self.reader.hold(self.product.result, b.constant(0.0, b.f32()))
        for place in places:
            for tensor, _ in self.outputs:
                self.reader.preload(tensor, place.where, 1, wanted)
