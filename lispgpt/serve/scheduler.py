"""The scheduler of a model's sequences: which run, step by step, on the thread that has the device alone.

Every sequence has a place in one batch, whose decode step runs for all places at once; where a sequence ends, the next
takes its place at the next step.  A prompt is taken in by a chunk a step, which goes on beside that step on devices
that can, so that no prompt holds up the others' tokens; short ones come together where that pays.  Chunks begin at
multiples of one size whatever is cached: what the states hold of a position depends on the tokens up to it alone, and
so do the tokens that follow.
"""

from __future__ import annotations

import itertools
import threading
import time
from bisect import insort
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field

from lispgpt.api import Model, UserError
from lispgpt.runtime.decoding import DRAWN, GREEDY, STEERED
from lispgpt.runtime.intake import Intake
from lispgpt.runtime.options import Options
from lispgpt.runtime.places import Places
from lispgpt.runtime.prefixes import Prefixes
from lispgpt.runtime.samplers.steering import Grammar, Steering
from lispgpt.runtime.text import Text


@dataclass(eq=False)
class Job:
    """One text that a request wants.

    prompt: tokens, fewer than the context.  number: among those of the request, whose seeds are one apart.  hear: is
    told of each step (piece, why it ended or None, what failed or None) on the scheduler's thread.  priority: the
    lowest first.  top: how many of the most probable tokens to tell of each.  adapter: of the model's, 0 for none.
    told: tokens that it heard of.
    """

    prompt: list[int]
    options: Options
    hear: Callable[[str, str | None, Exception | None], None] = lambda *_: None
    number: int = 0
    priority: int = 0
    grammar: Callable[[], Grammar] | None = None
    top: int = 0
    adapter: int = 0
    cancelled: bool = False
    text: Text | None = field(default=None, repr=False)
    steering: Steering | None = None
    intake: Intake | None = None
    cached: int = 0
    told: int = 0


class Busy(Exception):
    """The queue is full.  seconds: when to come again."""

    def __init__(self, seconds: int) -> None:
        super().__init__(f"too many requests wait here: come again in {seconds} s")
        self.seconds = seconds


@dataclass
class Counts:
    """What the scheduler has done so far, for those who watch it."""

    prompt_tokens: int = 0
    cached_tokens: int = 0
    tokens: int = 0
    steps: int = 0
    step_seconds: float = 0.0
    ended: dict[str, int] = field(default_factory=dict)


SECONDS_TOGETHER = 0.1
"""For so long steps are launched one behind the other, and then others may have the device."""


