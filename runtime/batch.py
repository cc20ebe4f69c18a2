"""Several texts at once: a decode step of a batch, in which a sequence that ends makes room for the next.

Prompts may have any lengths and texts end where they like: every sequence stands at its own position.  A prompt is
taken in by the entries for one sequence, or with others by one for some, and the state is then copied to its place in
the batch.  Where prompts are taken in together, places stay free until there are enough of them.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Any

import numpy as np

from lispgpt.runtime.batch_states import settle
from lispgpt.runtime.decoding import (
    ADJUSTED,
    BY_PLACE,
    DRAWN,
    GREEDY,
    MASK,
    STEERED,
    TOPS,
    padded,
    result_of,
    runs_on,
    step_inputs,
)
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.long_texts import tell_lengths
from lispgpt.runtime.near_ties import near_rows
from lispgpt.runtime.own_adapters import tell_adapters
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.rows import Rows
from lispgpt.runtime.session import Session
from lispgpt.runtime.text import Text

STEPS_AHEAD, TOGETHER_AHEAD = 4, 8
"""Steps that are launched ahead of what is read, and those of an entry that does several by one launch: those of a text
that has ended are for nothing."""


class Batch:
    """entry: decodes one position of each of several sequences.  chooses: whether it also chooses tokens as all texts
    want them, which the host does otherwise, by its logits.  intake: takes in short prompts of some of them at once.
    idle: from which position on each place has nothing to keep, where no text is.  apart: seconds between two pieces of
    a text, whose tokens are one piece where steps take less.  steps: how many there were so far.  together: how many
    prompts are taken in at once."""

    def __init__(self, session: Session, entry: Entry, chooses: bool, intake: Entry | None = None) -> None:
        self.session, self.entry, self.chooses = session, entry, chooses
        self.places: list[Text | None] = [None] * entry.sizes["batch"]
        self.idle = [0] * len(self.places)
        self.apart, self.steps = 0.0, 0
        self._waiting: deque[Text] = deque()
        self._counted: dict[int, tuple[Text, int, int]] = {}
        self._intake = intake
        self.together, self._longest = (1, 0) if intake is None else (intake.sizes["batch"], intake.sizes["positions"])

    def run(self, texts: Iterable[Text]) -> Iterator[tuple[Text, str]]:
        """Each piece of text as it comes, and whose it is; a text's last piece comes with its `ended`."""
        self._waiting.extend(texts)
        while self._waiting or any(self.places):
            if self._enough_places():
                yield from self._begin()
            for place, text in enumerate(self.places):
                if text is not None and text.generator.position >= text.generator.limit:
                    yield text, text.take(text.generator.decode())  # which takes it, or its newest part, in again
                    self.put(place, text)
            yield from self._decode()

    def _enough_places(self) -> bool:
        """Whether as many places are free as there are prompts to be taken in at once."""
        free = sum(text is None or text.ended is not None for text in self.places)
        return 0 < min(self.together, len(self._waiting)) <= free

    def _begin(self) -> Iterator[tuple[Text, str]]:
        """Put those who wait into the free places."""
        while self._waiting and (free := [place for place, text in enumerate(self.places) if text is None]):
            text = self._waiting.popleft()
            if text.ended:
                yield text, ""
            elif group := self._group(text, len(free)):
                for each in (text, *group):
                    each.generator.begin(each.prompt)
                self.take_in(free, [text, *group])
            else:
                yield text, text.take(text.generator.prefill(text.prompt))
                self.put(free[0], text)

    def _group(self, text: Text, places: int) -> list[Text]:
        """Those behind a text whose prompts are taken in with its own."""
        found: list[Text] = []
        if self._is_short(text):
            while len(found) + 1 < min(self.together, places) and self._waiting and self._is_short(self._waiting[0]):
                found.append(self._waiting.popleft())
        return found

    def _is_short(self, text: Text) -> bool:
        return not text.ended and not text.generator.tokens and self.takes_in(text.prompt)

    def takes_in(self, prompt: Sequence[int]) -> bool:
        """Whether a prompt is so short that it is taken in with others."""
        return 0 < len(prompt) <= self._longest

    def take_in(self, free: Sequence[int], texts: Sequence[Text]) -> None:
        """Give places to texts that have begun, whose prompts are taken in by one run; their first tokens come with the
        next step."""
        self.begin_taking_in(texts)
        self.have_taken_in(free, texts)

    def begin_taking_in(self, texts: Sequence[Text]) -> None:
        """Take in prompts of texts that have begun by one run, beside what is started next."""
        assert self._intake is not None
        spare = [texts[0]] * (self.together - len(texts))
        tell_lengths(self.session, [self._intake], [len(text.prompt) for text in [*texts, *spare]])
        tell_adapters(self.session, [self._intake], [text.generator.adapter for text in [*texts, *spare]])
        rows = np.concatenate([padded(text.prompt, 0, self._longest) for text in [*texts, *spare]], axis=1)
        self.session.start_beside(self._intake, dict(zip(self._intake.inputs, rows, strict=True)))

    def have_taken_in(self, free: Sequence[int], texts: Sequence[Text]) -> None:
        """Give places to texts whose prompts that run has taken in."""
        for number, (place, text) in enumerate(zip(free, texts, strict=False)):
            assert self._intake is not None
            self.places[place] = text
            settle(self.session, self._intake, self.entry, place, len(text.prompt), number)

    def put(self, place: int, text: Text) -> None:
        """Copy the state of a sequence that was just taken in to its place, unless its text has ended."""
        self.places[place] = None if text.ended else text
        if self.places[place] is not None:
            settle(self.session, text.generator.single, self.entry, place, text.generator.position)

    def _decode(self) -> Iterator[tuple[Text, str]]:
        """Steps until all texts have ended, there is room for those who wait, or some context is full."""
        there = [(place, text) for place, text in enumerate(self.places) if text is not None]
        if not there:
            return
        for place, text in there:
            if text.generator.parted:  # from steps that are over
                text.generator.parted = False
                self._counted.pop(place, None)
        plain = [each for each in there if self.chooses and each[1].generator.plain]
        rest = [each for each in there if not (self.chooses and each[1].generator.plain)]
        rows = Rows(plain, self.apart)
        for choices in self._steps([text for _, text in there]):
            self.steps += 1
            clear = rows.add(choices)
            if not clear or rows.due():
                yield from rows.pieces()
            if rest or not clear:
                chosen = self._by_place(choices)
                for place, text in self._clear_first(rest if clear else there, choices):
                    if not text.ended and not text.generator.parted:  # the others' rows go on until all stop
                        yield text, text.take(self._chosen(text.generator, chosen[place]))
            if not clear:
                rows = Rows(plain, self.apart)
        yield from rows.pieces()
        self.places = [None if text and text.ended else text for text in self.places]

    @staticmethod
    def _clear_first(there: list[tuple[int, Text]], choices: np.ndarray) -> list[tuple[int, Text]]:
        """Texts in an order in which those come last whose tokens have to be waited for."""
        near = near_rows(choices) if choices.dtype == np.int32 and choices.ndim == 2 else ()
        return sorted(there, key=lambda each: each[0] in near) if len(near) else there

    def _steps(self, texts: Sequence[Text]) -> Iterator[np.ndarray]:
        """Of each step, what the entry gives for all sequences: which tokens it chose, or logits to choose them by."""
        if self.entry.name == STEERED:
            self._tell_counts()
        rows = [None if text is None else text.generator.row(self.entry) for text in self.places]
        inputs = step_inputs(self.entry, rows, self.idle)
        others_wait = self._enough_places()  # and have the device behind one step
        if others_wait or not (self.chooses and runs_on(self.entry)):
            self.session.start(self.entry, inputs)
            named = result_of(self.entry) if self.chooses else next(iter(self.entry.results))
            yield self.session.result(self.entry, named)
            return
        self.session.put(self.entry, inputs)
        ahead = self._steps_ahead() if self.entry.repeatable else 1
        most = min(text.generator.limit - text.generator.position for text in texts)
        most = min([most, *(texts[0].generator.context - idle for idle in self.idle)])
        count = min(most, self._until_places([text.room for text in texts]))

        def all_go_on() -> bool:
            parted = any(text.generator.parted for text in texts)
            return not parted and not self._enough_places() and not all(text.ended for text in texts)

        if any(text.generator.waits for text in texts):
            yield from self._steered(inputs[MASK], count, all_go_on)
        else:
            yield from self.session.repeat(self.entry, result_of(self.entry), count, ahead, all_go_on)

    def _steps_ahead(self) -> int:
        """How many steps are launched ahead of what is read, each by a launch of its own or with some others."""
        return STEPS_AHEAD if self.entry.repeats is None else TOGETHER_AHEAD

    def _steered(self, masks: np.ndarray, count: int, go_on: Callable[[], bool]) -> Iterator[np.ndarray]:
        """What each of `count` steps gives, of which some texts wait for what the one before it gave them: these have
        new masks then, and all else goes on by itself."""
        steered = [(n, text) for n, text in enumerate(self.places) if text and text.generator.waits]
        for number in range(count):
            for place, text in steered if number else ():
                if not text.ended:
                    masks[place] = text.generator.mask(masks.shape[1])
            self.session.start(self.entry, {MASK: masks})
            yield self.session.result(self.entry, result_of(self.entry))
            if not go_on():
                return

    def _tell_counts(self) -> None:
        """Tell the device of the tokens and biases of texts with penalties, where it does not know them from counting
        those that it chose itself."""
        for place, text in enumerate(self.places):
            if text is None or (own := text.generator.penalties) is None:
                continue
            now, told = (text, len(text.generator.tokens), self.steps), self._counted.get(place)
            known = told is not None and told[0] is text and now[1] - told[1] == now[2] - told[2]
            if not known:
                for name, values in zip(BY_PLACE, (own.bias, own.counts), strict=True):
                    self.session.put_part(self.entry, name, place, values)
            self._counted[place] = now

    def _until_places(self, rooms: Sequence[int]) -> int:
        """Steps after which enough places are free for those who wait, or all are; rooms: steps that texts may have."""
        missing = min(self.together, len(self._waiting)) - self.places.count(None)
        return sorted(rooms)[missing - 1 if self._waiting else -1]

    def _by_place(self, choices: np.ndarray) -> Sequence[Any] | np.ndarray:
        """What each sequence takes of a step: a list, what the device chose; or its logits, for the host to choose."""
        if not self.chooses and self.entry.name not in (DRAWN, STEERED):
            return choices
        given = choices if self.chooses else self.session.result(self.entry, result_of(self.entry))
        chosen: list[Any] = given.reshape(len(given), -1).tolist()
        for place, tops in self._tops().items():
            chosen[place] += tops
        if self.chooses:
            return chosen
        own = [text is not None and text.generator.choice in self.given for text in self.places]
        return [tokens if there else row for tokens, there, row in zip(chosen, own, choices, strict=True)]

    def _tops(self) -> dict[int, list[int]]:
        """What the last step says of the most probable tokens, by the places of texts that wish to know."""
        wish = [place for place, text in enumerate(self.places) if text and text.generator.tops]
        rows = self.session.result(self.entry, TOPS) if wish and TOPS in self.entry.results else None
        return {} if rows is None else {place: rows[place].tolist() for place in wish}

    @property
    def given(self) -> tuple[str, ...]:
        """The choices of texts whose tokens the entry gives; the others' the host takes from its logits."""
        return (GREEDY, DRAWN, ADJUSTED, STEERED) if self.entry.name == STEERED else (self.entry.name,)

    @staticmethod
    def _chosen(generator: Generator, given: Any) -> int:
        """A sequence's next token by its part of what a step gave."""
        if isinstance(given, list):
            return generator.accept(given)
        generator.position += 1
        return generator.choose(given)
