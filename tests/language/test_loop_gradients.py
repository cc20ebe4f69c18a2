"""Gradients through loops and branches, against central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from gradient_checks import Cases, drawn, evaluated

from lispgpt.base.errors import UserError

KERNELS = "(require kernels) (require-dialect scf)"


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def repeated(step: Callable[..., Any], x: Any, rounds: range) -> Any:
    for i in rounds:
        x = step(x, i)
    return x


def two_carried(x: np.ndarray) -> np.ndarray:
    total, y = 0.5, x
    for i in range(3):
        total, y = 0.5 * total + y[i, 1], np.sin(y) * total
    return y * total


CASES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    (
        "(over [i 0 4 1] [h x] (tanh (linear h w)))",
        lambda x, w: repeated(lambda h, i: np.tanh(h @ w.T), x, range(4)),
        {"x": (3, 4), "w": (4, 4)},
    ),
    (
        "(over [i 1 6 2] [h x] (+ (sin h) (slice w [i 0] [nil 4])))",
        lambda x, w: repeated(lambda h, i: np.sin(h) + w[i], x, range(1, 6, 2)),
        {"x": (3, 4), "w": (6, 4)},
    ),
    (
        "(over [i 0 2 1] [h x] (over [k 0 2 1] [h h] (softmax (* h w))))",
        lambda x, w: repeated(lambda h, i: softmax(h * w), x, range(4)),
        {"x": (3, 4), "w": (4,)},
    ),
    (
        """(do (def [y s] (scf.for {:result [tensor<3x4xf32> f32]} (: 0 index) (: 3 index) (: 1 index) x (: 0.5 f32)
              (region (block [(: i index) (: y tensor<3x4xf32>) (: s f32)]
                (scf.yield (* (sin y) s) (+ (* 0.5 s) (at y i 1))))))) (* y s))""",
        two_carried,
        {"x": (3, 4)},
    ),
    (
        "(tensor [r 3] (over [i 0 4 1] [s (: 0.0 f32)] (+ s (* (at x r i) (at x r i)))))",
        lambda x: (x * x).sum(-1),
        {"x": (3, 4)},
    ),
    (
        "(if (> (at y 0) 0.0) (* x (sin y)) (exp x))",
        lambda x, y: x * np.sin(y) if y[0] > 0 else np.exp(x),
        {"x": (3, 4), "y": (4,)},
    ),
    (
        "(if (> (at y 0) 1e6) (log (- x x)) (* x y))",
        lambda x, y: x * y,
        {"x": (3, 4), "y": (4,)},
    ),
    (
        "(over [i 0 3 1] [h x] (if (> (at (sum (reshape (* h h) [12]))) 1.0) (* 0.5 h) (sin h)))",
        lambda x: repeated(lambda h, i: 0.5 * h if (h * h).sum() > 1 else np.sin(h), x, range(3)),
        {"x": (3, 4)},
    ),
]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(CASES, KERNELS)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0][:50] for case in CASES])
def test_gradients_are_those_of_finite_differences(cases: Cases, number: int) -> None:
    cases.check_gradients(number)


def test_functions_keep_their_own_gradients_in_a_loop() -> None:
    given = {"x": np.array([0.0, 1.0, -1.0], np.float32)}
    definitions = f"{KERNELS} (defn f [x] (* 2.0 x)) (defgradient f [g y x] [(* 3.0 g)])"
    text = "(first (gradients (sum (over [i 0 2 1] [y x] (+ (f y) (stop-gradient y)))) [x]))"
    np.testing.assert_array_equal(evaluated(text, given, definitions), np.full(3, 9.0, np.float32))
    text = "(first (gradients (sum (over [i 0 2 1] [y x] (elementwise (fn [v] (relu v)) y))) [x]))"
    np.testing.assert_array_equal(evaluated(text, given, KERNELS), np.array([0, 1, 0], np.float32))


def test_a_loop_in_a_function_with_a_gradient_of_its_own_stays_a_loop() -> None:
    given = {"x": np.full(3, 0.5, np.float32)}
    loop = "(over [i 0 3000 1] [y x] (+ y 0.001))"
    definitions = f"{KERNELS} (defn f [x] {loop}) (defgradient f [g y x] [(* 2.0 g)])"
    found = evaluated("(first (gradients (sum (f x)) [x]))", given, definitions)
    np.testing.assert_array_equal(found, np.full(3, 2.0, np.float32))
    np.testing.assert_array_equal(evaluated(f"(first (gradients (sum {loop}) [x]))", given, definitions), np.ones(3))
    numbers = "(tensor [n 3] (over [i 0 3000 1] [y (at x n)] (+ y 0.001)))"
    with pytest.raises(UserError, match="3000 rounds in a tensor has no gradient"):
        evaluated(f"(first (gradients (sum {numbers}) [x]))", given, definitions)


def test_a_loop_is_recomputed() -> None:
    given = drawn({"x": (3,)}, seeded.fresh_seed())
    text = "(first (gradients (sum (recompute (fn [x] (over [i 0 2 1] [y x] (* y y))) x)) [x]))"
    np.testing.assert_allclose(evaluated(text, given, KERNELS), 4 * np.float64(given["x"]) ** 3, rtol=1e-5)


def test_what_a_loop_gave_is_still_there_behind_its_gradient() -> None:
    given = drawn({"x": (3,)}, seeded.fresh_seed())
    text = "(let [y (over [i 0 2 1] [y x] (* y y)) [a b] (gradients (sum (* y y)) [x y])] (+ (+ a b) y))"
    x = given["x"].astype(np.float64)
    np.testing.assert_allclose(evaluated(text, given, KERNELS), 8 * x**7 + 2 * x**4 + x**4, rtol=1e-5)


def test_a_loop_whose_end_is_not_known_has_no_gradient() -> None:
    text = (
        """(first (gradients (sum (loop {:result tensor<3xf32>} [y x] :while (> (at y 0) 1.0) :do (* 0.5 y))) [x]))"""
    )
    with pytest.raises(UserError, match="rounds are counted when it runs"):
        evaluated(text, {"x": np.ones(3, np.float32)}, KERNELS)
