"""A decode step that draws, shared among clusters in one launch, on the PTX interpreter: the host's tokens."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import compiled

from lispgpt.passes.decode_step.layout import Layout
from lispgpt.runtime.samplers.weighted import Weighted
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

Cut = tuple[int | None, float | None, float]
APART: list[Cut] = [(None, None, 0.0), (5, None, 0.0), (None, 0.6, 0.0), (None, None, 0.4)]
BOTH: list[Cut] = [(40, 0.9, 0.0), (150, 0.5, 0.0), (60, 0.8, 0.1), (3, 0.99, 0.0), (210, 0.95, 0.0)]
TEMPERATURES = [0.05, 0.7, 1.5, 40.0]


def check(
    folder: Path,
    cuts: list[tuple[Cut, int]],
    order: int = 0,
    temperatures: list[float] = TEMPERATURES,
    change: Callable[[np.ndarray, np.ndarray], None] | None = None,
    **config: int | str,
) -> list[int]:
    """Of the logits that it leaves itself; for each cut, so many runs.  order: of the roles, where races are looked
    for.  change: of the embedding and of the last norm's shift.  Returns in how many rounds blocks have told each other
    for each cut."""
    seed, rounds = seeded.fresh_seed(), []
    artifact = compiled(folder, "cuda:sm_90a", 2, entry="decode-drawn", **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    (exchange,) = (buffer.name for buffer in artifact.plan.buffers if buffer.kind == "signals")
    rng, position = np.random.default_rng(seed), 5
    weights = random_weights(artifact, scale=0.2, seed=seed)
    if change:
        change(weights.values["wte"], weights.values["lnf-b"])
    with Session(artifact, EmulatedCuda(order, order > 0), weights) as session:  # type: ignore[arg-type]
        for (top_k, top_p, min_p), count in cuts:
            temperature, before = float(rng.choice(temperatures)), session.read(exchange)[1]
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
            rounds.append(int(session.read(exchange)[1] - before))
            position += count
    return rounds


def test_a_shared_step_draws_as_the_hosts_sampler_does(tmp_path: Path) -> None:
    rng = seeded.rng()
    check(tmp_path, [(APART[rng.integers(4)], 1), (BOTH[rng.integers(5)], 1)], layers=1)


@pytest.mark.slow
@pytest.mark.parametrize("config", [{"layers": 1, "vocab": 1001}, {"layers": 2}, {"program": "llama_tiny.lisp"}])
def test_every_cut_in_any_order_of_roles(config: dict[str, int | str], tmp_path: Path) -> None:
    order = 1 + int(seeded.rng().integers(1000))
    check(tmp_path, [(cut, 1) for cut in APART] + [(cut, 2) for cut in BOTH[:2]], order, **config)


@pytest.mark.parametrize(
    ("cuts", "vocab"),
    [
        ([((5, None, 0.0), 3)], 211),
        ([((6, 0.9, 0.0), 1)], 2003),
        pytest.param([((1, None, 0.0), 2), ((4, 0.8, 0.0), 2), ((6, 0.6, 0.1), 3)], 211, marks=pytest.mark.slow),
        pytest.param([((5, None, 0.1), 2), ((6, 0.8, 0.0), 2)], 4001, marks=pytest.mark.slow),
    ],
)
def test_one_telling_finds_the_most_probable_tokens(cuts: list[tuple[Cut, int]], vocab: int, tmp_path: Path) -> None:
    """So few that no block has more of them than others hear of."""
    assert check(tmp_path, cuts, temperatures=[0.7, 1.5, 40.0], layers=1, vocab=vocab) == [count for _, count in cuts]


@pytest.mark.parametrize(
    ("entries", "cut", "vocab"),
    [
        (1, (30, None, 0.0), 211),
        pytest.param(4, (80, None, 0.0), 211, marks=pytest.mark.slow),
        pytest.param(2, (80, 0.9, 0.0), 1001, marks=pytest.mark.slow),
    ],
)
def test_more_rounds_of_telling_where_not_all_that_are_left_are_heard_of(
    entries: int, cut: Cut, vocab: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """At a temperature at which it is hardly the most probable token that is drawn."""
    monkeypatch.setattr(Layout, "entries", entries)
    (rounds,) = check(tmp_path, [(cut, 3)], temperatures=[40.0], layers=1, vocab=vocab)
    assert rounds > 3


def test_probable_tokens_side_by_side(tmp_path: Path) -> None:
    """They are some of several blocks', of which others hear but of a few."""

    def change(embedding: np.ndarray, shift: np.ndarray) -> None:
        shift[7] = 10.0
        embedding[:, 7] = np.arange(len(embedding)) < 40

    cuts: list[tuple[Cut, int]] = [((20, None, 0.0), 2)]
    check(tmp_path, cuts, temperatures=[1.5, 40.0], change=change, layers=1, vocab=1001)


@pytest.mark.parametrize("kinds", [20, pytest.param(2, marks=pytest.mark.slow)])
def test_tokens_as_probable_as_others(kinds: int, tmp_path: Path) -> None:
    """Of equals the lowest are among the top-k."""

    def change(embedding: np.ndarray, _: np.ndarray) -> None:
        embedding[:] = embedding[np.arange(len(embedding)) % kinds]

    check(tmp_path, [((12, None, 0.0), 2), ((5, 0.8, 0.0), 1)], temperatures=[1.5, 40.0], change=change, layers=1)


def test_tokens_that_are_infinitely_improbable(tmp_path: Path) -> None:
    def change(embedding: np.ndarray, shift: np.ndarray) -> None:
        shift[7] = 100.0
        embedding[10:, 7] = -3.0e38

    check(tmp_path, [((12, 0.9, 0.0), 1), ((5, None, 0.0), 1)], temperatures=[40.0], change=change, layers=1)


def test_damaged_logits_are_no_token_of_a_shared_draw(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", 2, entry="decode-drawn", layers=1)
    weights = random_weights(artifact, scale=0.2, seed=seeded.fresh_seed())
    weights.values["lnf-b"][3] = np.nan
    (entry,) = artifact.plan.entries
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        sampler = Weighted(1.0, 5, 0.9, 1)
        session.put(entry, {"tokens": [[3]], "positions": [[5]], "sampling": [sampler.settings(5)]})
        assert [int(next_.item()) for next_ in session.repeat(entry, "next", 1)] == [-1]
