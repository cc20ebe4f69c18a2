"""Tokens that a decode step draws on the GPU: those of the host's sampler, by the logits that the step leaves."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from gpu.chips import Chip
from gpu.decoding import FIRST, FORMS, References, compiled, opened

from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.samplers.weighted import Weighted

CUTS: list[tuple[int | None, float | None, float]] = [
    *((None, None, 0.0), (5, None, 0.0), (None, 0.6, 0.0), (None, None, 0.4), (40, 0.9, 0.0), (150, 0.5, 0.1)),
]
"""top_k, top_p and min_p."""
TEMPERATURES = (0.05, 0.7, 1.5, 40.0)
DRAWING = ("graph", "several in a graph", "shared by clusters")


@pytest.mark.parametrize("form", DRAWING)
@pytest.mark.parametrize("model", ["gpt2", "llama", pytest.param("recurrence", marks=pytest.mark.slow)])
def test_draws_are_the_host_samplers(model: str, form: str, chip: Chip, references: References, tmp_path: Path) -> None:
    """One by one, and the last of some in a launch."""
    reference, rng, position = references.of(model), seeded.rng(), 0
    artifact = compiled(chip, model, tmp_path, FORMS[form], DRAWN)
    (entry,) = artifact.plan.entries
    with opened(chip, artifact, reference.weights, FORMS[form]) as session:
        for number in range(chip.sized(60, 1)):
            top_k, top_p, min_p = CUTS[number % len(CUTS)]
            temperature, count = float(rng.choice(TEMPERATURES)), chip.sized(int(rng.choice([1, 1, 2, 5])), 1)
            sampler = Weighted(temperature, top_k, top_p, int(rng.integers(1 << 62)), stream=3, min_p=min_p)
            sampler.drawn = int(rng.integers(1 << 20))
            settings = [sampler.settings(position)]
            session.put(entry, {"tokens": [[FIRST]], "positions": [[position]], "sampling": settings})
            found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
            sampler.drawn += count - 1
            wanted = sampler(session.read(entry.results["logits"])[0][: reference.vocab])
            about = f"{reference.about}, {settings}"
            assert found[-1] == wanted, about
            assert session.read(next(iter(entry.inputs.values()))).item() == wanted, about
            position += count
            assert len(found) == count and np.all(np.array(found) < reference.vocab), about
