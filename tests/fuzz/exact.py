"""Numbers with a bound on how far a correct implementation may be from them.

Values are float64, int64 or bool.  A bound is absolute, for arithmetic in F32 in any order; infinity says that nothing
is known, as where two numbers are compared that are closer than their bounds.  After "Accuracy and Stability of
Numerical Algorithms", Higham 2002, section 3.3 (running error analysis).
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

ROUNDING = 2.0**-23
"""Of one F32 operation: a unit in the last place, for units that do not round to the nearest."""
FUNCTION = 2.0**-20
"""Of exp, tanh, erf and the like, relative to the larger of their value and 1/4."""
LARGE = 1e30
"""Beyond it intermediate results may leave F32's range."""
FLUSHED = 1e-37


def bf16(values: np.ndarray) -> np.ndarray:
    """The nearest BF16, ties to even, of values that F32 holds."""
    bits = np.asarray(values, np.float32).view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) & np.uint64(0xFFFF0000)
    return rounded.astype(np.uint32).view(np.float32).astype(np.float64)


@dataclass(frozen=True)
class Exact:
    """An array and its bounds, of one shape."""

    value: np.ndarray
    error: np.ndarray

    @staticmethod
    def of(value: Any) -> Exact:
        """What is known exactly."""
        array = np.asarray(value)
        kind = {"f": np.float64, "i": np.int64, "u": np.int64, "b": np.bool_}[array.dtype.kind]
        return Exact(array.astype(kind), np.zeros(array.shape))

    @property
    def shape(self) -> tuple[int, ...]:
        return self.value.shape

    def view(self, change: Callable[[np.ndarray], np.ndarray]) -> Exact:
        """A rearrangement of the elements."""
        return Exact(change(self.value), change(self.error))

    def __getitem__(self, index: Any) -> Exact:
        return self.view(lambda a: np.asarray(a[index]))

    def __add__(self, other: Any) -> Exact:
        other = lifted(other)
        return rounded(self.value + other.value, self.error + other.error)

    def __sub__(self, other: Any) -> Exact:
        other = lifted(other)
        return rounded(self.value - other.value, self.error + other.error)

    def __mul__(self, other: Any) -> Exact:
        other = lifted(other)
        a, b = np.abs(self.value), np.abs(other.value)
        return rounded(self.value * other.value, a * other.error + b * self.error + self.error * other.error)

    def __truediv__(self, other: Any) -> Exact:
        other = lifted(other)
        least = np.abs(other.value) - other.error
        with np.errstate(all="ignore"):
            value = self.value / other.value
            error = (np.abs(value) * other.error + self.error) / least + 3 * ROUNDING * np.abs(value)
        return rounded(value, np.where(least > 0, error, np.inf))

    def __neg__(self) -> Exact:
        return Exact(-self.value, self.error)

    __radd__ = __add__
    __rmul__ = __mul__

    def __rsub__(self, other: Any) -> Exact:
        return lifted(other) - self

    def __rtruediv__(self, other: Any) -> Exact:
        return lifted(other) / self


def lifted(value: Any) -> Exact:
    return value if isinstance(value, Exact) else Exact.of(value)


def rounded(value: np.ndarray, error: np.ndarray) -> Exact:
    """A result with the error of one more operation; integers wrap at 32 bits, and are right or unknown."""
    if value.dtype.kind == "i":
        wrapped = (value + 2**31) % 2**32 - 2**31
        return Exact(wrapped, np.where(error > 0, np.inf, 0.0))
    with np.errstate(all="ignore"):
        total = error + ROUNDING * np.abs(value) + FLUSHED
    unknown = ~np.isfinite(value) | (np.abs(value) > LARGE) | np.isnan(total)
    return Exact(np.where(np.isfinite(value), value, 0.0), np.where(unknown, np.inf, total))


def monotone(function: Callable[[np.ndarray], np.ndarray], x: Exact) -> Exact:
    """A function that rises or falls all the way between a value's bounds."""
    with np.errstate(all="ignore"):
        value, low, high = (function(v) for v in (x.value, x.value - x.error, x.value + x.error))
        error = np.maximum(np.abs(high - value), np.abs(low - value))
    error = np.where(np.isnan(error), np.inf, error)
    return rounded(value, error + FUNCTION * np.maximum(np.abs(value), 0.25))


