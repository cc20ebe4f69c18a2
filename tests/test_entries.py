"""Typed entries: inputs of several kinds, named results, updates, states with a batch or without."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked, random_weights

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.null import NullDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

CLASSIFIER = """(require nn)
(config classes 5  width 12)
(weights (w [classes width]) (b [classes]))
(state (steps [1] i32))
(entry classify [(x [batch width] f32)] {:shapes [{batch 4} {batch 1}]}
  (linear x w b))
(entry evaluate [(x [batch width]) (labels [batch] i32)] {:shapes [{batch 3}]}
  (let [y (linear x w b)
        chosen (tensor [i batch] (log (at (softmax y) i (at labels i))))]
    {:loss (elementwise (fn [v] (/ (- v) batch)) (sum chosen)) :logits y}))
(entry train [(x [batch width]) (labels [batch] i32) (rate [] f32)] {:shapes [{batch 3}]}
  (let [p (softmax (linear x w b))
        d (tensor [i batch c classes] (/ (- (at p i c) (select (= (cast c i32) (at labels i)) 1.0 0.0)) batch))
        dw (contract [c k] d [i c] x [i k])
        db (reduce + 0.0 (tensor [c classes i batch] (at d i c)))]
    (update! w (tensor [c classes k width] (- (at w c k) (* (at rate) (at dw c k)))))
    (update! b (tensor [c classes] (- (at b c) (* (at rate) (at db c)))))
    (update! steps (+ (read-state steps) 1))
    {:after (linear x w b) :steps (+ (read-state steps) 0)}))
