"""schedule-attention-gradients: sums weighed by what is made of scores, which are computed where they are wanted.

Before (inside a kernel = "attention-gradient"):      After:
  %s = linalg.contract ins(%q, %k) …                    for each position that the row sees {
  %p = linalg.generic ins(%s, %lse) { exp(…) }            its dot products, on the lanes of a subgroup
  %d = linalg.generic ins(%p, …) …                        what is made of them, in registers
  %y = linalg.contract ins(%d, %k) …                      %y += weight · %k }

On a GPU a subgroup has a row of the results, its lanes neighbours of it.  On a CPU a call has some rows, and takes in
what they are sums over tile by tile, in vectors.

Requires: what destination-passing ensures.
Ensures: kernels of kind "attention-gradient" whose attribute says what they are have only scalar and vector ops, `grid`
and `block`; what they keep beside their arguments does not depend on how many positions there are.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.attention import read_operand, store_operand
from lispgpt.passes.kernels.kernel import reschedule
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.kernels.team import subgroup_reduce
from lispgpt.passes.recognise.attention_gradients import AttentionGradients, attention_gradients_of
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.attention.lane_shares import Share, lane_share
from lispgpt.passes.schedule.cpu.dot_product_gradients import DotProductGradients, suits_pairs
from lispgpt.passes.schedule.cpu.register_tiles import tiles_of
from lispgpt.passes.schedule.cpu.score_tiles import ScoreTile, ScoreTiles
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Cpu, Gpu, Target
from lispgpt.passes.targets.pairs import LINES, Pairs


@dataclass(frozen=True)
class ScheduleAttentionGradients(Pass):
    """subgroups: of a GPU's block.  rows, along: of the results, and of what they are sums over, that a CPU's call has
    at once, and dot_product_rows, dot_product_along with instructions that multiply pairs, for which both are at least
    least_dot_products.  step: of both in registers for dot products."""

    starts_from = (PLACED,)
    only_faster = True
    subgroups: int = 4
    rows: int = 32
    along: int = 64
    step: int = 4
    dot_product_rows: int = 64
    dot_product_along: int = 64
    least_dot_products: int = 32

    def run(self, module: ir.Module, target: Target) -> None:
        for kernel in unscheduled_kernels(module, "attention-gradient"):
            sums = attention_gradients_of(kernel)
            if sums is None:
                continue
            if isinstance(target, Gpu):
                _ByRows(kernel, sums, target, self.subgroups).emit()
            else:
                self._by_tiles(kernel, Walk(sums), target)

    def _by_tiles(self, kernel: ir.Operation, walk: Walk, target: Target) -> None:
        """A CPU's call for some rows; the last begin early where there are fewer: what two calls have is the same."""
        extent, unit = walk.extent(walk.kept), self._pairs(walk, target)
        if unit is None:
            count, rows = tiles_of(extent, self.rows, self.step)
            along = min(self.along, walk.extent(walk.along))
        else:
            (count, rows), along = tiles_of(extent, self.dot_product_rows, LINES), self.dot_product_along
        tile = ScoreTile(walk, rows, along, self.step, target.vector_bytes)

        def body() -> None:
            task, number = b.div(b.block_id(), count), b.mod(b.block_id(), count)
            first = b.mul(number, rows)
            first = first if extent % rows == 0 else b.at_most(first, extent - rows)
            if unit is None:
                ScoreTiles(tile, Reader(target), task, first).run(kernel)
            else:
                DotProductGradients(tile, Reader(target), unit, task, first).run(kernel)

        if reschedule(kernel, [prod(walk.tasks) * count], [1], target, body) and unit and unit.permission:
            kernel.attributes["permission"] = ir.StringAttr.get(unit.permission)

    def _pairs(self, walk: Walk, target: Target) -> Pairs | None:
        """A CPU's instruction for pairs, where rows and what they are sums over are enough for it, in bf16."""
        enough = min(walk.extent(walk.kept), walk.extent(walk.along)) >= self.least_dot_products
        return target.pairs if isinstance(target, Cpu) and enough and suits_pairs(walk.sums) else None


