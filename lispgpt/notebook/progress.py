"""How a run of training goes, in a notebook: a bar that moves, and below it what is said now and then."""

from __future__ import annotations

import time
from collections.abc import Mapping
from html import escape
from pathlib import Path
from typing import Any

from IPython.display import display

from lispgpt.cli.progress import StepLines

SECONDS, NOTES = 0.2, 8
"""Between two looks of the bar, and how many notes stay below it."""


class NotebookProgress:
    """A `Watcher` whose output changes in its place."""

    def __init__(self) -> None:
        self._lines = StepLines()
        self._now, self._notes = "", list[str]()
        self._step, self._shown = 0, 0.0
        self._handle: Any = None

    def begin(self, facts: Mapping[str, Any]) -> None:
        self._now, self._step = self._lines.begin(facts), int(facts["done"])
        self._show()

    def stepped(self, record: Mapping[str, Any]) -> None:
        self._now, self._step = self._lines.step(record), int(record["step"])
        if time.monotonic() - self._shown > SECONDS or self._step == self._lines.steps:
            self._show()

    def sampled(self, step: int, text: str) -> None:
        self.note(f"step {step} writes: {text}")

    def saved(self, step: int, path: Path) -> None:
        self.note(f"step {step}: wrote {path}")

    def note(self, text: str) -> None:
        self._notes = [*self._notes, text][-NOTES:]
        self._show()

    def _show(self) -> None:
        self._shown = time.monotonic()
        if self._handle is None:
            self._handle = display(self, display_id=True)
        else:
            self._handle.update(self)

    def __repr__(self) -> str:
        return "\n".join([self._now, *self._notes])

    def _repr_html_(self) -> str:
        bar = f'<progress value="{self._step}" max="{self._lines.steps}" style="width:100%"></progress>'
        return f"<div>{bar}<pre>{escape(repr(self))}</pre></div>"
