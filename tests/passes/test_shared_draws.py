"""A decode step that draws, shared among clusters in one launch, on the PTX interpreter: the host's tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import compiled

from lispgpt.passes.plan import sharded_likely
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

Cut = tuple[int | None, float | None, float]
APART: list[Cut] = [(None, None, 0.0), (5, None, 0.0), (None, 0.6, 0.0), (None, None, 0.4)]
BOTH: list[Cut] = [(40, 0.9, 0.0), (150, 0.5, 0.0), (60, 0.8, 0.1), (3, 0.99, 0.0), (210, 0.95, 0.0)]
TEMPERATURES = [0.05, 0.7, 1.5, 40.0]


def check(folder: Path, cuts: list[tuple[Cut, int]], order: int = 0, **config: int | str) -> None:
    """Of the logits that it leaves itself; for each cut, so many runs.  order: of the roles, where races are looked
    for."""
    seed = seeded.fresh_seed()
    artifact = compiled(folder, "cuda:sm_90a", 2, entry="decode-drawn", **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    rng, position = np.random.default_rng(seed), 5
    with Session(artifact, EmulatedCuda(order, order > 0), random_weights(artifact, scale=0.2, seed=seed)) as session:  # type: ignore[arg-type]
        for (top_k, top_p, min_p), count in cuts:
            temperature = float(rng.choice(TEMPERATURES))
            sampler = Weighted(temperature, top_k, top_p, int(rng.integers(1 << 62)), stream=3, min_p=min_p)
            sampler.drawn = int(rng.integers(1 << 20))
            given = {"tokens": [[3]], "positions": [[position]], "sampling": [sampler.settings(position)]}
            session.put(entry, given)
            found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
            sampler.drawn += count - 1
            wanted = sampler(session.read(entry.results["logits"])[0][: session.config["vocab"]])
            says = f"seed {seed}, temperature {temperature}, top_k {top_k}, top_p {top_p}, min_p {min_p}"
            assert found[-1] == wanted, says
            assert session.read(next(iter(entry.inputs.values()))).item() == wanted, says
            position += count


def test_a_shared_step_draws_as_the_hosts_sampler_does(tmp_path: Path) -> None:
    rng = seeded.rng()
    check(tmp_path, [(APART[rng.integers(4)], 1), (BOTH[rng.integers(5)], 1)], layers=1)


@pytest.mark.slow
@pytest.mark.parametrize("config", [{"layers": 1, "vocab": 1001}, {"layers": 2}, {"program": "llama_tiny.lisp"}])
def test_every_cut_in_any_order_of_roles(config: dict[str, int | str], tmp_path: Path) -> None:
    order = 1 + int(seeded.rng().integers(1000))
    check(tmp_path, [(cut, 1) for cut in APART] + [(cut, 2) for cut in BOTH[:2]], order, **config)


@pytest.mark.slow
def test_a_block_with_more_probable_tokens_than_fit_in_the_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Rounds of telling take its place."""
    monkeypatch.setattr(sharded_likely, "LISTED_OF_BLOCK", 1)
    check(tmp_path, [((5, None, 0.0), 2), ((12, 0.8, 0.0), 2)], layers=1)


def test_damaged_logits_are_no_token_of_a_shared_draw(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, entry="decode-drawn", layers=1)
    weights = random_weights(artifact, scale=0.2, seed=seeded.fresh_seed())
    weights.values["lnf-b"][3] = np.nan
    (entry,) = artifact.plan.entries
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        sampler = Weighted(1.0, 5, 0.9, 1)
        session.put(entry, {"tokens": [[3]], "positions": [[5]], "sampling": [sampler.settings(5)]})
        assert [int(next_.item()) for next_ in session.repeat(entry, "next", 1)] == [-1]
