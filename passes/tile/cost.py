"""How long a product by tiles should take, of what its blocks bring and multiply, at the chip's rates.

A model, not a measurement: what counts is which of several programs is ahead.  Each block brings its boxes of both
operands from the cache that all cores share, which brings each element from memory once.
"""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.passes.targets import Gpu

CORE_SHARE, CACHE_SHARE = 1.9, 1.3
"""What a core can take from the cache at most, by its part of the memory's rate, and all cores together, by that
rate."""

REACHED = 0.87
"""Of the memory's rate, in long copies."""

START, STEP = 2.2e-6, 0.1e-6
"""Seconds of a block that nothing overlaps with: the first step's way from memory, sums of parts, stores; and what a
step takes beside its bytes."""


@dataclass(frozen=True)
class Work:
    """blocks: of the launch.  each: bytes that one of them brings.  unique: bytes that all bring, each once.
    multiply_adds: of one block, with those of its parts.  steps: of one block.  resident: blocks that share a core."""

    blocks: int
    each: float
    unique: float
    multiply_adds: float
    steps: int = 0
    resident: int = 1


def seconds(work: Work, target: Gpu) -> float | None:
    """None where the chip's rates are not known."""
    rates = target.rates
    if rates is None:
        return None
    memory = REACHED * rates.bandwidth
    busiest = -(-work.blocks // target.cores)
    together = min(busiest, work.resident)
    core = max(
        busiest * work.each / (CORE_SHARE * memory / target.cores),
        2 * busiest * work.multiply_adds / (REACHED * rates.matrix / target.cores),
    )
    start = (START + work.steps * STEP) * (1 + (busiest - 1) / together)
    return start + max(core, work.blocks * work.each / (CACHE_SHARE * memory), work.unique / memory)
