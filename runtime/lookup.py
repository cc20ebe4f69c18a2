"""Drafts of a text's next tokens by looking up its newest ones: "Prompt Lookup Decoding", Saxena 2023.

Where the last few tokens have stood before, what followed them then is the draft; a model checks all of it in one run.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field

from lispgpt.runtime.plan.plan import Entry

LONGEST, SHORTEST = 4, 2
"""Tokens that have to have stood before: the longest such end of the text counts."""


@dataclass
class Lookup:
    """entry: what checks drafts.  most: tokens of a draft."""

    entry: Entry
    most: int
    _followed: dict[tuple[int, ...], int] = field(default_factory=dict)
    _known: int = 0

    def draft(self, tokens: Sequence[int], room: int) -> list[int]:
        """At most `room` tokens that may follow; none where the text's end has not stood in it before."""
        while self._known < len(tokens):  # an end is known once something has followed it
            self._known += 1
            for length in range(SHORTEST, min(LONGEST, self._known - 1) + 1):
                end = self._known - 1
                self._followed[tuple(tokens[end - length : end])] = end
        for length in range(min(LONGEST, len(tokens)), SHORTEST - 1, -1):
            start = self._followed.get(tuple(tokens[-length:]))
            if start is not None:
                return self._ahead(tokens, start, min(self.most, room))
        return []

    def _ahead(self, tokens: Sequence[int], start: int, count: int) -> list[int]:
        """What followed from a place on; a text that repeats itself up to its end is taken to go on so."""
        period = len(tokens) - start
        return [tokens[start + i % period] for i in range(max(0, count))]
