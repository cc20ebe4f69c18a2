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

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any, ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import kernel_functions
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels import block_memory
from lispgpt.passes.kernels.attention import last_position, read_operand, store_operand
from lispgpt.passes.kernels.attention_results import write_rows
from lispgpt.passes.kernels.attention_scores import Mask
from lispgpt.passes.kernels.copied_tiles import CopiedTiles, mapped_operands
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.matrices import lanes_of, shaped
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.kernels.score_weights import RowValues
from lispgpt.passes.kernels.softmax import RunningRows, empty_rows, running_rows
from lispgpt.passes.model.attention import Attention, attention_of
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.model.score_sums import score_sums_of
from lispgpt.passes.states import PLACED, State
from lispgpt.passes.targets import Gpu

ROWS = 64
"""Of a warpgroup."""

BARRIER_BYTES = 1024


@dataclass(frozen=True)
class ScheduleGpuFlashAttention(Pass):
    """rows: the fewest of what results and sums go along to treat this way.  warpgroups: of a block; keys: of a tile of
    attention.  gradient_warpgroups, along: the same for gradients, and what they are sums over.  stages: tiles in
    shared memory.  own: numbers of its rows' vectors and sums that a warpgroup may have for each row in registers: with more,
    and where a tile has as many vectors as a warpgroup rows, its vectors are in shared memory.  (With equal extents,
    ptxas of CUDA 12.9 and 13.0 lets weights overwrite them.)"""

    name: ClassVar[str] = "schedule-gpu-flash-attention"
    starts_from: ClassVar[tuple[State, ...]] = (PLACED,)
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
        for kernel in kernel_functions(module):
            if "grid" in kernel.attributes:
                continue
            attention, sums = attention_of(kernel), score_sums_of(kernel)
            if attention is not None and not attention.writes and not attention.exact:
                sums = attention.as_sums()
            if sums is not None and self._suits(Walk(sums), target):
                schedule = _Schedule(kernel, Walk(sums), attention, target, self)
                if schedule.fits():
                    schedule.emit()

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


