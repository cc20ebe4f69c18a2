"""What the places of a batch hold of prompts, so that a prompt that begins alike is taken in from where it differs.

Only whole pages that were taken in as parts of a prompt count: a position that was decoded has other last bits.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.runtime.batch_states import keeps_positions, unsettle
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session


class Prefixes:
    """page: positions that are taken in at once, and so the least that prompts can have in common."""

    def __init__(self, session: Session, single: Entry, batch: Entry, page: int) -> None:
        self._session, self._single, self._batch, self.page = session, single, batch, page
        self._kept = keeps_positions(session, single) and keeps_positions(session, batch)
        self._held: list[tuple[int, ...]] = [()] * batch.sizes["batch"]
        self._adapters = [0] * len(self._held)
        self._used = [0] * len(self._held)
        self._clock = 0

    @property
    def lengths(self) -> list[int]:
        """How many positions each place holds for prompts to come."""
        return [len(held) for held in self._held]

    def take_back(self, prompt: Sequence[int], adapter: int = 0) -> int:
        """Copy what a place holds of a prompt to the states for one sequence; how many positions that is.  adapter: the
        sequence's, without which they would be others."""
        most = (len(prompt) - 1) // self.page * self.page  # the last token says what follows
        common = [min(self._common(place, prompt, adapter), most) for place in range(len(self._held))]
        place = max(range(len(common)), key=lambda each: common[each])
        if len(self._held) == 1:  # whose states are those that the rest of the prompt is written to
            self._held[place] = self._held[place][: common[place]]
        if common[place]:
            self._touch(place)
            unsettle(self._session, self._single, self._batch, place, common[place])
        return common[place]

    def place_for(self, prompt: Sequence[int], free: Sequence[int], adapter: int = 0) -> int:
        """The free place that loses least: one that holds only the start of the prompt, or the longest unused."""

        def lost(place: int) -> tuple[bool, int]:
            held = len(self._held[place])
            return held > 0 and self._common(place, prompt, adapter) < held, self._used[place]

        return min(free, key=lost)

    def holds(self, place: int, prompt: Sequence[int], adapter: int = 0) -> None:
        """Hear that a place holds a prompt from now on."""
        self._adapters[place] = adapter
        self._held[place] = tuple(prompt[: len(prompt) // self.page * self.page]) if self._kept else ()
        self._touch(place)

    def forget(self) -> None:
        self._held = [()] * len(self._held)

    def _touch(self, place: int) -> None:
        self._clock += 1
        self._used[place] = self._clock

    def _common(self, place: int, prompt: Sequence[int], adapter: int) -> int:
        """How many positions a place holds of a prompt, in whole pages."""
        held, page, count = self._held[place], self.page, 0
        if self._adapters[place] != adapter:
            return 0
        while count < len(held) and held[count : count + page] == tuple(prompt[count : count + page]):
            count += page
        return min(count, len(held))
