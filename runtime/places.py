"""A batch whose places others fill, and whose steps stop as soon as there is something else to do."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from math import ceil

from lispgpt.runtime.batch import Batch
from lispgpt.runtime.batch_states import unsettle
from lispgpt.runtime.decoding import GREEDY
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text

SECONDS_APART, SECONDS_A_PIECE = 0.005, 0.00025
"""Tokens that come within the first are one piece of their text; within the second for each text that runs, where that
is longer: many pieces take longer to make and to send than tokens do."""
SECONDS_OF_A_PIECE = 0.0000625
"""About what making a piece of a text takes, while which the device is to have steps to do."""
KNOWN_BY = 4
"""Steps in a row by which it is known what one takes."""


class Places(Batch):
    """entry: decodes greedily.  other: gives tokens that are drawn, and those of all wishes, where the device can.
    wanted: whether there is something else to do.  intake: see `Batch`."""

    def __init__(
        self,
        session: Session,
        entry: Entry,
        other: Entry | None,
        wanted: Callable[[], bool],
        intake: Entry | None,
    ) -> None:
        super().__init__(session, entry, True, intake)
        self._greedy, self.other = entry, other
        self._wanted, self._began = wanted, 0.0
        self._seconds: float | None = None

    def comes(self, prompt: Sequence[int], waiting: int, begun: int) -> bool:
        """Whether a prompt is to be taken in now, the first of so many that wait, with so many others.

        While texts run a short one waits a little for others to come with: to begin costs the texts about a step.
        """
        short = self.takes_in(prompt)
        if begun:
            return short and begun < self.together
        free = sum(text is None or text.ended is not None for text in self.places)
        alone = not short or free == len(self.places) or waiting >= min(self.together, free)
        return free > 0 and (alone or time.monotonic() - self._began >= SECONDS_APART)

    def begin_taking_in(self, texts: Sequence[Text]) -> None:
        self._began = time.monotonic()
        super().begin_taking_in(texts)

    def _enough_places(self) -> bool:
        return self._wanted()

    def step(self) -> Iterator[tuple[Text, str]]:
        """A decode step of all texts, or several where nothing else is to be done; each piece, and whose it is.

        A text that the device can draw for is always drawn for there, and by one entry, whatever the others want:
        other draws have other last bits.
        """
        texts = [text for text in self.places if text is not None]
        wanted = {text.generator.choice for text in texts}
        self.entry = self.other if self.other is not None and wanted - {GREEDY, ""} else self._greedy
        self.chooses = wanted <= {*self.given}
        self.apart = max(SECONDS_APART, SECONDS_A_PIECE * len(texts))
        started, before = time.monotonic(), self.steps
        yield from self._decode()
        if (steps := self.steps - before) >= KNOWN_BY:
            self._seconds = (time.monotonic() - started) / steps

    def _steps_ahead(self) -> int:
        """As many as take as long as making pieces of all texts does: who comes next waits for all of them."""
        if self._seconds is None:
            return super()._steps_ahead()
        texts = sum(text is not None for text in self.places)
        return min(max(1, ceil(SECONDS_OF_A_PIECE * texts / self._seconds)), READS_AHEAD)

    def drafted(self, place: int, stop: Callable[[], bool]) -> Iterator[Iterator[str]]:
        """Runs that check drafts of the text at a place, by itself and on the states for one sequence; of each its
        pieces, which have to be read.  stop: asked before each.

        Only of greedy texts whose near ties are decided: of those every way of running gives the same tokens.
        """
        text, session = self.places[place], self.session
        assert text is not None
        generator, ties = text.generator, text.generator.near_ties
        if generator.drafts is None or ties is None or not ties.watches or generator.position + 1 >= generator.limit:
            return
        unsettle(session, generator.single, self.entry, place, generator.position)
        session.holder = generator
        while text.ended is None and generator.limit - generator.position >= 2 and not stop():
            yield self._checked(text)
            self.steps += 1
        self.put(place, text)

    @staticmethod
    def _checked(text: Text) -> Iterator[str]:
        generator = text.generator
        for token in generator.checked(min(generator.limit - generator.position, text.room)):
            yield text.take(token)
            if text.ended is not None:
                return
