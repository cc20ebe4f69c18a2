"""What an entry's `print` and `assert` forms give beside its results, and what a run says of it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.source import Source, Span, form_end
from lispgpt.runtime.plan.steps import text, whole

PRINT, ASSERT, GRADIENT = "print", "assert", "gradient"
MOST_SHOWN = 64
"""Numbers of a tensor that are shown."""


@dataclass(frozen=True)
class Report:
    """kind: PRINT, ASSERT, or GRADIENT, which a check reads and runs say nothing of.

    form: its place, such as "gpt2.lisp:12:5".  text: what is said, a format with {} for each value.
    values: the buffers that have them after a run; an assertion's first is the condition, of i32, and has none.
    loops: how many of their first dimensions count steps of loops.
    """

    kind: str
    form: str
    text: str
    values: tuple[str, ...]
    loops: int = 0

    @staticmethod
    def from_json(data: Mapping[str, Any]) -> Report:
        values = tuple(map(text, data["values"]))
        return Report(text(data["kind"]), text(data["form"]), text(data["text"]), values, whole(data["loops"]))

    def problem(self, shapes: Mapping[str, Sequence[int]]) -> str | None:
        """What is wrong with it; shapes: of the buffers that it may have."""
        if self.kind == GRADIENT and self.values and all(value in shapes for value in self.values):
            return None
        if self.kind not in (PRINT, ASSERT) or not all(value in shapes for value in self.values):
            return "a report of another kind, or of no result"
        wanted = len(self.values) - (self.kind == ASSERT)
        try:
            self.text.format(*range(wanted))
            known = wanted == 0 or self.text.replace("{{", "").count("{}") == wanted
        except (LookupError, ValueError, AttributeError):
            known = False
        deep = all(len(shapes[value]) >= self.loops for value in self.values)
        return None if known and deep and wanted >= 0 else "a report whose text does not fit its values"

    def said(self, arrays: Sequence[np.ndarray]) -> str:
        """What a print says of its values."""
        return self.text.format(*map(_shown, arrays))

    def failure(self, arrays: Sequence[np.ndarray]) -> str:
        """What an assertion says of its condition and values; "" where it holds."""
        condition, *values = arrays
        wrong = np.argwhere(condition == 0)
        if not len(wrong):
            return ""
        said = f"{self.text.format(*map(_shown, values))} " if self.text else ""
        if not condition.ndim:
            return f"{said}(this does not hold)".strip()
        step = f"step {'.'.join(map(str, wrong[0][: self.loops]))}" if self.loops else ""
        element = f"element {list(map(int, wrong[0][self.loops :]))}" if condition.ndim > self.loops else ""
        first = " of ".join(filter(None, (element, step)))
        return f"{said}(this does not hold for {len(wrong):,} of {condition.size:,}, first for {first})"


def _shown(array: np.ndarray) -> str:
    """A number, or a tensor's type and as many of its numbers as can be read."""
    if not array.ndim:
        return f"{array:.6g}" if array.dtype.kind == "f" else str(array)
    shape = " ".join(map(str, array.shape))
    return f"[{shape}] {np.array2string(array, threshold=MOST_SHOWN, max_line_width=100)}"


def span_of(form: str, sources: Mapping[str, str]) -> Span | None:
    """A form's place in the program's text, where that is there.  sources: texts by their files' names or paths."""
    file, _, place = form.partition(":")
    line, _, column = place.partition(":")
    for name, content in sources.items():
        if name.rpartition("/")[2] != file or not (line.isdigit() and column.isdigit()):
            continue
        source = Source(name, content)
        if not 0 < int(line) <= content.count("\n") + 1:
            return None
        start = min(source.offset(int(line), int(column)), len(content))
        return Span(source, start, form_end(content, start))
    return None