def bounded_slope(function: Callable[[np.ndarray], np.ndarray], x: Exact) -> Exact:
    """A function whose slope is at most 1, such as sin; larger arguments lose more."""
    value = function(x.value)
    lost = FUNCTION * np.maximum(np.abs(x.value), 1.0)
    return rounded(value, x.error + lost)


def absolute(x: Exact) -> Exact:
    return Exact(np.abs(x.value), x.error)


def compare(function: Callable[[Any, Any], np.ndarray], left: Exact, right: Exact) -> Exact:
    """A truth value, unknown where the numbers are too close to tell."""
    apart = np.abs(left.value - right.value)
    bound = left.error + right.error
    unknown = (bound > 0) & ~(apart > bound)
    return Exact(function(left.value, right.value), np.where(unknown, np.inf, 0.0))


def select(condition: Exact, one: Exact, other: Exact) -> Exact:
    value = np.where(condition.value, one.value, other.value)
    error = np.where(condition.value, one.error, other.error)
    either = np.maximum(one.error, other.error) + np.abs(one.value - other.value)
    if value.dtype.kind == "i":
        either = np.where(either > 0, np.inf, 0.0)
    return Exact(value, np.where(condition.error > 0, either, error))


def extreme(function: Callable[[Any, Any], np.ndarray], left: Exact, right: Exact) -> Exact:
    """The smaller or larger of two."""
    value = function(left.value, right.value)
    return Exact(value, np.maximum(*np.broadcast_arrays(left.error, right.error)))


def to_bf16(x: Exact) -> Exact:
    """Rounded to BF16; a value with a bound may round to either neighbour."""
    value = bf16(x.value)
    with np.errstate(all="ignore"):
        error = np.where(x.error > 0, x.error + np.abs(value) * 2.0**-7, 0.0)
    return Exact(value, error)


def to_integer(x: Exact) -> Exact:
    """Toward zero, as arith.fptosi does; unknown where a whole number is within the bounds."""
    unknown = (x.error > 0) & (np.trunc(x.value - x.error) != np.trunc(x.value + x.error))
    return Exact(np.trunc(x.value).astype(np.int64), np.where(unknown | np.isinf(x.error), np.inf, 0.0))


def to_float(x: Exact) -> Exact:
    value = np.asarray(x.value, np.float64)
    return Exact(value, x.error + (np.abs(value) > 2**24) * ROUNDING * np.abs(value))


def total(x: Exact, axis: int = -1, keepdims: bool = False) -> Exact:
    """A sum over one dimension, in any order."""
    value = x.value.sum(axis, keepdims=keepdims)
    if x.value.dtype.kind == "i":
        return rounded(value, x.error.sum(axis, keepdims=keepdims))
    lost = x.value.shape[axis] * ROUNDING * np.abs(x.value).sum(axis, keepdims=keepdims)
    return rounded(value, x.error.sum(axis, keepdims=keepdims) + lost)


def largest(x: Exact, axis: int = -1, keepdims: bool = False) -> Exact:
    return Exact(x.value.max(axis, keepdims=keepdims), x.error.max(axis, keepdims=keepdims))


def product(equation: str, x: Exact, w: Exact, precision: float) -> Exact:
    """An einsum of two operands; precision: the relative error of a term, more than F32's for matrix instructions."""
    terms = np.einsum(equation, np.ones(x.shape), np.ones(w.shape)).max(initial=1.0)
    value = np.einsum(equation, x.value, w.value)
    a, b = np.abs(x.value), np.abs(w.value)
    finite_x, finite_w = (np.where(np.isinf(e), LARGE, e) for e in (x.error, w.error))
    spread = np.einsum(equation, a + finite_x, finite_w) + np.einsum(equation, finite_x, b)
    lost = (precision + (terms + 2) * ROUNDING) * np.einsum(equation, a, b)
    error = spread + lost
    return rounded(value, np.where(error >= LARGE * 1e-6, np.inf, error))


def softmax(x: Exact, axis: int) -> Exact:
    shifted = x - largest(x, axis, keepdims=True)
    powers = monotone(np.exp, shifted)
    return powers / total(powers, axis, keepdims=True)
