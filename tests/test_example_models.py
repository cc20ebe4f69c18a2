"""The examples that are not GPT-2 or Llama: against float64 numpy on a CPU, and compiled for GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import reference_models as reference
import seeded
from compiled_models import Weights, poison, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

pytestmark = pytest.mark.drawn

MODELS = ("classifier", "experts", "sliding_window", "alibi", "recurrence")


def close(found: np.ndarray, wanted: np.ndarray) -> None:
    assert found.shape == wanted.shape
    np.testing.assert_allclose(found, wanted, atol=2e-4 * max(1.0, float(np.abs(wanted).max())))


@pytest.fixture(params=["cpu", "cuda:sm_90"])
def target(request: pytest.FixtureRequest) -> str:
    """What the models run on; PTX runs on an emulator."""
    return str(request.param)


def compiled(target: str, program: Path, **settings: Any) -> Artifact:
    return compile_request(Request(program, target, overrides=settings), Observer())[0]


def opened(artifact: Artifact, weights: Weights) -> Session:
    """A session whose arena and results are NaN before the first run."""
    device = CpuDevice(2) if artifact.target == "cpu" else EmulatedCuda()
    session = Session(artifact, device, weights)  # type: ignore[arg-type]
    poison(session)
    return session


@pytest.mark.parametrize("chip", ["rocm:gfx1151", "cuda:sm_90a"])
@pytest.mark.parametrize("name", MODELS)
def test_it_compiles_for_gpus(name: str, chip: str, examples: Path) -> None:
    artifact, _ = compile_request(Request(examples / f"{name}.lisp", chip), Observer())
    assert all(entry.launches for entry in artifact.plan.entries)


def test_classifier(target: str, examples: Path) -> None:
    artifact = compiled(target, examples / "classifier.lisp", hidden=70, classes=int(seeded.rng().integers(2, 12)))
    weights = random_weights(artifact, 0.1)
    with opened(artifact, weights) as session:
        for batch in (1, 64):
            x = seeded.rng().standard_normal((batch, 784)).astype(np.float32)
            wanted = reference.classify(weights.exact(), x.astype(np.float64))
            poison(session)
            found = session.run("classify", x=x)
            close(found["scores"], wanted)
            close(found["probabilities"], reference.softmax(wanted))
            chosen = np.take_along_axis(wanted, found["best"][:, None], 1)[:, 0]
            close(chosen, wanted.max(1))


def test_mixture_of_experts(target: str, examples: Path) -> None:
    artifact = compiled(target, examples / "experts.lisp", width=32, hidden=40, experts=6, top=3)
    weights = random_weights(artifact, 0.3)
    with opened(artifact, weights) as session:
        for rows in (1, 24):
            x = seeded.rng().standard_normal((rows, 32)).astype(np.float32)
            wanted, gap = reference.mixture(weights.exact(), x.astype(np.float64), 3)
            poison(session)
            found = session.run("mixture", x=x)["mixture"]
            if gap > 1e-4:
                close(found, wanted)


def test_sliding_window(target: str, examples: Path) -> None:
    artifact = compiled(target, examples / "sliding_window.lisp", vocab=90, window=7, heads=2, width=32, hidden=50)
    weights = random_weights(artifact, 0.2)
    with opened(artifact, weights) as session:
        for texts, length in ((1, 40), (3, 24)):
            tokens = seeded.rng().integers(0, 90, (texts, length)).astype(np.int32)
            poison(session)
            found = session.run("score", tokens=tokens)["score"]
            close(found, reference.score(weights.exact(), tokens, heads=2, window=7))


def test_alibi_by_chunks_and_steps(target: str, examples: Path) -> None:
    artifact = compiled(target, examples / "alibi.lisp", vocab=90, heads=8, width=64, hidden=50, context=40)
    weights = random_weights(artifact, 0.2)
    tokens = seeded.rng().integers(0, 90, 22).astype(np.int32)
    wanted = reference.alibi(weights.exact(), tokens, heads=8)
    with opened(artifact, weights) as session:
        positions = np.arange(22, dtype=np.int32)
        for start, end in [(0, 16), *((i, i + 1) for i in range(16, 22))]:
            entry = "decode-greedy" if end - start == 1 else "prefill"
            poison(session)
            found = session.run(entry, tokens=tokens[None, start:end], positions=positions[None, start:end])
            close(found["logits"][0], wanted[end - 1])


@pytest.mark.parametrize(
    "chunks",
    [
        [16, 1, 1],
        *(pytest.param(c, marks=pytest.mark.slow) for c in ([16, 1, 1, 16, 1], [1, 1, 16, 16, 1], [1] * 35)),
    ],
)
def test_recurrence_remembers_alike_by_chunks_and_steps(chunks: list[int], target: str, examples: Path) -> None:
    artifact = compiled(target, examples / "recurrence.lisp", vocab=90, width=24, hidden=40)
    weights = random_weights(artifact, 0.3)
    tokens = seeded.rng().integers(0, 90, sum(chunks)).astype(np.int32)
    wanted, memory = reference.recurrence(weights.exact(), tokens)
    with opened(artifact, weights) as session:
        end = 0
        for size in chunks:
            end += size
            entry = "decode-greedy" if size == 1 else "prefill"
            places = np.arange(end - size, end, dtype=np.int32)
            poison(session)
            found = session.run(entry, tokens=tokens[None, end - size : end], positions=places[None])
            close(found["logits"][0], wanted[end - 1])
        close(session.read("memory")[:, 0], memory)
