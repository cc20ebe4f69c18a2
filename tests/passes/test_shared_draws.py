"""A decode step that draws, shared among clusters in one launch, on the PTX interpreter: the host's sampler's tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import GPT2, compiled

from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

EVERY = (None, None, 0.0)
CUTS = [EVERY, (5, None, 0.0), (None, 0.6, 0.0), (40, 0.9, 0.0), (150, 0.5, 0.0), (None, None, 0.4), (60, 0.8, 0.1)]


@pytest.mark.parametrize("count", [1, 3])
def test_a_shared_step_draws_as_the_hosts_sampler_does(count: int, tmp_path: Path) -> None:
    """Of the logits that it leaves itself; `count` runs of a launch for each of the cuts."""
    seed = seeded.fresh_seed()
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, entry="decode-drawn", layers=1)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    rng, position, cuts = np.random.default_rng(seed), 5, CUTS * (2 if count == 1 else 1)
    with Session(artifact, EmulatedCuda(), random_weights(artifact, scale=0.2, seed=seed)) as session:  # type: ignore[arg-type]
        for top_k, top_p, min_p in cuts if count == 1 else cuts[-2:]:
            temperature = float(rng.choice([0.05, 0.7, 1.5, 40.0]))
            sampler = Weighted(temperature, top_k, top_p, int(rng.integers(1 << 62)), stream=3, min_p=min_p)
            sampler.drawn = int(rng.integers(1 << 20))
            given = {"tokens": [[3]], "positions": [[position]], "sampling": [sampler.settings(position)]}
            session.put(entry, given)
            found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
            sampler.drawn += count - 1
            wanted = sampler(session.read(entry.results["logits"])[0][: GPT2["vocab"]])
            says = f"seed {seed}, temperature {temperature}, top_k {top_k}, top_p {top_p}, min_p {min_p}"
            assert found[-1] == wanted, says
            assert session.read(next(iter(entry.inputs.values()))).item() == wanted, says
            position += count


def test_damaged_logits_are_no_token_of_a_shared_draw(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, entry="decode-drawn", layers=1)
    weights = random_weights(artifact, scale=0.2, seed=seeded.fresh_seed())
    weights.values["lnf-b"][3] = np.nan
    (entry,) = artifact.plan.entries
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        sampler = Weighted(1.0, 5, 0.9, 1)
        session.put(entry, {"tokens": [[3]], "positions": [[5]], "sampling": [sampler.settings(5)]})
        assert [int(next_.item()) for next_ in session.repeat(entry, "next", 2)] == [-1, -1]
