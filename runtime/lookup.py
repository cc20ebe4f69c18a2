"""Drafts of a text's next tokens by looking up its newest ones: "Prompt Lookup Decoding", Saxena 2023.

Where the last few tokens have stood before, what followed them then is the draft; a model checks all of it in one run.
As long as such runs take longer than the steps that they save, most tokens come without a draft.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from time import perf_counter

from lispgpt.runtime.plan.plan import Entry

LONGEST, SHORTEST = 4, 2
"""Tokens that have to have stood before: the longest such end of the text counts."""
TRIED = 4
"""Drafts before it is asked whether they pay."""
SHORTEST_REST, LONGEST_REST = 4, 64
"""Tokens without a draft after one that did not pay; each time twice as many."""
NEWEST = 0.25
"""Share of the newest time in what a run is taken to last."""


@dataclass
class Lookup:
    """entry: what checks drafts.  most: tokens of a draft."""

    entry: Entry
    most: int
    _followed: dict[tuple[int, ...], int] = field(default_factory=dict)
    _known: int = 0
    _checked: int = 0
    _right: float = 0.0
    _step: float | None = None
    _run: float | None = None
    _rest: int = 0
    _pause: int = SHORTEST_REST

    def timed(self, tokens: Iterator[int]) -> Iterator[int]:
        """Tokens that come without a draft; how long they take is heard on the way."""
        while True:
            started = perf_counter()
            token = next(tokens, None)
            if token is None:
                return
            self._step = _newest(self._step, perf_counter() - started)
            yield token

    def checked(self, right: int, seconds: float) -> None:
        """Hear how many tokens of a draft were right, and how long its run took."""
        self._checked += 1
        self._right += (right - self._right) * max(NEWEST, 1 / self._checked)
        if self._checked > 1:  # the first has more to do
            self._run = _newest(self._run, seconds)
        if self._checked < TRIED or self._step is None or self._run is None:
            return
        if (1 + self._right) * self._step < self._run:
            self._rest, self._pause = self._pause, min(2 * self._pause, LONGEST_REST)
        else:
            self._pause = SHORTEST_REST

    def draft(self, tokens: Sequence[int], room: int) -> list[int]:
        """At most `room` tokens that may follow; none where the text's end is new, or while drafts rest."""
        while self._known < len(tokens):  # an end is known once something has followed it
            self._known += 1
            for length in range(SHORTEST, min(LONGEST, self._known - 1) + 1):
                end = self._known - 1
                self._followed[tuple(tokens[end - length : end])] = end
        if self._rest:
            self._rest -= 1
            return []
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            start = self._followed.get(tuple(tokens[-length:]))
            if start is not None:
                return self._ahead(tokens, start, min(self.most, room))
        return []

    def _ahead(self, tokens: Sequence[int], start: int, count: int) -> list[int]:
        """What followed from a place on; a text that repeats itself up to its end is taken to go on so."""
        period = len(tokens) - start
        return [tokens[start + i % period] for i in range(max(0, count))]


def _newest(known: float | None, seconds: float) -> float:
    """What something takes, by what it took so far and the last time, which may have been held up."""
    return seconds if known is None else known + (min(seconds, 2 * known) - known) * NEWEST
