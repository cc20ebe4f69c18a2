"""Models to which a long text is another one: its rows, from the first on, differ from those of a short text.

A program says so by the config value `long-after`, the positions of a text that is not yet long, and the state
`long-text`, i32 [batch], in which the runtime writes LONG or SHORT where a sequence begins.  A text that grows beyond
these positions is taken in anew.  (0 is what the state holds where nobody wrote it.)
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session

AFTER, STATE = "long-after", "long-text"
LONG, SHORT = 1, -1


def tell_lengths(session: Session, entries: Iterable[Entry], lengths: Sequence[int]) -> None:
    """Write in the states of these entries how long the texts are that begin there; the last stands for those behind
    it."""
    after = session.config.get(AFTER)
    if type(after) is not int:
        return
    for name in session.held("state", entries):
        if name.partition("@")[0] == STATE:
            places = session.shape(name)[0]
            every = [*lengths, *[lengths[-1]] * places][:places]
            session.write(name, np.array([LONG if length > after else SHORT for length in every], np.int32))


class Reach:
    """Up to which position one sequence goes on as it began: the context, or the longest short text."""

    def __init__(self, session: Session, context: int) -> None:
        after = session.config.get(AFTER)
        self._context, self._after = context, after if type(after) is int else context
        self.limit = context

    def begins(self, length: int) -> None:
        """Be told of how many tokens the sequence is, where it begins."""
        self.limit = self._context if length > self._after else min(self._after, self._context)