class _Schedule:
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
        target.dependency_release()
        target.dependency_wait()
        self.left = [self._words(operand) for operand in self.own] if self.in_registers else self._own_tiles()
        start = [b.as_value(0), *self._start()]
        self._finish(b.loop(0, self.walk.rounds, 1, start, self._round)[1:])

    def _place(self, round_: Index, kept: Index, along: Index) -> tuple[list[Index], Index]:
        kept = b.at_most(kept, self.extent - 1) if self.extent % self.rows else kept
        return self.walk.place(self.task, round_, kept, along)

    def _make_memory(self) -> None:
        """The block's own vectors, stages, barriers: those of the stages, full and empty, and of the own vectors."""
        self.memory = block_memory.BlockMemory(self.target, self._memory_bytes(), True)
        base = b.emit("memref.extract_aligned_pointer_as_index", [self.memory.memory], [ir.IndexType.get()])
        self.base = b.add(base, self.memory.start)
        self.tiles = self._copied(self.staged, self.walk.along, self.count, self.stages, self._own_bytes())
        self.barriers = b.add(self.base, self._memory_bytes() - BARRIER_BYTES)
        if not self.in_registers:
            self.own_tiles = self._copied(self.own, self.walk.kept, self.rows, 1, 0)

        def make() -> None:
            for slot in range(self.stages):
                self.copies.make_barrier(self._full(slot), 1)
                self.copies.make_barrier(self._empty(slot), self.groups)
            self.copies.make_barrier(self._full(2 * self.stages), 1)
            self.copies.publish_barriers()

        b.if_then(b.equal(self.thread, 0), make)
        b.barrier()

    def _copied(self, operands: list[Operand], along: int, count: int, stages: int, start: int) -> CopiedTiles:
        mapped = mapped_operands(operands, along, self.copies)
        assert mapped is not None
        maps = [one.map(self.kernel, count, self.unit.inner) for one in mapped]
        return CopiedTiles(mapped, maps, self.copies, self.unit, count, stages, b.add(self.base, start))

    def _full(self, slot: Index) -> Index:
        return b.add(self.barriers, b.mul(slot, self.copies.barrier_bytes))

    def _empty(self, slot: Index) -> Index:
        return b.add(self._full(slot), self.stages * self.copies.barrier_bytes)

    # ---- a warpgroup's own vectors

    def _words(self, operand: Operand) -> Any:
        """[block of k]: the lane's words of its two rows."""
        words, i32s = [], ir.VectorType.get([1], b.i32())
        for block in range(operand.depth // self.unit.block):
            found = []
            for column in (0, 8):
                d = b.add(self.lanes.result_column, block * self.unit.block + column)
                for kept in self.kept:
                    pair = read_operand(self.reader, operand, *self._place(0, kept, 0), d, 2)
                    found.append(b.lane_of(b.emit("vector.bitcast", [pair], [i32s]), 0))
            words.append(found)
        return words

    def _own_tiles(self) -> Any:
        """[operand][block of k]: descriptors of the warpgroup's rows in shared memory."""
        tiles, barrier = self.own_tiles, self._full(2 * self.stages)
        place = self.walk.place(self.task, 0, self.first, 0)
        b.if_then(b.equal(self.thread, 0), lambda: tiles.load(place, 0, barrier))
        self.copies.wait(barrier, 0)
        self.copies.subgroup_barrier()
        return [
            [tiles.line(n, 0, b.mul(self.group, ROWS), block) for block in range(operand.depth // self.unit.block)]
            for n, operand in enumerate(self.own)
        ]

    # ---- along

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
            self.round = round_
            self.values = RowValues(self.sums, self.reader, self.walk.along)
            self._prepare(round_)
            ahead = self.stages - 2

            def fill(at: Index, number: Index) -> None:
                first = b.binary("arith.andi", b.equal(self.thread, 0), b.less(at, high))
                b.if_then(first, lambda: self._fill(round_, at, number))

            for tile in range(ahead):
                fill(b.add(low, tile * self.count), b.add(done, tile))

            def step(at: ir.Value, number: ir.Value, *carried: ir.Value) -> Sequence[ir.Value]:
                fill(b.add(at, ahead * self.count), b.add(number, ahead))
                slot = b.mod(number, self.stages)
                self.copies.wait(self._full(slot), b.mod(b.div(number, self.stages), 2))
                self.copies.subgroup_barrier()
                found = self._take(at, slot, list(carried))
                one = b.equal(b.mod(self.thread, self.unit.threads), 0)
                b.if_then(one, lambda: self.copies.arrive(self._empty(slot)))
                return [b.add(number, 1), *found]

            return b.loop(low, high, self.count, [done, *carried], step)

    def _fill(self, round_: Index, at: Index, number: Index) -> None:
        """Start to bring the number-th tile to its stage, once all are done with what is there."""
        slot = b.mod(number, self.stages)
        self.copies.wait(self._empty(slot), b.mod(b.add(b.div(number, self.stages), 1), 2))
        self.tiles.load(self.walk.place(self.task, round_, 0, at), slot, self._full(slot))

    def _range(self, round_: Index, first: Index, rows: int) -> list[Index]:
        """From where to where some of neighbouring rows see something; from a whole tile on."""
        last = b.at_most(b.add(first, rows - 1), self.extent - 1)
        low, high = self.walk.range(self.reader, lambda kept: self._place(round_, kept, 0)[0], first, last)
        return [b.mul(b.div(low, self.count), self.count), high]

    def _take(self, at: Index, stage: Index, carried: list[ir.Value]) -> list[ir.Value]:
        """What is carried on from a tile, unless no row of the warpgroup sees any of it."""

        def taken() -> list[ir.Value]:
            with self.reader.scope():
                scores = self._scores(stage)
                return (
                    self._attend(at, stage, scores, carried)
                    if self.attention
                    else self._add(at, stage, scores, carried)
                )

        if self.groups == 1:
            return taken()
        low, high = self.mine
        seen = b.less(at, high)
        if not isinstance(low, int):
            seen = b.binary("arith.andi", seen, b.less(low, b.add(at, self.count)))
        return b.choose(seen, [v.type for v in carried], taken, lambda: carried)

    def _scores(self, stage: Index) -> list[list[ir.Value]]:
        """[product]: the lane's scores, two of each eight columns of its first row, then of its second."""
        self.unit.fence()
        found: list[list[ir.Value]] = []
        for number, left in enumerate(self.left):
            sums: list[ir.Value] = []
            operand = self.staged.index(self.walk.sides(number)[1])
            for block, mine in enumerate(left):
                right = self.tiles.line(operand, stage, 0, block)
                if not sums:
                    begin = self.unit.start if self.in_registers else self.unit.start_shared
                    sums = begin(mine, right, self.count // 2)
                elif self.in_registers:
                    sums = self.unit.multiply(mine, right, sums)
                else:
                    sums = self.unit.multiply_shared(mine, right, sums)
            self.unit.commit()
            found.append(sums)
        done = iter(self.unit.done([value for sums in found for value in sums]))
        return [[next(done) for _ in sums] for sums in found]

    def _weighed(self, number: int, stage: Index, words: list[list[ir.Value]], sums: list[ir.Value]) -> list[ir.Value]:
        """A sum with a tile added: words: the lane's weights, in blocks of 16 columns."""
        operand, found = self.staged.index(self.sums.sums[number].other), []
        for part in range(len(sums) // 32):
            some = sums[part * 32 : (part + 1) * 32]
            for block, mine in enumerate(words):
                some = self.unit.multiply(mine, self.tiles.turned(operand, stage, block, part), some, turned=True)
            found += some
        return found

    # ---- gradients

    def _prepare(self, round_: Index) -> None:
        """What each row has of its own, ahead of the tiles; or for attention what it sees."""
        if self.attention is None:
            self.own_values = [self.values.read(self._place(round_, kept, 0), 1) for kept in self.kept]
            return
        rows = [self.group_first, b.at_most(b.add(self.group_first, ROWS - 1), self.extent - 1)]
        least, last = (
            b.as_value(last_position(self.attention, self.reader, self._place(0, row, 0)[0])) for row in rows
        )
        ragged = self.long % self.count != 0
        self.mask = Mask(self.attention, self.reader, self.lanes, self.places, least, last, ragged)

    def _add(self, at: Index, stage: Index, scores: list[list[ir.Value]], totals: list[ir.Value]) -> list[ir.Value]:
        weights = self._weights(at, scores)
        words = [self._weight_words(one) for one in weights]
        flat = [word for one in words for block in one for word in block]
        ready = self.unit.ready([*totals, *flat])
        rest = iter(ready[len(totals) :])
        words = [[[next(rest) for _ in block] for block in one] for one in words]
        found, start = [], 0
        for number, one in enumerate(self.sums.sums):
            size = one.other.depth // 2
            found += self._weighed(number, stage, words[number], ready[start : start + size])
            start += size
        self.unit.commit()
        return self.unit.done(found)

    def _weight_words(self, rows: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """[block of 16 columns]: a lane's weights as four words of two bf16."""
        i32s, words = ir.VectorType.get([1], b.i32()), []
        for block in range(self.count // self.unit.block):
            found = []
            for start in (4 * block, 4 * block + 2):
                for row in rows:
                    pair = b.shortened(b.vector_of(row[start : start + 2]), ir.BF16Type.get())
                    found.append(b.lane_of(b.emit("vector.bitcast", [pair], [i32s]), 0))
            words.append(found)
        return words

    def _weights(self, at: Index, scores: list[list[ir.Value]]) -> list[list[list[ir.Value]]]:
        """[sum][row][column], unmasked where all rows of the warpgroup see the whole tile."""
        sizes = (len(self.sums.sums), len(self.kept), self.count // 4)

        def made(whole: bool) -> list[ir.Value]:
            with self.reader.scope(), self.reader.assuming(self.sums.known_within if whole else frozenset()):
                return self._made(at, scores, whole)

        whole = self.walk.all_seen(self.group_first, ROWS, at, self.count)
        if whole is None:
            found = made(False)
        else:
            found = b.choose(whole, [b.f32()] * prod(sizes), lambda: made(True), lambda: made(False))
        rest = iter(found)
        return [[[next(rest) for _ in range(sizes[2])] for _ in range(sizes[1])] for _ in range(sizes[0])]

    def _made(self, at: Index, scores: list[list[ir.Value]], whole: bool) -> list[ir.Value]:
        found: list[list[list[ir.Value]]] = [[[] for _ in self.kept] for _ in self.sums.sums]
        ragged = self.long % self.count != 0 and not whole
        zero = b.constant(0.0, b.f32())
        for eight in range(self.count // 8):
            first = b.add(at, b.add(self.lanes.result_column, 8 * eight))
            inside = [b.less(b.add(first, i), self.long) if ragged else None for i in range(2)]
            first = b.at_most(first, self.long - 2) if ragged and self.long % 2 == 0 else first
            columns = [b.add(first, i) for i in range(2)]
            if ragged and self.long % 2:
                columns = [b.at_most(column, self.long - 1) for column in columns]
            shared = self.values.read_pair(lambda along: self._place(self.round, 0, along), columns)
            for row, kept in enumerate(self.kept):
                for i, column in enumerate(columns):
                    with self.reader.scope():
                        self.values.hold([*self.own_values[row], *(value[i] for value in shared)])
                        for product, score in zip(self.sums.products, scores, strict=True):
                            self.reader.hold(product.op.results[0], score[4 * eight + 2 * row + i])
                        place, t = self._place(self.round, kept, column)
                        for n, one in enumerate(self.sums.sums):
                            value = b.extend(self.reader.read(one.unrounded, [*place, t]))
                            live = inside[i]
                            found[n][row].append(value if live is None else b.select(live, value, zero))
        return [value for one in found for row in one for value in row]

    # ---- attention

    def _attend(self, at: Index, stage: Index, scores: list[list[ir.Value]], carried: list[ir.Value]) -> list[ir.Value]:
        state = running_rows(carried, len(self.kept))
        type_ = self.matrix.accumulator_type()
        tiles = [shaped(b.vector_of(scores[0][i : i + 4]), type_) for i in range(0, len(scores[0]), 4)]
        state, weights = state.weigh(self.mask.rows(tiles, at), self.lanes, self.target)
        words = self._weight_words(weights)
        plain = [b.lane_of(vector, i) for vector in map(_flat, state.sums) for i in range(4)]
        ready = self.unit.ready([*plain, *(word for block in words for word in block)])
        rest = iter(ready[len(plain) :])
        words = [[next(rest) for _ in block] for block in words]
        sums = self._weighed(0, stage, words, ready[: len(plain)])
        self.unit.commit()
        sums = self.unit.done(sums)
        accumulators = [shaped(b.vector_of(sums[i : i + 4]), type_) for i in range(0, len(sums), 4)]
        return RunningRows(state.tops, state.totals, accumulators).values()

    # ---- results

    def _finish(self, carried: list[ir.Value]) -> None:
        inside = [b.less(row, self.extent) for row in self.kept] if self.extent % self.rows else None
        if self.attention is not None:
            running = running_rows(carried, len(self.kept)).whole(self.lanes, self.target)
            write_rows(running, self.lanes, self.kernel, self.attention, self.places, inside)
            return
        buffers, start = dict(outputs_of(self.kernel)), 0
        for one in self.sums.sums:
            values = carried[start : start + one.other.depth // 2]
            start += len(values)
            for row, kept in enumerate(self.kept):
                write = self._writer(one.out, buffers[one.out.tensor], values, row, self._place(0, kept, 0))
                b.if_live(None if inside is None else inside[row], write)

    def _writer(
        self, out: Operand, buffer: ir.Value, values: list[ir.Value], row: int, place: tuple[list[Index], Index]
    ) -> Callable[[], None]:
        def write() -> None:
            for eight in range(len(values) // 4):
                pair = b.vector_of(values[4 * eight + 2 * row : 4 * eight + 2 * row + 2])
                d = b.add(self.lanes.result_column, 8 * eight)
                store_operand(b.shortened(pair, out.element), buffer, out, *place, d, True)

        return write


def _flat(total: ir.Value) -> ir.Value:
    return shaped(total, ir.VectorType.get([4], b.f32()))
