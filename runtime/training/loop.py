"""The loop of a run: step after step, with what is measured, sampled and kept on the way."""

from __future__ import annotations

import math
import shutil
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.adapter_folder import AdapterFolder
from lispgpt.runtime.checkpoints.like_folder import LikeFolder
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.data.batches import Stream
from lispgpt.runtime.data.iterated import Iterated
from lispgpt.runtime.data.rows import Rows
from lispgpt.runtime.training.last_step import LastStep
from lispgpt.runtime.training.run_folder import RunFolder
from lispgpt.runtime.training.snapshot import SessionWeights, held_states, write_snapshot
from lispgpt.runtime.training.trainer import Evaluation, Pace, Trainer, evaluate, evaluate_rows

RECENT = 20
"""Losses that are looked at together."""

DIVERGED = 2.0
"""How many times the first losses' mean the mean of recent ones is where a run has diverged."""


class Watcher(Protocol):
    """Who is told how a run goes."""

    def begin(self, facts: Mapping[str, Any]) -> None:
        """The run as it starts: device, parameters, steps, done (steps), amount (of a step), unit (of that:
        tokens, or rows of arrays), windows (of an epoch; 0 where nobody knows), floor_s (the least
        seconds of a step, or None)."""

    def stepped(self, record: Mapping[str, Any]) -> None:
        """A line of the metrics."""

    def sampled(self, step: int, text: str) -> None:
        """Text that the model writes by now."""

    def saved(self, step: int, path: Path) -> None:
        """A checkpoint."""

    def note(self, text: str) -> None:
        """What a user should know."""


class Unwatched:
    """A watcher that says nothing."""

    def begin(self, facts: Mapping[str, Any]) -> None: ...

    def stepped(self, record: Mapping[str, Any]) -> None: ...

    def sampled(self, step: int, text: str) -> None: ...

    def saved(self, step: int, path: Path) -> None: ...

    def note(self, text: str) -> None: ...


@dataclass(frozen=True)
class Outcome:
    """step: the last one that was taken.  interrupted: whether it was to be the last.  loss: of it; None where no step
    was left to take.  validation: the last evaluation."""

    step: int
    interrupted: bool
    loss: float | None
    validation: Evaluation | None


class Loop:
    """A run's steps from the one after `done` on.

    weights: what checkpoints are written of.  validation: tokens to evaluate, where there are any.  sample: gives what
    the model writes by now.  stop: is asked after every step whether to end.  history: the records of earlier steps.
    files: what goes into each checkpoint beside the weights.  like: the folder that checkpoints are as, if any.
    peers: the processes that take the steps with this one, where there are any: all measure, and the first writes what
    is kept.
    """

    def __init__(
        self,
        trainer: Trainer,
        folder: RunFolder,
        weights: SessionWeights,
        watcher: Watcher,
        *,
        validation: Stream | Rows | Iterated | None = None,
        sample: Callable[[], str] | None = None,
        stop: Callable[[], bool] = lambda: False,
        done: int = 0,
        history: Sequence[Mapping[str, Any]] = (),
        files: Sequence[Path] = (),
        like: LikeFolder | AdapterFolder | None = None,
        peers: Peers | None = None,
    ) -> None:
        self._trainer, self._folder, self._weights, self._watcher = trainer, folder, weights, watcher
        self._validation, self._sample, self._stop, self._files = validation, sample, stop, files
        self._like = like
        self._peers, self._leads = peers, peers is None or peers.place.rank == 0
        self._done, self._kept = done, done
        losses = [float(record["loss"]) for record in history if isinstance(record.get("loss"), (int, float))]
        self._first, self._recent = losses[:RECENT], deque(losses[-RECENT:], RECENT)

    def run(self) -> Outcome:
        """Take the steps that are left; UserError where the run diverges, which leaves the last good checkpoint."""
        options, pace = self._trainer.options, Pace(self._trainer.amount)
        ends = LastStep(options.steps, self._stop, self._peers, int(self._trainer.runs_ahead))
        loss, evaluation, number = None, None, self._done
        while number < ends.number:
            number += 1
            ahead = self._trainer.runs_ahead and number < ends.look(number) and not self._due(number)
            found = self._trainer.step(number, ahead)
            record: dict[str, Any] = {"step": number, **found}
            record[f"{self._trainer.unit}_per_s"] = round(pace.stepped(), 1)
            loss = found["loss"]
            self._check(number, found)
            last = number == options.steps
            if self._validation is not None and (_due(number, options.eval_every) or (last and options.eval_every)):
                evaluation = self._evaluate(self._validation)
                record |= evaluation.record()
            if self._leads:
                self._folder.record(record)
                self._watcher.stepped(record)
                if self._sample is not None and _due(number, options.sample_every):
                    self._watcher.sampled(number, self._sample())
            # A next step that is under way is taken: it has changed the weights, or is about to.
            if number == ends.look(number + ahead) or _due(number, options.checkpoint_every):
                self._save(number)
            pace.pause()
        return Outcome(number, number < options.steps, loss, evaluation)

    def _due(self, number: int) -> bool:
        """Whether something is to be done with the weights as they are after a step."""
        options = self._trainer.options
        every = [options.checkpoint_every, options.sample_every if self._sample is not None else 0]
        every += [options.eval_every] if self._validation is not None else []
        return number == options.steps or any(_due(number, n) for n in every)

    def _evaluate(self, stream: Stream | Rows | Iterated) -> Evaluation:
        options, place = self._trainer.options, None if self._peers is None else self._peers.place
        part = () if place is None else (place.rank, place.size)
        if not isinstance(stream, Stream):
            numbers = {"step": 0, "seed": options.seed}
            return evaluate_rows(self._trainer.session, stream, options.batch, options.eval_batches, numbers, *part)
        return evaluate(self._trainer.session, stream, options.batch, options.length, options.eval_batches, *part)

    def _check(self, number: int, found: Mapping[str, float]) -> None:
        """UserError where the step's numbers are none, or far above what the run began with."""
        wrong = [
            f"the {name.replace('_', ' ')} is {value}" for name, value in found.items() if not math.isfinite(value)
        ]
        loss = found["loss"]
        self._recent.append(loss)
        if len(self._first) < RECENT:
            self._first.append(loss)
        elif not wrong and sum(self._recent) / RECENT > DIVERGED * (sum(self._first) / RECENT):
            found_mean, first_mean = (sum(losses) / RECENT for losses in (self._recent, self._first))
            wrong.append(f"the mean loss of {RECENT} steps is {found_mean:.3g}, and was {first_mean:.3g} at first")
        if wrong:
            kept = f"the checkpoint of step {self._kept} is kept" if self._kept else "no checkpoint was written yet"
            raise UserError(
                f"the training diverged at step {number}: {'; '.join(wrong)}; {kept}. A lower --lr or --clip, or a "
                "longer --warmup, may help; --first-nan finds the form that a NaN comes from"
            )

    def _save(self, number: int) -> None:
        trainer = self._trainer

        def write(folder: Path) -> None:
            write_snapshot(folder, self._weights, trainer.session, trainer.entries, states, self._like)
            for file in self._files:
                shutil.copyfile(file, folder / file.name)

        self._weights.refresh()
        if self._peers is not None:
            self._peers.agree(f"at step {number}", self._weights.sums())
        states = held_states(trainer.session, trainer.entries, trainer.wholes)
        self._kept = number
        if not self._leads:
            return
        path = self._folder.save(number, {"config": self._weights.config}, write, trainer.options.keep)
        self._watcher.saved(number, path)


def _due(number: int, every: int) -> bool:
    return every > 0 and number % every == 0
