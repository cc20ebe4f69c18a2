"""Programs that learn: gradients compiled like all else, against float64 numpy, and losses that fall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import seeded
from compiled_models import Weights
from safetensors.numpy import save_file

import lispgpt

ROOT = Path(__file__).resolve().parent.parent
SHAPES = {"in-w": (32, 64), "in-b": (32,), "out-w": (10, 32), "out-b": (10,)}


def drawn(rng: np.random.Generator) -> Weights:
    return Weights({n: rng.normal(0, 0.3, shape).astype(np.float32) for n, shape in SHAPES.items()}, frozenset())


def gelu(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The tanh form and its derivative."""
    inner = np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)
    t = np.tanh(inner)
    slope = 0.5 * (1 + t) + 0.5 * x * (1 - t**2) * np.sqrt(2 / np.pi) * (1 + 3 * 0.044715 * x**2)
    return 0.5 * x * (1 + t), slope


def step(w: dict[str, np.ndarray], x: np.ndarray, labels: np.ndarray, rate: float) -> float:
    """One step of gradient descent in float64; the loss before it."""
    before = x @ w["in-w"].T + w["in-b"]
    hidden, slope = gelu(before)
    scores = hidden @ w["out-w"].T + w["out-b"]
    powers = np.exp(scores - scores.max(1, keepdims=True))
    chances = powers / powers.sum(1, keepdims=True)
    rows = np.arange(len(x))
    loss = -np.log(chances[rows, labels]).mean()
    chances[rows, labels] -= 1
    d_scores = chances / len(x)
    d_before = (d_scores @ w["out-w"]) * slope
    w["out-w"] -= rate * d_scores.T @ hidden
    w["out-b"] -= rate * d_scores.sum(0)
    w["in-w"] -= rate * d_before.T @ x
    w["in-b"] -= rate * d_before.sum(0)
    return float(loss)


def test_a_classifier_learns_as_in_float64(tmp_path: Path) -> None:
    rng = seeded.rng()
    weights = drawn(rng)
    save_file(weights.values, tmp_path / "w.safetensors")
    exact = {n: v.astype(np.float64) for n, v in weights.values.items()}
    centres = rng.normal(0, 1, (10, 64))
    labels = rng.integers(0, 10, 24).astype(np.int32)
    x = (centres[labels] + rng.normal(0, 0.3, (24, 64))).astype(np.float32)
    with lispgpt.load(ROOT / "examples" / "classifier_train.lisp", tmp_path / "w.safetensors") as model:
        losses = []
        for number in range(40):
            found = float(model.run("train", x=x, labels=labels, rate=np.float32(0.2))["loss"].item())
            right = step(exact, x.astype(np.float64), labels, 0.2)
            assert abs(found - right) < 1e-4 * max(1, right), f"step {number}: {found} and {right}"
            losses.append(found)
        assert losses[-1] < 0.2 * losses[0]
        assert (model.run("classify", x=x)["classify"] == labels).all()
