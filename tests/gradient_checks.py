"""Gradients of expressions with respect to what they are made of, against float64 central differences of numpy."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import seeded
from tensor_functions import Compiled, run

Arrays = dict[str, np.ndarray]
Case = tuple[str, Callable[..., Any], dict[str, Any]]
"""An expression, the float64 function that it is, and what `drawn` takes."""
TOLERANCE = 2e-4
DTYPES = {"float32": "f32", "int32": "i32", "uint16": "bf16"}


HEADER = "(require nn) (require gradients) (require training) (require-dialect linalg tensor)"


def declared(given: Arrays) -> str:
    return " ".join(f"({n} [{' '.join(map(str, a.shape))}] {DTYPES[a.dtype.name]})" for n, a in given.items())


def program(expression: str, given: Arrays, definitions: str = "") -> str:
    return f"{HEADER} (weights {declared(given)}) {definitions} (entry f [tokens positions] {expression})"


def evaluated(
    expression: str, given: Arrays, definitions: str = "", settings: dict[str, Any] | None = None
) -> np.ndarray:
    unused = np.zeros(1, np.int32)
    text, inputs = program(expression, given, definitions), [unused, unused, *given.values()]
    (result,) = run(text, inputs, [(1, 1)], "f_batch1_positions1", overrides=settings or {})
    return result


def differences(function: Callable[..., Any], given: Arrays, name: str) -> np.ndarray:
    """The gradient of a float64 function of arrays, by central differences."""
    start = exact(given)
    found = np.zeros(given[name].shape)
    step = 1e-6
    for where in np.ndindex(found.shape):
        ends = []
        for sign in (1, -1):
            moved = dict(start)
            moved[name] = start[name].copy()
            moved[name][where] += sign * step
            ends.append(float(function(**moved)))
        found[where] = (ends[0] - ends[1]) / (2 * step)
    return found


def exact(given: Arrays) -> Arrays:
    return {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in given.items()}


class Cases:
    """Expressions and the gradients of some of them, as entries of one program, which is compiled once."""

    def __init__(self, cases: Sequence[Case], definitions: str = "", without: Sequence[Case] = ()) -> None:
        """without: those of which no gradient is wanted."""
        self.seed = seeded.fresh_seed()
        self.cases = (*cases, *without)
        self.given = [drawn(shapes, self.seed) for _, _, shapes in self.cases]
        self.wanted = [
            np.asarray(function(**exact(given))) for (_, function, _), given in zip(self.cases, self.given, strict=True)
        ]
        entries = [self._value(k) for k in range(len(self.cases))]
        entries += [self._gradients(k) for k in range(len(cases))]
        self.compiled = Compiled(" ".join([HEADER, definitions, *entries]))

    def _value(self, k: int) -> str:
        return f"(entry value{k} [{declared(self.given[k])}] {self.cases[k][0]})"

    def _weights(self, k: int) -> np.ndarray:
        return np.random.default_rng(self.seed).standard_normal(self.wanted[k].shape).astype(np.float32)

    def _targets(self, k: int) -> list[str]:
        return [name for name, array in self.given[k].items() if array.dtype == np.float32]

    def _gradients(self, k: int) -> str:
        total = f"(* weights-of-sum (square {self.cases[k][0]}))"
        for _ in self.wanted[k].shape:
            total = f"(sum {total})"
        inputs = declared({**self.given[k], "weights-of-sum": self._weights(k)})
        names = self._targets(k)
        found = " ".join(f":d{name} d{name}" for name in names)
        bound = " ".join(f"d{name}" for name in names)
        return f"(entry gradients{k} [{inputs}] (let [[{bound}] (gradients {total} [{' '.join(names)}])] {{{found}}}))"

    def check_value(self, k: int) -> None:
        (found,) = self.compiled.call(f"value{k}", list(self.given[k].values()))
        message = f"{self.cases[k][0]}, seed {self.seed}"
        np.testing.assert_allclose(found, self.wanted[k], rtol=2e-5, atol=2e-5, err_msg=message)

    def check_gradients(self, k: int) -> None:
        """Of the sum of weights times squares of what the expression gives, by every float array."""
        expression, function, _ = self.cases[k]
        given, weights = self.given[k], self._weights(k)

        def loss(**arrays: Any) -> Any:
            return (np.float64(weights) * np.float64(function(**arrays)) ** 2).sum()

        found = self.compiled.call(f"gradients{k}", [*given.values(), weights])
        for name, array in zip(self._targets(k), found, strict=True):
            wanted = differences(loss, given, name)
            error = np.abs(array - wanted).max() / max(np.abs(wanted).max(), 1e-3)
            assert error < TOLERANCE, f"gradient of {expression} by {name}, seed {self.seed}: {error:.1e}"


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
