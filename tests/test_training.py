"""Programs that learn: gradients compiled like all else, against float64 numpy, and losses that fall."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, compile_text, random_weights
from emulated_cuda.device import EmulatedCuda
from safetensors.numpy import save_file

import lispgpt
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

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


def gpt2_tiny(rng: np.random.Generator) -> tuple[dict[str, np.ndarray], dict[str, object]]:
    """Weights of a GPT-2 of two layers, and the config that they are for."""
    sizes = {"layers": 2, "width": 32, "heads": 2, "vocab": 90, "padded-vocab": 96, "context": 16}
    layers, width = 2, 32

    def drawn(*shape: int) -> np.ndarray:
        return rng.normal(0, 0.02, shape).astype(np.float32)

    weights = {"wte": drawn(96, width), "wpe": drawn(16, width)}
    for name, outputs, inputs in (("qkv", 3, 1), ("proj", 1, 1), ("fc", 4, 1), ("out", 1, 4)):
        weights[f"{name}-w"] = drawn(layers, outputs * width, inputs * width)
        weights[f"{name}-b"] = drawn(layers, outputs * width)
    for name in ("ln1", "ln2"):
        weights[f"{name}-w"] = 1 + drawn(layers, width)
        weights[f"{name}-b"] = drawn(layers, width)
    return {**weights, "lnf-w": 1 + drawn(width), "lnf-b": drawn(width)}, dict(sizes)


RATES = {
    "lr": 3e-3,
    "warmup": 3,
    "steps": 20,
    "min-lr": 1e-4,
    "clip": 1,
    "weight-decay": 0.1,
    "beta1": 0.9,
    "beta2": 0.95,
}


@pytest.mark.drawn
@pytest.mark.parametrize(
    "settings",
    [{"weight-type": "f32"}, {"weight-type": "bf16", "activation-type": "bf16", "dropout-rate": 0.1}],
    ids=["f32", "bf16"],
)
def test_gpt2_learns_a_text_by_heart(tmp_path: Path, settings: dict[str, object]) -> None:
    rng = seeded.rng()
    weights, sizes = gpt2_tiny(rng)
    save_file(weights, tmp_path / "w.safetensors")
    tokens = rng.integers(0, 90, (2, 16)).astype(np.int32)
    targets = np.roll(tokens, -1, 1)
    targets[0, :3] = -1
    program = ROOT / "examples" / "gpt2_train.lisp"
    with lispgpt.load(program, tmp_path / "w.safetensors", settings={**sizes, **settings}) as model:
        given = {"tokens": tokens, "targets": targets}
        first = model.run("evaluate", **given)
        assert abs(first["loss"] - np.log(90)) < 0.3 and first["correct"] <= 29
        for step in range(1, 21):
            found = model.run("train", **given, step=step, seed=5, **RATES)
            assert np.isfinite(found["loss"]) and found["grad-norm"] > 0
        last = model.run("evaluate", **given)
    assert last["loss"] < 0.75 * first["loss"] and last["correct"] > first["correct"]


def test_micro_batches_together_are_one_batch(tmp_path: Path) -> None:
    rng = seeded.rng()
    weights, sizes = gpt2_tiny(rng)
    save_file(weights, tmp_path / "w.safetensors")
    tokens, targets = rng.integers(0, 90, (2, 4, 16)).astype(np.int32)
    program, settings = ROOT / "examples" / "gpt2_train.lisp", {**sizes, "weight-type": "f32"}
    with lispgpt.load(program, tmp_path / "w.safetensors", settings=settings) as model:
        whole = [model.run("train", tokens=tokens, targets=targets, step=s, seed=0, **RATES) for s in (1, 2)]
    with lispgpt.load(program, tmp_path / "w.safetensors", settings=settings) as model:
        for step, wanted in enumerate(whole, 1):
            losses = [
                model.run("accumulate", tokens=t[None], targets=y[None], step=step, seed=0, accumulate=4)["loss"]
                for t, y in zip(tokens, targets, strict=True)
            ]
            found = model.run("apply", step=step, **RATES)
            np.testing.assert_allclose(np.mean(losses), wanted["loss"], rtol=1e-5)
            np.testing.assert_allclose(found["grad-norm"], wanted["grad-norm"], rtol=1e-4)
            np.testing.assert_allclose(found["lr"], wanted["lr"])


GATHERS = """(require nn) (require gradients)
(weights (t [37 24]) (u [24 37]))
(entry f [(ids [n] i32) (g [n 24] f32)]
  (let [gathered (sum (sum (* g (rows t ids))))
        columns (sum (sum (tensor [i n c 24] (* (at g i c) (at u c (at ids i))))))]
    {:alone (first (gradients gathered [t]))
     :added (first (gradients (+ gathered (sum (sum (square t)))) [t]))
     :columns (first (gradients columns [u]))}))
"""


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "emulated:gfx1151", "emulated:gfx942"])
def test_the_gradient_of_a_gather_adds_rows_in_their_order(tmp_path: Path, target: str) -> None:
    rng = seeded.rng()
    t, u = rng.standard_normal((37, 24)).astype(np.float32), rng.standard_normal((24, 37)).astype(np.float32)
    save_file({"t": t, "u": u}, tmp_path / "w.safetensors")
    (tmp_path / "gathers.lisp").write_text(GATHERS)
    ids, g = rng.integers(0, 37, 104).astype(np.int32), rng.standard_normal((104, 24)).astype(np.float32)
    ids[:20] = 5
    with lispgpt.load(tmp_path / "gathers.lisp", tmp_path / "w.safetensors", target=target) as model:
        found = model.run("f", ids=ids, g=g)
    wanted = np.zeros((37, 24), np.float32)
    np.add.at(wanted, ids, g)
    np.testing.assert_array_equal(found["alone"], wanted)
    np.testing.assert_array_equal(found["columns"], wanted.T)
    np.testing.assert_allclose(found["added"], wanted + 2 * t, atol=1e-5)


MEAN = """
(require training)
(weights (w [6 8]))
(training (fn [tokens targets random]
  (let [n (fold * 1 (shape tokens))]
    [(/ (sum (sum (rows w (reshape tokens [n])))) n) 0.0])))
"""


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_gradients_that_were_no_numbers_are_forgotten_too(target: str, tmp_path: Path) -> None:
    artifact = compile_text(MEAN, tmp_path, target=target, entries=["apply"])
    device = CpuDevice(2) if target == "cpu" else EmulatedCuda()
    with Session(artifact, device, random_weights(artifact)) as session:  # type: ignore[arg-type]
        session.write("w.gradient", np.full((6, 8), np.nan, np.float32))
        found = session.run("apply", step=1, **{k: np.float32(v) for k, v in RATES.items()})
        assert np.isnan(found["grad-norm"])
        np.testing.assert_array_equal(session.read("w.gradient"), np.zeros((6, 8)))
