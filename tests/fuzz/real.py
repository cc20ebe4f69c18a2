"""Dimensions of known models, which random programs have now and then."""

from __future__ import annotations

from bisect import bisect_right

import numpy as np
from real_sizes.models import sizes

REAL = sorted({size[name] for size in sizes().values() for name in ("width", "hidden", "head_width")} - {0})
SELDOM = 0.1
"""How often a program, a matrix or a sum has one of those."""


def real_or(other: int, most: int, seed: list[int]) -> int:
    """One of REAL up to `most`, SELDOM as the seed says; else another number, which no other draw depends on."""
    rng, count = np.random.default_rng([*seed, 2026]), bisect_right(REAL, most)
    return REAL[int(rng.integers(count))] if count and rng.random() < SELDOM else other
