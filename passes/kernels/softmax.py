"""Softmax-weighted sums in pieces: running maximum, sum of exponentials and weighted vector."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.expand import exp
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.targets import Gpu

LOWEST = -1e30
"""Where a running maximum starts: finite, so that the difference of two is never NaN."""


@dataclass(frozen=True)
class Running:
    """One lane's share: top and total are equal in all lanes of a position's team, `sums` is its part of the vector."""

    top: ir.Value
    total: ir.Value
    sums: ir.Value

    def values(self) -> list[ir.Value]:
        return [self.top, self.total, self.sums]

    def include(
        self, scores: Sequence[ir.Value], rows: Sequence[tuple[ir.Value, ir.Value | None]], target: Gpu
    ) -> Running:
        """Take in more positions: their scores (-inf where masked), and rows of v with what each is to be multiplied
        by, if anything."""
        top = tree("arith.maxnumf", [self.top, *scores])
        scale = _power(self.top, top, target)
        total = b.binary("arith.mulf", self.total, scale)
        sums = b.binary("arith.mulf", self.sums, b.splat(scale, b.width_of(self.sums)))
        for score, (row, factor) in zip(scores, rows, strict=True):
            weight = _power(score, top, target)
            total = b.binary("arith.addf", total, weight)
            weight = weight if factor is None else b.binary("arith.mulf", weight, factor)
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
