"""Products of packed weights in a sharded launch: sums of so many steps each, times the scales that these share."""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, fused, real, word
from lispgpt.passes.plan.packed_weights import LANE, STEP, PackedWeights
from lispgpt.passes.plan.sharded_launch import Launch

Fragments = list[list[Word]]
Scales = Sequence[list[Word]]
"""Of packed weights, for so many steps each: those of an instruction's four results."""


def with_scales(weights: Fragments, scales: Sequence[Word]) -> Fragments:
    """Both, for `load_where`."""
    words = [scale.bits() for scale in scales] + [word(0)] * (-len(scales) % 4)
    return [*weights, *(words[i : i + 4] for i in range(0, len(words), 4))]


def without_scales(found: Fragments, steps: int, count: int) -> tuple[Fragments, list[Word]]:
    return found[:steps], [w.bits() for four in found[steps:] for w in four][:count]


def packed_places(launch: Launch, start: Word, first: Word | int, count: int) -> list[Word]:
    return [start + launch.lane * LANE + (first + i) * STEP for i in range(count)]


def row_scales(
    launch: Launch, packed: PackedWeights, base: Word, first: Word | int, count: int, each_: int
) -> list[Word]:
    """For each so many of a slice's steps, of a lane's row along the half of the depth whose sums it adds up."""
    half = ((launch.lane % 4) < 2).where(word(0), launch.layout.width // 2)
    return [
        packed.scale(base, (half + (first + i) * 16) // packed.grain, launch.lane // 4) for i in range(0, count, each_)
    ]


def scaled_sums(weights: Fragments, right: Fragments, scales: Scales, totals: list[Word]) -> list[Word]:
    each_ = len(weights) // len(scales)
    for number, scale in enumerate(scales):
        chains = [[real(0.0)] * 4 for _ in range(min(2, each_))]
        for step in range(number * each_, (number + 1) * each_):
            chains[step % len(chains)] = c.multiply(weights[step], right[step], chains[step % len(chains)])
        found = chains[0] if each_ == 1 else [x + y for x, y in zip(*chains, strict=True)]
        totals = [fused(x, s, total) for x, s, total in zip(found, scale, totals, strict=True)]
    return totals
