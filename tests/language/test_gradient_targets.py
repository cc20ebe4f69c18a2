"""What `gradients` differentiates by: windows of values, values that the loss is not made of, kinks."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
import seeded
from gradient_checks import drawn, evaluated
from tensor_functions import run

from lispgpt.base.errors import UserError


@pytest.mark.parametrize(
    "loss", ["(sum (* y 0.0))", "(sum (stop-gradient y))", "(sum (cast (argmax (reshape y [2 2])) f32))"]
)
def test_what_a_loss_does_not_change_with_has_a_gradient_of_zeros(loss: str) -> None:
    """Whether it is asked for alone or beside others."""
    given = drawn({"x": (4,), "y": (4,)}, 9)
    for asked in (f"(first (gradients {loss} [y]))", f"(nth (gradients (+ {loss} (sum x)) [x y]) 1)"):
        np.testing.assert_array_equal(evaluated(asked, given), np.zeros(4, np.float32))


@pytest.mark.parametrize("target", ["y", "(* x x)", "(slice y [1] [2])", "(stop-gradient x)"])
def test_a_value_that_the_loss_is_not_computed_from_is_an_error_at_its_form(target: str) -> None:
    given = drawn({"x": (4,), "y": (4,)}, 9)
    text = f"(first (gradients (sum (* x x)) [x {target}]))"
    with pytest.raises(UserError, match="not computed from") as caught:
        evaluated(text, given)
    assert show_place(caught.value) == target


def show_place(error: UserError) -> str:
    """The text that an error points at."""
    assert error.span is not None
    return error.span.source.text[error.span.start : error.span.end]


@pytest.mark.parametrize(
    ("ahead", "loss", "by", "right"),
    [
        ("r (slice x [1 0] [nil 4])", "(* r r r)", "r", lambda x: 3 * x[1] ** 2),
        ("r (slice x [1 0] [nil 4])", "(+ (* r r) (sum (transpose (* x x) [1 0])))", "r", lambda x: 4 * x[1]),
        ("r (slice x [1 0] [nil 4]) y (* r r)", "(* y y)", "r", lambda x: 4 * x[1] ** 3),
    ],
)
def test_a_step_of_a_loop_differentiates_through_what_was_made_ahead_of_it(
    ahead: str, loss: str, by: str, right: Callable[[np.ndarray], np.ndarray]
) -> None:
    given = drawn({"x": (3, 4)}, 9)
    step = f"(fn [h i] (let [[g] (gradients (sum {loss}) [{by}])] [(+ h g) nil]))"
    found = evaluated(f"(let [{ahead}] (first (scan {step} (* 0.0 r) 2)))", given)
    np.testing.assert_allclose(found, 2 * right(given["x"]), rtol=1e-5)


@pytest.mark.parametrize(
    "window,taken",
    [
        ("(slice x [1 2] [2 3])", lambda g: g[1:3, 2:5]),
        ("(slice x [1 0] [nil 6])", lambda g: g[1]),
        ("(reshape x [6 4])", lambda g: g.reshape(6, 4)),
        ("(slice (reshape x [2 2 6]) [1 0 1] [nil 2 2])", lambda g: g.reshape(2, 2, 6)[1, :, 1:3]),
        ("(slice x [(cast (at ids 0) index) 0] [nil 6])", lambda g: g[2]),
    ],
)
def test_a_slice_or_reshape_spelled_again_has_its_window_of_the_wholes_gradient(
    window: str, taken: Callable[[np.ndarray], np.ndarray]
) -> None:
    seed = seeded.fresh_seed()
    given = drawn({"x": (4, 6), "w": (4, 6)}, seed) | {"ids": np.array([2], np.int32)}
    loss = f"(+ (sum (sum (* w (sin x)))) (fold (fn [s n] (sum s)) (square {window}) (shape {window})))"
    found = evaluated(f"(first (gradients {loss} [{window}]))", given)
    exact = given["x"].astype(np.float64)
    part = np.zeros((4, 6))
    taken(part)[...] = 2 * taken(exact)
    np.testing.assert_allclose(found, taken(given["w"] * np.cos(exact) + part), rtol=1e-5, atol=1e-5, err_msg=str(seed))


def test_a_layer_of_a_weight_has_its_part_of_the_gradient() -> None:
    rng = seeded.rng()
    w, x = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    text = """(require gradients) (require-dialect tensor) (weights (per 3 (w [4])) (x [4])) (entry f [tokens positions]
        (let [[a b c] (gradients (sum (* x (* (w 0) (w 2)))) [(w 0) (w 1) (w 2)])
              put (fn [whole part place] (insert part whole [place 0] [nil 4]))]
          (put (put (put (tensor.empty {:result tensor<3x4xf32>}) a 0) b 1) c 2)))"""
    unused = np.zeros(1, np.int32)
    (found,) = run(text, [unused, unused, w, x], [(1, 1)], "f_batch1_positions1")
    np.testing.assert_allclose(found, [x * w[2], 0 * x, x * w[0]], rtol=1e-6)


@pytest.mark.parametrize(
    "expression,wanted",
    [
        ("(abs x)", [-1, 0, 0, 1]),
        ("(relu x)", [0, 0, 0, 1]),
        ("(max x 0.0)", [0, 0.5, 0.5, 1]),
        ("(min x 0.0)", [1, 0.5, 0.5, 0]),
        ("(max x (* -1.0 x))", [-1, 0, 0, 1]),
        ("(- (min x 0.0) (log (+ 1.0 (exp (- (abs x))))))", [0.7310586, 0.5, 0.5, 0.26894143]),
        ("(elementwise (fn [v] (relu v)) x)", [0, 0, 0, 1]),
    ],
)
def test_a_kink_has_the_gradient_between_its_sides(expression: str, wanted: list[float]) -> None:
    """Of equals each has half; 0 where a magnitude or a rectifier turns."""
    given = {"x": np.array([-1.0, 0.0, -0.0, 1.0], np.float32)}
    found = evaluated(f"(first (gradients (sum {expression}) [x]))", given)
    np.testing.assert_allclose(found, np.array(wanted, np.float32), rtol=1e-6)
