"""Expressions of scalars, as stand in `tensor`, in lambdas and in `if`s: their text and their numbers."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from fuzz.typed.approx import Approx, Unfit, certain, chosen, exact, rounded_to_bf16, through

ERF = np.vectorize(math.erf, otypes=[np.float64])

FUNCTIONS: dict[str, tuple[Callable[[Any], Any], float]] = {
    "exp": (np.exp, 12), "log": (np.log, 8), "sqrt": (np.sqrt, 3), "rsqrt": (lambda x: 1 / np.sqrt(x), 4),
    "tanh": (np.tanh, 12), "sin": (np.sin, 8), "cos": (np.cos, 8), "abs": (np.abs, 0), "-": (np.negative, 0),
    "math.exp2": (np.exp2, 12), "math.expm1": (np.expm1, 24), "math.log1p": (np.log1p, 24), "math.log2": (np.log2, 8),
    "math.log10": (np.log10, 8), "math.cbrt": (np.cbrt, 12), "math.floor": (np.floor, 0), "math.ceil": (np.ceil, 0),
    "math.trunc": (np.trunc, 0), "math.roundeven": (np.round, 0), "math.atan": (np.arctan, 12),
    "math.sinh": (np.sinh, 24), "math.cosh": (np.cosh, 24), "math.tan": (np.tan, 24), "math.absf": (np.abs, 0),
    "erf": (ERF, 12), "math.erfc": (lambda x: 1 - ERF(x), 24), "square": (np.square, 1),
    "relu": (lambda x: np.maximum(x, 0), 0), "sigmoid": (lambda x: 1 / (1 + np.exp(-x)), 16),
    "silu": (lambda x: x / (1 + np.exp(-x)), 16),
    "gelu": (lambda x: 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3))), 24),
}  # fmt: skip
"""By name: the function, and how many steps of rounding it may be off."""

STEPWISE = ("math.floor", "math.ceil", "math.trunc", "math.roundeven")
KINKED = ("abs", "math.absf", "relu")
EVERYWHERE = ("tanh", "sin", "cos", "abs", "-", "erf", "square", "relu", "sigmoid", "silu", "gelu", "math.atan")
SLACK = 3e-7


@dataclass
class Place:
    """Where an expression stands: the tensors that it reads, as they are in this run, and its loops' sizes."""

    env: Any
    tensors: Sequence[Approx]
    extents: tuple[int, ...]


@dataclass
class Term:
    """kind: f (f32), i (i32), x (an index) or b (a condition)."""

    text: str
    kind: str
    compute: Callable[[Place], Approx]
    constant: bool = False


def number(rng: np.random.Generator) -> float:
    value = rng.choice([0.0, 1.0, -1.0, 0.5, 2.0, float(rng.normal(0, 1)), float(rng.normal(0, 10)), 0.1, 1e-3])
    return float(np.float32(round(float(value), 4)))


def real_text(value: float) -> str:
    text = repr(round(value, 8)) if abs(value) >= 1e-4 or value == 0 else f"{value:.6e}"
    return text


def real(rng: np.random.Generator) -> Term:
    value = number(rng)
    text = real_text(value)
    known = float(np.float32(float(text)))
    return Term(text, "f", lambda place: exact(known), True)


def apply(name: str, a: Term) -> Term:
    compute, steps = FUNCTIONS[name]

    def run(place: Place) -> Approx:
        x = a.compute(place)
        if place.env.smooth and name in STEPWISE:
            raise Unfit("a step")
        if place.env.smooth and name in KINKED:
            certain(np.less, x, exact(0.0))
        return through(compute, x, steps=steps, slack=SLACK if steps >= 8 else 0.0)

    return Term(f"({name} {a.text})", a.kind, run)


_ARITHMETIC: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add, "-": np.subtract, "*": np.multiply, "/": np.divide, "max": np.maximum, "min": np.minimum,
    "mod": np.mod, "quot": lambda a, b: np.trunc(a / b),
}  # fmt: skip


