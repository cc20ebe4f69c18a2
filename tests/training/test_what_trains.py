"""What is trained: any inputs, some of the weights, by several optimizers; each step against float64."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file

import lispgpt

Arrays = dict[str, np.ndarray]
HEAD = """(require nn training)
(config wide 5)
(weights (base-w [6 wide]) (lora-a [2 wide]) (lora-b [6 2]) (bias [6]) (count [1] i32))
(defn adapted [x] (+ (matmul-transposed x (+ base-w (contract [o i] lora-b [o k] lora-a [k i]))) bias))
(defn error-of [x y] (let [d (- (adapted x) y)] (/ (sum (sum (square d))) (* 1.0 (dim x 0)))))
"""
ENTRY = """(entry fit [(x [rows wide] f32) (y [rows 6] f32) (step [] i32)]
  (let [loss (error-of x y)] {:loss loss :twice (* 2.0 loss) :at (cast step f32)}))
"""
SHAPES = {"base-w": (6, 5), "lora-a": (2, 5), "lora-b": (6, 2), "bias": (6,)}
RATES = {"lr": 0.01, "warmup": 0.0, "steps": 9.0, "min-lr": 0.01, "clip": 0.5, "weight-decay": 0.1}
RATES |= {"beta1": 0.9, "beta2": 0.95, "seed": 3}


def drawn(rng: np.random.Generator) -> tuple[Arrays, Arrays]:
    """Weights, and what one step is given."""
    weights = {name: rng.normal(0, 0.5, shape).astype(np.float32) for name, shape in SHAPES.items()}
    given = {"x": rng.normal(size=(8, 5)).astype(np.float32), "y": rng.normal(size=(8, 6)).astype(np.float32)}
    return weights, given


def opened(folder: Path, text: str, weights: Arrays) -> Any:
    (folder / "p.lisp").write_text(HEAD + text)
    save_file({**weights, "count": np.ones(1, np.int32)}, folder / "w.safetensors")
    return lispgpt.load(folder / "p.lisp", folder / "w.safetensors", cache=None)


def loss_and_gradients(w: Arrays, x: np.ndarray, y: np.ndarray) -> tuple[float, Arrays]:
    d = x @ (w["base-w"] + w["lora-b"] @ w["lora-a"]).T + w["bias"] - y
    whole = 2 * d.T @ x / len(x)
    gradients = {"base-w": whole, "lora-a": w["lora-b"].T @ whole, "lora-b": whole @ w["lora-a"].T}
    return float((d**2).sum() / len(x)), {**gradients, "bias": 2 * d.sum(0) / len(x)}


def orthogonal(x: np.ndarray) -> np.ndarray:
    if x.shape[0] > x.shape[1]:
        return orthogonal(x.T).T
    x = x / (np.linalg.norm(x) + 1e-7)
    for _ in range(5):
        a = x @ x.T
        x = 3.4445 * x + (-4.775 * a + 2.0315 * a @ a) @ x
    return x


def stepped(kind: str, w: np.ndarray, held: Arrays, g: np.ndarray, step: int, lr: float) -> np.ndarray:
    """The next weight by an optimizer with the numbers of `RATES`, in float64."""
    beta1, beta2 = 0.9, 0.95
    m = held.get("m", np.zeros_like(g))
    w = w * (1 - lr * 0.1) if w.ndim > 1 else w
    if kind == "adamw":
        held["m"] = beta1 * m + (1 - beta1) * g
        held["v"] = beta2 * held.get("v", np.zeros_like(g)) + (1 - beta2) * g**2
        return w - lr * (held["m"] / (1 - beta1**step)) / (np.sqrt(held["v"] / (1 - beta2**step)) + 1e-8)
    if kind == "sgd":
        held["m"] = beta1 * m + g
        return w - lr * held["m"]
    if kind == "lion":
        held["m"] = beta2 * m + (1 - beta2) * g
        return w - lr * np.sign(beta1 * m + (1 - beta1) * g)
    held["m"] = beta1 * m + (1 - beta1) * g
    way = beta1 * held["m"] + (1 - beta1) * g
    return w - lr * np.sqrt(max(1, w.shape[0] / w.shape[1])) * orthogonal(way)


def learned(
    weights: Arrays, given: Arrays, kinds: dict[str, tuple[str, float]], steps: int
) -> tuple[Arrays, list[float]]:
    """Weights after some steps in float64; kinds: how each of those that learn does, and how much faster."""
    w, held, losses = {n: v.astype(np.float64) for n, v in weights.items()}, {n: {} for n in kinds}, []
    for step in range(1, steps + 1):
        loss, gradients = loss_and_gradients(w, *(given[name].astype(np.float64) for name in ("x", "y")))
        losses.append(loss)
        norm = np.sqrt(sum((gradients[name] ** 2).sum() for name in kinds))
        for name, (kind, times) in kinds.items():
            g = gradients[name] * min(1, 0.5 / (norm + 1e-6))
            w[name] = stepped(kind, w[name], held[name], g, step, 0.01 * times)
    return w, losses


def check(model: Any, weights: Arrays, given: Arrays, kinds: dict[str, tuple[str, float]]) -> list[dict[str, Any]]:
    """Hold three steps of a model to those in float64; what the steps said."""
    said = [model.run("train", **given, step=step, **RATES) for step in (1, 2, 3)]
    right, losses = learned(weights, given, kinds, 3)
    np.testing.assert_allclose([float(found["loss"]) for found in said], losses, rtol=1e-4)
    for name in SHAPES:
        np.testing.assert_allclose(model.session.read(name), right[name], rtol=2e-4, atol=2e-5, err_msg=name)
    return said


def test_each_group_of_weights_has_its_optimizer(tmp_path: Path) -> None:
    weights, given = drawn(seeded.rng())
    groups = (
        ':groups [{:weights (matching "base") :optimizer (muon-of f32) :lr-scale 10.0} {:weights [bias] :optimizer sgd}'
        ' {:weights (matching "lora-b") :optimizer lion}]'
    )
    kinds = {"base-w": ("muon", 10.0), "lora-a": ("adamw", 1.0), "lora-b": ("lion", 1.0), "bias": ("sgd", 1.0)}
    with opened(tmp_path, f"{ENTRY}(training fit {{{groups}}})", weights) as model:
        said = check(model, weights, given, kinds)
        assert all(float(found["twice"]) == 2 * float(found["loss"]) for found in said)
        assert [float(found["at"]) for found in said] == [1, 2, 3]
        found = model.run("evaluate", **given, step=7)
        assert float(found["at"]) == 7 and float(found["twice"]) == 2 * float(found["loss"])


def test_muon_in_short_numbers_goes_where_muon_goes(tmp_path: Path) -> None:
    weights, given = drawn(seeded.rng())
    text = f'{ENTRY}(training fit {{:weights (matching "base") :optimizer muon}})'
    with opened(tmp_path, text, weights) as model:
        for step in (1, 2, 3):
            model.run("train", **given, step=step, **RATES)
        found = model.session.read("base-w")
    right = learned(weights, given, {"base-w": ("muon", 1.0)}, 3)[0]["base-w"]
    assert np.linalg.norm(found - right) < 0.1 * np.linalg.norm(right - weights["base-w"])


def test_weights_that_are_not_to_learn_stay(tmp_path: Path) -> None:
    weights, given = drawn(seeded.rng())
    text = """(training (fn [x y random] (error-of x y))
      {:inputs (inputs (x [rows wide] f32) (y [rows 6] f32)) :weights (concat (matching "lora") [bias]) :frozen [bias]
       :optimizer lion})"""
    with opened(tmp_path, text, weights) as model:
        check(model, weights, given, {"lora-a": ("lion", 1.0), "lora-b": ("lion", 1.0)})
        np.testing.assert_array_equal(model.session.read("base-w"), weights["base-w"])
        assert set(model.session.held("state")) == {"lora-a.m", "lora-b.m"}


def test_an_optimizer_of_ones_own_adds_up_parts_of_a_batch(tmp_path: Path) -> None:
    weights, given = drawn(seeded.rng())
    text = """(def plain {:states [] :start (fn [now] (get now :lr nil))
      :next (fn [w held gradient lr decays] [(elementwise (fn [w g lr] (- w (* lr g))) w gradient lr)])})
    (training fit {:optimizer plain})"""
    with opened(tmp_path, ENTRY + text, weights) as model:
        for rows in (slice(0, 4), slice(4, 8)):
            model.run("accumulate", x=given["x"][rows], y=given["y"][rows], step=1, seed=1, accumulate=2.0)
        model.run("apply", step=1, **{name: value for name, value in RATES.items() if name != "seed"})
        exact = {n: v.astype(np.float64) for n, v in weights.items()}
        _, gradients = loss_and_gradients(exact, given["x"].astype(np.float64), given["y"].astype(np.float64))
        norm = np.sqrt(sum((g**2).sum() for g in gradients.values()))
        for name, g in gradients.items():
            right = exact[name] - 0.01 * g * min(1, 0.5 / (norm + 1e-6))
            np.testing.assert_allclose(model.session.read(name), right, rtol=1e-4, atol=1e-5, err_msg=name)


MISTAKES = {
    "(training fit {:optimiser adamw})": "`training` has no option :optimiser; there are :inputs, :weights, :frozen",
    '(training fit {:weights (matching "loro")})': "no weight has 'loro' in its name; there are base-w, lora-a",
    "(training fit {:frozen (all-weights)})": "no weight is left to be trained",
    "(training fit {:groups [{:weights [bias] :optimizer muon}]})": "muon is for matrices, and a weight is tensor<",
    "(training fit {:weights [count]})": "differentiates by tensors of floats",
    "(training (fn [x y random] {:los x}) {:inputs (inputs (x [rows 5]) (y [rows 6]))})": "gives a map without :loss",
    "(training (fn [x random] 1.0) {:inputs (inputs 5)})": "`inputs` wants (name [sizes] type), an entry, or",
}


@pytest.mark.parametrize("text", MISTAKES)
def test_mistakes_are_said_at_their_forms(text: str, tmp_path: Path) -> None:
    weights = drawn(seeded.rng())[0]
    with pytest.raises(lispgpt.UserError) as caught, opened(tmp_path, ENTRY + text, weights) as model:
        model.run("train", x=np.zeros((2, 5)), y=np.zeros((2, 6)), step=1, **RATES)
    assert MISTAKES[text] in caught.value.message and caught.value.span is not None
