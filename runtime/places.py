"""A batch whose places others fill, and whose steps stop as soon as there is something else to do."""

from __future__ import annotations

from collections.abc import Callable, Iterator

from lispgpt.runtime.batch import Batch
from lispgpt.runtime.decoding import GREEDY
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text


class Places(Batch):
    """wanted: whether there is something else to do.  apart: see `Batch`."""

    def __init__(self, session: Session, entry: Entry, wanted: Callable[[], bool], apart: float) -> None:
        super().__init__(session, entry, True)
        self._wanted, self.apart = wanted, apart

    def _enough_places(self) -> bool:
        return self._wanted()

    def step(self) -> Iterator[tuple[Text, str]]:
        """A decode step of all texts, or several where nothing else is to be done; each piece, and whose it is."""
        texts = [text for text in self.places if text is not None]
        plain = [text.generator.choice == GREEDY and not text.generator.logprobs for text in texts]
        self.chooses = all(plain)
        return self._decode()