def arithmetic(name: str, a: Term, b: Term) -> Term:
    """Of reals, or of whole numbers."""
    kind = "x" if "x" in (a.kind, b.kind) and "i" not in (a.kind, b.kind) else "i" if a.kind in "ix" else "f"

    def run(place: Place) -> Approx:
        x, y = a.compute(place), b.compute(place)
        if kind == "f":
            if place.env.smooth and name in ("max", "min"):
                certain(np.less, x, y)
            if place.env.smooth and name in ("mod", "quot"):
                raise Unfit("a step")
            if name in ("/", "mod", "quot") and np.any(np.abs(y.value) <= 1e-3 + 4 * y.error):
                raise Unfit("division by almost nothing")
            return through(_ARITHMETIC[name], x, y, steps=3 if name == "/" else 1)
        return Approx(whole(name, x.value, y.value), 0.0)

    return Term(f"({name} {a.text} {b.text})", kind, run)


def whole(name: str, a: Any, b: Any) -> np.ndarray:
    """The arithmetic of whole numbers: quotients towards 0, remainders with the divisor's sign."""
    if name in ("mod", "quot", "/"):
        if np.any(np.asarray(b) == 0):
            raise Unfit("division by 0")
        quotient = np.abs(a) // np.abs(b) * (np.sign(a) * np.sign(b))
        return np.asarray(np.mod(a, b) if name == "mod" else quotient)
    value = np.asarray(_ARITHMETIC[name](a, b))
    if np.abs(value).max(initial=0) >= 1 << 24:
        raise Unfit("a large integer")
    return value


COMPARISONS = {
    "<": np.less,
    "<=": np.less_equal,
    ">": np.greater,
    ">=": np.greater_equal,
    "=": np.equal,
    "!=": np.not_equal,
}


def compare(name: str, a: Term, b: Term) -> Term:
    def run(place: Place) -> Approx:
        return certain(COMPARISONS[name], a.compute(place), b.compute(place))

    return Term(f"({name} {a.text} {b.text})", "b", run, a.constant and b.constant)


def logic(name: str, a: Term, b: Term) -> Term:
    joined = np.logical_and if name == "and" else np.logical_or

    def run(place: Place) -> Approx:
        return exact(joined(a.compute(place).value, b.compute(place).value))

    return Term(f"({name} {a.text} {b.text})", "b", run, a.constant and b.constant)


def negated(a: Term) -> Term:
    return Term(f"(not {a.text})", "b", lambda p: exact(np.logical_not(a.compute(p).value)), a.constant)


def select(form: str, c: Term, a: Term, b: Term) -> Term:
    """A number known while compiling may be what is chosen of one by a condition that is known then."""

    def run(place: Place) -> Approx:
        return chosen(c.compute(place), a.compute(place), b.compute(place))

    known = c.constant and (a.constant or b.constant)
    return Term(f"({form} {c.text} {a.text} {b.text})", a.kind, run, known)


def fused(a: Term, b: Term, c: Term) -> Term:
    def run(place: Place) -> Approx:
        return through(lambda x, y, z: x * y + z, a.compute(place), b.compute(place), c.compute(place))

    return Term(f"(math.fma {a.text} {b.text} {c.text})", "f", run)


def as_whole(a: Term) -> Term:
    return Term(f"(cast {a.text} i32)", "i", a.compute)


def as_real(a: Term) -> Term:
    """An index or a whole number as f32."""
    text = f"(cast (cast {a.text} i32) f32)" if a.kind == "x" else f"(cast {a.text} f32)"
    return Term(text, "f", lambda p: exact(np.asarray(a.compute(p).value, np.float64)))


def truncated(a: Term) -> Term:
    """A real as an i32, towards 0."""

    def run(place: Place) -> Approx:
        x = a.compute(place)
        if np.abs(x.value).max(initial=0) > 1e6 or place.env.smooth:
            raise Unfit("no whole number")
        low, high = np.trunc(x.value - x.error), np.trunc(x.value + x.error)
        if np.any(low != high):
            raise Unfit("a close whole number")
        return exact(np.trunc(x.value).astype(np.int64))

    return Term(f"(cast {a.text} i32)", "i", run)


def through_bf16(a: Term) -> Term:
    def run(place: Place) -> Approx:
        if place.env.smooth:
            raise Unfit("a step")
        return rounded_to_bf16(a.compute(place))

    return Term(f"(cast (cast {a.text} bf16) f32)", "f", run)
