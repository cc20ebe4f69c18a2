"""Tokens that a batch's steps chose, kept until it is worth while to make texts of them.

What a token costs on the host is most of a fast step's time where it is done step by step and text by text.  Here a
step costs a look at its rows, and a text has its tokens of several steps together.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence

import numpy as np

from lispgpt.runtime.near_ties import unclear
from lispgpt.runtime.text import Text


class Rows:
    """there: texts whose tokens steps choose, with each one's row.  apart: seconds between two pieces of a text."""

    def __init__(self, there: Sequence[tuple[int, Text]], apart: float) -> None:
        self._texts = [each for each in there if not each[1].ended and not each[1].generator.parted]
        self._places = np.array([place for place, _ in self._texts], np.intp)
        self._vocab = min((text.generator.vocab for _, text in self._texts), default=0)
        ends = frozenset[int]().union(*(text.ends for _, text in self._texts))
        self._ends = np.array(sorted(ends), np.int32)[:, None]
        watching = (text.generator.near_ties for _, text in self._texts)
        self._clear = max((ties.clear for ties in watching if ties is not None and ties.watches), default=0)
        self._apart = apart
        self._begin()

    def _begin(self) -> None:
        self._kept: list[np.ndarray] = []
        self._ended, self._since = False, time.monotonic()
        self._room = min((text.room for _, text in self._texts), default=1)
        self._first = not all(text.tokens for _, text in self._texts)

    def add(self, choices: np.ndarray) -> bool:
        """Keep what a step gave, i32 [batch] or [batch 3]; False where each row of it has to be looked at."""
        rows = choices[self._places]
        tokens = rows if rows.ndim == 1 else rows[:, 0]
        if unclear(rows, self._clear) or not len(tokens) or tokens.min() < 0 or tokens.max() >= self._vocab:
            return False
        self._kept.append(tokens)
        self._ended = bool((tokens == self._ends).any())
        return True

    def due(self) -> bool:
        """Whether some text may have ended with the last step or has its first token, or the time for a piece has
        come."""
        late = time.monotonic() - self._since >= self._apart
        return self._ended or self._first or late or len(self._kept) >= self._room

    def pieces(self) -> Iterator[tuple[Text, str]]:
        """What each text says with the tokens kept so far."""
        if not self._kept:
            return
        columns = np.stack(self._kept, axis=1).tolist()
        for (_, text), tokens in zip(self._texts, columns, strict=True):
            yield text, text.take_all(tokens)
        if any(text.ended for _, text in self._texts):
            left = [number for number, (_, text) in enumerate(self._texts) if not text.ended]
            self._texts, self._places = [self._texts[number] for number in left], self._places[left]
        self._begin()
