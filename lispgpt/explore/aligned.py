"""Which lines of one text are those of another: anchors that stand once in both, then what lies between them.

Source of the idea: "patience diff", Bram Cohen.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import Counter
from collections.abc import Hashable, Iterator, Sequence
from difflib import SequenceMatcher

SMALL = 40_000
"""Pairs of lines that are compared one by one."""
WIDTHS = (1, 3, 9)
"""Lines of which an anchor is made, where fewer do not stand once."""

Match = tuple[int, int]


def aligned(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Match]:
    """Pairs of equal lines, both numbers rising."""
    found: list[Match] = []
    waiting = [(0, len(before), 0, len(after))]
    while waiting:
        a, a_end, b, b_end = waiting.pop()
        while a < a_end and b < b_end and before[a] == after[b]:
            found.append((a, b))
            a, b = a + 1, b + 1
        while a < a_end and b < b_end and before[a_end - 1] == after[b_end - 1]:
            a_end, b_end = a_end - 1, b_end - 1
            found.append((a_end, b_end))
        if a == a_end or b == b_end:
            continue
        anchors = _anchors(before[a:a_end], after[b:b_end])
        if anchors:
            starts = [(a, b), *((a + i + 1, b + j + 1) for i, j in anchors)]
            ends = [*((a + i, b + j) for i, j in anchors), (a_end, b_end)]
            found += ends[:-1]
            waiting += [(i, i_end, j, j_end) for (i, j), (i_end, j_end) in zip(starts, ends, strict=True)]
        elif (a_end - a) * (b_end - b) <= SMALL:
            found += ((a + i, b + j) for i, j in _compared(before[a:a_end], after[b:b_end]))
    return sorted(found)


def _anchors(before: Sequence[Hashable], after: Sequence[Hashable]) -> list[Match]:
    """The longest rising series of lines that stand once in both, each with the lines behind it if need be."""
    for width in WIDTHS:
        ours, theirs = _once(before, width), _once(after, width)
        pairs = sorted((place, theirs[key]) for key, place in ours.items() if key in theirs)
        if pairs:
            return _rising(pairs)
    return []


def _once(lines: Sequence[Hashable], width: int) -> dict[Hashable, int]:
    keys = list(lines) if width == 1 else [tuple(lines[i : i + width]) for i in range(len(lines) - width + 1)]
    counts = Counter(keys)
    return {key: place for place, key in enumerate(keys) if counts[key] == 1}


def _rising(pairs: Sequence[Match]) -> list[Match]:
    """The longest part of these pairs, whose first numbers rise, in which the second ones do, too."""
    tails: list[int] = []
    holders: list[int] = []
    before: list[int] = []
    for number, (_, second) in enumerate(pairs):
        place = bisect_left(tails, second)
        tails[place : place + 1] = [second]
        holders[place : place + 1] = [number]
        before.append(holders[place - 1] if place else -1)
    found, at = [], holders[-1] if holders else -1
    while at >= 0:
        found.append(pairs[at])
        at = before[at]
    return found[::-1]


def _compared(before: Sequence[Hashable], after: Sequence[Hashable]) -> Iterator[Match]:
    for block in SequenceMatcher(None, before, after, autojunk=False).get_matching_blocks():
        yield from ((block.a + i, block.b + i) for i in range(block.size))
