"""A batch whose places others fill, and whose steps stop as soon as there is something else to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lispgpt.runtime.batch import Batch
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text


class Places(Batch):
    """entry: decodes greedily.  drawn: draws tokens, where the device can.  wanted: whether there is something else to
    do.  apart: see `Batch`."""

    def __init__(
        self, session: Session, entry: Entry, drawn: Entry | None, wanted: Callable[[], bool], apart: float
    ) -> None:
        super().__init__(session, entry, True)
        self._greedy, self._drawn = entry, drawn
        self._wanted, self.apart = wanted, apart

    def _enough_places(self) -> bool:
        return self._wanted()

    def step(self) -> Iterator[tuple[Text, str]]:
        """A decode step of all texts, or several where nothing else is to be done; each piece, and whose it is.

        A text that the device can draw for is always drawn for there, whatever the others want: the host's draws have
        other last bits.
        """
        wanted = {text.generator.choice for text in self.places if text is not None}
        self.entry = self._drawn if self._drawn is not None and DRAWN in wanted else self._greedy
        self.chooses = wanted == {self.entry.name}
        return self._decode()
