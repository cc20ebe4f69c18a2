"""Repeats that lie further apart than the 32 KiB that deflate looks back: kernels of several sizes have much in common.

Bytes are packed as a list of (how many are new, how many stood earlier, how much earlier), in numbers of `varints`, and
the new ones; `page/unpack.js` reads it.

Source of the idea: "rzip", Andrew Tridgell.
"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from lispgpt.explore.numbers import varints

WINDOW = 64
"""Bytes that are compared; no shorter repeat is taken."""
FACTOR = 0x9E3779B97F4A7C15
"""Of the windows' sums: odd, and any other would do."""


def without_repeats(data: bytes) -> tuple[bytes, bytes]:
    """(the list, the bytes that are new)"""
    numbers: list[int] = []
    new, at = bytearray(), 0
    for start, earlier in _alike(data):
        if start < at or data[start : start + WINDOW] != data[earlier : earlier + WINDOW]:
            continue
        back = _same_before(data, start, earlier, at)
        start, earlier = start - back, earlier - back
        length = min(_same_from(data, start, earlier, WINDOW + back), start - earlier)
        numbers += (start - at, length, start - earlier)
        new += data[at:start]
        at = start + length
    return varints([*numbers, len(data) - at, 0, 0]), bytes(new + data[at:])


def _alike(data: bytes) -> Iterator[tuple[int, int]]:
    """Windows whose sums are those of an earlier one, which begins at a multiple of their size."""
    count = len(data) - WINDOW + 1
    if count < 1:
        return
    letters, sums = np.frombuffer(data, np.uint8), np.zeros(count, np.uint64)
    for i in range(WINDOW):
        sums = sums * np.uint64(FACTOR) + letters[i : i + count]
    known, firsts = np.unique(sums[::WINDOW], return_index=True)
    places = np.minimum(np.searchsorted(known, sums), known.size - 1)
    earlier = firsts[places] * WINDOW
    found = np.flatnonzero((known[places] == sums) & (earlier + WINDOW <= np.arange(count)))
    yield from zip(found.tolist(), earlier[found].tolist(), strict=True)


def _same_before(data: bytes, start: int, earlier: int, least: int) -> int:
    """How many bytes ahead of two places are the same, down to one of them."""
    count = 0
    while start - count > least and earlier > count and data[start - count - 1] == data[earlier - count - 1]:
        count += 1
    return count


def _same_from(data: bytes, start: int, earlier: int, known: int) -> int:
    """How many bytes from two places on are the same, of which so many are."""
    step = WINDOW
    while step:
        ours = data[start + known : start + known + step]
        if len(ours) == step and ours == data[earlier + known : earlier + known + step]:
            known, step = known + step, 2 * step
        else:
            step //= 2
    return known
