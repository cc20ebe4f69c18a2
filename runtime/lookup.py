"""Drafts of a text's next tokens by looking up its newest ones: "Prompt Lookup Decoding", Saxena 2023.

Where the last few tokens have stood before, what followed them then is the draft; a model checks all of it in one run.
On devices whose steps follow each other without the host such a run costs as much as some steps, so that drafts are
checked only while enough of their tokens are right.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lispgpt.runtime.plan.plan import Entry

LONGEST, SHORTEST = 4, 2
"""Tokens that have to have stood before: the longest such end of the text counts."""
CHECK_STEPS = 2.5
"""Steps in whose time a GPU checks a draft: that is a run of several rows, which the host begins and waits for."""
STEPS_BEFORE_DRAFTS = 4
"""Steps that are launched ahead where a draft may come next."""


@dataclass
class Lookup:
    """entry: what checks drafts.  most: tokens of a draft.  cost: of a checking run, in steps.

    expected: tokens that a run gives, by what the last ones gave, or would have given.  checked, accepted: tokens of
    drafts that were, so far.
    """

    entry: Entry
    most: int
    cost: float = 1.0
    expected: float = field(init=False)
    checked: int = 0
    accepted: int = 0
    _followed: dict[tuple[int, ...], int] = field(default_factory=dict)
    _known: int = 0
    _watched: list[int] = field(default_factory=list)
    _right: int = 0

    def __post_init__(self) -> None:
        self.expected = 1.0 + self.most

    @property
    def pays(self) -> bool:
        """Whether a run that checks a draft gives more than steps in its time would."""
        return self.expected >= self.cost

    @property
    def share(self) -> float:
        """How much of what was checked was right; 0 where nothing was."""
        return self.accepted / max(1, self.checked)

    def learn(self, right: int, checked: int = 0) -> None:
        """Hear how many tokens of a draft were right; checked: of how many by a run."""
        self.expected += (1 + right - self.expected) / 2
        self.checked, self.accepted = self.checked + checked, self.accepted + min(right, checked)
        self._watched = []

    def came(self, tokens: Sequence[int], token: int) -> None:
        """Hear what a step gave after a text, where no draft was checked."""
        if not self._watched:
            self._watched, self._right = self.draft(tokens, self.most), 0
        if self._watched:
            right = token == self._watched[self._right]
            self._right += right
            if not right or self._right == len(self._watched):
                self.learn(self._right)

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


@dataclass
class ModelDrafts(Lookup):
    """Drafts that another model makes.  ask: gives at most so many tokens that may follow a text."""

    ask: Callable[[Sequence[int], int], list[int]] = field(kw_only=True)

    def came(self, tokens: Sequence[int], token: int) -> None:
        """Nothing is learned where the other model was not asked."""

    def draft(self, tokens: Sequence[int], room: int) -> list[int]:
        """At most `room` tokens that may follow."""
        return self.ask(tokens, min(self.most, room))
