"""A decode step of several texts that clusters share in one launch, on the PTX interpreter: the CPU's tokens."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, random_weights
from emulated_cuda.device import EmulatedCuda
from shared_steps import compiled

from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

VOCAB = 211


def begun(batch: int, context: int) -> tuple[list[int], list[int]]:
    """Texts' tokens and positions, which differ."""
    rng = seeded.rng()
    starts = [int(n) for n in rng.integers(0, context - 3, batch)]
    return [int(n) for n in rng.integers(0, VOCAB, batch)], starts


def by_cpu(
    artifact: Artifact, weights: Weights, tokens: list[int], starts: list[int], count: int
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The tokens that follow in each run, the last run's logits and how clear its choice is."""
    made, now = [], np.array(tokens)
    with Session(artifact, CpuDevice(), weights) as session:  # type: ignore[arg-type]
        (entry,) = artifact.plan.entries
        for number in range(count):
            session.put(entry, {"tokens": now[:, None], "positions": np.array(starts)[:, None] + number})
            (now,) = (next_.reshape(-1).copy() for next_ in session.repeat(entry, "next", 1))
            made.append(now)
        return np.array(made), session.read(entry.results["logits"]), session.read(entry.results["report"])


def check(
    folder: Path,
    batch: int,
    count: int = 2,
    clusters: int = 2,
    program: str = "gpt2.lisp",
    options: str = "",
    order: int = 0,
    watched: bool = False,
    **config: int | str,
) -> None:
    """Twice the same.  order: of the roles; watched: for races."""
    cpu = compiled(folder, "cpu", program=program, batch=batch, **config)
    weights = random_weights(cpu, scale=0.2, seed=seeded.fresh_seed())
    tokens, starts = begun(batch, int(cpu.config["context"]))
    wanted, logits, report = by_cpu(cpu, weights, tokens, starts, count)
    artifact = compiled(folder, "cuda:sm_90a", clusters, program, options=options, batch=batch, **config)
    (entry,) = artifact.plan.entries
    assert len(entry.launches) == 1, entry.remarks
    about, found = f"from {tokens} at {starts}, order {order}", []
    with Session(artifact, EmulatedCuda(order, watched=watched), weights) as session:  # type: ignore[arg-type]
        for _ in range(2):
            session.forget()
            session.put(entry, {"tokens": np.array(tokens)[:, None], "positions": np.array(starts)[:, None]})
            made = np.array([next_.reshape(-1).copy() for next_ in session.repeat(entry, "next", count)])
            np.testing.assert_array_equal(made, wanted, err_msg=about)
            found.append(session.read(entry.results["logits"]).copy())
        after = [session.read(buffer).reshape(-1).tolist() for buffer in entry.inputs.values()]
        told = session.read(entry.results["report"])
    np.testing.assert_allclose(found[0][:, :VOCAB], logits[:, :VOCAB], rtol=1e-3, atol=1e-3, err_msg=about)
    np.testing.assert_array_equal(found[0], found[1], err_msg=about)
    assert after == [wanted[-1].tolist(), [start + count for start in starts]], about
    np.testing.assert_array_equal(told[:, :2], report[:, :2], err_msg=about)
    ranked, clear = np.sort(logits[:, :VOCAB]), told[:, 2].view(np.float32)
    size = np.maximum(abs(ranked[:, 0]), abs(ranked[:, -1]))
    assert (clear >= 0.9 * (ranked[:, -1] - ranked[:, -2]) / size).all() and (clear <= 1.1).all(), about


@pytest.mark.parametrize("batch", [2])
def test_clusters_make_the_cpus_tokens_of_several_texts(batch: int, tmp_path: Path) -> None:
    check(tmp_path, batch, layers=1)


def test_a_number_of_lines_that_is_no_power_of_two(tmp_path: Path) -> None:
    """A warp has three texts' lines of the stream: their sums are those of as many lanes."""
    config: dict[str, int | str] = {"heads": 7, "width": 448, "hidden": 128, "layers": 1, "context": 16}
    check(tmp_path, 7, 1, options=":steps 64", **config)


@pytest.mark.slow
@pytest.mark.parametrize(
    ("batch", "clusters", "program", "count", "config"),
    [
        (3, 3, "gpt2.lisp", 4, {"hidden": 128}),  # one cluster for the head alone
        (4, 2, "llama_tiny.lisp", 2, {"layers": 1}),
        (5, 2, "gpt2.lisp", 2, {"heads": 4, "width": 320, "hidden": 256, "layers": 1}),
        (8, 2, "gpt2.lisp", 2, {"layers": 1}),
        (8, 1, "llama_tiny.lisp", 2, {"layers": 1}),  # more heads of texts than warps
        (2, 2, "qwen3.lisp", 2, {"head-width": 32, "layers": 1}),
    ],
)
def test_several_texts_of_other_models(
    batch: int, clusters: int, program: str, count: int, config: dict[str, int | str], tmp_path: Path
) -> None:
    check(tmp_path, batch, count, clusters, program, order=1 + seeded.fresh_seed() % 1000, watched=True, **config)


@pytest.mark.parametrize(
    ("batch", "entry", "weights", "why"),
    [
        (9, "decode-greedy", "bf16", "9 sequences are more than 8"),
        (2, "decode-drawn", "bf16", "the next tokens of several sequences are drawn"),
        (2, "decode-greedy", "int8", "weights in blocks are shared out for one sequence"),
    ],
)
def test_texts_that_clusters_do_not_share(batch: int, entry: str, weights: str, why: str, tmp_path: Path) -> None:
    artifact = compiled(tmp_path, "cuda:sm_90a", batch=batch, entry=entry, **{"weight-type": weights})
    (found,) = artifact.plan.entries
    assert len(found.launches) > 1
    assert any(r.startswith(f"it is not shared among clusters: {why}") for r in found.remarks), found.remarks
