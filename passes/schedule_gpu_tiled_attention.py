"""schedule-gpu-tiled-attention: attention of many rows at once, on the target's matrix instructions.

Before: writes of keys and values into the cache; scores, mask, softmax over all positions, weighted sum, for at least
        `rows` rows of each sequence.
After:  a launch that writes the cache; then a block for 16 rows per subgroup of one head, those that see most positions
        first.  Its teams take turns with tiles of the positions that its rows may see: keys and values to shared memory
        while the next tile is on its way to registers, scores on matrix instructions, a running softmax in registers,
        weights back into matrix instructions, through shared memory where these ask for another layout.  In the end the
        teams' sums are joined.  No score reaches memory.  f32 operands are split into two bf16 parts, of whose products
        the smallest is left out.

Requires: what plan-arena ensures.
Ensures: those kernels of kind "attention" have only scalar, vector and matrix ops, a grid and a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod
from typing import ClassVar

from lispgpt.mlir import ir
from lispgpt.passes.base import Pass
from lispgpt.passes.gpu import attention_left as left_of
from lispgpt.passes.gpu import build as b
from lispgpt.passes.gpu.attention import Attention, parse_attention
from lispgpt.passes.gpu.attention_tiles import TileLayout, Tiles
from lispgpt.passes.gpu.build import Index
from lispgpt.passes.gpu.kernel import coordinates, reschedule
from lispgpt.passes.gpu.matrices import flat, lanes_of, shaped
from lispgpt.passes.gpu.read import Reader
from lispgpt.passes.gpu.softmax import RunningRows, empty_rows, join_rows, running_rows
from lispgpt.passes.gpu.team import subgroup_reduce, tree
from lispgpt.passes.schedule_gpu_attention import split_off_writes
from lispgpt.passes.structure import kernel_functions
from lispgpt.passes.targets import Gpu

PRODUCTS = ((0, 0), (0, 1), (1, 0))
"""Which parts of the left operand meet which of the right one."""

AHEAD_WORDS = 120
"""Registers that queries, sums and a tile under way may take: with more, a tile is loaded when it is its turn."""

CHAINS = 4
"""Sums that are added to in turn, so that none waits for the instruction before."""


@dataclass(frozen=True)
class ScheduleGpuTiledAttention(Pass):
    """rows: the fewest rows of a sequence to treat this way.  subgroups: of a team.  keys: positions of a tile.

    teams: of a block, as far as shared memory has room for their tiles.
    """

    name: ClassVar[str] = "schedule-gpu-tiled-attention"
    rows: int = 64
    subgroups: int = 4
    keys: int = 32
    teams: int = 2

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        for kernel in kernel_functions(module, "attention"):
            attention = parse_attention(kernel)
            if attention.shape[1] >= self.rows and attention.depth % target.matrix.columns == 0:
                split_off_writes(module, kernel, target)
                _Schedule(kernel, parse_attention(kernel), target, self).emit()


class _Schedule:
    def __init__(
        self, kernel: ir.Operation, attention: Attention, target: Gpu, options: ScheduleGpuTiledAttention
    ) -> None:
        assert target.matrix is not None
        self.kernel, self.attention, self.target, self.unit = kernel, attention, target, target.matrix
        self.positions, self.keys = attention.shape[1], options.keys
        self.subgroups = min(options.subgroups, -(-self.positions // 16))
        self.threads = self.subgroups * target.subgroup
        self.rows = 16 * self.subgroups
        self.tile = TileLayout(attention, target, self.keys, self.threads)
        self.score_tiles = self.keys // self.unit.columns
        self.sum_tiles = attention.depth // self.unit.columns
        self.products = [p for p in PRODUCTS if p[1] < self.tile.parts]
        self.teams = options.teams
        held = (
            self.sum_tiles * prod(self.unit.accumulator)
            + len(self.unit.left_rows) * self.tile.padded // self.unit.groups
        )
        self.ahead = held + self.tile.words <= AHEAD_WORDS
        while self.teams > 1 and self._memory_bytes() > target.shared_bytes:
            self.teams -= 1

    def _memory_bytes(self) -> int:
        weights = 2 * self.teams * self.subgroups * prod(left_of.weight_shape(self.unit, self.keys))
        shares = 4 * (self.teams - 1) * self.threads * self._share_size()
        return max(self.teams * self.tile.nbytes + weights, shares)

    def _share_size(self) -> int:
        """f32 numbers that a lane has of its rows' sums."""
        return 2 * len(self.unit.pieces()) + self.sum_tiles * prod(self.unit.accumulator)

    def emit(self) -> None:
        tiles = -(-self.positions // self.rows)
        grid = [self.attention.shape[0] * prod(self.attention.shape[2:]), tiles]
        reschedule(self.kernel, grid, [self.teams * self.threads], self.target, self._body)

    def _body(self) -> None:
        thread = b.thread_id()
        self.team = 0 if self.teams == 1 else b.div(thread, self.threads)
        self.thread = thread if self.teams == 1 else b.mod(thread, self.threads)
        self.lanes = lanes_of(self.unit, b.mod(thread, self.target.subgroup))
        self.subgroup = b.div(self.thread, self.target.subgroup)
        outer = coordinates(b.block_id("x"), (self.attention.shape[0], *self.attention.shape[2:]))
        self.sequence, self.heads = outer[0], outer[1:]
        self.reader = Reader(self.target)
        for tensor in self.attention.updated:
            self.reader.bind(tensor, lambda index, width: b.load(self.attention.cache, index, width))
        self.memory = b.shared([self._memory_bytes()], ir.IntegerType.get_signless(8))
        self.target.dependency_release()
        self.target.dependency_wait()
        last_tile = b.constant(-(-self.positions // self.rows) - 1, ir.IndexType.get())
        self.first = b.mul(b.binary("arith.subi", last_tile, b.block_id("y")), self.rows)
        self.own_first = b.add(self.first, b.mul(self.subgroup, 16))
        own = b.add(self.own_first, self.lanes.row)
        places = [self._place(b.add(own, row)) for row in self.unit.left_rows]
        self.queries = left_of.queries(self.attention, self.reader, self.lanes, places)
        self.least, self.last = self._bounds()
        self.tiles = Tiles(
            self.tile,
            self.reader,
            self.lanes,
            self.memory,
            self.teams,
            self.team,
            self.thread,
            self._place(0),
            self.last,
        )
        first_row = b.add(self.own_first, self.lanes.result_row)
        self.result_rows = [b.add(first_row, piece.row) for piece in self.unit.pieces()]
        self.places = [self._place(row) for row in self.result_rows]
        for place in self.places:
            self.attention.last_position(self.reader, place)
        self._finish(self._attend().whole(self.lanes, self.target))

    def _place(self, row: Index) -> list[Index]:
        """The scores' leading indices for a row of the sequence; past the end, the last row's."""
        if self.positions % self.rows:
            row = b.emit("arith.minui", [b.as_value(row), b.as_value(self.positions - 1)], [ir.IndexType.get()])
        return [self.sequence, row, *self.heads]

    def _bounds(self) -> tuple[ir.Value, ir.Value]:
        """The smallest and the largest of the last positions that the block's rows may see."""
        found = []
        for start in range(0, self.rows, self.target.subgroup):
            row = b.add(self.first, b.add(start, self.lanes.lane))
            last = self.attention.last_position(self.reader, self._place(row))
            found.append(b.emit("arith.index_cast", [b.as_value(last)], [b.i32()]))
        size = self.target.subgroup
        least, largest = (subgroup_reduce(op, tree(op, found), size, size) for op in ("arith.minsi", "arith.maxsi"))
        return tuple(b.emit("arith.index_cast", [v], [ir.IndexType.get()]) for v in (least, largest))

    def _attend(self) -> RunningRows:
        """The team's share of its rows' sums."""
        step = self.keys * self.teams
        own = b.mul(self.team, self.keys)
        staged = self.tiles.load(own) if self.ahead else []
        running = empty_rows(self.lanes, self.sum_tiles)
        rows = len(running.tops)

        def body(base: Index, *carried: ir.Value) -> list[ir.Value]:
            start = b.add(base, own)
            with self.reader.scope():
                loaded = list(carried[: len(staged)]) if self.ahead else self.tiles.load(start)
                self.target.team_barrier(self.team, self.threads)
                self.tiles.store(loaded)
                self.target.team_barrier(self.team, self.threads)
                coming = self.tiles.load(b.add(start, step)) if self.ahead else []
                state = self._step(start, running_rows(carried[len(staged) :], rows))
            return [*coming, *state.values()]

        results = b.loop(0, b.add(self.last, 1), step, [*staged, *running.values()], body)
        return running_rows(results[len(staged) :], rows)

    def _step(self, start: Index, running: RunningRows) -> RunningRows:
        running, weights = running.weigh(self._scores(start), self.lanes, self.target)
        if self.unit.result_as_left:
            left = left_of.weights_in_registers(self.unit, weights, self.keys)
        else:
            memory = self._weight_memory()
            left_of.store_weights(memory, self._number(), self.lanes, weights, self.keys)
            self.target.team_barrier(self.team, self.threads)
            left = left_of.load_weights(memory, self._number(), self.lanes, self.keys)
        sums = list(running.sums)
        for block in range(self.keys // self.unit.block):
            self._multiply(left, block, sums, self.tiles.value_run)
        return RunningRows(running.tops, running.totals, sums)

    def _number(self) -> Index:
        """The subgroup's in the block."""
        return b.add(b.mul(self.team, self.subgroups), self.subgroup)

    def _weight_memory(self) -> ir.Value:
        shape = [self.teams * self.subgroups, *left_of.weight_shape(self.unit, self.keys)]
        return b.shared_view(self.memory, self.teams * self.tile.nbytes, shape, ir.BF16Type.get())

    def _multiply(
        self, left: left_of.Parts, block: int, sums: list[ir.Value], run: Callable[[int, int, int], ir.Value]
    ) -> None:
        """Add to `sums`, some at a time, the products of block `block` of k."""
        for first in range(0, len(sums), CHAINS):
            numbers = range(first, min(first + CHAINS, len(sums)))
            runs = [[run(part, n, block) for n in numbers] for part in range(self.tile.parts)]
            for mine, other in self.products:
                totals = self.unit.multiply_row(left[mine][block], runs[other], [sums[n] for n in numbers])
                sums[first : first + CHAINS] = totals

    def _scores(self, start: Index) -> list[list[ir.Value]]:
        """For each of the lane's rows its masked scores."""
        sums = [b.constant(0.0, self.unit.accumulator_type())] * self.score_tiles
        for block in range(self.tile.padded // self.unit.block):
            self._multiply(self.queries, block, sums, self.tiles.key_run)
        vectors = [flat(s) for s in sums]
        elements = [piece.elements for piece in self.unit.pieces()]
        raw = [[b.lane_of(vector, e) for vector in vectors for e in row] for row in elements]
        return self._masked(raw, start)

    def _masked(self, raw: list[list[ir.Value]], start: Index) -> list[list[ir.Value]]:
        """What the ops between product and softmax make of scores; without comparing where all rows see all of them."""
        count = sum(map(len, raw))

        def masked(whole: bool) -> list[ir.Value]:
            with self.reader.scope():
                return [
                    self._weighed(score, place, start, offset, whole)
                    for row, place in zip(raw, self.places, strict=True)
                    for score, offset in zip(row, self._offsets(), strict=True)
                ]

        end = b.add(start, self.keys - 1)
        whole = b.less(end, self.least, predicate=7)
        found = b.choose(whole, [b.f32()] * count, lambda: masked(True), lambda: masked(False))
        each = count // len(raw)
        return [found[i : i + each] for i in range(0, count, each)]

    def _offsets(self) -> list[int]:
        """Columns of a row's scores, from the lane's first."""
        run = len(self.unit.pieces()[0].elements)
        return [n * self.unit.columns + j for n in range(self.score_tiles) for j in range(run)]

    def _weighed(self, score: ir.Value, place: list[Index], start: Index, offset: int, whole: bool) -> ir.Value:
        attention, t = self.attention, b.add(start, b.add(self.lanes.result_column, offset))
        inside = None
        if not whole and (attention.bound is None or attention.length % (self.keys * self.teams)):
            inside = b.less(t, self.last, predicate=7)
            t = b.select(inside, b.as_value(t), self.last)
        self.reader.bind(attention.scores.results[0], lambda index, width: score)
        assumed = frozenset([attention.within] if whole and attention.within is not None else [])
        with self.reader.assuming(assumed):
            value = self.reader.read(attention.softmax.operands[0], [*place, t])
        return value if inside is None else b.select(inside, value, b.constant(float("-inf"), b.f32()))

    def _finish(self, running: RunningRows) -> None:
        if self.teams == 1:
            self._write(running)
            return
        memory = b.shared_view(self.memory, 0, [self.teams - 1, self._share_size(), self.threads], b.f32())
        sums = [flat(s) for s in running.sums]
        values = [*running.tops, *running.totals, *(b.lane_of(s, i) for s in sums for i in range(b.width_of(s)))]

        def publish() -> None:
            other = b.binary("arith.subi", self.team, b.as_value(1))
            for number, value in enumerate(values):
                b.store(value, memory, [other, number, self.thread])

        def join() -> None:
            shares = [running, *(self._share(memory, other) for other in range(self.teams - 1))]
            self._write(join_rows(shares, self.lanes, self.target))

        b.barrier()
        b.if_then(b.less(0, self.team), publish)
        b.barrier()
        b.if_then(b.equal(self.team, 0), join)

    def _share(self, memory: ir.Value, other: int) -> RunningRows:
        values = [b.load(memory, [other, number, self.thread], 1) for number in range(self._share_size())]
        rows, size = len(self.unit.pieces()), prod(self.unit.accumulator)
        sums = [b.vector_of(values[i : i + size]) for i in range(2 * rows, len(values), size)]
        return running_rows([*values[: 2 * rows], *(shaped(s, self.unit.accumulator_type()) for s in sums)], rows)

    def _write(self, running: RunningRows) -> None:
        for i, piece in enumerate(self.unit.pieces()):
            inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), running.totals[i])

            def write(i: int = i, elements: tuple[int, ...] = piece.elements, inverse: ir.Value = inverse) -> None:
                for n, total in enumerate(running.sums):
                    vector = flat(total)
                    value = b.vector_of([b.binary("arith.mulf", b.lane_of(vector, e), inverse) for e in elements])
                    d = b.add(self.lanes.result_column, n * self.unit.columns)
                    b.store(value, self.attention.out_buffer, [*self.places[i], d])

            if self.positions % self.rows:
                b.if_then(b.less(self.result_rows[i], self.positions), write)
            else:
                write()
