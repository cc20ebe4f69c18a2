"""Sums of a norm's weights in a product of rows: they go through the instructions in the stream's place."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from lispgpt.ir import build as b
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, fused, real
from lispgpt.passes.plan.sharded_chain import NormWeights, Series
from lispgpt.passes.plan.sharded_launch import Launch
from lispgpt.passes.plan.sharded_weights import Fragment, Scale


def norm_sum(
    launch: Launch, norm: NormWeights, layer: Word, first: Word, weights: Iterable[Fragment], scales: Sequence[Scale],
    steps: int,
) -> Word:  # fmt: skip
    """A lane's row's, of gamma or beta.  weights: of so many steps from `first` on."""
    part = launch.lane % 4
    totals, found = [real(0.0)] * 4, [real(0.0)] * 4
    each = steps // len(scales) if scales else 0
    for step, a in enumerate(weights):
        for right in _split_parts(launch, _norm_parts(launch, norm, layer, first + step)):
            found = c.multiply(a, right, found)
        if each and (step + 1) % each == 0:
            scale = scales[step // each][0]
            scale = (((part + 1) & 2) == 0).where(scale, scale.from_lane(3))
            totals = [fused(x, scale, total) for x, total in zip(found, totals, strict=True)]
            found = [real(0.0)] * 4
    totals = totals if each else found
    # A lane's columns of its half's rows, and its neighbour's of the other half.
    own = ((part & 1) == 0).where(totals[0] + totals[1], totals[2] + totals[3])
    return own + own.from_lane(1)


def _norm_parts(launch: Launch, norm: NormWeights, layer: Word, step: Word) -> list[Word]:
    """Four numbers of gamma (lanes of columns 0 to 3) or beta (4 to 7): of the column's half of the depth."""
    group, part = launch.lane // 4, launch.lane % 4
    half = (group // 2) & 1
    column = half * (launch.layout.width // 2) + step * 16 + part * 2

    def read(series: Series) -> list[Word]:
        memory = launch.floats(series, layer)
        pairs = [b.load(memory, [(column + more).index()], 2) for more in (0, 8)]
        return [Word(b.lane_of(pair, i)) for pair in pairs for i in (0, 1)]

    gamma = read(norm.gamma)
    if norm.beta is None:
        return [(group < 4).where(g, 0.0) for g in gamma]
    beta = read(norm.beta)
    return [(group < 4).where(g, a) for g, a in zip(gamma, beta, strict=True)]


def _split_parts(launch: Launch, values: list[Word]) -> list[list[Word]]:
    """The parts of four numbers, in two words: the first or the second by the column, then the third or none."""
    pairs = [c.split(*values[i : i + 2]) for i in (0, 2)]
    even = ((launch.lane // 4) & 1) == 0
    return [[even.where(p[0], p[1]) for p in pairs], [even.where(p[2], 0) for p in pairs]]
