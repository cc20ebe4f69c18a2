"""The gradients of an entry beside central differences, all in float64: slopes along random directions."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.dtypes import INTEGERS
from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.reports import GRADIENT, Report
from lispgpt.runtime.session import Session

STEP = 1e-5
ALLOWED = 1e-5
"""How far a slope may be off, beside the larger of the two."""
ROUNDING = 1e-13
"""How far the loss may be off, beside itself; over two steps that bounds what differences can tell."""


@dataclass(frozen=True)
class Slope:
    """How a loss changes along a direction of one value.

    form: the `gradients` form's place.  value: its text there.  by_gradient, by_difference: what both say.
    """

    form: str
    value: str
    shape: tuple[int, ...]
    by_gradient: float
    by_difference: float
    loss: float

    @property
    def off(self) -> float:
        """Of the larger of the two."""
        size = max(abs(self.by_gradient), abs(self.by_difference))
        return abs(self.by_gradient - self.by_difference) / size if size else 0.0

    @property
    def right(self) -> bool:
        apart = abs(self.by_gradient - self.by_difference)
        if not math.isfinite(apart):
            return False
        return apart <= ALLOWED * max(abs(self.by_gradient), abs(self.by_difference)) + ROUNDING / STEP * abs(self.loss)


def gradient_reports(entry: Entry) -> list[Report]:
    """What an entry that is compiled for a check says of its gradients; UserError where it has none."""
    found = [report for report in entry.reports if report.kind == GRADIENT]
    if not found:
        raise UserError(f"the entry {entry.name} has no `gradients`, outside of loops, to check")
    return found


def slopes(
    session: Session, entry: Entry, given: Mapping[str, Any], rng: np.random.Generator, directions: int
) -> Iterator[Slope]:
    """The slopes of each value that an entry differentiates by, along so many directions.

    given: the entry's inputs but for those that move values.  Weights and states are put back after each run.
    """
    reports = gradient_reports(entry)
    moved = {name: session.shape(place) for name, place in entry.inputs.items() if name not in given}
    still = {name: np.zeros(shape) for name, shape in moved.items()}
    written = {a.buffer for step in entry.steps for a in step.arguments if a.writes}
    kept = {n: session.read(n) for k in ("weight", "state") for n in session.held(k, [entry]) if n in written}

    def put_back() -> None:
        for name, array in kept.items():
            session.write(name, array)

    def run(moves: Mapping[str, np.ndarray]) -> None:
        put_back()
        session.start(entry, {**given, **still, **moves})

    run({})
    gradients = [[session.read(place) for place in report.values] for report in reports]
    for report, (loss, *parts) in zip(reports, gradients, strict=True):
        for label, part in zip(report.text.split("\n"), parts, strict=True):
            name, _, value = label.partition("=")
            for _ in range(directions):
                along = rng.normal(size=part.shape)
                along /= np.linalg.norm(along.ravel()) or 1.0
                ends = []
                for sign in (1, -1):
                    run({name: sign * STEP * along})
                    ends.append(float(session.read(report.values[0]).ravel()[0]))
                difference = (ends[0] - ends[1]) / (2 * STEP)
                by_gradient = float((along * part).sum())
                yield Slope(report.form, value, part.shape, by_gradient, difference, float(loss.ravel()[0]))
    put_back()


def drawn_inputs(session: Session, entry: Entry, given: Mapping[str, Any], rng: np.random.Generator) -> dict[str, Any]:
    """The inputs that are given, and random ones for the rest: normal floats, and whole numbers within the bounds that
    the entry reads rows by, none below 0, which stands for a row that is left out; one that stands alone, such as a
    step, is 1.  UserError for other whole numbers that have no bounds."""
    found = dict(given)
    bounds = {bound.input: bound for bound in entry.bounds}
    for name, place in entry.inputs.items():
        buffer = session.declared(place)
        if name in found or name.startswith("along "):
            continue
        if buffer.dtype not in INTEGERS:
            found[name] = rng.normal(size=buffer.shape)
        elif name in bounds:
            least = max(0, bounds[name].first) if bounds[name].last >= 0 else bounds[name].first
            found[name] = rng.integers(least, bounds[name].last + 1, buffer.shape)
        elif not session.shape(place):
            found[name] = np.int32(1)
        else:
            raise UserError(f"the input {name} is of whole numbers, of which any may be meant: give --input {name}=…")
    return found
