"""What a request says of logits beside its sampler: a grammar, and the most probable tokens that it wants to see."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Protocol

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.samplers.adjustment import Adjustment


class Grammar(Protocol):
    """What tokens may come next, and what has come."""

    def allowed(self) -> np.ndarray:
        """bool [vocab]; UserError where it cannot be followed any further."""

    def words(self) -> np.ndarray:
        """i32 [words]: the same, a bit for each token, the lowest of each word first."""

    def wrote(self, token: int) -> None: ...

    def done(self) -> bool:
        """Whether nothing more may come."""


class Steering:
    """Stands in a generator's `adjustment`: penalties first, then the grammar.

    top: how many of the most probable tokens to keep of each step, with their log-probabilities in the model's own
    logits; `tops` has them.  failed: why the grammar could not be followed: from there on any token comes.
    """

    def __init__(self, penalties: Adjustment | None, grammar: Grammar | None, top: int) -> None:
        self.penalties, self._grammar, self.top = penalties, grammar, top
        self.tops: list[list[tuple[int, float]]] = []
        self.failed: UserError | None = None
        self._written = 0

    def read(self, prompt: Iterable[int]) -> None:
        if self.penalties is not None:
            self.penalties.read(prompt)

    def wrote(self, token: int) -> None:
        self._written += 1
        if self.penalties is not None:
            self.penalties.wrote(token)
        if self._grammar is not None:
            self._grammar.wrote(token)

    def words(self) -> np.ndarray | None:
        """Which tokens may come, i32 [words], a bit for each; None where any may."""
        return None if self._grammar is None else self._asked(self._grammar.words)

    def _asked(self, grammar: Callable[[], np.ndarray]) -> np.ndarray | None:
        try:
            return None if self.failed else grammar()
        except UserError as error:
            self.failed = error
            return None

    def done(self) -> bool:
        """Whether the grammar lets nothing more come."""
        return self._grammar is not None and self._grammar.done()

    def told(self, tops: Sequence[tuple[int, float]]) -> None:
        """Hear of the most probable tokens where the next one is chosen."""
        if self.top:
            del self.tops[self._written :]
            self.tops.append([*tops[: self.top]])

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        if self.top:
            self.told(most_probable(logits, self.top))
        found = logits if self.penalties is None else self.penalties(logits)
        allowed = None if self._grammar is None else self._asked(self._grammar.allowed)
        return found if allowed is None else np.where(allowed[: len(found)], found, np.float32(-np.inf))


def most_probable(logits: np.ndarray, count: int) -> list[tuple[int, float]]:
    """The most probable tokens and the logarithms of their probabilities, the best first."""
    exact = logits.astype(np.float64)
    best = exact.max()
    rest = np.log(np.exp(exact - best).sum())
    chosen = np.argpartition(-exact, min(count, len(exact) - 1))[:count]
    return [(int(token), float(exact[token] - best - rest)) for token in sorted(chosen, key=lambda t: (-exact[t], t))]
