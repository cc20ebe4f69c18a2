"""How a run goes, for people: a line that changes on a terminal, a line now and then elsewhere."""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Mapping
from pathlib import Path
from types import TracebackType
from typing import Any

from rich.console import Console
from rich.live import Live
from rich.text import Text

from lispgpt.base.errors import visible
from lispgpt.cli.terminal import counted

FIRST_LINES, SECONDS = 3, 10.0
"""Elsewhere than on a terminal: a line for each of the first steps, then one in so many seconds."""

RECENT = 32
"""Steps that the shown pace is the mean of."""


class StepLines:
    """What is said of a run's steps, such as
    `step 20/100  loss 4.1  grad norm 1.2  lr 0.0006  23,000 tokens/s  41% of the floor  0:12 left`."""

    def __init__(self) -> None:
        self._about: Mapping[str, Any] = {}
        self._paces: deque[float] = deque(maxlen=RECENT)
        self._validation = ""

    @property
    def steps(self) -> int:
        """Of the whole run."""
        return int(self._about.get("steps", 0))

    def begin(self, facts: Mapping[str, Any]) -> str:
        """What is said of the run, as `Watcher.begin` is told of it."""
        self._about = facts
        sequences = "sequences" if facts["unit"] == "tokens" else "rows"
        epoch = f", an epoch of {facts['windows']:,} {sequences}" if facts["windows"] else ""
        done = f", going on after step {facts['done']}" if facts["done"] else ""
        return (
            f"training {facts['parameters']:,} parameters on {facts['device']}: {counted(facts['steps'], 'step')} of "
            f"{facts['amount']:,} {facts['unit']}{epoch}{done}"
        )

    def step(self, record: Mapping[str, Any]) -> str:
        """What is said of a step."""
        unit, amount = self._about["unit"], self._about["amount"]
        self._paces.append(float(record[f"{unit}_per_s"]))
        if "val_loss" in record:
            more = [f"perplexity {record['perplexity']:.1f}"] if "perplexity" in record else []
            right = next((record[name] for name in ("accuracy", "val_accuracy") if name in record), None)
            more += [] if right is None else [f"{right:.1%} right"]
            self._validation = f"  val {record['val_loss']:.4f}" + (f" ({', '.join(more)})" if more else "")
        pace = len(self._paces) / sum(1 / max(value, 1e-9) for value in self._paces)
        parts = [f"step {record['step']}/{self.steps}", f"loss {record['loss']:.4f}{self._validation}"]
        parts += [f"{name.replace('_', ' ')} {record[name]:.3g}" for name in ("grad_norm", "lr") if name in record]
        parts.append(f"{pace:,.0f} {unit}/s")
        floor = self._about["floor_s"]
        if floor:
            parts.append(f"{floor * pace / amount:.0%} of the floor")
        left = (self.steps - record["step"]) * amount / pace
        return "  ".join([*parts, f"{int(left) // 60}:{int(left) % 60:02} left"])


class Progress:
    """A `Watcher` that prints to standard error; use it in a `with`."""

    def __init__(self, console: Console | None = None) -> None:
        self._console = Console(stderr=True, highlight=False, soft_wrap=True) if console is None else console
        self._live: Live | None = None
        self._said = StepLines()
        self._shown, self._lines = 0.0, 0

    def __enter__(self) -> Progress:
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, _: TracebackType | None) -> None:
        if self._live is not None:
            self._live.stop()

    def begin(self, facts: Mapping[str, Any]) -> None:
        self.note(self._said.begin(facts))
        if self._console.is_terminal:
            self._live = Live(console=self._console, auto_refresh=False, transient=False)
            self._live.start()

    def stepped(self, record: Mapping[str, Any]) -> None:
        line = self._said.step(record)
        now = time.monotonic()
        if self._live is not None:
            if now - self._shown > 0.1 or record["step"] == self._said.steps:
                self._live.update(Text(line, overflow="ellipsis", no_wrap=True), refresh=True)
                self._shown = now
        elif self._lines < FIRST_LINES or "val_loss" in record or now - self._shown > SECONDS:
            self.note(line)
            self._shown, self._lines = now, self._lines + 1

    def sampled(self, step: int, text: str) -> None:
        self.note(f"step {step} writes: {text}")

    def saved(self, step: int, path: Path) -> None:
        if self._live is None:
            self.note(f"step {step}: wrote {path}")

    def note(self, text: str) -> None:
        self._console.print(Text(visible(text)))
