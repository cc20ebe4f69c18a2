"""Softmax-weighted sums in pieces: running maximum, sum of exponentials and weighted vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.expand import LOG2_E, exp, exp2
from lispgpt.passes.kernels.matrices import Lanes, flat, shaped
from lispgpt.passes.kernels.team import subgroup_reduce, tree
from lispgpt.passes.targets import Gpu

LOWEST = -1e30
"""Where a running maximum starts: finite, so that the difference of two is never NaN."""

SLACK = 8.0
"""By so many powers of two a score may be above a top that is not raised for it."""

ORDERED_ABOVE = 2
"""MLIR's number of the comparison of floats."""


@dataclass(frozen=True)
class Running:
    """One lane's share: top and total are equal in all lanes of a position's team, `sums` is its part of the vector."""

    top: ir.Value
    total: ir.Value
    sums: ir.Value

    def values(self) -> list[ir.Value]:
        return [self.top, self.total, self.sums]

    def include(self, scores: Sequence[ir.Value], rows: Sequence[ir.Value], target: Gpu) -> Running:
        """Take in more positions: their scores (-inf where masked) and rows of v."""
        top = tree("arith.maxnumf", [self.top, *scores])
        scale = _power(self.top, top, target)
        total = b.binary("arith.mulf", self.total, scale)
        sums = b.binary("arith.mulf", self.sums, b.splat(scale, b.width_of(self.sums)))
        for score, row in zip(scores, rows, strict=True):
            weight = _power(score, top, target)
            total = b.binary("arith.addf", total, weight)
            sums = b.fma(b.splat(weight, b.width_of(sums)), row, sums)
        return Running(top, total, sums)

    def exchange(self, distance: int, target: Gpu) -> Running:
        """Join with the lane at `distance`."""
        other_top = b.shuffle_xor(self.top, distance, target.subgroup)
        other_total = b.shuffle_xor(self.total, distance, target.subgroup)
        lanes = [
            b.shuffle_xor(b.lane_of(self.sums, i), distance, target.subgroup) for i in range(b.width_of(self.sums))
        ]
        top = b.binary("arith.maxnumf", self.top, other_top)
        mine, other = _power(self.top, top, target), _power(other_top, top, target)
        total = b.fma(other_total, other, b.binary("arith.mulf", self.total, mine))
        width = b.width_of(self.sums)
        sums = b.binary("arith.mulf", self.sums, b.splat(mine, width))
        return Running(top, total, b.fma(b.vector_of(lanes), b.splat(other, width), sums))


def empty(width: int) -> Running:
    type_ = b.with_width(b.f32(), width)
    return Running(b.constant(LOWEST, b.f32()), b.constant(0.0, b.f32()), b.constant(0.0, type_))


def join(tops: Sequence[ir.Value], totals: Sequence[ir.Value], sums: Sequence[ir.Value], target: Gpu) -> Running:
    """Join the shares of several subgroups or blocks, element by element."""
    top = tree("arith.maxnumf", tops)
    scales = [_power(t, top, target) for t in tops]
    total = tree("arith.addf", [b.binary("arith.mulf", x, s) for x, s in zip(totals, scales, strict=True)])
    sum_ = tree("arith.addf", [b.binary("arith.mulf", x, s) for x, s in zip(sums, scales, strict=True)])
    return Running(top, total, sum_)


def _power(x: ir.Value, top: ir.Value, target: Gpu) -> ir.Value:
    return exp(b.binary("arith.subf", x, top), target)


