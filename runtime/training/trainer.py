"""Training steps of a program: the entries that its library makes (`training` in training.lisp), run on batches.

Beside texts, whose inputs these are, any arrays may be given, by the names of the entries' inputs.

    train        tokens, targets [batch length] i32 → loss; updates weights and states
    accumulate   tokens, targets → loss; adds gradients to states          and  apply   → updates weights from them
    evaluate     tokens, targets → loss, correct: the mean over targets from 0 on, and how many were most probable

They may ask for numbers by name: `step` (from 1), `seed`, and those of `Options.inputs`.  Weights and states stay on
the device: tokens go there, and a step's numbers come back.
"""

from __future__ import annotations

import math
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Any, TypeAlias

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.data.batches import IGNORED, TARGETS, TOKENS, Batches, Stream, sweep
from lispgpt.runtime.data.iterated import Iterated, IteratedPart
from lispgpt.runtime.data.rows import Arrays, RowBatches, Rows
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.work import Work
from lispgpt.runtime.session import Session
from lispgpt.runtime.training.options import Options
from lispgpt.runtime.training.wholes import Wholes
from lispgpt.runtime.weights import spelled_inputs

TRAIN, ACCUMULATE, APPLY, EVALUATE = "train", "accumulate", "apply", "evaluate"
Shapes: TypeAlias = Mapping[str, tuple[int, ...]]
BatchesOf: TypeAlias = Batches | RowBatches | IteratedPart
Reads: TypeAlias = dict[str, Callable[[], np.ndarray]]
SEED_STEP = 0x9E3779B1
"""Between the seeds of a step's micro-batches: 2**32 over the golden ratio."""


def entries_of_steps(accumulate: int) -> tuple[str, ...]:
    """The entries that steps of so many micro-batches run."""
    return (TRAIN,) if accumulate == 1 else (ACCUMULATE, APPLY)


@dataclass(frozen=True)
class Evaluation:
    """loss: the mean of -log of the probabilities of `targets` tokens.  correct: how many of them were the most
    probable ones.  more: means of what else the program measures of arrays, by name, of
    which no target is known."""

    loss: float
    correct: int
    targets: int
    more: Mapping[str, float] = field(default_factory=dict)

    def record(self) -> dict[str, float]:
        """What the metrics have of it."""
        found = {"val_loss": self.loss}
        if self.targets and not self.more:
            found |= {"perplexity": self.perplexity, "accuracy": self.accuracy}
        return found | {f"val_{name}": value for name, value in self.more.items()}

    @property
    def perplexity(self) -> float:
        return math.exp(min(self.loss, 700.0))

    @property
    def accuracy(self) -> float:
        return self.correct / max(self.targets, 1)


