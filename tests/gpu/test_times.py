"""What a GPT-2 of 124M takes on the GPU, for the table at the end: nothing is asserted but that it is plausible."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from compiled_models import Weights
from gpu.chips import Chip
from gpu.decoding import EXAMPLES, FIRST, FORMS, References, compiled, opened
from gpu.timings import Timings, microseconds

from lispgpt.bench.measures import Bench, Measure
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

STEPS = 48
TIMED = [name for name, form in FORMS.items() if form.graphs]


class Timed:
    """A model that is timed: its config values, and weights."""

    def __init__(self, chip: Chip, references: References) -> None:
        real = {"layers": 12, "heads": 12, "width": 768, "vocab": 50257, "context": 1024}
        self.sizes: dict[str, Any] = chip.sized(real, {"layers": 1, "heads": 2, "width": 128, "context": 64})
        self.weights: Weights = references.of("gpt2", **self.sizes).weights
        self.name = f"GPT-2, {sum(v.size for v in self.weights.values.values()) / 1e6:.0f}M parameters"
        self.steps = chip.sized(STEPS, 2)
        self.ends = {"at 64": chip.sized(64, 4), "near the end": int(self.sizes["context"]) - self.steps - 1}


@pytest.fixture(scope="module")
def timed(chip: Chip, references: References) -> Timed:
    return Timed(chip, references)


def step(
    session: Session, timed: Timed, position: int, chip: Chip, sampler: Weighted | None = None, texts: int = 1
) -> float:
    """Microseconds of one of some steps from a position on."""
    (entry,) = session.artifact.plan.entries
    settings = {} if sampler is None else {"sampling": [sampler.settings(position)]}
    given = {"tokens": [[FIRST]] * texts, "positions": [[position]] * texts, **settings}

    def steps() -> None:
        session.put(entry, given)
        assert len(list(session.repeat(entry, "next", timed.steps))) == timed.steps

    return microseconds(steps, chip.sized(5, 1)) / timed.steps


@pytest.mark.parametrize("form", TIMED)
def test_decode_steps(form: str, timed: Timed, chip: Chip, timings: Timings, tmp_path: Path) -> None:
    artifact = compiled(chip, "gpt2", tmp_path, FORMS[form], **timed.sizes)
    with opened(chip, artifact, timed.weights, FORMS[form]) as session:
        times = {where: step(session, timed, position, chip) for where, position in timed.ends.items()}
        for where, time in times.items():
            timings.add(timed.name, f"decode {where}, {form}", time, "token")
    assert 0 < times["at 64"] < chip.sized(1e5, 1e9) and times["near the end"] < 20 * times["at 64"]


@pytest.mark.parametrize("weights", ["int8", "q8_0"])
@pytest.mark.parametrize("form", ["several in a graph", "shared by clusters"])
def test_weights_of_eight_bits(
    form: str, weights: str, timed: Timed, chip: Chip, references: References, timings: Timings, tmp_path: Path
) -> None:
    model = f"gpt2, {weights}"
    artifact = compiled(chip, model, tmp_path, FORMS[form], **timed.sizes)
    with opened(chip, artifact, references.of(model, **timed.sizes).weights, FORMS[form]) as session:
        for where, position in timed.ends.items():
            time = step(session, timed, position, chip)
            timings.add(timed.name, f"decode {where}, {weights}, {form}", time, "token")
            assert 0 < time < chip.sized(1e5, 1e9)


@pytest.mark.parametrize("texts", [2, 4, 8])
@pytest.mark.parametrize("form", ["several in a graph", "shared by clusters"])
def test_texts_that_go_on_together(
    form: str, texts: int, timed: Timed, chip: Chip, timings: Timings, tmp_path: Path
) -> None:
    artifact = compiled(chip, "gpt2", tmp_path, FORMS[form], texts=texts, **timed.sizes)
    with opened(chip, artifact, timed.weights, FORMS[form]) as session:
        for where, position in timed.ends.items():
            time = step(session, timed, position, chip, texts=texts)
            timings.add(timed.name, f"decode {where}, {texts} texts, {form}", time, "step")
            assert 0 < time < chip.sized(1e5, 1e9)


def test_what_sampling_adds(timed: Timed, chip: Chip, timings: Timings, tmp_path: Path) -> None:
    found: dict[str, float] = {}
    form = FORMS["several in a graph"]
    artifact = compiled(chip, "gpt2", tmp_path, form, DRAWN, **timed.sizes)
    with opened(chip, artifact, timed.weights, form) as session:
        for what, sampler in {
            "no cut": Weighted(0.8, None, None, 1),
            "top-k 50": Weighted(0.8, 50, None, 1),
            "top-p 0.9": Weighted(0.8, None, 0.9, 1),
        }.items():
            found[what] = step(session, timed, timed.ends["at 64"], chip, sampler)
    greedy = compiled(chip, "gpt2", tmp_path, form, **timed.sizes)
    with opened(chip, greedy, timed.weights, form) as session:
        least = step(session, timed, timed.ends["at 64"], chip)
    for what, time in found.items():
        timings.add(timed.name, f"drawn at 64, {what}", time, "token", f"{time - least:+.1f} to greedy")
        assert time < 20 * least


@pytest.mark.parametrize("precision", ["exact", "fast"])
def test_prompts_and_batches(precision: str, timed: Timed, chip: Chip, timings: Timings) -> None:
    request = Request(EXAMPLES / "gpt2_generate.lisp", chip.target, _own(timed, chip), precision=precision)
    with Model(request, timed.weights, device=chip.device) as model:  # type: ignore[arg-type]
        bench = Bench(model, chip.sized(5, 1))
        measures: list[Measure] = [bench.prompt(n) for n in chip.sized((128, 512, 1024), (16,))]
        for batch in chip.sized((8, 64), ()):
            measures += [bench.decode(position, batch) for position in timed.ends.values()]
            measures.append(bench.ragged(batch))
    for measure in measures:
        more = "" if measure.floor is None else f"{measure.share:.0%} of the chip's rate"
        timings.add(timed.name, f"{measure.what}, {precision}", measure.seconds * 1e6, measure.unit, more)
        assert np.isfinite(measure.seconds) and measure.seconds > 0


def _own(timed: Timed, chip: Chip) -> dict[str, Any]:
    """The config values of weights that were made for a small vocabulary, where they were."""
    return {**chip.sized({}, {"vocab": 211}), **timed.sizes}
