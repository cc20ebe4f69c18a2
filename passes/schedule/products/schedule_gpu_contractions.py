"""schedule-gpu-contractions: products of few rows (or columns) with a matrix that has k innermost, one subgroup for a
few of the matrix' rows.

Before: linalg.contract x[n, k] * w[o, k], or another layout whose larger operand has its summed dimension innermost,
        with what computes x ahead of it and elementwise ops behind it.
After:  each subgroup loads whole rows of w in 16-byte vectors, or in words where they are in blocks (before it waits
        for x, where the target starts kernels early), computes its own copy of x in registers, reduces with shuffles,
        and applies what follows to its outputs.  Long rows are split among the subgroups of a block, which add up in
        shared memory.

Requires: what plan-arena and recognise-products ensure.
Ensures: products that had no grid yet, and whose larger operand has k innermost or nothing, have only scalar and vector
ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.block_weights import WHOLE, BlockWeights
from lispgpt.passes.kernels.epilogue import store_results
from lispgpt.passes.kernels.kernel import constant_arguments, refusable, reschedule
from lispgpt.passes.kernels.products import Product, as_skinny, unscheduled_products
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Chunk, Team, subgroup_reduce, tree
from lispgpt.passes.kernels.views import depends_only_on
from lispgpt.passes.schedule.products.byte_dots import ByteDots, Digits, StagedDigits
from lispgpt.passes.schedule.products.vector_time import UNPACKING, nbytes, vector_seconds
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD
from lispgpt.passes.tile.lower.packed import PackedMemory, Runs

MOST_CHUNKS = 8
"""Vectors of one row of w in a lane's registers, beyond which another schedule goes through rows in a loop."""

MOST_THREADS = 512
"""Of a block, whose subgroups share out rows that are longer than that."""

MOST_HELD = 12
"""Words of a row of weights in blocks that a lane holds, beside those of others and of the rows that follow."""

HALF = 2
"""Bytes of a number for which a lane's vector of weights in blocks is as long as one of 16-bit numbers."""


@dataclass(frozen=True)
class ScheduleGpuContractions(Pass):
    """rows: the most rows of x that a block takes.  subgroups: of one block.  chunks: vectors of one weight row that a
    lane holds before the row is split.  rows_each: rows of w that a subgroup loads at once.  blocks_per_core: how many
    blocks share a core where w has so many rows that subgroups loop over them.  whole_rows: multiply one
    row by blocks as numbers of 16 bits, where the target adds up bytes, if each subgroup has at least so many rows of w
    (0: never)."""

    starts_from = (PLACED,)
    only_faster = True
    rows: int = 4
    subgroups: int = 8
    chunks: int = 4
    rows_each: int = 2
    blocks_per_core: int = 3
    whole_rows: int = 2

    def run(self, module: ir.Module, target: Gpu) -> None:
        constant = constant_arguments(module)
        for kernel, found in unscheduled_products(module, schedule=self.name):
            product = as_skinny(found)
            if product.right.along_outer == 1 and not product.right.reduces():
                with refusable(kernel):
                    _RowProduct(kernel, product, constant(kernel), target, self).emit()

    def time_of(self, kernel: ir.Operation, found: Product, target: Gpu) -> float:
        """Seconds that it should take of a product; Refused where it leaves that to others."""
        product = as_skinny(found)
        if product.right.along_outer > 1 or product.right.reduces():
            raise Refused("the larger operand does not have k innermost")
        emitted = _RowProduct(kernel, product, set(), target, self)
        blocks, passes = emitted.blocks, product.rows // emitted.rows
        weights = nbytes(blocks.blocks if blocks is not None else product.right.tensor)
        unpacked = 0 if blocks is None else UNPACKING * passes * product.batches * product.columns * product.inner
        return vector_seconds(product, weights, passes, unpacked, target)


