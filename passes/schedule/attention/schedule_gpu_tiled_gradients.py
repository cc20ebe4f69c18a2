"""schedule-gpu-tiled-gradients: sums weighed by what is made of scores, on the target's matrix instructions.

Before: products that make scores, elementwise ops on these, products in which they weigh keys (for the gradient of
        queries) or queries and results' gradients (for those of keys and values).
After:  a block for 16 rows of the results for each of its subgroups, those with most to do first.  It goes through
        tiles of what they are sums over, as far as masks let them see it: scores on matrix instructions, weights in
        registers, and back into matrix instructions.  No score reaches memory; sums are always taken in one order.

Requires: what destination-passing ensures.
Ensures: kernels of kind "attention-gradient" with rows enough, of vectors that matrix instructions divide, have only
scalar, vector and matrix ops, `grid` and `block`.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import lcm, prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels import block_memory
from lispgpt.passes.kernels import operand_a as left_of
from lispgpt.passes.kernels.attention import store_operand
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.matrices import flat, lanes_of
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.recognise.attention_gradients import WeightedSum, attention_gradients_of
from lispgpt.passes.schedule.attention.key_tiles import Staged, TileLayout, Tiles
from lispgpt.passes.schedule.attention.score_products import SubgroupProducts
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu

KEPT_WORDS = 96
"""Registers that a block's own vectors and its totals may take: with more, vectors are read again for every tile."""


@dataclass(frozen=True)
class ScheduleGpuTiledGradients(Pass):
    """rows: the fewest of what results and sums go along to treat this way.  subgroups: of a block, at most."""

    starts_from = (PLACED,)
    only_faster = True
    rows: int = 32
    subgroups: int = 4

    def run(self, module: ir.Module, target: Gpu) -> None:
        if target.matrix is None:
            return
        for kernel in unscheduled_kernels(module, "attention-gradient"):
            sums = attention_gradients_of(kernel)
            if sums is None or not self._suits(Walk(sums), target.matrix.columns):
                continue
            schedule = _TiledGradients(kernel, Walk(sums), target, self.subgroups)
            if schedule.fits():
                schedule.emit()

    def _suits(self, walk: Walk, columns: int) -> bool:
        """Whether there are enough rows, of vectors that tiles can hold."""
        sums = walk.sums
        operands = [side for n in range(len(sums.products)) for side in walk.sides(n)]
        operands += [operand for one in sums.sums for operand in (one.other, one.out)]
        return (
            min(walk.extent(walk.kept), walk.extent(walk.along)) >= self.rows
            and all(operand.has_rows and operand.depth % columns == 0 for operand in operands)
            and {str(operand.element) for operand in operands} <= {"f32", "bf16"}
        )


