"""Races that change nothing: a launch leaves the same bits whatever their loads find.

A load that was in time for a store or not, or saw half of it, may find anything; a select may drop it, zero times it is
NaN.  So the launch is run again from the same memory, in the same order of warps, with NaN and large numbers of either
sign in place of each such word.  Between two stores there is no such excuse.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from emulated_cuda.races import GARBAGE, STORE, Races
from emulated_cuda.threads import Threads

Kept = list[np.ndarray]
EVERYTHING = (slice(None),)


def run_watched(threads: Callable[[], Threads], memory: np.ndarray, written: Sequence[slice] = EVERYTHING) -> None:
    """Run what `threads` makes; AssertionError where races are found that may change what is in memory.

    written: the parts of memory that it may write.
    """
    before, first = _kept(memory, written), threads()
    first.run()
    races = first.races
    assert races is not None
    if not races.found:
        return
    after = _kept(memory, written)
    if not all(_changes_nothing(races, garbage, threads, memory, written, before, after) for garbage in GARBAGE):
        races.end()
    _give_back(memory, written, after)


def _kept(memory: np.ndarray, written: Sequence[slice]) -> Kept:
    return [memory[part].copy() for part in written]


def _give_back(memory: np.ndarray, written: Sequence[slice], kept: Kept) -> None:
    for part, bytes_ in zip(written, kept, strict=True):
        memory[part] = bytes_


def _changes_nothing(
    races: Races, garbage: int, threads: Callable[[], Threads], memory: np.ndarray, written: Sequence[slice],
    before: Kept, after: Kept,
) -> bool:  # fmt: skip
    unknown = frozenset[tuple[int, int, int, int]]().union(*races.loads.values())
    if STORE in unknown:
        return False
    _give_back(memory, written, before)
    again = threads()
    assert again.races is not None
    again.races.unknown, again.races.garbage = unknown, garbage
    try:
        again.run()
    except (AssertionError, IndexError):  # garbage is no address, and no count of what comes
        return False
    same = again.races.loads == races.loads and again.races.tried == unknown
    return same and all(map(np.array_equal, _kept(memory, written), after))
