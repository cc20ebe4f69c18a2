"""A text that a request wants, and the way of its prompt into the states."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field

from lispgpt.runtime.decoding import chunk_sizes
from lispgpt.runtime.options import Options
from lispgpt.runtime.prefixes import Prefixes
from lispgpt.runtime.samplers.steering import Grammar, Steering
from lispgpt.runtime.text import Text


@dataclass(eq=False)
class Job:
    """One text that a request wants.

    prompt: tokens, fewer than the context.  number: among those of the request, whose seeds are one apart.  hear: is
    told of each step (piece, why it ended or None, what failed or None) on the scheduler's thread.  priority: the
    lowest first.  top: how many of the most probable tokens to tell of each.
    """

    prompt: list[int]
    options: Options
    hear: Callable[[str, str | None, Exception | None], None]
    number: int = 0
    priority: int = 0
    grammar: Callable[[], Grammar] | None = None
    top: int = 0
    cancelled: bool = False
    text: Text | None = field(default=None, repr=False)
    steering: Steering | None = None
    cached: int = 0


class Intake:
    """A prompt on its way into the states for one sequence.  clean: whether these then hold what chunks from nothing
    make: a near tie is decided on the same states."""

    def __init__(self, job: Job, text: Text, prefixes: Prefixes) -> None:
        self.job, self.text, self._prefixes = job, text, prefixes
        self.clean = True
        self._begin()
        job.cached = self._done

    def _begin(self) -> None:
        generator = self.text.generator
        generator.restart(len(self.text.prompt))
        self._done = self._prefixes.take_back(self.text.prompt)
        generator.position = self._done

    def chunk(self) -> int | None:
        """Take in the next chunk; the token that follows, after the last."""
        generator, prompt, page = self.text.generator, self.text.prompt, self._prefixes.page
        lost = generator.session.holder is not generator  # a near tie of another sequence was decided on the states
        if lost:
            self._begin()
        while len(prompt) - self._done > page:
            generator.take_in(prompt[self._done : self._done + page], page)
            self._done += page
            if not lost:
                return None
        rest, entry = prompt[self._done :], None
        sizes = tuple(size for size in generator.chunks if size <= page)
        start = 0
        for size in chunk_sizes(len(rest), sizes, generator.session.device.weight_rows, generator.repeatable):
            entry = generator.take_in(rest[start : start + size], size)
            start += size
        assert entry is not None and generator.near_ties is not None
        decided = generator.near_ties.decided
        token = generator.following(entry)
        self.clean = generator.near_ties.decided == decided
        return token
