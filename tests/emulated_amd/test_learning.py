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


def compare(found: Learned, right: Learned, tolerance: float, about: str) -> None:
    np.testing.assert_allclose(found[0], right[0], rtol=tolerance, err_msg=about)
    for name, weight in right[1].items():
        np.testing.assert_allclose(found[1][name], weight, rtol=0, atol=tolerance, err_msg=f"{name}, {about}")


@pytest.mark.parametrize("chip", CHIPS)
def test_a_classifier(chip: str, tmp_path: Path) -> None:
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    path = tmp_path / "w.safetensors"
    weights = drawn(random).values
    save_file(weights, path)
    given = {"labels": random.integers(0, 10, 12).astype(np.int32), "rate": np.float32(0.2)}
    steps = [{**given, "x": random.standard_normal((12, 64), np.float32)} for _ in range(3)]
    right = learned("cpu", "classifier_train.lisp", path, {}, steps)
    found = learned(f"emulated:{chip}", "classifier_train.lisp", path, {}, steps)
    compare(found, right, 2e-5, f"seed {seed}")
    assert all(np.abs(found[1][name] - weight).max() > 1e-3 for name, weight in weights.items()), f"seed {seed}"


@pytest.mark.parametrize("chip", ["gfx942", "gfx1151"])
def test_gpt2(chip: str, tmp_path: Path) -> None:
    """Gradients are divided by their size here, so that weights may differ by more than what gradients do."""
    seed = int(seeded.rng().integers(1 << 30))
    random = np.random.default_rng(seed)
    weights, sizes = gpt2_tiny(random)
    save_file(weights, tmp_path / "w.safetensors")
    tokens, targets = random.integers(0, 90, (2, 2, 16)).astype(np.int32)
    steps = [{"tokens": tokens, "targets": targets, "step": step, "seed": 5, **RATES} for step in (1, 2)]
    settings = {**sizes, "weight-type": "f32"}
    right = learned("cpu", "gpt2_train.lisp", tmp_path / "w.safetensors", settings, steps)
    found = learned(f"emulated:{chip}", "gpt2_train.lisp", tmp_path / "w.safetensors", settings, steps)
    compare(found, right, 1e-3, f"seed {seed}")
    assert np.abs(found[1]["wte"] - weights["wte"]).max() > 5e-4, f"seed {seed}"