class _RowProduct:
    def __init__(
        self,
        kernel: ir.Operation,
        product: Product,
        constants: set[ir.Value],
        target: Gpu,
        options: ScheduleGpuContractions,
    ) -> None:
        self.kernel, self.product, self.target, self.constants = kernel, product, target, constants
        self.left, self.right = product.left, product.right
        self.all_rows, self.inner, self.outer = product.rows, product.inner, product.columns
        self.rows = max(n for n in range(1, options.rows + 1) if self.all_rows % n == 0)
        self.blocks = BlockWeights.of(product.right)
        self.bytes: ByteDots | None = None
        if options.whole_rows and self.all_rows == 1:
            self.bytes = ByteDots.of(product.right, Reader(target), target)
        self._divide(options)
        if self.bytes is not None and self.outer < options.whole_rows * self.grid * self.groups:
            self.bytes = None
            self._divide(options)
        memory = PackedMemory.operand_of(product.right)
        self.words = None if memory is None else PackedMemory(memory, Reader(target), target)
        self.shares_digits = self.bytes is not None and self.groups > 1
        self.staged = self.left.is_computed() or self.shares_digits
        if self.shares_digits and not self.staging_fits():
            self.shares_digits, self.staged = False, self.left.is_computed()
        if self.groups == 1 and not self.staging_fits():
            self.staged = False  # nor is anything of it needed twice
        self.outputs = outputs_of(kernel)
        if self.chunks > MOST_CHUNKS or not self.staging_fits():
            raise Refused("rows of a product are too long for a lane's registers or for shared memory")

    def _divide(self, options: ScheduleGpuContractions) -> None:
        """Share out the rows of w and k."""
        target = self.target
        nbytes = HALF if self.blocks is not None else b.item_bytes(self.right.tensor.type)
        self.width = b.largest_width(self.inner, nbytes, target.vector_bytes)
        chunks = options.chunks
        if self.bytes is not None:
            chunks = max(1, MOST_HELD // self.bytes.runs.words)
            self.width = self.bytes.runs.width
        self.own = self.width if self.bytes is None else self.bytes.runs.numbers
        vectors = -(-self.inner // (target.subgroup * self.own))
        self.split = 1
        while -(-vectors // self.split) > chunks and self.split < options.subgroups:
            self.split *= 2
        while -(-vectors // self.split) > MOST_CHUNKS and 2 * self.split * target.subgroup <= MOST_THREADS:
            self.split *= 2
        self.chunks = -(-vectors // self.split)
        crowded = self.bytes is not None and self.chunks * self.bytes.runs.words > MOST_HELD
        self.unroll = 1 if crowded else min(options.rows_each, self.outer)
        self.groups = max(1, min(options.subgroups // self.split, -(-self.outer // self.unroll)))
        self.threads = self.groups * self.split * target.subgroup
        whole_grid = -(-self.outer // (self.groups * self.unroll))
        most = target.cores * options.blocks_per_core
        self.loops = whole_grid > 2 * most
        self.turns = 2 if self.loops else 1
        self.grid = most if self.loops else whole_grid

    def staging_fits(self) -> bool:
        """Whether the block's rows of x, and what subgroups exchange, fit in shared memory."""
        exchanged = self.turns * self.groups * self.unroll * self.rows * self.split if self.split > 1 else 0
        kept = 4 * self.rows * self.inner
        if self.shares_digits and self.bytes is not None:
            kept = StagedDigits.bytes_of(self.inner, self.width)
        return not self.staged or kept + 4 * exchanged <= self.target.shared_bytes

    def emit(self) -> None:
        grid = [self.grid * self.product.batches, self.all_rows // self.rows]
        reschedule(self.kernel, grid, [self.threads], self.target, self._body)

    def _body(self) -> None:
        thread = b.thread_id()
        lane, subgroup = b.mod(thread, self.target.subgroup), b.div(thread, self.target.subgroup)
        self.batch, self.block = self.product.of_batch(b.block_id(), self.grid)
        self.base = 0 if self.rows == self.all_rows else b.mul(b.block_id("y"), self.rows)
        self.lane, self.part = lane, b.mod(subgroup, self.split)
        self.group, self.thread = b.div(subgroup, self.split), thread
        self.team = Team(thread, self.threads, self.target.subgroup)
        self.reader = Reader(self.target, self.team)
        self.pieces = [self._piece(number) for number in range(self.chunks)]
        self.vectors = [vector for piece in self.pieces for vector in self._vectors_of(piece)]
        first = b.mul(b.add(b.mul(self.block, self.groups), self.group), self.unroll)
        # Subgroups that add up their parts finish a block's results together, others each its own.
        start = b.mul(self.block, self.groups * self.unroll) if self.split > 1 else first
        early = depends_only_on(self.right.tensor, self.constants)
        weights = self._weights(first) if early else []
        self.target.dependency_release()
        place = None if self.loops else self._place(start)
        self._preload(place, constant=True)
        self.target.dependency_wait()
        weights = weights or self._weights(first)
        self._preload(place, constant=False)
        if self.shares_digits:
            self.digits = self._stage_digits()
        else:
            load = self._stage() if self.staged else self._load_input
            self.inputs = [[b.masked(p.live, load(n, p.start)) for p in self.vectors] for n in range(self.rows)]
            self.digits = [Digits.of(x) for x in self.inputs[0]] if self.bytes is not None else []
        if place is None:
            self._loop(start, weights)
        else:
            self._finish(place, self._products(weights), 0)

    def _piece(self, number: int) -> Chunk:
        """Where this lane's vector lies along k: the lane's place in its subgroup's part of the row."""
        rank = b.add(b.mul(self.part, self.target.subgroup), self.lane)
        team = Team(rank, self.split * self.target.subgroup, self.target.subgroup)
        if self.bytes is None:
            return team.chunk(number, self.inner, self.width)
        piece = team.chunk(number, self.inner // self.own, 1)
        return replace(piece, start=self.bytes.runs.first(piece.start))

    def _vectors_of(self, piece: Chunk) -> list[Chunk]:
        """Of x, that a lane multiplies with what it has of a row of w there."""
        runs = self.bytes.runs.starts if self.bytes is not None else [0]
        return [replace(piece, start=b.add(piece.start, run)) for run in runs]

    def _weights(self, first: Index) -> list[ir.Value]:
        """The lane's vectors of `unroll` rows of w; past the last row, of the last row again."""
        loaded = []
        for r in range(self.unroll):
            row = self._clamped(b.add(first, r))
            loaded += [value for piece in self.pieces for value in self._right(row, piece.start)]
        return loaded

    def _right(self, column: Index, k: Index) -> list[ir.Value]:
        """A vector as it is loaded: blocks are widened only where they are multiplied, to have loads in flight."""
        if self.bytes is not None:
            return replace(self.bytes, reader=self.reader).loads(column, k, self.bytes.runs)
        if self.words is not None:
            return replace(self.words, reader=self.reader).loads(column, k, self.run)
        if self.blocks is not None:
            return self.blocks.words(self.reader, column, k, self.width)
        return [self.right.read(self.reader, self.batch, column, k, self.width)]

    def _widened(self, weights: list[ir.Value], r: int) -> list[ir.Value]:
        """A row's vectors in f32."""
        each = len(weights) // (self.unroll * self.chunks)
        starts = range(r * self.chunks * each, (r + 1) * self.chunks * each, each)
        if self.blocks is None:
            return [b.extend(weights[start]) for start in starts]
        found = []
        for start, piece in zip(starts, self.pieces, strict=True):
            own = weights[start : start + each]
            if self.words is not None:
                (own,) = self.words.made(own, piece.start, self.run)
            found.append(self.blocks.widened(own, piece.start, self.target, WHOLE))
        return found

    @property
    def run(self) -> Runs:
        """Of weights in blocks, that a lane makes floats at once."""
        assert self.blocks is not None
        return Runs(self.blocks, self.width, self.width)

    def _clamped(self, row: Index) -> Index:
        if not self.loops and self.outer % (self.groups * self.unroll) == 0:
            return row
        return b.at_most(row, self.outer - 1)

    def _load_input(self, n: int, start: Index) -> ir.Value:
        return b.extend(self.left.read(self.reader, self.batch, b.add(self.base, n), start, self.width))

    def _stage(self) -> Callable[[int, Index], ir.Value]:
        """Compute x once in the block and put it in shared memory; how a lane gets its vectors from there.

        A lane's vector is cut into quarters of 16 bytes that lie in separate planes, so that neighbouring lanes read
        neighbouring addresses.
        """
        small = b.largest_width(self.inner, 4, 16)
        planes = max(1, self.width // small)
        memory = b.shared([self.rows, planes, self.inner // planes], b.f32())

        def place(start: Index) -> tuple[Index, Index]:
            whole = b.mul(b.div(start, self.width), small)
            return b.mod(b.div(start, small), planes), whole if planes > 1 else start

        for n in range(self.rows):
            for number in range(self.team.chunk_count(self.inner, small)):
                chunk = self.team.chunk(number, self.inner, small)
                value = b.extend(self.left.read(self.reader, self.batch, b.add(self.base, n), chunk.start, small))
                where = [n, *place(chunk.start)]
                b.if_live(chunk.live, partial(b.store, value, memory, where))
        b.barrier()

        def load(n: int, start: Index) -> ir.Value:
            whole = place(start)[1]
            parts = [b.load(memory, [n, plane, whole], self.width // planes) for plane in range(planes)]
            return b.vector_of([b.lane_of(part, i) for part in parts for i in range(b.width_of(part))])

        return load

    def _stage_digits(self) -> list[Digits]:
        """Make x's digits once in the block, in shared memory; those of the lane's vectors."""
        assert self.bytes is not None
        staged = StagedDigits.of(self.inner, self.width)
        for number in range(self.team.chunk_count(self.inner, WORD)):
            chunk = self.team.chunk(number, self.inner, WORD)
            value = b.extend(self.left.read(self.reader, self.batch, self.base, chunk.start, WORD))
            staged.store(chunk, value, self.target.subgroup)
        b.barrier()
        return [staged.at(vector) for vector in self.vectors]

    def _products(self, weights: list[ir.Value]) -> list[list[ir.Value]]:
        """sums[r][n]: this lane's share, reduced over the subgroup."""
        if self.bytes is not None:
            return [[self._reduced(self._byte_dot(self.bytes, weights, r))] for r in range(self.unroll)]
        rows = [self._widened(weights, r) for r in range(self.unroll)]
        return [[self._dot(row, self.inputs[n]) for n in range(self.rows)] for row in rows]

    def _byte_dot(self, weights: ByteDots, loaded: list[ir.Value], r: int) -> ir.Value:
        """The lane's share of a row's product."""
        each, runs = len(loaded) // (self.unroll * self.chunks), len(weights.runs.starts)
        found = []
        for i, piece in enumerate(self.pieces):
            own = loaded[each * (r * self.chunks + i) :][:each]
            found.append(weights.total(own, piece.start, self.digits[runs * i : runs * (i + 1)]))
        return tree("arith.addf", found)

    def _dot(self, row: list[ir.Value], inputs: list[ir.Value]) -> ir.Value:
        total = b.binary("arith.mulf", row[0], inputs[0])
        for w, x in zip(row[1:], inputs[1:], strict=True):
            total = b.fma(w, x, total)
        return self._reduced(b.horizontal("arith.addf", total))

    def _reduced(self, share: ir.Value) -> ir.Value:
        lanes = self.target.subgroup
        return subgroup_reduce("arith.addf", share, lanes, lanes)

    def _loop(self, start: Index, weights: list[ir.Value]) -> None:
        """Go through w with the next rows' loads ahead of this round's arithmetic.

        Subgroups that add up their parts meet at a barrier in each round, so all of a block go through as many rounds.
        They exchange through two buffers by turns: nothing of one is written again before all subgroups, their reads
        of it behind them, have met at the next round's barrier.
        """
        step = b.as_value(self.grid * self.groups * self.unroll)
        own = b.mul(self.group, self.unroll) if self.split > 1 else 0

        def body(row: ir.Value, *current: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._weights(b.add(b.add(row, step), own))
                self._finish(self._place(row), self._products(list(current)), b.mod(b.div(row, step), self.turns))
            return following

        b.loop(start, self.outer, step, weights, body)

    def _place(self, start: Index) -> _Place:
        """Which result this thread finishes: one of its subgroup's, or of its block's where rows are split."""
        slots = self.unroll * self.rows * (self.groups if self.split > 1 else 1)
        rank = self.thread if self.split > 1 else self.lane
        slot = b.mod(rank, slots)
        row = b.add(start, b.div(slot, self.rows))
        mine = b.less(rank, slots)
        if self.loops or self.outer % (self.groups * self.unroll):
            mine = b.both(mine, b.less(row, self.outer))
        return _Place(slot, b.add(self.base, b.mod(slot, self.rows)), self._clamped(row), mine)

    def _finish(self, place: _Place, sums: list[list[ir.Value]], turn: Index) -> None:
        flat = [sums[r][n] for r in range(self.unroll) for n in range(self.rows)]
        if self.split > 1:
            value = self._add_parts(place, flat, turn)
        else:
            value = flat[0]
            for i, other in enumerate(flat[1:], 1):
                value = b.select(b.equal(place.slot, i), other, value)
        self.reader.bind(self.product.result, lambda index, width: value)
        where = self.product.place(self.batch, place.n, place.output)
        finished = [self.reader.read(tensor, where) for tensor, _ in self.outputs]
        store_results(finished, self.outputs, where, place.mine)

    def _add_parts(self, place: _Place, flat: list[ir.Value], turn: Index) -> ir.Value:
        """Exchange the parts of split rows through shared memory; the sum for this thread's result."""
        partial = b.shared([self.turns, self.groups * len(flat), self.split], b.f32())

        def publish() -> None:
            for i, value in enumerate(flat):
                b.store(value, partial, [turn, b.add(b.mul(self.group, len(flat)), i), self.part])

        b.if_then(b.equal(self.lane, 0), publish)
        b.barrier()
        return tree("arith.addf", [b.load(partial, [turn, place.slot, i], 1) for i in range(self.split)])

    def _preload(self, place: _Place | None, constant: bool) -> None:
        """Load what stands around the product ahead of the arithmetic: before the wait only what no launch writes."""

        def wanted(buffer: ir.Value) -> bool:
            return (buffer in self.constants) == constant

        width = b.largest_width(self.inner, 4, 16) if self.staged else self.width
        numbers = range(self.team.chunk_count(self.inner, width))
        chunks = [self.team.chunk(i, self.inner, width) for i in numbers] if self.staged else self.vectors
        vectors = self.left.along_k % width == 0 and self.left.has_vectors(self.reader)
        for n in range(self.rows if vectors else 0):
            for chunk in chunks:
                where = self.left.index(self.batch, b.add(self.base, n), chunk.start)
                self.reader.preload(self.left.tensor, where, width, wanted)
        if place is not None:
            self.reader.bind(self.product.result, lambda index, width: b.constant(0.0, b.f32()))
            for tensor, _ in self.outputs:
                self.reader.preload(tensor, self.product.place(self.batch, place.n, place.output), 1, wanted)


@dataclass(frozen=True)
class _Place:
    """A result: its slot among those finished together, row of x, output, and whether this thread is to write it."""

    slot: Index
    n: Index
    output: Index
    mine: ir.Value