"""


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


@pytest.fixture(scope="module")
def classifier(tmp_path_factory: pytest.TempPathFactory) -> Artifact:
    return compile_text(CLASSIFIER, tmp_path_factory.mktemp("classifier"))


def test_a_classifier_on_f32_rows(classifier: Artifact) -> None:
    rng, seed = seeded.named_rng()
    weights = random_weights(classifier)
    exact = weights.exact()
    with open_checked(classifier, weights) as session:
        for batch in (4, 1, 4):
            x = rng.normal(size=(batch, 12))
            found = session.run("classify", x=x)
            assert list(found) == ["classify"]
            np.testing.assert_allclose(found["classify"], x @ exact["w"].T + exact["b"], atol=1e-5, err_msg=seed)


def test_named_results_and_a_scalar(classifier: Artifact) -> None:
    rng, seed = seeded.named_rng()
    weights = random_weights(classifier)
    exact = weights.exact()
    x, labels = rng.normal(size=(3, 12)), rng.integers(0, 5, 3)
    with open_checked(classifier, weights) as session:
        found = session.run("evaluate", labels=labels, x=x)
        in_order = session.run("evaluate", x, labels)
    logits = x @ exact["w"].T + exact["b"]
    assert list(found) == ["loss", "logits"] and found["loss"].shape == ()
    np.testing.assert_allclose(found["logits"], logits, atol=1e-5, err_msg=seed)
    np.testing.assert_allclose(
        found["loss"], -np.log(softmax(logits)[range(3), labels]).mean(), rtol=1e-5, err_msg=seed
    )
    assert all((found[name] == in_order[name]).all() for name in found)


def test_steps_of_gradient_descent_written_by_hand(classifier: Artifact) -> None:
    rng, seed = seeded.named_rng()
    weights = random_weights(classifier)
    w, b = (weights.exact()[name] for name in "wb")
    with open_checked(classifier, weights) as session:
        for step in range(1, 5):
            x, labels, rate = rng.normal(size=(3, 12)), rng.integers(0, 5, 3), 0.3 / step
            found = session.run("train", x=x, labels=labels, rate=rate)
            d = (softmax(x @ w.T + b) - np.eye(5)[labels]) / 3
            w, b = w - rate * d.T @ x, b - rate * d.sum(0)
            np.testing.assert_allclose(found["after"], x @ w.T + b, atol=1e-4, err_msg=f"{seed}: read after update!")
            assert found["steps"] == [step]
        np.testing.assert_allclose(session.read("w"), w, atol=1e-4, err_msg=seed)
        classified = session.run("classify", x=x[:1])["classify"]
        np.testing.assert_allclose(classified, x[:1] @ w.T + b, atol=1e-4, err_msg="other entries see the update")
        session.forget()
        assert session.read("steps") == [0]
    assert (weights.values["w"] != w.astype(np.float32)).any(), "the checkpoint's own bytes stay as they are"


def test_inputs_that_do_not_fit_are_refused(classifier: Artifact) -> None:
    x, labels = np.zeros((3, 12)), np.zeros(3, np.int64)
    cases: list[tuple[dict[str, Any], str]] = [
        ({"x": np.zeros((2, 12)), "labels": labels}, r"compiled for x \[3 12\], labels \[3\], and not x \[2 12\]"),
        ({"x": x}, "takes x, labels, and not x"),
        ({"x": x, "labels": labels, "z": 1}, "takes x, labels, and not x, labels, z"),
        ({"x": x, "labels": labels + 0.5}, "labels is i32, and not all"),
        ({"x": x, "labels": labels + (1 << 40)}, "labels is i32, and not all"),
        ({"x": x.astype("U"), "labels": labels}, "x is f32"),
    ]
    with open_checked(classifier) as session:
        for inputs, words in cases:
            with pytest.raises(UserError, match=words):
                session.run("evaluate", **inputs)
        with pytest.raises(UserError, match="takes x, labels, and not x, x, labels"):
            session.run("evaluate", x, x=x, labels=labels)
        with pytest.raises(UserError, match="takes x, labels, and not x, labels, more"):
            session.run("evaluate", x, labels, labels)
        with pytest.raises(UserError, match="no entry 'nothing'; there are classify, evaluate, train"):
            session.run("nothing")


def test_entries_without_inputs_and_without_free_dimensions(tmp_path: Path) -> None:
    artifact = compile_text(
        """(weights (w [3]))
        (state (ticks [1] i32))
        (entry tick [] (update! ticks (+ (read-state ticks) 1)))
        (entry scaled [(by [] f32)] (tensor [i 3] (* (at w i) (at by))))""",
        tmp_path,
    )
    weights = random_weights(artifact)
    with open_checked(artifact, weights) as session:
        assert [session.run("tick")["tick"].tolist() for _ in range(3)] == [[1], [2], [3]]
        assert [array.tolist() for array in session.repeat(session.entry("tick"), "tick", 4)] == [[4], [5], [6], [7]]
        np.testing.assert_allclose(session.run("scaled", by=2.5)["scaled"], weights.values["w"] * 2.5, rtol=1e-6)


def test_bf16_inputs_and_layers_of_weights_that_change(tmp_path: Path) -> None:
    artifact = compile_text(
        """(config layers 3)
        (weights (per layers (w [4] bf16)))
        (entry shift [(x [n] bf16)] {:shapes [{n 4}]}
          (update! (w 1) (cast (+ (cast x f32) (cast (w 1) f32)) bf16))
          {:sum (+ (cast (w 1) f32) (cast (w 2) f32)) :same x})""",
        tmp_path,
    )
    weights, x = random_weights(artifact), np.array([1.5, -2.0, 1e-3, 300.0])
    before = weights.values["w"].astype(np.float64)
    with open_checked(artifact, weights) as session:
        found = session.run("shift", x=x)
        after = session.read("w").astype(np.uint32) << 16
    wanted = before.copy()
    wanted[1] += x
    np.testing.assert_allclose(after.view(np.float32), wanted, rtol=2**-7)
    assert (after.view(np.float32)[[0, 2]] == weights.values["w"][[0, 2]]).all()
    np.testing.assert_allclose(found["sum"], after.view(np.float32)[1] + before[2], rtol=1e-6)
    np.testing.assert_allclose(found["same"], x, rtol=2**-8)


def test_values_that_take_each_others_places(tmp_path: Path) -> None:
    artifact = compile_text(
        """(state (a [4]) (b [4]))
        (entry exchange [(x [4])]
          (let [old (read-state a)]
            (update! a (read-state b))
            (update! b (+ old x))
            {:a (read-state a) :old (+ old 0.0)}))""",
        tmp_path,
    )
    a = b = np.zeros(4)
    rng, seed = seeded.named_rng()
    with open_checked(artifact) as session:
        for _ in range(4):
            x = rng.normal(size=4)
            found = session.run("exchange", x=x)
            np.testing.assert_allclose(found["old"], a, atol=1e-6, err_msg=seed)
            a, b = b, a + x
            np.testing.assert_allclose(found["a"], a, atol=1e-6, err_msg=seed)
            np.testing.assert_allclose(session.read("b"), b, atol=1e-6, err_msg=seed)


def test_one_entry_calls_another_on_other_values(tmp_path: Path) -> None:
    artifact = compile_text(
        """(require nn)
        (weights (w [4 4]))
        (entry through [(x [rows 4])] {:shapes [{rows 2}]} (linear x w))
        (entry twice [(x [n 4]) (y [(* 2 n) 4])] {:shapes [{n 3}]}
          {:x (through (through x)) :y (through y)})""",
        tmp_path,
    )
    weights = random_weights(artifact)
    w = weights.exact()["w"]
    x, y = seeded.rng().normal(size=(3, 4)), seeded.rng().normal(size=(6, 4))
    with open_checked(artifact, weights) as session:
        found = session.run("twice", x=x, y=y)
    np.testing.assert_allclose(found["x"], x @ w.T @ w.T, atol=1e-5)
    np.testing.assert_allclose(found["y"], y @ w.T, atol=1e-5)


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx942"])
def test_typed_entries_compile_for_gpus(target: str, tmp_path: Path) -> None:
    artifact = compile_text(CLASSIFIER, tmp_path, target=target)
    with Session(artifact, NullDevice(), random_weights(artifact)) as session:  # type: ignore[arg-type]
        found = session.run("train", np.zeros((3, 12)), np.zeros(3, np.int32), 0.5)
    assert found["after"].shape == (3, 5) and found["steps"].shape == (1,)


def test_mod_has_the_sign_of_its_divisor_whenever_it_is_computed(tmp_path: Path) -> None:
    pairs = [(a, b) for a in (-7, -6, -1, 0, 1, 7) for b in (-3, 3)]
    known = " ".join(f"(cast (mod {a} {b}) f32) (cast (mod {a}.5 {b}.0) f32)" for a, b in pairs)
    artifact = compile_text(
        f"""(require-dialect tensor)
        (entry later [(a [n] i32) (b [n] i32) (x [n]) (y [n])] {{:shapes [{{n 12}}]}}
          {{:whole (mod a b) :real (mod x y) :by-3 (tensor [i n] (mod (at a i) 3))}})
        (entry now [(x [1])] (tensor.from_elements {{:result tensor<24xf32>}} {known}))""",
        tmp_path,
    )
    a, b = np.array(pairs, np.int32).T
    x = np.where(a < 0, a - 0.5, a + 0.5)
    with open_checked(artifact) as session:
        later, now = session.run("later", a=a, b=b, x=x, y=b), session.run("now", x=[0.0])["now"]
    np.testing.assert_array_equal(later["whole"], np.mod(a, b))
    np.testing.assert_array_equal(later["by-3"], np.mod(a, 3))
    np.testing.assert_array_equal(later["real"], np.mod(x, b))
    np.testing.assert_array_equal(now, np.stack([np.mod(a, b), np.mod(x, b)], -1).ravel())


CHOOSING = """
(entry f [(x [4] f32) (s [2] f32)]
  (let [k (if (> (at s 0) 0.0) (* 2.0 (at s 0)) (at s 1))]
    {:steps (tensor [i 4] (if (> (at x i) 1.0) (at x i) (if (< (at x i) 0.0) -1.0 0.5)))
     :y (* x k) :total (sum (exp (* x (+ k 1.0)))) :k k :n (cast k i32)}))
"""


def test_numbers_that_are_chosen_outside_of_tensors(tmp_path: Path) -> None:
    """A branch of the entry itself is computed by each kernel that needs it; a number is a result, too."""
    artifact = compile_text(CHOOSING, tmp_path)
    x = seeded.rng().normal(size=4).astype(np.float32)
    with open_checked(artifact, random_weights(artifact)) as session:
        for s, k in (([1.5, 7.0], 3.0), ([-1.0, -2.5], -2.5)):
            found = session.run("f", x=x, s=np.array(s, np.float32))
            np.testing.assert_array_equal(
                found["steps"], np.where(x > 1, x, np.where(x < 0, -1, 0.5)).astype(np.float32)
            )
            np.testing.assert_allclose(found["y"], x * np.float32(k), rtol=1e-6)
            np.testing.assert_allclose(found["total"], np.exp(np.float64(x) * (k + 1)).sum(), rtol=1e-5)
            assert found["k"] == k and found["n"] == int(k)
