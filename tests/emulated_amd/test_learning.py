"""Steps of training on emulated AMD GPUs, through hip-python: the CPU's losses and the CPU's weights after them."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from emulated_amd.running import CHIPS
from safetensors.numpy import save_file
from test_training import RATES, ROOT, drawn, gpt2_tiny

import lispgpt

pytestmark = pytest.mark.drawn

Learned = tuple[list[float], dict[str, np.ndarray]]
"""(the losses, the weights after the last step)."""


def learned(
    target: str, program: str, weights: Path, settings: Mapping[str, Any], given: list[dict[str, Any]]
) -> Learned:
    """Run an example's `train` once for each of its inputs."""
    with lispgpt.load(ROOT / "examples" / program, weights, target=target, settings=settings) as model:
        losses = [float(model.run("train", **inputs)["loss"].item()) for inputs in given]
        names = [b.name for b in model.artifact.plan.buffers if b.kind == "weight"]
        return losses, {name: model.session.read(name).copy() for name in names}


class Lesson:
    """An example's weights and the inputs of its steps, and what the CPU learns from them."""

    def __init__(
        self, folder: Path, seed: int, program: str, weights: dict[str, np.ndarray], settings: Mapping[str, Any],
        steps: list[dict[str, Any]],
    ) -> None:  # fmt: skip
        self.about, self.weights = f"seed {seed}", weights
        self.given: tuple[Any, ...] = (program, folder / f"{program}.safetensors", settings, steps)
        save_file(weights, self.given[1])
        self.right = learned("cpu", *self.given)

    def compare(self, chip: str, tolerance: float) -> Learned:
        """Learn on a chip; what it learned."""
        here = f"{chip}, {self.about}"
        found = learned(f"emulated:{chip}", *self.given)
        np.testing.assert_allclose(found[0], self.right[0], rtol=tolerance, err_msg=here)
        for name, weight in self.right[1].items():
            about = f"{name}, {here}"
            np.testing.assert_allclose(found[1][name], weight, rtol=0, atol=tolerance, err_msg=about)
        return found


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    weights = drawn(random).values
    given = {"labels": random.integers(0, 10, 12).astype(np.int32), "rate": np.float32(0.2)}
    steps = [{**given, "x": random.standard_normal((12, 64), np.float32)} for _ in range(3)]
    return Lesson(tmp_path_factory.mktemp("classifier"), seed, "classifier_train.lisp", weights, {}, steps)


@pytest.fixture(scope="module")
def gpt2(tmp_path_factory: pytest.TempPathFactory) -> Lesson:
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    weights, sizes = gpt2_tiny(random)
    tokens, targets = random.integers(0, 90, (2, 2, 16)).astype(np.int32)
    steps = [{"tokens": tokens, "targets": targets, "step": step, "seed": 5, **RATES} for step in (1, 2)]
    settings = {**sizes, "weight-type": "f32"}
    return Lesson(tmp_path_factory.mktemp("gpt2"), seed, "gpt2_train.lisp", weights, settings, steps)


@pytest.mark.parametrize("chip", CHIPS)
def test_a_classifier(chip: str, classifier: Lesson) -> None:
    found = classifier.compare(chip, 2e-5)
    for name, weight in classifier.weights.items():
        assert np.abs(found[1][name] - weight).max() > 1e-3, classifier.about


@pytest.mark.parametrize("chip", ["drawn", *(pytest.param(chip, marks=pytest.mark.slow) for chip in CHIPS)])
def test_gpt2(chip: str, gpt2: Lesson) -> None:
    """Gradients are divided by their size here, so that weights may differ by more than what gradients do.

    By default on one chip, another one each time.
    """
    chip = str(seeded.rng().choice(CHIPS)) if chip == "drawn" else chip
    found = gpt2.compare(chip, 1e-3)
    assert np.abs(found[1]["wte"] - gpt2.weights["wte"]).max() > 5e-4, f"{chip}, {gpt2.about}"