class _ByRows:
    """A subgroup for each row of the results."""

    def __init__(self, kernel: ir.Operation, sums: AttentionGradients, target: Gpu, subgroups: int) -> None:
        self.kernel, self.sums, self.target, self.walk = kernel, sums, target, Walk(sums)
        self.threads, self.subgroups = subgroups * target.subgroup, subgroups
        self.rows = prod(self.walk.tasks) * self.walk.extent(self.walk.kept)

    def emit(self) -> None:
        reschedule(self.kernel, [-(-self.rows // self.subgroups)], [self.threads], self.target, self._body)

    def _body(self) -> None:
        thread = b.thread_id()
        self.lane = b.mod(thread, self.target.subgroup)
        row = b.add(b.mul(b.block_id(), self.subgroups), b.div(thread, self.target.subgroup))
        self.reader = Reader(self.target)
        self.target.dependency_passed_on()
        inside = b.less(row, self.rows)
        row = b.or_zero(inside, row)
        extent = self.walk.extent(self.walk.kept)
        self.task, self.kept = b.div(row, extent), b.mod(row, extent)
        mine = [self._read(self.walk.sides(n)[0], 0, 0) for n in range(len(self.sums.products))]
        totals = [b.constant(0.0, b.with_width(b.f32(), self._share(s.other).width)) for s in self.sums.sums]
        totals = b.loop(0, self.walk.rounds, 1, totals, lambda round_, *t: self._round(round_, mine, list(t)))
        b.if_then(inside, lambda: self._store(totals))

    def _share(self, operand: Operand) -> Share:
        return lane_share(operand, self.lane, self.target.subgroup, self.target)

    def _place(self, round_: Index, along: Index) -> tuple[list[Index], Index]:
        return self.walk.place(self.task, round_, self.kept, along)

    def _read(self, operand: Operand, round_: Index, along: Index) -> ir.Value:
        """The lane's numbers, in f32."""
        place, t = self._place(round_, along)
        share = self._share(operand)
        return share.within(b.extend(read_operand(self.reader, operand, place, t, share.start, share.width)))

    def _round(self, round_: Index, mine: list[ir.Value], totals: list[ir.Value]) -> list[ir.Value]:
        with self.reader.scope():
            low, high = self.walk.range(self.reader, lambda kept: self._place(round_, 0)[0], self.kept, self.kept)
            return b.loop(low, high, 1, totals, lambda along, *t: self._add(round_, along, mine, list(t)))

    def _add(self, round_: Index, along: Index, mine: list[ir.Value], totals: list[ir.Value]) -> list[ir.Value]:
        with self.reader.scope():
            for number, product in enumerate(self.sums.products):
                score = self._dot(mine[number], self._read(self.walk.sides(number)[1], round_, along))
                self.reader.hold(product.op.results[0], score)
            place, t = self._place(round_, along)
            added = []
            for one, total in zip(self.sums.sums, totals, strict=True):
                weight = b.extend(self.reader.read(one.weights, [*place, t]))
                other = self._read(one.other, round_, along)
                added.append(b.fma(b.splat(weight, b.width_of(other)), other, total))
        return added

    def _dot(self, a: ir.Value, other: ir.Value) -> ir.Value:
        product = b.horizontal("arith.addf", b.binary("arith.mulf", a, other))
        return subgroup_reduce("arith.addf", product, self.target.subgroup, self.target.subgroup)

    def _store(self, totals: list[ir.Value]) -> None:
        buffers = dict(outputs_of(self.kernel))
        place, t = self._place(0, 0)
        for one, total in zip(self.sums.sums, totals, strict=True):
            share, value = self._share(one.other), b.shortened(total, one.out.element)
            facts = (value, buffers[one.out.tensor], one.out, place, t, share.start, True)
            b.if_live(share.live, partial(store_operand, *facts))