class Trainer:
    """A session that takes steps.  rank, world: which of so many processes this is, as `batches` has it: each takes its
    part of the options' batch."""

    def __init__(self, session: Session, options: Options, batches: BatchesOf, rank: int = 0, world: int = 1) -> None:
        self.session, self.options, self._batches = session, options, batches
        self.rank = rank
        self.wholes = Wholes(session, rank, world)
        self.batch = options.batch // world
        self.is_text = isinstance(batches, Batches)
        self._next: tuple[int, Arrays] | None = None
        shapes = {name: array.shape for name, array in self._batch(0).items()}
        self._entries = [_fitting(session, name, shapes) for name in self.names]
        self._numbers = options.inputs()
        for entry in self._entries:
            _check_ports(session, entry, self._numbers, shapes)
        self._sent: dict[str, Any] = {}
        self._begun: tuple[tuple[int, int], Reads] | None = None
        self._runs = 1 if options.accumulate == 1 else options.accumulate + 1

    @property
    def amount(self) -> int:
        """Tokens of a step, or rows of arrays."""
        return self.options.tokens if self.is_text else self.options.batch * self.options.accumulate

    @property
    def unit(self) -> str:
        return "tokens" if self.is_text else "rows"

    @property
    def names(self) -> tuple[str, ...]:
        return entries_of_steps(self.options.accumulate)

    @property
    def entries(self) -> list[Entry]:
        """What a step runs: each of its entries once."""
        return list(self._entries)

    def step(self, number: int, more: bool = False) -> dict[str, float]:
        """Take the step of that number, from 1; its loss, and what the program says of it (grad_norm, lr).

        more: whether the next step is to be the one after it, which may then start before this one's numbers are read.
        """
        losses: list[float] = []
        found: dict[str, float] = {}
        for place in range(self._runs):
            if self._begun is None or self._begun[0] != (number, place):
                self._begin(number, place)
            assert self._begun is not None
            (_, waits), self._begun = self._begun, None
            last = place + 1 == self._runs
            if self.runs_ahead and (more or not last):
                self._begin(*((number + 1, 0) if last else (number, place + 1)))
            values = {name: float(wait().item()) for name, wait in waits.items()}
            if place < self.options.accumulate:
                losses.append(values["loss"])
            if last:
                found = {name.replace("-", "_"): value for name, value in values.items() if name != "loss"}
        return {"loss": math.fsum(losses) / len(losses), **found}

    def _begin(self, number: int, place: int) -> None:
        """Start one run of a step's entries, a micro-batch or what comes behind them all, and reading its numbers."""
        entry, micro = self._entries[0], (number - 1) * self.options.accumulate + place
        if place < self.options.accumulate:
            self._start(entry, number, self.options.seed + SEED_STEP * place, self._batch(micro))
        else:
            entry = self._entries[-1]
            self._start(entry, number, self.options.seed, {})
        self._begun = (number, place), _reads(self.session, entry, self._numbers_of(entry), self.runs_ahead)
        if place < self.options.accumulate:
            self._prefetch(micro + 1)

    def _numbers_of(self, entry: Entry) -> list[str]:
        """The results of an entry that are one number."""
        return [name for name, place in entry.results.items() if math.prod(self.session.shape(place)) == 1]

    def floor_seconds(self) -> float | None:
        """The least time that a step takes on this chip by its kernels' bytes and operations; None where not known."""
        rates, kernels = self.session.artifact.rates, self.session.artifact.kernels
        if rates is None:
            return None
        total = 0.0
        for number, entry in enumerate(self._entries):
            works = [Work.of(kernels[launch.kernel]) for launch in entry.launches]
            seconds = sum(rates.floor(work.at(self.rows)) for work in works if work is not None)
            total += seconds * (self.options.accumulate if number == 0 else 1)
        return total

    @property
    def runs_ahead(self) -> bool:
        """Whether a step can start before the one ahead of it has been looked at."""
        reads = max(len(self._numbers_of(entry)) for entry in self._entries)
        return _works_beside(self.session) and 2 * reads <= READS_AHEAD

    @property
    def rows(self) -> list[range]:
        """The position of each row of each sequence of a micro-batch."""
        return [range(self.options.length)] * self.batch

    def profiled(self) -> list[tuple[Entry, dict[str, Any]]]:
        """Each entry with inputs as a step gives them."""
        given = self._batch(0)
        numbers = [self._inputs(entry, self.options.steps, self.options.seed) for entry in self._entries]
        return [
            (entry, known | {name: given[name] for name in given if name in entry.inputs})
            for entry, known in zip(self._entries, numbers, strict=True)
        ]

    def _batch(self, number: int) -> Arrays:
        if self._next is None or self._next[0] != number:
            self._prefetch(number)
        assert self._next is not None
        return self._next[1]

    def _prefetch(self, number: int) -> None:
        """Have a micro-batch at hand, which the host reads while the device is at work."""
        self._next = number, self._batches.inputs(number)

    def _inputs(self, entry: Entry, number: int, seed: int) -> dict[str, Any]:
        known = self._numbers | {"step": number, "seed": seed & 0x7FFFFFFF}
        return {name: known[name] for name in entry.inputs if name in known}

    def _start(self, entry: Entry, number: int, seed: int, given: Mapping[str, np.ndarray]) -> None:
        """Run an entry; numbers that are there already are not sent again."""
        changed: dict[str, Any] = {name: array for name, array in given.items() if name in entry.inputs}
        for name, value in self._inputs(entry, number, seed).items():
            place = entry.inputs[name]
            if self._sent.get(place) != value or entry.leaves(name):
                changed[name] = self._sent[place] = value
        self.session.start(entry, changed)


def evaluate(
    session: Session, stream: Stream, batch: int, length: int, most: int | None = None, rank: int = 0, world: int = 1
) -> Evaluation:
    """The loss of a stream of tokens, in at most `most` batches spread over it.

    rank, world: which of so many processes this is; each runs its part of every batch, and has the loss of all of it.
    """
    own = batch // world
    shapes = dict.fromkeys((TOKENS, TARGETS), (own, length))
    entry = _fitting(session, EVALUATE, shapes)
    _check_ports(session, entry, {}, shapes)
    wanted = [name for name in ("loss", "correct") if name in entry.results]
    losses, correct, count, waiting = [], 0.0, 0, deque[tuple[int, Reads]]()
    beside = _works_beside(session)

    def read() -> None:
        nonlocal correct
        real, waits = waiting.popleft()
        losses.append(float(waits["loss"]().item()) * real)
        correct += float(waits["correct"]().item()) if "correct" in waits else 0.0

    for tokens, targets in sweep(stream, batch, length, most):
        real = int((targets != IGNORED).sum())
        rows = slice(rank * own, (rank + 1) * own)
        session.start(entry, {TOKENS: tokens[rows], TARGETS: targets[rows]})
        waiting.append((real, _reads(session, entry, wanted, beside)))
        count += real
        if len(waiting) > int(beside):
            read()
    while waiting:
        read()
    if not count:
        raise UserError(f"there are {stream.count} tokens to evaluate, and two are the least")
    return Evaluation(math.fsum(losses) / count, round(correct), count)


