"""What a model takes on a device: steps at several contexts, batches, prompts, ragged texts and look-ups.

Every figure is the middle one of some rounds.  Caches hold what they hold in a run; what states hold does not matter.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from functools import partial
from math import isfinite
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.execution.model import Model
from lispgpt.runtime.decoding import GREEDY, Row, result_of, step_inputs, taking_in
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.work import Rates, Work
from lispgpt.runtime.profile import measured_rates

STEPS, WARM = 24, 3
"""Steps of a round, and those before the first."""
TEXTS_A_PLACE = 4
READ_BYTES, READ_ROUNDS = 1 << 28, 5
CACHED = 1 << 26
"""Bytes that a CPU's caches may keep from step to step: what reads fewer has no floor in memory."""


@dataclass(frozen=True)
class Measure:
    """what: in words.  seconds: of one `unit`.  rate: tokens a second.  floor: the least seconds that its bytes and
    operations take; None where that is not known.  asked: what a peer would be asked for the same (see `peers`)."""

    what: str
    seconds: float
    unit: str
    rate: float
    floor: float | None = None
    asked: dict[str, Any] | None = None

    @property
    def share(self) -> float | None:
        """How much of its time its floor is."""
        return None if self.floor is None or not self.seconds else self.floor / self.seconds


class Bench:
    """Measures of a model; rounds: of which each figure is the middle one."""

    def __init__(self, model: Model, rounds: int) -> None:
        self.model, self.rounds, self.session = model, rounds, model.session
        self.generator = model.text([], model.options(greedy=True)).generator
        self.random = np.random.default_rng(0)
        measured = measured_rates(self.session)
        self.rates, self.cached = (self._rates_of_reading(), CACHED) if measured is None else (measured, 0)

    def _rates_of_reading(self) -> Rates | None:
        """Of a CPU: what all its threads read of memory that no cache holds; its arithmetic counts for nothing."""
        threads = getattr(self.session.device, "threads", 0)
        if not threads:
            return None
        parts = np.array_split(np.ones(READ_BYTES // 8, np.int64), threads)
        with ThreadPoolExecutor(threads) as pool:
            times = [_seconds(lambda: list(pool.map(np.add.reduce, parts))) for _ in range(READ_ROUNDS)]
        return Rates("memory as all threads read it here", READ_BYTES / min(times), float("inf"), float("inf"))

    def within(self, position: int) -> int:
        """The position of a step that so many of the context can follow: an earlier one where it is too late."""
        if self.generator.context <= STEPS:
            raise UserError(f"the context is {self.generator.context}, and {STEPS} steps are measured")
        return min(position, self.generator.context - STEPS - 1)

    def decode(self, position: int, batch: int = 1) -> Measure:
        """A step of so many sequences at a position, among others that follow it."""
        entry = self.model.entry(GREEDY, "batches", batch=batch, positions=1)
        position = self.within(position)
        tokens = self.random.integers(0, self.generator.vocab, batch)
        self.session.holder = None
        self.session.put(entry, step_inputs(entry, [Row(int(token), position, {}) for token in tokens]))
        run = partial(self._steps, entry, position)
        run(WARM)
        seconds = statistics.median(run(STEPS) for _ in range(self.rounds))
        several = f" of {batch} sequences" if batch > 1 else ""
        asked = {"what": "decode", "count": position, "batch": batch}
        floor = self._floor(entry, [[position]] * batch)
        return Measure(f"decode{several} at {position}", seconds, "step", batch / seconds, floor, asked)

    def _steps(self, entry: Entry, position: int, count: int) -> float:
        """Seconds of one of some steps from a position on."""
        self.session.put(entry, {list(entry.inputs)[1]: [[position]] * entry.sizes["batch"]})
        return _seconds(lambda: [*self.session.repeat(entry, result_of(entry), count)]) / count

    def _floor(self, entry: Entry, positions: Sequence[Sequence[int]]) -> float | None:
        """The least time of an entry's launches at these positions."""
        if self.rates is None:
            return None
        works = [Work.of(self.session.kernels[launch.kernel]) for launch in entry.launches]
        amounts = [work.at(positions) for work in works if work is not None]
        if sum(amount.nbytes for amount in amounts) < self.cached:
            return None
        return sum(self.rates.floor(amount) for amount in amounts) or None

    def prompt(self, count: int) -> Measure:
        """A prompt of so many tokens, up to the token that follows it."""
        count = min(count, self.generator.context)
        tokens = [int(token) for token in self.random.integers(0, self.generator.vocab, count)]

        def prefill() -> None:
            self.generator.tokens = []
            self.generator.prefill(tokens)

        prefill()
        seconds = statistics.median(_seconds(prefill) for _ in range(self.rounds))
        asked = {"what": "prompt", "count": count}
        floor = self._prompt_floor(count)
        return Measure(f"prompt of {count} tokens", seconds, "prompt", count / seconds, floor, asked)

    def _prompt_floor(self, count: int) -> float | None:
        """Of the runs that take in so many tokens; None where nothing is known of the arithmetic that bounds them."""
        if self.rates is None or not isfinite(self.rates.matrix):
            return None
        entries, first, floors = taking_in(self.session, self.generator.entry), 0, []
        for size in self.generator.chunks_of(count):
            floors.append(self._floor(entries[size], [range(first, min(first + size, self.generator.context))]))
            first += size
        known = [floor for floor in floors if floor is not None]
        return sum(known) if len(known) == len(floors) else None

    def ragged(self, batch: int) -> Measure:
        """Texts of many lengths through a batch, prompts included, while there is one for every place.

        Its floor is as many bare steps of the batch.
        """
        longest = min(256, self.generator.context // 2)
        texts = []
        for _ in range(TEXTS_A_PLACE * batch):
            count, limit = self.random.integers(1, longest // 4 + 1), self.random.integers(longest // 4, longest + 1)
            tokens = [int(token) for token in self.random.integers(0, self.generator.vocab, count)]
            texts.append(self.model.text(tokens, self.model.options(greedy=True, max_new_tokens=int(limit))))
        bare = self.decode(longest // 2, batch)
        short = self.model.options(greedy=True, max_new_tokens=2)
        [*self.model.together([self.model.text([0], short) for _ in range(2)], batch)]  # so that all code is there
        ended, total, seconds, started = 0, 0, 0.0, time.perf_counter()
        for text, _ in self.model.together(texts, batch):
            ended += text.ended is not None
            if ended > len(texts) - batch:
                break
            total, seconds = total + 1, time.perf_counter() - started
        what = f"{len(texts)} ragged texts, {batch} at once"
        return Measure(what, seconds / total, "token", total / seconds, 1 / bare.rate)

    def lookup(self, drafted: int) -> Iterator[Measure]:
        """A text that repeats four tokens, and the model's own after them, with drafts and without."""
        motif = [int(token) for token in self.random.integers(0, self.generator.vocab, 4)]
        for text, given in (("a repeating text", motif), ("its own text", [])):
            for most in (0, drafted):
                yield self._drafting(text, motif * 4, given, most)

    def _drafting(self, text: str, prompt: list[int], given: list[int], most: int) -> Measure:
        """Greedy tokens after a prompt, and what share of drafts of `most` was right; given: see `Repeating`."""
        own = self.model.text([], self.model.options(greedy=True, lookup=most)).generator
        count = min(128, self.generator.context - len(prompt))
        times = []
        with own.session.alone():
            for _ in range(self.rounds):
                made = Repeating(own.session, own.entry, lookup=most, near_ties=own.near_ties, given=given)
                tokens = made.generate(prompt, count)
                next(tokens)
                times.append(_seconds(partial(list, tokens)) / max(1, count - 1))
        seconds = statistics.median(times)
        right = f", {most} drafted" if made.drafts is None else f", {most} drafted: {made.drafts.share:.0%} right"
        return Measure(text + right, seconds, "token", 1 / seconds)


@dataclass
class Repeating(Generator):
    """A sequence that repeats given tokens, where there are any, whatever the model says of them."""

    given: Sequence[int] = ()

    def decided(self, report: Sequence[int]) -> tuple[int, np.ndarray | None]:
        return (self.given[len(self.tokens) % len(self.given)], None) if self.given else super().decided(report)


def _seconds(work: Callable[[], object]) -> float:
    started = time.perf_counter()
    work()
    return time.perf_counter() - started


def table(measures: Sequence[Measure]) -> str:
    """A line for each."""
    lines = [f"{'':38}{'us':>12}  {'each':8}{'tokens/s':>12}{'floor us':>12}{'share':>8}"]
    for m in measures:
        floor, share = ("-", "-") if m.floor is None else (f"{m.floor * 1e6:.1f}", f"{m.share:.0%}")
        lines.append(f"{m.what:38}{m.seconds * 1e6:12.1f}  {m.unit:8}{m.rate:12.1f}{floor:>12}{share:>8}")
    return "\n".join(lines)
