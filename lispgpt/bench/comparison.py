"""Times of a model's decode step and of its prompts on a device, beside what is predicted of them."""

from __future__ import annotations

import statistics
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.bench.prediction import ASSUMPTIONS, Predicted, predict, rates_of
from lispgpt.execution.model import Model
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.work import Positions
from lispgpt.runtime.profile import profile_entry, rounds_of

ROUNDS = 7


@dataclass(frozen=True)
class Line:
    """A kernel: of one launch the measured and the predicted microseconds, None where there is no such number."""

    kernel: str
    launches: int
    measured: float | None
    predicted: float | None
    bound: str


@dataclass(frozen=True)
class Comparison:
    """An entry run on a device.  measured, predicted: microseconds of all of it, in the middle one of some rounds; None
    where nothing is predicted."""

    title: str
    lines: tuple[Line, ...]
    measured: float
    predicted: float | None


def compare(model: Model, position: int, prompt: int, kernels: bool, rounds: int = ROUNDS) -> Iterator[Comparison]:
    """A decode step at a position, and a prompt of so many tokens in the largest chunk that was compiled for it.

    kernels: whether each kernel is timed by itself, too.
    """
    generator = model.text([], model.options(greedy=True)).generator
    session = generator.session
    random, vocab = np.random.default_rng(0), generator.vocab
    position = min(position, generator.context - 1)
    generator.prefill([int(token) for token in random.integers(0, vocab, max(1, position))])
    entry, inputs = generator.step(position)
    yield _compared(model, f"a decode step at position {position}", entry, inputs, [[position]], kernels, rounds)
    size = max([n for n in generator.chunks if n <= max(1, prompt)], default=1)
    entry = next((e for e in session.entries("prefill") if e.sizes.get("positions") == size), None) or entry
    if entry.sizes.get("positions") == size and size > 1:
        tokens, places = random.integers(0, vocab, (1, size)).astype(np.int32), np.arange(size, dtype=np.int32)[None]
        given = dict(zip(entry.inputs, (tokens, places), strict=False))
        yield _compared(model, f"a prompt of {size} tokens", entry, given, [list(range(size))], kernels, rounds)


def _compared(
    model: Model, title: str, entry: Entry, inputs: Mapping[str, Any], positions: Positions, kernels: bool, rounds: int
) -> Comparison:
    session = model.session
    arrays = {name: np.asarray(value, np.int32) for name, value in inputs.items()}
    expected: dict[str, Predicted] = {}
    total: float | None = None
    for launch, guess in predict(model.artifact, entry, arrays, positions, session.kernels):
        expected.setdefault(launch.kernel, guess)
        total = (total or 0.0) + guess.seconds * 1e6
    rows = profile_entry(session, entry, positions, inputs).rows if kernels else ()
    times = {row.kernel: row.microseconds for row in rows}
    lines = []
    for kernel in dict.fromkeys(launch.kernel for launch in entry.launches):
        guessed = expected.get(kernel)
        launches = sum(launch.kernel == kernel for launch in entry.launches)
        microseconds = None if guessed is None else guessed.seconds * 1e6
        lines.append(Line(kernel, launches, times.get(kernel), microseconds, guessed.bound if guessed else ""))
    measured = rounds_of(session, entry, inputs, session.prepare(entry), rounds + 1)
    return Comparison(title, tuple(lines), statistics.median(measured[1:]) * 1e6, total)


def table(found: Comparison) -> str:
    """A comparison as text: a line for each kernel, and the sums."""

    def cells(*texts: str) -> str:
        return "".join(f"{text:>13}" for text in texts)

    def number(value: float | None) -> str:
        return "-" if value is None else f"{value:.2f}"

    def ratio(measured: float | None, predicted: float | None) -> str:
        return "-" if not measured or not predicted else f"{measured / predicted:.2f}"

    lines = [found.title, f"{'kernel':32}" + cells("launches", "us each", "predicted", "ratio", "bound by")]
    for line in found.lines:
        times = number(line.measured), number(line.predicted), ratio(line.measured, line.predicted)
        lines.append(f"{line.kernel:32}" + cells(str(line.launches), *times, line.bound))
    whole = number(found.measured), number(found.predicted), ratio(found.measured, found.predicted)
    lines.append(f"{'all of it, us':32}" + cells(str(sum(line.launches for line in found.lines)), *whole, ""))
    return "\n".join(lines)


def assumptions(model: Model) -> str:
    """What the predictions stand on."""
    known = rates_of(model.artifact)
    if known is None:
        return "nothing is predicted of this device"
    rates = known[0]
    numbers = f"{rates.bandwidth / 1e9:.0f} GB/s, {rates.matrix / 1e12:.0f} TFLOP/s on matrix instructions"
    head = (
        f"predicted from the datasheet of {rates.part}: {numbers}, {rates.vector / 1e12:.0f} on others; assuming that"
    )
    return "\n".join([head, *[f"  - {text}" for text in ASSUMPTIONS]])
