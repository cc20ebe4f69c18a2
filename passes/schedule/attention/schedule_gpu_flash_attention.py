"""schedule-gpu-flash-attention: attention of whole sequences, and its gradients, on matrix instructions of warpgroups.

Before: bf16 operands in memory; products that make scores, what is made of these, and products in which it weighs
        something; for attention itself a softmax, whose weights are rounded to bf16.
After:  a block for 64 rows of the results for each of its warpgroups.  It goes through tiles of what they are sums
        over, as far as masks let it see them, while copies of the next ones are under way to its shared memory, in the
        layout that the instructions take.  Scores, weights and sums stay in registers; a warpgroup passes over tiles
        that no row of its own sees, and does not mask those that all of them do.

Requires: what destination-passing ensures.
Ensures: kernels of kind "attention" and "attention-gradient" of such operands, with enough rows of 64 or 128 numbers,
have only scalar, vector and warpgroup ops, `grid` and `block`.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels import block_memory
from lispgpt.passes.kernels.attention import last_position
from lispgpt.passes.kernels.kernel import contract, reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of, shaped
from lispgpt.passes.kernels.products import is_for
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.score_masks import Mask
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.kernels.softmax import RunningRows, empty_rows, running_rows
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.attention_gradients import attention_gradients_of
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.attention.copied_tiles import CopiedTiles, TileRing, mapped_operands
from lispgpt.passes.schedule.attention.probabilities import RowValues
from lispgpt.passes.schedule.attention.results import write_rows
from lispgpt.passes.schedule.attention.warpgroup_gradients import ROWS, GradientWeights, Pairs
from lispgpt.passes.schedule.attention.warpgroup_scores import Left, WarpgroupScores, row_words
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.attention_cost import BY_WARPGROUPS, Blocks, attention_seconds
from lispgpt.passes.tile.attention_rows import AttentionRows

BARRIER_BYTES = 1024


@dataclass(frozen=True)
class ScheduleGpuFlashAttention(Pass):
    """rows: the fewest of what results and sums go along to treat this way.  warpgroups: of a block; keys: of a tile of
    attention.  gradient_warpgroups, along: the same for gradients, and what they are sums over.  stages: tiles in
    shared memory.  own: numbers that a row's vectors and sums may have for them to be in registers: with more, and
    where a tile has as many vectors as a warpgroup rows, its vectors are in shared memory.  (With equal extents, ptxas
    of CUDA 12.9 and 13.0 lets weights overwrite them.)"""

    starts_from = (PLACED,)
    only_faster = True
    rows: int = 64
    warpgroups: int = 2
    keys: int = 64
    gradient_warpgroups: int = 1
    along: int = 32
    stages: int = 4
    own: int = 256

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.warpgroup is None:
            return
        for kernel in unscheduled_kernels(module):
            attention, sums = attention_of(kernel), attention_gradients_of(kernel)
            if attention is not None:
                sums = attention.as_sums() if is_for(kernel, self.name) and self._is_whole(attention) else None
            if sums is not None and "tile" not in kernel.attributes and self._suits(Walk(sums), target):
                schedule = _FlashAttention(kernel, Walk(sums), attention, target, self)
                if schedule.fits():
                    schedule.emit()

    @staticmethod
    def _is_whole(attention: Attention) -> bool:
        """Whether it is of whole sequences, none of which is in a cache, and its weights are rounded."""
        return attention.own is None and not attention.exact

    def time_of(self, kernel: ir.Operation, attention: Attention, target: Gpu) -> float | None:
        """Seconds that it should take; Refused, with the reason, where it leaves the attention."""
        if target.warpgroup is None or not self._is_whole(attention):
            raise Refused("it takes whole sequences without a cache, in bf16, on chips with warpgroups")
        if not self._suits(Walk(attention.as_sums()), target):
            raise Refused("it takes heads of 64 or 128, in bf16 that copies can bring")
        blocks = Blocks(ROWS * self.warpgroups, self.keys, 1, 1, (1, 1))
        return attention_seconds(AttentionRows(attention), blocks, target, BY_WARPGROUPS)

    def _suits(self, walk: Walk, target: Gpu) -> bool:
        """Whether all operands are bf16 that copies can bring, of depths that instructions take, with enough rows."""
        if target.copies is None or not walk.is_ordered:
            return False
        sides = [walk.sides(n) for n in range(len(walk.sums.products))]
        own, others = [side[0] for side in sides], [*(side[1] for side in sides), *(s.other for s in walk.sums.sums)]
        return (
            min(walk.extent(walk.kept), walk.extent(walk.along)) >= self.rows
            and all(operand.depth in (64, 128) for operand in (*own, *others))
            and mapped_operands(own, walk.kept, target.copies) is not None
            and mapped_operands(others, walk.along, target.copies) is not None
            and all(one.out.has_rows and str(b.element_of(one.weights.type)) == "bf16" for one in walk.sums.sums)
        )


class _FlashAttention:
    """attention: of which the sums are the result; None where they are gradients."""

    def __init__(
        self,
        kernel: ir.Operation,
        walk: Walk,
        attention: Attention | None,
        target: Gpu,
        options: ScheduleGpuFlashAttention,
    ) -> None:
        assert target.warpgroup is not None and target.matrix is not None and target.copies is not None
        self.kernel, self.walk, self.sums, self.attention = kernel, walk, walk.sums, attention
        self.target, self.unit, self.matrix, self.copies = target, target.warpgroup, target.matrix, target.copies
        self.extent, self.long = walk.extent(walk.kept), walk.extent(walk.along)
        most = options.gradient_warpgroups if attention is None else options.warpgroups
        self.groups = min(most, -(-self.extent // ROWS))
        self.rows, self.threads = ROWS * self.groups, self.unit.threads * self.groups
        self.count, self.stages = options.along if attention is None else options.keys, options.stages
        scored = [walk.sides(n)[1] for n in range(len(self.sums.products))]
        self.staged = list(dict.fromkeys([*scored, *(one.other for one in self.sums.sums)]))
        self.own = [walk.sides(n)[0] for n in range(len(self.sums.products))]
        words = sum(o.depth for o in self.own) + sum(s.other.depth for s in self.sums.sums)
        self.in_registers = words <= options.own and self.count != ROWS

    def fits(self) -> bool:
        return block_memory.fits(self.target, self._memory_bytes(), True)

    def _own_bytes(self) -> int:
        return 0 if self.in_registers else 2 * self.rows * sum(o.depth for o in self.own)

    def _memory_bytes(self) -> int:
        tile = 2 * self.count * sum(o.depth for o in self.staged)
        return self._own_bytes() + self.stages * tile + BARRIER_BYTES

    def emit(self) -> None:
        tiles = -(-self.extent // self.rows)
        if reschedule(self.kernel, [tiles, prod(self.walk.tasks)], [self.threads], self.target, self._body):
            self.memory.record(self.kernel)
            contract(self.kernel)

    def _body(self) -> None:
        target, thread = self.target, b.thread_id()
        self.thread, self.group = thread, b.div(thread, self.unit.threads)
        self.lanes = lanes_of(self.matrix, b.mod(thread, target.subgroup))
        self.reader, self.task = Reader(target), b.block_id("y")
        number: Index = b.block_id("x")
        if self.sums.over_positions:
            number = b.sub(b.as_value(-(-self.extent // self.rows) - 1), number)
        self.first = b.mul(number, self.rows)
        self.group_first = b.add(self.first, b.mul(self.group, ROWS))
        own = b.add(self.group_first, b.mul(b.mod(b.div(thread, target.subgroup), 4), 16))
        self.kept = [b.add(own, b.add(self.lanes.result_row, piece.row)) for piece in self.matrix.pieces()]
        self.places = [self._place(0, row, 0)[0] for row in self.kept]
        self._make_memory()
        target.dependency_passed_on()
        operands = [self.staged.index(self.walk.sides(n)[1]) for n in range(len(self.own))]
        left = self._own_words() if self.in_registers else self._own_tiles()
        self.products = WarpgroupScores(self.unit, self.tiles, list(zip(left, operands, strict=True)))
        start = [b.as_value(0), *self._start()]
        self._finish(b.loop(0, self.walk.rounds, 1, start, self._round)[1:])

    def _place(self, round_: Index, kept: Index, along: Index) -> tuple[list[Index], Index]:
        kept = b.at_most(kept, self.extent - 1) if self.extent % self.rows else kept
        return self.walk.place(self.task, round_, kept, along)

    def _make_memory(self) -> None:
        """The block's own vectors, stages, barriers: those of the stages, full and empty, and of the own vectors."""
        self.memory = block_memory.BlockMemory(self.target, self._memory_bytes(), True)
        self.base = b.add(b.address_of(self.memory.memory), self.memory.start)
        self.tiles = self._copied(self.staged, self.walk.along, self.count, self.stages, self._own_bytes())
        self.ring = TileRing(self.tiles, b.add(self.base, self._memory_bytes() - BARRIER_BYTES))
        if not self.in_registers:
            self.own_tiles = self._copied(self.own, self.walk.kept, self.rows, 1, 0)

        def make() -> None:
            self.ring.make(self.groups)
            self.copies.make_barrier(self.ring.full(2 * self.stages), 1)
            self.copies.publish_barriers()

        b.if_then(b.equal(self.thread, 0), make)
        b.barrier()

    def _copied(self, operands: list[Operand], along: int, count: int, stages: int, start: int) -> CopiedTiles:
        mapped = mapped_operands(operands, along, self.copies)
        assert mapped is not None
        maps = [one.map(self.kernel, count, self.unit.inner) for one in mapped]
        return CopiedTiles(mapped, maps, self.copies, self.unit, count, stages, b.add(self.base, start))

    def _own_words(self) -> list[Left]:
        facts = (self.reader, self.lanes, [self._place(0, kept, 0) for kept in self.kept], self.unit)
        return [row_words(operand, *facts) for operand in self.own]

    def _own_tiles(self) -> list[Left]:
        """Descriptors of the warpgroup's rows in shared memory."""
        tiles, barrier = self.own_tiles, self.ring.full(2 * self.stages)
        place = self.walk.place(self.task, 0, self.first, 0)
        b.if_then(b.equal(self.thread, 0), lambda: tiles.load(place, 0, barrier))
        self.copies.wait(barrier, 0)
        self.copies.subgroup_barrier()
        blocks = [range(operand.depth // self.unit.block) for operand in self.own]
        row = b.mul(self.group, ROWS)
        return [[[tiles.line(n, 0, row, block)] for block in some] for n, some in enumerate(blocks)]

    def _start(self) -> list[ir.Value]:
        """What is carried from tile to tile before the first."""
        if self.attention is not None:
            return empty_rows(self.lanes, self.sums.sums[0].other.depth // self.matrix.columns).values()
        zero = b.constant(0.0, b.f32())
        return [zero] * sum(one.other.depth // 2 for one in self.sums.sums)

    def _round(self, round_: ir.Value, done: ir.Value, *carried: ir.Value) -> list[ir.Value]:
        """One way along, behind `done` tiles of earlier ones: stages are filled some tiles ahead, by one thread."""
        with self.reader.scope():
            low, high = self._range(round_, self.first, self.rows)
            self.mine = self._range(round_, self.group_first, ROWS) if self.groups > 1 else [low, high]
            self._prepare(round_)
            ahead = self.stages - 2

            def fill(at: Index, number: Index) -> None:
                first = b.binary("arith.andi", b.equal(self.thread, 0), b.less(at, high))
                b.if_then(first, lambda: self.ring.fill(self.walk.place(self.task, round_, 0, at), number))

            for tile in range(ahead):
                fill(b.add(low, tile * self.count), b.add(done, tile))

            def step(at: ir.Value, number: ir.Value, *carried: ir.Value) -> Sequence[ir.Value]:
                with self.reader.scope():
                    pairs = [] if self.attention else self.weights.ahead(at)
                    fill(b.add(at, ahead * self.count), b.add(number, ahead))
                    slot = self.ring.wait(number)
                    found = self._take(at, slot, list(carried), pairs)
                    self.ring.release(slot, b.mod(self.thread, self.unit.threads))
                return [b.add(number, 1), *found]

            return b.loop(low, high, self.count, [done, *carried], step)

    def _range(self, round_: Index, first: Index, rows: int) -> list[Index]:
        """From where to where some of neighbouring rows see something; from a whole tile on."""
        last = b.at_most(b.add(first, rows - 1), self.extent - 1)
        low, high = self.walk.range(self.reader, lambda kept: self._place(round_, kept, 0)[0], first, last)
        return [b.mul(b.div(low, self.count), self.count), high]

    def _prepare(self, round_: Index) -> None:
        """What each row has of its own, ahead of the tiles; or for attention what it sees."""
        if self.attention is None:
            values = RowValues(self.sums, self.reader, self.walk.along)
            own = [values.read(self._place(round_, kept, 0), 1) for kept in self.kept]
            place = partial(self._place, round_)
            facts = (self.kept, self.group_first, place, self.count, values, own)
            self.weights = GradientWeights(self.walk, self.reader, self.lanes, *facts)
            return
        rows = [self.group_first, b.at_most(b.add(self.group_first, ROWS - 1), self.extent - 1)]
        places = [self._place(0, row, 0)[0] for row in rows]
        least, last = (b.as_value(last_position(self.attention, self.reader, place)) for place in places)
        ragged = self.long % self.count != 0
        self.mask = Mask(self.attention, self.reader, self.lanes, self.places, least, last, ragged)

    def _take(self, at: Index, stage: Index, carried: list[ir.Value], pairs: Pairs) -> list[ir.Value]:
        """What is carried on from a tile, unless no row of the warpgroup sees any of it."""

        def taken() -> list[ir.Value]:
            with self.reader.scope():
                scores = self.products.scores(stage)
                if self.attention is not None:
                    return self._attend(at, stage, scores, carried)
                return self._add(stage, self.weights.of(at, scores, pairs), carried)

        if self.groups == 1:
            return taken()
        low, high = self.mine
        seen = b.binary("arith.andi", b.less(at, high), b.less(low, b.add(at, self.count)))
        return b.choose(seen, [v.type for v in carried], taken, lambda: carried)

    def _add(self, stage: Index, weights: list[list[list[ir.Value]]], totals: list[ir.Value]) -> list[ir.Value]:
        rest = iter(totals)
        sums = [[next(rest) for _ in range(one.other.depth // 2)] for one in self.sums.sums]
        operands = [self.staged.index(one.other) for one in self.sums.sums]
        return [value for one in self.products.add(stage, operands, weights, sums) for value in one]

    def _attend(self, at: Index, stage: Index, scores: list[list[ir.Value]], carried: list[ir.Value]) -> list[ir.Value]:
        state = running_rows(carried, len(self.kept))
        type_ = self.matrix.accumulator_type()
        tiles = [shaped(b.vector_of(scores[0][i : i + 4]), type_) for i in range(0, len(scores[0]), 4)]
        state, weights = state.weigh(self.mask.rows(tiles, at), self.lanes, self.target, self.mask.factor)
        plain = [b.lane_of(vector, i) for vector in map(flat, state.sums) for i in range(4)]
        operand = self.staged.index(self.sums.sums[0].other)
        (sums,) = self.products.add(stage, [operand], [weights], [plain])
        accumulators = [shaped(b.vector_of(sums[i : i + 4]), type_) for i in range(0, len(sums), 4)]
        return RunningRows(state.tops, state.totals, accumulators).values()

    def _finish(self, carried: list[ir.Value]) -> None:
        inside = [b.less(row, self.extent) for row in self.kept] if self.extent % self.rows else None
        if self.attention is not None:
            running = running_rows(carried, len(self.kept)).whole(self.lanes, self.target)
            write_rows(running, self.lanes, self.kernel, self.attention, self.places, inside)
            return
        buffers, rest = dict(outputs_of(self.kernel)), iter(carried)
        for one in self.sums.sums:
            values = [next(rest) for _ in range(one.other.depth // 2)]
            self.weights.store(one.out, buffers[one.out.tensor], values, inside)
