"""Tensors without elements: as inputs, weights, states and results, in loops, sums and gradients, on CPUs and GPUs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.errors import UserError

TARGETS = ["cpu", pytest.param("emulated:gfx1151", marks=pytest.mark.slow)]
HEADER = "(require nn arrays gradients algebra transforms training convolutions)\n"


def none(*shape: int) -> np.ndarray:
    return np.zeros(shape, np.float32)


def check(found: Any, right: Any) -> None:
    np.testing.assert_allclose(found, right, rtol=1e-5, atol=1e-6)
    assert found.shape == np.shape(right)


SUMS = """(entry sums [(x [a b] f32)]
  {:sum (sum x) :down (sum-along x 0) :kept (sum-along x 0 true) :product (product-along x 0) :most (max-along x 0)
   :mean (mean x 0) :all (sum (reshape x [(* a b)])) :turned (transpose x [1 0]) :padded (pad x 0 1 2 7.0)
   :sorted (sort x) :so-far (cumsum x 0) :joined (join [x (full [2 b] 3.0 f32)] 0) :more (* x 2.0)
   :none (slice x [0 0] [0 b]) :count (tensor [i 3 j a] 1.0)})"""


@pytest.mark.parametrize("target", TARGETS)
def test_what_is_combined_of_nothing(tmp_path: Path, target: str) -> None:
    (tmp_path / "s.lisp").write_text(HEADER + SUMS)
    with lispgpt.load(tmp_path / "s.lisp", target=target, cache=None) as model:
        for shape in ((0, 3), (3, 0), (0, 0), (2, 3)):
            x = seeded.rng().normal(size=shape).astype(np.float32)
            found, (a, b) = model.run("sums", x=x), shape
            with np.errstate(all="ignore"):
                mean = x.sum(0) / np.float32(a)
            check(found["sum"], x.sum(1))
            check(found["down"], x.sum(0))
            check(found["kept"], x.sum(0, keepdims=True))
            check(found["product"], x.prod(0))
            check(found["most"], x.max(0, initial=-np.inf))
            check(found["mean"], mean)
            check(found["all"], x.sum())
            check(found["turned"], x.T)
            check(found["padded"], np.pad(x, ((1, 2), (0, 0)), constant_values=7))
            check(found["sorted"], np.sort(x, 1))
            check(found["so-far"], x.cumsum(0))
            check(found["joined"], np.concatenate([x, np.full((2, b), 3, np.float32)]))
            check(found["more"], 2 * x)
            check(found["none"], none(0, b))
            check(found["count"], np.ones((3, a)))
            assert list(found)[:3] == ["sum", "down", "kept"]
            assert list(found)[-1] == "count"


LAYERS = """(weights (w [4 3]) (none [0 3]) (table [5 3]))
(state (seen [2] f32) (past [0 3] f32))
(defn after [h x] (nth (scan (fn [[h a] x] [[(tanh (+ h x)) (* 2.0 a)] a]) [h (slice x [0 0] [0 3])] x) 0))
(entry e [(x [n 3] f32) (k [n] i32) (h [3] f32)]
  (let [whole (fn [x] (sum (reshape x [(fold * 1 (shape x))])))
        [last empty] (after h x)
        loss (+ (whole (square (gelu (linear x w)))) (whole (rows table k)))
        loss (+ loss (whole (square last)) (whole (linear x none)))
        [w-g none-g table-g x-g h-g] (gradients loss [w none table x h])]
    (do (update! past (* 2.0 (read-state past)))
        (update! seen (+ (read-state seen) 1.0))
        {:loss loss :y (linear x none) :past (read-state past) :seen (read-state seen) :empty empty
         :w w-g :none none-g :table table-g :x x-g :h h-g})))"""


@pytest.mark.parametrize("target", TARGETS)
def test_gradients_loops_weights_and_states(tmp_path: Path, target: str) -> None:
    (tmp_path / "l.lisp").write_text(HEADER + LAYERS)
    rng = seeded.rng()
    weights = {"w": rng.normal(size=(4, 3)), "none": none(0, 3), "table": rng.normal(size=(5, 3))}
    save_file({name: each.astype(np.float32) for name, each in weights.items()}, tmp_path / "w.safetensors")
    with lispgpt.load(tmp_path / "l.lisp", tmp_path / "w.safetensors", target=target, cache=None) as model:
        h = rng.normal(size=3).astype(np.float32)
        for round_, n in enumerate((0, 2)):
            x, k = rng.normal(size=(n, 3)).astype(np.float32), rng.integers(0, 5, n).astype(np.int32)
            found, last = model.run("e", x=x, k=k, h=h), h
            for row in x:
                last = np.tanh(last + row)
            y = x @ weights["w"].T
            gelu = 0.5 * y * (1 + np.tanh(np.sqrt(2 / np.pi) * (y + 0.044715 * y**3)))
            np.testing.assert_allclose(
                found["loss"], (gelu**2).sum() + weights["table"][k].sum() + (last**2).sum(), rtol=2e-3
            )
            check(found["y"], none(n, 0))
            check(found["past"], none(0, 3))
            check(found["empty"], none(0, 3))
            check(found["seen"], none(2) + round_ + 1)
            check(found["none"], none(0, 3))
            check(found["table"], np.bincount(k, minlength=5)[:, None] * np.ones(3))
            assert found["x"].shape == x.shape
            if not n:
                check(found["w"], none(4, 3))
                check(found["h"], 2 * h)


def test_any_batch_up_to_one_may_be_none(tmp_path: Path) -> None:
    text = """(weights (w [4 3]))
        (entry e [(x [batch 3] f32)]
          (let [y (linear x w) loss (sum (reshape (square y) [(* batch 4)]))]
            {:y y :loss loss :w (first (gradients loss [w]))}))"""
    (tmp_path / "u.lisp").write_text(HEADER + text)
    rng = seeded.rng()
    w = rng.normal(size=(4, 3)).astype(np.float32)
    with lispgpt.load(tmp_path / "u.lisp", weights={"w": w}, cache=None, up_to={"batch": 6}) as model:
        for n in (5, 0, 2, 0):
            x = rng.normal(size=(n, 3)).astype(np.float32)
            found = model.run("e", x=x)
            check(found["y"], x @ w.T)
            check(found["loss"], ((x @ w.T) ** 2).sum())
            np.testing.assert_allclose(found["w"], 2 * (x @ w.T).T @ x, rtol=1e-4, atol=1e-5)


CASES: dict[str, tuple[str, dict[str, tuple[int, ...]], np.ndarray]] = {
    "no steps": (
        "(nth (scan (fn [h i] [(+ h 1.0) (sum h)]) x 0) 1)",
        {"x": (3,)},
        none(0),
    ),
    "steps in chunks, while something holds": (
        "(nth (scan (fn [h r] [(+ h r) h]) w x {:chunk 2 :while (fn [h] (> (at h 0) 0.0))}) 2)",
        {"x": (0, 3), "w": (3,)},
        np.int32(0),
    ),
    "images": (
        "(first (gradients (sum (reshape (convolution x w {:padding 1}) [0])) [w]))",
        {"x": (0, 6, 6, 2), "w": (4, 2, 3, 3)},
        none(4, 2, 3, 3),
    ),
    "attention": ("(attention-to x w w)", {"x": (0, 3, 2, 4), "w": (0, 5, 2, 4)}, none(0, 3, 2, 4)),
    "attention to nothing": ("(attention-to x w w)", {"x": (2, 3, 2, 4), "w": (2, 0, 2, 4)}, none(2, 3, 2, 4)),
    "the greatest none": ("(first (top-k x 0))", {"x": (3, 4)}, none(3, 0)),
    "a loss": ("(label-loss x (tensor [i 0] (cast i i32)) 0.1 -1)", {"x": (0, 4)}, np.float32(0)),
    "a jacobian": ("(jacobian (fn [x] (slice x [0] [0])) x)", {"x": (3,)}, none(0, 3)),
    "each row of none": ("(vmap (fn [r] (sum r)) x)", {"x": (0, 3)}, none(0)),
    "sums by numbers": ("(segment-sum x (tensor [i 0] (cast i i32)) 4)", {"x": (0, 3)}, none(4, 3)),
    "equations": ("(solve x w)", {"x": (0, 0), "w": (0, 2)}, none(0, 2)),
    "norms": (
        "(group-norm-of-images x 2 (full [2] 1.0 f32) (full [2] 0.0 f32) 1e-5)",
        {"x": (0, 4, 4, 2)},
        none(0, 4, 4, 2),
    ),
}


def test_words_of_nothing(tmp_path: Path) -> None:
    """One entry each, of one program, that are compiled together."""
    entries, runs = [], {}
    for number, (expression, shapes, right) in enumerate(CASES.values()):
        inputs = " ".join(f"({name} [{' '.join(map(str, shape))}] f32)" for name, shape in shapes.items())
        entries.append(f"(entry e{number} [{inputs}] {{:r {expression}}})")
        runs[f"e{number}"] = {name: np.ones(shape, np.float32) for name, shape in shapes.items()}, right
    (tmp_path / "c.lisp").write_text(HEADER + "\n".join(entries))
    artifact = lispgpt.compile(tmp_path / "c.lisp")
    artifact.save(tmp_path / "c.lgpt")
    with lispgpt.load(tmp_path / "c.lgpt") as model:
        for (name, (given, right)), what in zip(runs.items(), CASES, strict=True):
            found = model.run(name, **given)["r"]
            np.testing.assert_allclose(found, right, err_msg=what)
            assert found.shape == right.shape, what


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(entry y [(x [0] f32)] (at x 0))", "reaches index 0 of tensor<0xf32>, and it has no elements"),
        ("(entry y [(x [0] f32) (k [2] i32)] (tensor [i 2] (at x (at k i))))", "tensor<0xf32>, which has no elements"),
        ("(entry y [(x [2 0] f32)] (argmax x))", "rows without elements have no largest one"),
    ],
)
def test_what_nothing_has_is_not_read(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=r"program.lisp:1:\d+: error: .*" + said):
        compile_text(text, tmp_path)