def evaluate_rows(
    session: Session,
    rows: Rows | Iterated,
    batch: int,
    most: int | None,
    numbers: Mapping[str, float],
    rank: int = 0,
    world: int = 1,
) -> Evaluation:
    """The mean loss of whole batches of arrays, `most` of them at most, and the means of what else is measured.

    numbers: what the entry may ask for by name.  UserError where there is no whole batch.
    """
    own, found, count = batch // world, dict[str, float](), 0
    for given in rows.sweep(batch, most) if isinstance(rows, Rows) else rows.sweep(most):
        part = {name: array[rank * own : (rank + 1) * own] for name, array in given.items()}
        shapes = {name: array.shape for name, array in part.items()}
        entry = _fitting(session, EVALUATE, shapes)
        _check_ports(session, entry, numbers, shapes)
        known = {name: numbers[name] for name in entry.inputs if name in numbers}
        session.start(entry, known | {name: array for name, array in part.items() if name in entry.inputs})
        for name, place in entry.results.items():
            if math.prod(session.shape(place)) == 1:
                found[name] = found.get(name, 0.0) + float(session.result(entry, name).item())
        count += 1
    if not count:
        raise UserError(f"{rows.name} has not one whole batch of {batch} rows to evaluate")
    correct = found.pop("correct", None)
    means = {name.replace("-", "_"): value / count for name, value in found.items()}
    if correct is not None:
        means["accuracy"] = correct / (count * batch)
    return Evaluation(means.pop("loss"), 0, 0, means)


def _works_beside(session: Session) -> bool:
    """Whether a session's device, and what it does together with others, go on while the host does."""
    return session.device.asynchronous and (session.engine is None or session.engine.asynchronous)


def _reads(session: Session, entry: Entry, names: Sequence[str], ahead: bool) -> Reads:
    """What waits for results of an entry's last run.  ahead: whether another may be started before they are read."""
    later = session.result_later if ahead else lambda *which: partial(session.result, *which)
    return {name: later(entry, name) for name in names}


def _fitting(session: Session, name: str, shapes: Shapes) -> Entry:
    """The entry of that name whose inputs, those that it takes of these, have these shapes."""
    for entry in session.entries(name):
        if all(session.shape(entry.inputs[key]) == shape for key, shape in shapes.items() if key in entry.inputs):
            return entry
    said = spelled_inputs(shapes)
    raise UserError(f"the program has no entry {name!r} of {said} (see `training` in training.lisp)")


def _check_ports(session: Session, entry: Entry, numbers: Mapping[str, float], shapes: Shapes) -> None:
    """UserError where an entry asks for what training does not give it, or does not give what training wants."""
    known = {*shapes, *numbers, *(("step", "seed") if numbers else ())}
    for name, place in entry.inputs.items():
        if name not in known:
            raise UserError(f"the entry {entry.name!r} takes {name}, and training gives {', '.join(sorted(known))}")
        if name in (TOKENS, TARGETS) and set(shapes) <= {TOKENS, TARGETS} and session.declared(place).dtype != "i32":
            raise UserError(f"the entry {entry.name!r} takes {name} of {session.declared(place).dtype}, not i32")
        if name not in shapes and session.shape(place) != ():
            raise UserError(f"the entry {entry.name!r} takes {name} {list(session.shape(place))}, not one number: []")
    if "loss" not in entry.results and entry.name != APPLY:
        raise UserError(f"the entry {entry.name!r} gives {', '.join(entry.results)}, and no loss")
    for name in {APPLY: (), EVALUATE: ("loss", "correct")}.get(entry.name, ("loss",)):
        if name in entry.results and (shape := session.shape(entry.results[name])):
            raise UserError(f"the entry {entry.name!r} gives {name} {list(shape)}, not one number: []")


class Pace:
    """How many tokens a second steps train, each over the few last ones."""

    def __init__(self, tokens: int) -> None:
        self._tokens, self._since = tokens, time.perf_counter()

    def stepped(self) -> float:
        """Tokens a second of the step that ends now."""
        now = time.perf_counter()
        pace = self._tokens / max(now - self._since, 1e-9)
        self._since = now
        return pace

    def pause(self) -> None:
        """What has been done since the last step does not count."""
        self._since = time.perf_counter()