@dataclass(frozen=True)
class RunningRows:
    """One lane's share of several rows' sums, in accumulators of matrix instructions.

    tops: each row's largest score so far, times log2 e.  totals: the lane's part of each row's sum of weights.
    """

    tops: list[ir.Value]
    totals: list[ir.Value]
    sums: list[ir.Value]

    def values(self) -> list[ir.Value]:
        return [*self.tops, *self.totals, *self.sums]

    def weigh(
        self, scores: Sequence[Sequence[ir.Value]], lanes: Lanes, target: Gpu, factor: float = 1
    ) -> tuple[RunningRows, list[list[ir.Value]]]:
        """Take in more positions, of these scores times a factor: the sums scaled for them, and their weights, row by
        row."""
        tops, totals, weights, scales = [], [], [], []
        log2_e = b.constant(LOG2_E * factor, b.f32())
        for old, total, row in zip(self.tops, self.totals, scores, strict=True):
            largest = subgroup_reduce("arith.maxnumf", tree("arith.maxnumf", row), lanes.sharing, target.subgroup)
            top = b.binary("arith.maxnumf", old, b.binary("arith.mulf", largest, log2_e))
            scale = exp2(b.binary("arith.subf", old, top), target)
            below = b.emit("arith.negf", [top], [top.type])
            powers = [exp2(b.fma(score, log2_e, below), target) for score in row]
            tops.append(top)
            totals.append(b.fma(total, scale, tree("arith.addf", powers)))
            weights.append(powers)
            scales.append(scale)
        return RunningRows(tops, totals, [scaled(s, scales, lanes) for s in self.sums]), weights

    def weigh_unless_risen(
        self, scores: Sequence[Sequence[ir.Value]], lanes: Lanes, target: Gpu, factor: float
    ) -> tuple[RunningRows, list[list[ir.Value]]]:
        """The same, but tops stay as they are, and the sums unscaled, until some row of the subgroup has a score that
        is more than SLACK powers of two above its top: weights are up to as many times as large."""
        log2_e = b.constant(LOG2_E * factor, b.f32())
        reached, risen = [], None
        for old, row in zip(self.tops, scores, strict=True):
            largest = subgroup_reduce("arith.maxnumf", tree("arith.maxnumf", row), lanes.sharing, target.subgroup)
            reached.append(b.binary("arith.mulf", largest, log2_e))
            limit = b.binary("arith.addf", old, b.constant(SLACK, b.f32()))
            above = b.emit("arith.cmpf", [reached[-1], limit], [b.i1()], predicate=ORDERED_ABOVE)
            risen = above if risen is None else b.emit("arith.ori", [risen, above], [b.i1()])

        def raised() -> list[ir.Value]:
            tops = [b.binary("arith.maxnumf", old, new) for old, new in zip(self.tops, reached, strict=True)]
            falls = [b.binary("arith.subf", old, top) for old, top in zip(self.tops, tops, strict=True)]
            scales = [exp2(fall, target) for fall in falls]
            totals = [b.binary("arith.mulf", t, scale) for t, scale in zip(self.totals, scales, strict=True)]
            return RunningRows(tops, totals, [scaled(s, scales, lanes) for s in self.sums]).values()

        values, rows = self.values(), len(self.tops)
        state = running_rows(b.choose(target.any_lane(risen), [v.type for v in values], raised, lambda: values), rows)
        totals, weights = [], []
        for top, total, row in zip(state.tops, state.totals, scores, strict=True):
            below = b.emit("arith.negf", [top], [top.type])
            powers = [exp2(b.fma(score, log2_e, below), target) for score in row]
            totals.append(b.binary("arith.addf", total, tree("arith.addf", powers)))
            weights.append(powers)
        return RunningRows(state.tops, totals, state.sums), weights

    def whole(self, lanes: Lanes, target: Gpu) -> RunningRows:
        """With the lanes' parts of the totals added."""
        totals = [subgroup_reduce("arith.addf", t, lanes.sharing, target.subgroup) for t in self.totals]
        return RunningRows(self.tops, totals, self.sums)


def empty_rows(lanes: Lanes, tiles: int) -> RunningRows:
    rows = len(lanes.unit.pieces())
    tops, totals = ([b.constant(start, b.f32())] * rows for start in (LOWEST, 0.0))
    return RunningRows(tops, totals, [b.constant(0.0, lanes.unit.accumulator_type())] * tiles)


def running_rows(values: Sequence[ir.Value], rows: int) -> RunningRows:
    """The reverse of RunningRows.values."""
    return RunningRows(list(values[:rows]), list(values[rows : 2 * rows]), list(values[2 * rows :]))


def scaled(total: ir.Value, scales: Sequence[ir.Value], lanes: Lanes) -> ir.Value:
    """An accumulator with each row's elements times the row's scale."""
    order = {e: scales[i] for i, piece in enumerate(lanes.unit.pieces()) for e in piece.elements}
    factors = b.vector_of([order[e] for e in range(len(order))])
    return shaped(b.binary("arith.mulf", flat(total), factors), total.type)