class Scheduler:
    """places: sequences that run at once.  most_waiting: of those that wait, before others are told to come again.

    decides: whether near ties are decided: only where a draft model is there do texts run in more than one way.
    """

    def __init__(self, model: Model, places: int, most_waiting: int) -> None:
        self.model, self.counts, self._most = model, Counts(), most_waiting
        self.decides = model.draft is not None
        self._wake, self._ending = threading.Condition(), False
        self._waiting: list[tuple[int, int, Job]] = []
        self._numbers = itertools.count()
        self._running, self._begun = dict[int, Job](), dict[int, Job]()
        self._intake: Job | None = None
        entry = model.entry(GREEDY, "servers", batch=places, positions=1)
        others = (
            model.entry(n, "servers", batch=places, positions=1) for n in (STEERED, DRAWN) if model.chooses(n, places)
        )
        first = model.text([0], model.options(greedy=True, max_new_tokens=1)).generator
        self._batch = Places(model.session, entry, next(others, None), self._wanted, model.intake(places, first))
        self._until, self._gone = 0.0, False
        self.context = first.context
        self.page = max((size for size in first.chunks if size <= max(16, self.context // 8)), default=1)
        self.prefixes = Prefixes(model.session, first.single, entry, self.page)
        self._thread = threading.Thread(target=self._run, name="scheduler", daemon=True)
        self._thread.start()

    @property
    def waiting(self) -> int:
        return len(self._waiting)

    @property
    def running(self) -> int:
        return len(self._under_way)

    def submit(self, sequences: Sequence[Job]) -> None:
        """Have sequences run, all or none of them; Busy where too many wait."""
        with self._wake:
            if self._ending:
                raise Busy(1)
            if self._waiting and len(self._waiting) + len(sequences) > self._most:
                raise Busy(max(1, min(60, len(self._waiting) // max(1, len(self._batch.places)))))
            for sequence in sequences:
                insort(self._waiting, (sequence.priority, next(self._numbers), sequence))
            self._wake.notify()

    def cancel(self, sequence: Job) -> None:
        """Have a sequence run no further."""
        with self._wake:
            sequence.cancelled = self._gone = True
            self._wake.notify()

    def close(self) -> None:
        """End, once the step under way is done; what has not ended hears that it is cancelled."""
        with self._wake:
            self._ending = True
            self._wake.notify()
        self._thread.join()

    def _run(self) -> None:
        while not self._ending:
            with self._wake:
                self._wake.wait_for(self._something)
            try:
                self._have_begun()
                self._forget_cancelled()
                self._take_in()
                self._step()
            except Exception as error:  # of the device or a bug: those that run hear of it, and others may come
                self._fail(error)
        for sequence in [*(each[2] for each in self._waiting), *self._under_way]:
            sequence.hear("", "cancelled", None)

    @property
    def _under_way(self) -> list[Job]:
        return [*self._running.values(), *self._begun.values(), *([self._intake] if self._intake else [])]

    def _wanted(self) -> bool:
        """Whether something else is to be done than steps of the texts that run."""
        if self._ending or self._gone or self._intake or self._begun or time.monotonic() > self._until:
            return True
        return self._comes()

    def _something(self) -> bool:
        return bool(self._ending or self._waiting or self._under_way)

    def _forget_cancelled(self) -> None:
        self._gone = False
        for place, sequence in list(self._running.items()):
            if sequence.cancelled:
                self._leave(place, "cancelled")
        if self._intake is not None and self._intake.cancelled:
            self._intake = None
        with self._wake:
            self._waiting = [each for each in self._waiting if not each[2].cancelled]

    def _leave(self, place: int, why: str) -> None:
        self._running.pop(place)
        self._batch.places[place] = None
        self.counts.ended[why] = self.counts.ended.get(why, 0) + 1

    def _take_in(self) -> None:
        """The short prompts that come next, by one run, or a chunk of a longer one, if there is room for them.

        A short one by itself is taken in by that run, too: what states hold does not depend on others.
        """
        free = [place for place in range(len(self._batch.places)) if place not in self._running]
        while self._intake is None and free and (job := self._next(len(self._begun))):
            try:
                self._begin(job)
            except UserError as error:
                job.hear("", None, error)
                continue
            if job.intake is not None:
                self._intake = job
            else:
                place = self.prefixes.place_for((), free)
                self.prefixes.holds(place, ())
                free.remove(place)
                self._begun[place] = job
        if self._begun:
            with self.model.session.alone():
                self._batch.begin_taking_in([job.text for job in self._begun.values() if job.text])
        if (job := self._intake) is None or job.intake is None:
            return
        with self.model.session.alone():
            try:
                token = job.intake.chunk()
            except UserError as error:
                self._intake = None
                return job.hear("", None, error)
            if token is not None:
                self._intake = None
                self._first(job, job.intake, token, free)

    def _have_begun(self) -> None:
        """Give their places to the short prompts that were taken in beside the last step."""
        with self.model.session.alone():
            self._batch.have_taken_in([*self._begun], [job.text for job in self._begun.values() if job.text])
        self._running, self._begun = self._running | self._begun, {}

    def _next(self, begun: int) -> Job | None:
        """The one that begins now, with so many others."""
        with self._wake:
            return self._waiting.pop(0)[2] if self._comes(begun) else None

    def _comes(self, begun: int = 0) -> bool:
        return bool(self._waiting) and self._batch.comes(self._waiting[0][2].prompt, len(self._waiting), begun)

    def _begin(self, job: Job) -> None:
        drafts = job.grammar is None and not job.top and job.options.plain
        text = self.model.text(job.prompt, job.options, job.number, job.adapter, drafts, alone=False)
        if job.grammar is not None or job.top:
            job.steering = Steering(text.generator.penalties, job.grammar and job.grammar(), job.top)
            text.generator.adjustment = job.steering
        if not self.decides:
            text.generator.near_ties = None
        job.text = text
        with self.model.session.alone():
            text.generator.begin(text.prompt)
            if not self._batch.takes_in(text.prompt):
                job.intake = Intake(text, self.prefixes)
                job.cached = job.intake.cached
        self.counts.prompt_tokens += len(text.prompt)
        self.counts.cached_tokens += job.cached

    def _first(self, job: Job, intake: Intake, token: int, free: list[int]) -> None:
        """Go on with a prompt's first token, at a place in the batch."""
        text, place = intake.text, self.prefixes.place_for(intake.text.prompt, free, job.adapter)
        piece = self._said(job, text.take(token))
        self._running[place] = job
        self._batch.put(place, text)
        if text.ended is None:
            self.prefixes.holds(place, text.prompt if intake.clean else (), job.adapter)
        self._tell(place, piece)

    def _said(self, job: Job, piece: str) -> str:
        """A piece without what the token that ends texts is called, and with all that is left where a grammar ends."""
        text, tokenizer = job.text, self.model.tokenizer
        assert text is not None
        if text.ended is None and job.steering is not None and job.steering.done():
            return piece + text.end()
        if text.ended == "end" and tokenizer is not None:
            return piece.removesuffix(tokenizer.decode(text.tokens[-1:]))
        return piece

    def _tell(self, place: int, piece: str) -> None:
        sequence = self._running[place]
        assert sequence.text is not None
        failed = sequence.steering.failed if sequence.steering else None
        if failed:
            sequence.text.end()
        ended, count = sequence.text.ended, len(sequence.text.tokens)
        self.counts.tokens += count - sequence.told
        sequence.told = count
        if ended is not None:
            self._leave(place, "failed" if failed else ended)
        sequence.hear(piece, ended, failed)

    def _step(self) -> None:
        if not self._running:
            return
        started, before = time.monotonic(), self._batch.steps
        with self.model.session.alone():
            self._take_in_again()
            self._until = started + SECONDS_TOGETHER
            self._draft()
            self._batch.idle = self.prefixes.lengths
            places = {id(sequence.text): place for place, sequence in self._running.items()}
            for text, piece in self._batch.step() if self._running else ():
                place = places[id(text)]
                self._tell(place, self._said(self._running[place], piece))
        self.counts.steps += self._batch.steps - before
        self.counts.step_seconds += time.monotonic() - started

    def _draft(self) -> None:
        """Have a text that runs by itself go on by drafts, until another comes."""
        if len(self._running) != 1 or self._wanted():
            return
        [(place, job)] = self._running.items()
        ties = job.text and job.text.generator.near_ties
        decided, self._until = ties and ties.decided, time.monotonic() + SECONDS_TOGETHER
        for pieces in self._batch.drafted(place, lambda: self._wanted() or job.cancelled):
            for piece in pieces:
                self._tell(place, self._said(job, piece))
        if ties and ties.decided != decided:
            self.prefixes.holds(place, ())

    def _take_in_again(self) -> None:
        """Have texts that reached where they cannot go on as they are taken in anew."""
        for place, job in list(self._running.items()):
            text = job.text
            assert text is not None
            if text.generator.position >= text.generator.limit:
                piece = self._said(job, text.take(text.generator.decode()))
                self.prefixes.holds(place, ())
                self._batch.put(place, text)
                self._tell(place, piece)

    def _fail(self, error: Exception) -> None:
        failed = self._under_way
        self._batch.places = [None] * len(self._batch.places)
        self._running, self._begun, self._intake = {}, {}, None
        self.prefixes.forget()
        self.counts.ended["failed"] = self.counts.ended.get("failed", 0) + len(failed)
        for sequence in failed:
            sequence.hear("", None, error)
