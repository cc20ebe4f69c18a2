"""Forms in a model's entry: conditions on tensors, and what an entry refuses, at its place."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from gradient_checks import drawn, evaluated

from lispgpt.base.errors import UserError


@pytest.mark.parametrize(
    "text,right",
    [
        ("(select (and (> x 0.3) (< x 1.0)) x 0.0)", lambda x, y: np.where((x > 0.3) & (x < 1), x, 0)),
        ("(select (or (> x y) (not (> x 0.0))) 1.0 x)", lambda x, y: np.where((x > y) | ~(x > 0), 1, x)),
        ("(select (and true (> x 0.0) (> (at y 0 0) 0.0)) x y)", lambda x, y: np.where((x > 0) & (y[0, 0] > 0), x, y)),
        (
            "(select (not (and (> x 0.0) (> (sum y) 0.0))) x 2.0)",
            lambda x, y: np.where(~((x > 0) & (y.sum(-1) > 0)), x, 2),
        ),
    ],
)
def test_conditions_on_tensors_are_element_by_element(text: str, right: Callable[..., Any]) -> None:
    given = drawn({"x": (4, 4), "y": (4, 4)}, seeded.fresh_seed())
    np.testing.assert_array_equal(evaluated(text, given), right(**given).astype(np.float32))


@pytest.mark.parametrize(
    "text,message,place",
    [
        ("(if (> (at x 0 0) 0.0) (print x) x)", "stands in an entry or in a step of `scan`", "(print x)"),
        ("(* x k)", r"\(cast k f32\) converts", "(* x k)"),
        ("(* k x)", r"\(cast k f32\) converts", "(* k x)"),
        ("(* (at k 0 0) x)", r"\(cast \(at k 0 0\) f32\) converts", "(* (at k 0 0) x)"),
        ("(softmax k)", "a softmax is of floats", "(softmax k)"),
        ("(do (require-dialect linalg) (linalg.softmax) x)", "expected 2 operands", "(linalg.softmax)"),
        ("(over [i 0 2 1] [y x] (update! x (+ y x)))", "inside a loop or a branch", "(update! x (+ y x))"),
        ("(if (> (at x 0 0) 0.0) (update! x (+ 1.0 x)) x)", "inside a loop or a branch", "(update! x (+ 1.0 x))"),
    ],
)
def test_what_an_entry_cannot_do_is_said_at_its_form(text: str, message: str, place: str) -> None:
    given = {"x": np.zeros((4, 4), np.float32), "k": np.zeros((4, 4), np.int32)}
    with pytest.raises(UserError, match=message) as caught:
        evaluated(text, given, "(require kernels)")
    span = caught.value.span
    assert span is not None and span.source.text[span.start : span.end] == place
