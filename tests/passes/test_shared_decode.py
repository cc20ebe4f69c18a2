"""A decode step that clusters share in one launch, on the PTX interpreter: the CPU's tokens, in any order of roles."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import GPT2, by_cpu, compiled

from lispgpt.runtime.session import Session


def check(folder: Path, clusters: int, start: int, count: int, order: int = 0, **config: int | str) -> None:
    """order: of the roles, by warps of all blocks (0) or by every block's own in an order of that seed."""
    cpu, seed = compiled(folder, "cpu", **config), seeded.fresh_seed()
    weights = random_weights(cpu, scale=0.2, seed=seed)
    tokens, logits = by_cpu(cpu, weights, start, count)
    artifact = compiled(folder, "cuda:sm_90a", clusters, **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    with Session(artifact, EmulatedCuda(order), weights) as session:  # type: ignore[arg-type]
        session.put(entry, {"tokens": [[3]], "positions": [[start]]})
        found = [int(next_.item()) for next_ in session.repeat(entry, "next", count)]
        made = session.read(entry.results["logits"])[0]
        report = session.read(entry.results["report"])[0]
        assert session.read(next(iter(entry.inputs.values()))).item() == found[-1]
    size = min(made.size, logits.size)
    np.testing.assert_allclose(made[:size], logits[:size], rtol=1e-3, atol=1e-3, err_msg=f"seed {seed}")
    assert found == tokens, f"seed {seed}"
    ranked = np.sort(logits[: GPT2["vocab"]])
    assert report[:2].tolist() == [tokens[-1], 1], f"seed {seed}"
    size = max(abs(ranked[0]), abs(ranked[-1]))
    clear = report[2:].view(np.float32).item()
    assert 0.9 * (ranked[-1] - ranked[-2]) / size <= clear <= 1.1, f"seed {seed}"


def test_clusters_make_the_cpus_tokens(tmp_path: Path) -> None:
    check(tmp_path, clusters=2, start=7, count=2, layers=1)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("clusters", "start", "count", "config"),
    [
        (3, 3, 10, {}),  # one cluster for the head alone, and two launches
        (2, 30, 2, {"cache-type": "bf16"}),
        (4, 6, 3, {"heads": 4, "width": 256, "layers": 1}),
        (2, 14, 3, {"layers": 3}),
        (2, 7, 2, {}),
    ],
)
def test_other_models_and_clusters(
    clusters: int, start: int, count: int, config: dict[str, int | str], tmp_path: Path
) -> None:
    check(tmp_path, clusters, start, count, **config)


@pytest.mark.slow
def test_roles_in_any_order(tmp_path: Path) -> None:
    check(tmp_path, clusters=2, start=6, count=2, order=1 + seeded.fresh_seed() % 1000, layers=1)


@pytest.mark.parametrize(
    ("program", "config", "why"),
    [
        ("llama_tiny.lisp", {}, ""),
        ("gpt2.lisp", {"context": 2048}, "2048 positions do not fit registers"),
        ("gpt2.lisp", {"heads": 4}, "4 heads of 32 and a width of 128 are not shared among 16 blocks"),
        ("gpt2.lisp", {"hidden": 384}, "384 hidden units are not shared among 2 clusters"),
        ("gpt2.lisp", {"weight-type": "f32"}, "a product is not of one row with BF16 weights"),
    ],
)
def test_what_is_no_such_chain_stays_as_it_was(
    program: str, config: dict[str, int | str], why: str, tmp_path: Path
) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", program=program, **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) > 1
    assert any(r.startswith(f"it is not shared among clusters: {why}") for r in entry.remarks), entry.remarks


def test_a_chip_without_clusters_is_left_alone(tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_80")
    assert all(len(entry.launches) > 1 for entry in artifact.plan.entries)