class _TiledGradients:
    def __init__(self, kernel: ir.Operation, walk: Walk, target: Gpu, subgroups: int) -> None:
        assert target.matrix is not None
        self.kernel, self.walk, self.sums, self.target, self.unit = kernel, walk, walk.sums, target, target.matrix
        self.extent, self.long = walk.extent(walk.kept), walk.extent(walk.along)
        self.subgroups = min(subgroups, -(-self.extent // 16))
        self.rows, self.threads = 16 * self.subgroups, self.subgroups * target.subgroup
        self.count = lcm(self.unit.block, self.unit.columns)
        self.staged = self._staged()
        self.tile = TileLayout(self.staged, target, self.count, self.threads)
        self.sizes = [one.other.depth // self.unit.columns for one in self.sums.sums]
        exact = any(str(b.element_of(one.weights.type)) == "f32" for one in self.sums.sums)
        self.parts = 2 if exact else 1

    def _staged(self) -> list[Staged]:
        """The right operands of products that make scores, in their order, then what else is weighed."""
        scored = [self.walk.sides(n)[1] for n in range(len(self.sums.products))]
        weighted = [one.other for one in self.sums.sums]
        staged = [Staged(operand, True, operand in weighted) for operand in scored]
        return staged + [Staged(operand, False, True) for operand in weighted if operand not in scored]

    def fits(self) -> bool:
        return block_memory.fits(self.target, self._memory_bytes(), False)

    def _memory_bytes(self) -> int:
        return self.tile.nbytes + 2 * self.subgroups * prod(left_of.weight_shape(self.unit, self.count))

    def emit(self) -> None:
        tiles = -(-self.extent // self.rows)
        if reschedule(self.kernel, [prod(self.walk.tasks), tiles], [self.threads], self.target, self._body):
            self.memory.record(self.kernel)

    def _body(self) -> None:
        target, thread = self.target, b.thread_id()
        self.thread, self.subgroup = thread, b.div(thread, target.subgroup)
        self.lanes = lanes_of(self.unit, b.mod(thread, target.subgroup))
        self.reader, self.task = Reader(target), b.block_id("x")
        self.memory = block_memory.BlockMemory(target, self._memory_bytes(), False)
        target.dependency_passed_on()
        number: Index = b.block_id("y")
        if self.sums.over_positions:
            number = b.sub(b.as_value(-(-self.extent // self.rows) - 1), number)
        self.first = b.mul(number, self.rows)
        own = b.add(self.first, b.mul(self.subgroup, 16))
        self.kept = [b.add(own, b.add(self.lanes.result_row, piece.row)) for piece in self.unit.pieces()]
        places = [self._place(0, b.add(own, b.add(self.lanes.row, row)), 0) for row in self.unit.left_rows]
        sides = [self.walk.sides(n)[0] for n in range(len(self.sums.products))]
        words = sum(left_of.words_of(side, self.unit) for side in sides) + sum(self.sizes) * prod(self.unit.accumulator)
        facts = (self.reader, self.lanes, places, words <= KEPT_WORDS)
        self.left = [left_of.operand_blocks(side, *facts) for side in sides]
        zero = b.constant(0.0, self.unit.accumulator_type())
        totals = b.loop(0, self.walk.rounds, 1, [zero] * sum(self.sizes), self._round)
        self._store(totals)

    def _inside(self, kept: Index) -> Index:
        """A row that there is; past the end the last one."""
        return b.at_most(kept, self.extent - 1) if self.extent % self.rows else kept

    def _place(self, round_: Index, kept: Index, along: Index) -> tuple[list[Index], Index]:
        return self.walk.place(self.task, round_, self._inside(kept), along)

    def _round(self, round_: ir.Value, *totals: ir.Value) -> list[ir.Value]:
        with self.reader.scope():
            low, high = self._range(round_)
            tiles = Tiles(
                self.tile,
                self.reader,
                self.lanes,
                self.memory.view,
                *(1, 0, self.thread),
                lambda along: self._place(round_, 0, along),
                self.long - 1,
            )
            products = SubgroupProducts(
                tiles, self.left, self.parts, self._weight_memory, self.subgroup, partial(self._wait)
            )
            return b.loop(
                low, high, self.count, totals, lambda at, *t: self._take(round_, at, tiles, products, list(t))
            )

    def _weight_memory(self) -> ir.Value:
        shape = [self.subgroups, *left_of.weight_shape(self.unit, self.count)]
        return self.memory.view(self.tile.nbytes, shape, ir.BF16Type.get())

    def _wait(self) -> None:
        self.target.team_barrier(0, self.threads)

    def _range(self, round_: Index) -> list[Index]:
        """From where to where the block goes: whole tiles, of which some row sees something."""
        if not self.walk.is_ordered:
            return [0, self.long]
        last = b.at_most(b.add(self.first, self.rows - 1), self.extent - 1)
        low, high = self.walk.range(self.reader, lambda kept: self._place(round_, kept, 0)[0], self.first, last)
        return [b.mul(b.div(low, self.count), self.count), high]

    def _take(
        self, round_: Index, start: Index, tiles: Tiles, products: SubgroupProducts, totals: list[ir.Value]
    ) -> list[ir.Value]:
        """With what one tile adds to the totals."""
        with self.reader.scope():
            loaded = tiles.load(start)
            self._wait()
            tiles.store(loaded)
            self._wait()
            scores = [[flat(s) for s in products.scores(n)] for n in range(len(self.sums.products))]
            weights = self._weights(round_, start, scores)
            found, at = [], 0
            for one, mine, size in zip(self.sums.sums, weights, self.sizes, strict=True):
                number = next(n for n, staged in enumerate(self.staged) if staged.operand == one.other)
                found += products.add(number, mine, totals[at : at + size])
                at += size
        return found

    def _weights(self, round_: Index, start: Index, scores: list[list[ir.Value]]) -> list[list[list[ir.Value]]]:
        """[sum][row][column]: what the lane has, 0 past the end of what is gone along."""
        found: list[list[list[ir.Value]]] = [[[] for _ in self.kept] for _ in self.sums.sums]
        zero = b.constant(0.0, b.f32())
        for tile in range(self.count // self.unit.columns):
            for row, piece in enumerate(self.unit.pieces()):
                for column, element in enumerate(piece.elements):
                    along = b.add(start, b.add(self.lanes.result_column, tile * self.unit.columns + column))
                    inside = b.less(along, self.long) if self.long % self.count else None
                    along = along if inside is None else b.at_most(along, self.long - 1)
                    values = [b.lane_of(one[tile], element) for one in scores]
                    for n, weight in enumerate(self._made(round_, self.kept[row], along, values)):
                        found[n][row].append(weight if inside is None else b.select(inside, weight, zero))
        return found

    def _made(self, round_: Index, kept: Index, along: Index, scores: list[ir.Value]) -> list[ir.Value]:
        """The weights of each sum at one place, in f32."""
        with self.reader.scope():
            place, t = self._place(round_, kept, along)
            for product, score in zip(self.sums.products, scores, strict=True):
                self.reader.hold(product.op.results[0], score)
            return [b.extend(self.reader.read(one.weights, [*place, t])) for one in self.sums.sums]

    def _store(self, totals: list[ir.Value]) -> None:
        buffers, rest = dict(outputs_of(self.kernel)), iter(totals)
        for one, size in zip(self.sums.sums, self.sizes, strict=True):
            vectors = [flat(next(rest)) for _ in range(size)]
            for row, piece in zip(self.kept, self.unit.pieces(), strict=True):
                place, t = self._place(0, row, 0)

                def write(
                    one: WeightedSum = one,
                    place: list[Index] = place,
                    t: Index = t,
                    elements: tuple[int, ...] = piece.elements,
                    vectors: list[ir.Value] = vectors,
                ) -> None:
                    for n, vector in enumerate(vectors):
                        value = b.vector_of([b.lane_of(vector, e) for e in elements])
                        d = b.add(self.lanes.result_column, n * self.unit.columns)
                        store_operand(
                            b.shortened(value, one.out.element), buffers[one.out.tensor], one.out, place, t, d
                        )

                b.if_live(b.less(row, self.extent) if self.extent % self.rows else None, write)
