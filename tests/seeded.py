"""Random numbers for tests: from a fresh seed each run, which a failing test prints; `pytest --seed N` repeats them.

Each test and each fixture of a wider scope has numbers of its own, whichever others run.
"""

from __future__ import annotations

import secrets
import sys
from collections.abc import Sequence
from typing import TypeVar
from zlib import crc32

import numpy as np

Case = TypeVar("Case")


class _Current:
    """seed: of the whole run.  generator: of the test or fixture under way; None outside of both."""

    seed = secrets.randbelow(1 << 31)
    generator: np.random.Generator | None = None


def rng() -> np.random.Generator:
    """The generator of what is running; in a script of its own, one whose seed it prints."""
    if _Current.generator is None:
        print(f"random numbers of seed {_Current.seed}", file=sys.stderr)
        _Current.generator = np.random.default_rng(_Current.seed)
    return _Current.generator


def fresh_seed() -> int:
    """A seed for what takes one."""
    return int(rng().integers(1 << 31))


def named_rng() -> tuple[np.random.Generator, str]:
    """A generator of its own, and words that say how to repeat it."""
    seed = fresh_seed()
    return np.random.default_rng(seed), f"seed {seed}"


def left_out(name: str, cases: Sequence[Case], count: int) -> list[Case]:
    """The cases that are not among the `count` that the run's seed draws for this name."""
    order = np.random.default_rng([_Current.seed, crc32(name.encode())]).permutation(len(cases))
    return [cases[number] for number in order[count:]]


def run_seed(given: int | None = None) -> int:
    """The run's seed, set to one where it is given."""
    if given is not None:
        _Current.seed = given
    return _Current.seed


def begin(name: str) -> np.random.Generator | None:
    """Start the numbers of a test or fixture; gives the generator that was current, for `resume`."""
    before = _Current.generator
    _Current.generator = np.random.default_rng([_Current.seed, crc32(name.encode())])
    return before


def resume(generator: np.random.Generator | None) -> None:
    _Current.generator = generator
