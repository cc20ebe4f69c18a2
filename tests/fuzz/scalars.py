"""Functions of elements: how each is spelled in Lisp, and what it gives.

A signature names the types of the arguments and, after the arrow, of the result: f (f32), i (i32), b (i1).
Functions with a restricted domain are spelled with what keeps their arguments in it.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz import exact
from fuzz.exact import Exact, monotone, select


@dataclass(frozen=True)
class Scalar:
    """template: its spelling, `{0}` and so on for the arguments.  compute: its value on arrays that broadcast."""

    arguments: str
    result: str
    template: str
    compute: Callable[..., Exact]

    def write(self, *arguments: str) -> str:
        return self.template.format(*arguments)


def _clipped(x: Exact, low: float, high: float) -> Exact:
    return exact.extreme(np.maximum, exact.extreme(np.minimum, x, Exact.of(high)), Exact.of(low))


_erf = np.vectorize(math.erf, otypes=[np.float64])


def _safe(x: Exact) -> Exact:
    return exact.absolute(x) + 0.5


def sigmoid(x: Exact) -> Exact:
    return 1.0 / (1.0 + monotone(np.exp, -x))


def gelu(x: Exact) -> Exact:
    inner = 0.7978845608028654 * (x + x * x * x * 0.044715)
    return x * 0.5 * (1.0 + monotone(np.tanh, inner))


def _truncated_division(a: Exact, b: int) -> Exact:
    return Exact(np.trunc(a.value / b).astype(np.int64), a.error)


def _remainder(a: Exact, b: int) -> Exact:
    return Exact(np.mod(a.value, b), a.error)


def _power(x: Exact) -> Exact:
    return monotone(np.exp, _clipped(x, -50.0, 3.0))


_ABS = exact.absolute

SCALARS: dict[str, Scalar] = {
    # f32 -> f32
    "exp": Scalar("f", "f", "(exp (max -50.0 (min {0} 3.0)))", _power),
    "log": Scalar("f", "f", "(log (+ (abs {0}) 0.5))", lambda x: monotone(np.log, _safe(x))),
    "sqrt": Scalar("f", "f", "(sqrt (+ (abs {0}) 0.5))", lambda x: monotone(np.sqrt, _safe(x))),
    "rsqrt": Scalar("f", "f", "(rsqrt (+ (abs {0}) 0.5))", lambda x: monotone(lambda v: v**-0.5, _safe(x))),
    "tanh": Scalar("f", "f", "(tanh {0})", lambda x: monotone(np.tanh, x)),
    "erf": Scalar("f", "f", "(erf {0})", lambda x: monotone(_erf, x)),
    "sin": Scalar("f", "f", "(sin {0})", lambda x: exact.bounded_slope(np.sin, x)),
    "cos": Scalar("f", "f", "(cos {0})", lambda x: exact.bounded_slope(np.cos, x)),
    "abs": Scalar("f", "f", "(abs {0})", _ABS),
    "neg": Scalar("f", "f", "(- {0})", lambda x: -x),
    "square": Scalar("f", "f", "(square {0})", lambda x: x * x),
    "relu": Scalar("f", "f", "(relu {0})", lambda x: exact.extreme(np.maximum, x, Exact.of(0.0))),
    "sigmoid": Scalar("f", "f", "(sigmoid {0})", sigmoid),
    "silu": Scalar("f", "f", "(silu {0})", lambda x: x * sigmoid(x)),
    "gelu": Scalar("f", "f", "(gelu {0})", gelu),
    "half": Scalar("f", "f", "(* {0} 0.5)", lambda x: x * 0.5),
    "shifted": Scalar("f", "f", "(- 1.25 {0})", lambda x: 1.25 - x),
    "inverse": Scalar("f", "f", "(/ (+ (abs {0}) 0.5))", lambda x: 1.0 / _safe(x)),
    # two and three
    "add": Scalar("ff", "f", "(+ {0} {1})", lambda a, b: a + b),
    "sub": Scalar("ff", "f", "(- {0} {1})", lambda a, b: a - b),
    "mul": Scalar("ff", "f", "(* {0} {1})", lambda a, b: a * b),
    "div": Scalar("ff", "f", "(/ {0} (+ (abs {1}) 0.5))", lambda a, b: a / _safe(b)),
    "min": Scalar("ff", "f", "(min {0} {1})", lambda a, b: exact.extreme(np.minimum, a, b)),
    "max": Scalar("ff", "f", "(max {0} {1})", lambda a, b: exact.extreme(np.maximum, a, b)),
    "fma": Scalar("fff", "f", "(+ (* {0} {1}) {2})", lambda a, b, c: a * b + c),
    "select": Scalar("bff", "f", "(select {0} {1} {2})", select),
    # i32 -> i32
    "add-i": Scalar("ii", "i", "(+ {0} {1})", lambda a, b: a + b),
    "sub-i": Scalar("ii", "i", "(- {0} {1})", lambda a, b: a - b),
    "mul-i": Scalar("ii", "i", "(* {0} {1})", lambda a, b: a * b),
    "min-i": Scalar("ii", "i", "(min {0} {1})", lambda a, b: exact.extreme(np.minimum, a, b)),
    "max-i": Scalar("ii", "i", "(max {0} {1})", lambda a, b: exact.extreme(np.maximum, a, b)),
    "neg-i": Scalar("i", "i", "(- {0})", lambda a: 0 - a),
    "abs-i": Scalar("i", "i", "(abs {0})", _ABS),
    "div-i": Scalar("i", "i", "(/ {0} 3)", lambda a: _truncated_division(a, 3)),
    "mod-i": Scalar("i", "i", "(mod {0} 5)", lambda a: _remainder(a, 5)),
    "select-i": Scalar("bii", "i", "(select {0} {1} {2})", select),
    # between types
    "to-i": Scalar(
        "f", "i", "(cast (max -9.0 (min {0} 9.0)) i32)", lambda x: exact.to_integer(_clipped(x, -9.0, 9.0))
    ),
    "to-f": Scalar("i", "f", "(cast {0} f32)", exact.to_float),
    "bool-to-f": Scalar("b", "f", "(cast {0} f32)", exact.to_float),
    "bool-to-i": Scalar("b", "i", "(cast {0} i32)", lambda c: Exact(c.value.astype(np.int64), c.error)),
    "through-bf16": Scalar("f", "f", "(cast (cast {0} bf16) f32)", exact.to_bf16),
    # comparisons
    **{
        name + suffix: Scalar(kinds, "b", f"({name} {{0}} {{1}})", lambda a, b, f=function: exact.compare(f, a, b))
        for name, function in [
            ("<", np.less), ("<=", np.less_equal), (">", np.greater), (">=", np.greater_equal),
            ("=", np.equal), ("!=", np.not_equal),
        ]
        for kinds, suffix in [("ff", ""), ("ii", "-i")]
    },
}  # fmt: skip

LETTERS = {"f32": "f", "bf16": "f", "i32": "i", "i1": "b"}
DTYPES = {"f": "f32", "i": "i32", "b": "i1"}


def giving(letter: str, known: Any = SCALARS) -> list[str]:
    """The functions whose result is of a type."""
    return [name for name, scalar in known.items() if scalar.result == letter]
