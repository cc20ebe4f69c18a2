"""The way of a prompt into the states for one sequence, chunk by chunk.

Chunks begin at multiples of one size whatever is there already: what the states hold of a position depends on the
tokens up to it alone, and so do the tokens that follow.
"""

from __future__ import annotations

from lispgpt.runtime.decoding import chunk_sizes
from lispgpt.runtime.prefixes import Prefixes
from lispgpt.runtime.text import Text

STEPS_ROWS = 2
"""Positions that go with one step, in rows that take as long as reading the weights once: what a step costs the host
beside is shared by as many as the others can wait for."""


class Intake:
    """A prompt on its way into the states for one sequence.  clean: whether these then hold what chunks from nothing
    make: a near tie is decided on the same states.  cached: positions that were there already."""

    def __init__(self, text: Text, prefixes: Prefixes) -> None:
        self.text, self._prefixes = text, prefixes
        self.clean = True
        self._begin()
        self.cached = self._done

    def _begin(self) -> None:
        generator = self.text.generator
        generator.restart(len(self.text.prompt))
        self._done = self._prefixes.take_back(self.text.prompt, generator.adapter)
        generator.position = self._done

    def chunk(self) -> int | None:
        """Take in the next chunks, as many as are worth one step of others, and the last of them beside what is started
        next; the token that follows, after the last of all."""
        generator, prompt, page = self.text.generator, self.text.prompt, self._prefixes.page
        lost = generator.session.holder is not generator  # a near tie of another sequence was decided on the states
        if lost:
            self._begin()
        reach = self._done + STEPS_ROWS * generator.session.device.weight_rows
        while len(prompt) - self._done > page:
            generator.take_in(prompt[self._done : self._done + page], page, beside=not lost)
            self._done += page
            if not lost and self._done >= reach:
                return None
        rest, entry = prompt[self._done :], None
        sizes = tuple(size for size in generator.chunks if size <= page)
        start = 0
        for size in chunk_sizes(len(rest), sizes, generator.session.device.weight_rows, generator.repeatable):
            entry = generator.take_in(rest[start : start + size], size)
            start += size
        assert entry is not None
        ties = generator.near_ties
        decided = ties and ties.decided
        token = generator.following(entry)
        self.clean = ties is None or ties.decided == decided
        return token
