"""Gradients of expressions with respect to what they are made of, against float64 central differences of numpy."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from tensor_functions import run

Arrays = dict[str, np.ndarray]
TOLERANCE = 2e-4
DTYPES = {"float32": "f32", "int32": "i32", "uint16": "bf16"}


def program(expression: str, given: Arrays, definitions: str = "") -> str:
    declared = " ".join(f"({n} [{' '.join(map(str, a.shape))}] {DTYPES[a.dtype.name]})" for n, a in given.items())
    header = f"(require nn) (require gradients) (require training) (require-dialect linalg tensor) (weights {declared})"
    return f"{header} {definitions} (entry f [tokens positions] {expression})"


def evaluated(
    expression: str, given: Arrays, definitions: str = "", settings: dict[str, Any] | None = None
) -> np.ndarray:
    unused = np.zeros(1, np.int32)
    text, inputs = program(expression, given, definitions), [unused, unused, *given.values()]
    (result,) = run(text, inputs, [(1, 1)], "f_batch1_positions1", overrides=settings or {})
    return result


def differences(function: Callable[..., Any], given: Arrays, name: str) -> np.ndarray:
    """The gradient of a float64 function of arrays, by central differences."""
    exact = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in given.items()}
    found = np.zeros(given[name].shape)
    step = 1e-6
    for where in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = dict(exact)
            moved[name] = exact[name].copy()
            moved[name][where] += sign * step
            ends.append(float(function(**moved)))
        found[where] = (ends[0] - ends[1]) / (2 * step)
    return found


def check(
    expression: str,
    function: Callable[..., Any],
    given: Arrays,
    seed: int,
    definitions: str = "",
    settings: dict[str, Any] | None = None,
) -> None:
    """Every float array's gradient; the expression gives a tensor, of which the sum of w * squares is the loss."""
    value = evaluated(expression, given, definitions, settings)
    weights = np.random.default_rng(seed).standard_normal(value.shape).astype(np.float32)
    total = f"(let [y (square {expression})] (* (weigh) y))" if value.shape else f"(square {expression})"
    for _ in value.shape:
        total = f"(sum {total})"
    weigh = f"(defn weigh [] weights-of-sum) {definitions}"
    everything = {**given, **({"weights-of-sum": weights} if value.shape else {})}

    def loss(**arrays: Any) -> Any:
        return (
            (np.float64(weights) * np.float64(function(**arrays)) ** 2).sum()
            if value.shape
            else function(**arrays) ** 2
        )

    for name in (n for n, a in given.items() if a.dtype == np.float32):
        found = evaluated(f"(first (gradients {total} [{name}]))", everything, weigh, settings)
        wanted = differences(loss, given, name)
        error = np.abs(found - wanted).max() / max(np.abs(wanted).max(), 1e-3)
        assert error < TOLERANCE, f"gradient of {expression} by {name}, seed {seed}: {error:.1e}"


def drawn(shapes: dict[str, Any], seed: int) -> Arrays:
    """Normal numbers; for names that index, (end, count): whole numbers below the end."""
    rng = np.random.default_rng(seed)
    return {
        name: rng.integers(0, shape[0], shape[1]).astype(np.int32)
        if name in ("ids", "more")
        else rng.standard_normal(shape).astype(np.float32)
        for name, shape in shapes.items()
    }
