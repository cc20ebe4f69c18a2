"""Several texts at once: a decode step of a batch, in which a sequence that ends makes room for the next.

Prompts may have any lengths and texts end where they like: every sequence stands at its own position.  A prompt is
taken in by the entries for one sequence, whose state is then copied to its place in the batch.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence

import numpy as np

from lispgpt.runtime.batch_states import settle
from lispgpt.runtime.decoding import result_of, runs_on, step_inputs
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text


class Batch:
    """entry: decodes one position of each of several sequences.  chooses: whether it also chooses tokens as all texts
    want them, which the host does otherwise, by its logits."""

    def __init__(self, session: Session, entry: Entry, chooses: bool) -> None:
        self.session, self.entry, self.chooses = session, entry, chooses
        self.places: list[Text | None] = [None] * entry.sizes["batch"]

    def run(self, texts: Iterable[Text]) -> Iterator[tuple[Text, str]]:
        """Each piece of text as it comes, and whose it is; a text's last piece comes with its `ended`."""
        waiting = iter(texts)
        while True:
            for place, text in enumerate(self.places):
                if text is None:
                    yield from self._begin(place, waiting)
            if all(text is None for text in self.places):
                return
            for place, text in enumerate(self.places):
                if text is not None and text.generator.position >= text.generator.context:
                    yield text, text.take(text.generator.decode())  # which takes its newest part in again
                    self._settle(place, text)
            yield from self._decode()

    def _begin(self, place: int, waiting: Iterator[Text]) -> Iterator[tuple[Text, str]]:
        """Put the first of those waiting whose text is longer than a token into a free place."""
        for text in waiting:
            if text.ended:
                yield text, ""
                continue
            yield text, text.take(text.generator.prefill(text.prompt))
            self._settle(place, text)
            if self.places[place] is not None:
                return

    def _settle(self, place: int, text: Text) -> None:
        """Copy the state of a sequence that was just taken in to its place, unless its text has ended."""
        self.places[place] = None if text.ended else text
        if self.places[place] is not None:
            settle(self.session, text.generator.single, self.entry, place, text.generator.position)

    def _decode(self) -> Iterator[tuple[Text, str]]:
        """Steps until some text ends, or some context is full."""
        there = [(place, text) for place, text in enumerate(self.places) if text is not None]
        if not there:
            return
        for choices in self._steps([text for _, text in there]):
            for place, text in there:
                if not text.ended:  # steps that were launched before it ended go on
                    yield text, text.take(self._chosen(text.generator, choices[place : place + 1]))
        self.places = [None if text and text.ended else text for text in self.places]

    def _steps(self, texts: Sequence[Text]) -> Iterator[np.ndarray]:
        """Of each step, what the entry gives for all sequences: which tokens it chose, or logits to choose them by."""
        rows = [None if text is None else text.generator.row() for text in self.places]
        inputs = step_inputs(self.entry, rows)
        if not runs_on(self.entry):
            self.session.start(self.entry, inputs)
            yield self.session.result(self.entry, "next" if self.chooses else next(iter(self.entry.results)))
            return
        self.session.put(self.entry, inputs)
        ahead = READS_AHEAD if self.entry.repeatable else 1
        room = min(text.room for text in texts)

        def all_go_on() -> bool:
            return not any(text.ended for text in texts)

        yield from self.session.repeat(self.entry, result_of(self.entry), room, ahead, all_go_on)

    def _chosen(self, generator: Generator, given: np.ndarray) -> int:
        """A sequence's next token by its part of what a step gave."""
        if self.chooses:
            return generator.accept(given)
        generator.position += 1
        return generator.choose(given[0])
