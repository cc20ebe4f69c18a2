"""Numbers of float64 with a bound for how far float32 arithmetic, in any order, may be from them."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

STEP = 2.0**-22
"""What a float32 operation may be off by, as a share of its result; some are approximated on GPUs."""

BF16_STEP = 2.0**-8
LARGEST = 1e6
SMALLEST = 2.0**-126
"""Of float32; what is smaller may become 0."""

GPU_PRODUCTS = 2.0**-15
"""What a product's terms are off by where matrix instructions take F32 in pieces of BF16."""


class Bounds:
    """on: whether errors are followed; without, values alone are right.  product: how far off each term of a product of
    F32 may be, as a share of itself."""

    on = True
    product = GPU_PRODUCTS


class Unfit(Exception):
    """A program whose right values are not certain, infinite or lost in rounding."""


@dataclass(frozen=True)
class Approx:
    """value: float64, int64 or bool.  error: how far off each may be; 0 of what is exact."""

    value: np.ndarray
    error: Any = 0.0

    @property
    def shape(self) -> tuple[int, ...]:
        return tuple(np.shape(self.value))

    def each(self, change: Callable[[np.ndarray], np.ndarray]) -> Approx:
        """The same change of shape for values and errors."""
        error = np.broadcast_to(self.error, self.shape)
        return Approx(change(self.value), change(error))


def exact(value: Any) -> Approx:
    value = np.asarray(value)
    if value.dtype.kind == "f":
        value = value.astype(np.float64)
    return Approx(value, 0.0)


def through(compute: Callable[..., Any], *given: Approx, steps: float = 1.0, slack: float = 0.0) -> Approx:
    """A function of elements: its error from its values at the corners of what the arguments may be."""
    with np.errstate(all="ignore"):
        value = np.asarray(compute(*(g.value for g in given)))
        if value.dtype.kind != "f":
            return Approx(value, 0.0)
        if not Bounds.on:
            return checked(Approx(value, 0.0))
        error: Any = steps * STEP * np.abs(value) + slack
        if any(np.any(g.error) for g in given):
            for signs in itertools.product((-1, 1), repeat=len(given)):
                corner = compute(*(_moved(g, sign) for g, sign in zip(given, signs, strict=True)))
                error = np.maximum(error, np.abs(corner - value) + steps * STEP * np.abs(value) + slack)
    lost = np.where((value != 0.0) & (np.abs(value) < SMALLEST), SMALLEST, 0.0)
    return checked(Approx(value, error + lost))


def _moved(given: Approx, sign: int) -> np.ndarray:
    return given.value + sign * given.error if given.value.dtype.kind == "f" else given.value


def checked(given: Approx) -> Approx:
    """What it is given; Unfit where numbers are too large, or errors are."""
    if given.value.dtype.kind != "f":
        return given
    if not np.all(np.isfinite(given.value)) or not np.all(np.isfinite(given.error)):
        raise Unfit("not finite")
    largest = np.max(np.abs(given.value), initial=0.0)
    if largest > LARGEST:
        raise Unfit("too large")
    if np.max(given.error, initial=0.0) > 0.02 * largest + 1e-6:
        raise Unfit("lost in rounding")
    return given


def certain(compute: Callable[[np.ndarray, np.ndarray], np.ndarray], a: Approx, b: Approx) -> Approx:
    """A comparison; Unfit where rounding may change it."""
    margin = np.abs(np.asarray(a.value, np.float64) - b.value)
    noise = np.asarray(a.error + np.asarray(b.error))
    if np.any((margin <= 2 * noise) & (noise > 0)):
        raise Unfit("a close comparison")
    return exact(compute(a.value, b.value))


def to_bf16(value: np.ndarray) -> np.ndarray:
    """The nearest numbers that bfloat16 has, of equals the even one."""
    bits = np.asarray(value, np.float32).view(np.uint32).astype(np.uint64)
    bits = (bits + 0x7FFF + ((bits >> 16) & 1)) & 0xFFFF0000
    return bits.astype(np.uint32).view(np.float32).astype(np.float64)


def rounded_to_bf16(given: Approx) -> Approx:
    value = to_bf16(given.value)
    moved = np.broadcast_to(given.error, given.shape) + np.abs(given.value) * STEP
    low, high = to_bf16(given.value - moved), to_bf16(given.value + moved)
    return checked(Approx(value, np.maximum(np.abs(low - value), np.abs(high - value))))


def chosen(condition: Approx, a: Approx, b: Approx) -> Approx:
    value = np.where(condition.value, a.value, b.value)
    return Approx(value, np.where(condition.value, a.error, b.error) if value.dtype.kind == "f" else 0.0)


def contraction(spec: str, a: Approx, b: Approx) -> Approx:
    """numpy's einsum of two tensors, summed in any order."""
    x, w = np.abs(a.value), np.abs(b.value)
    ex, ew = np.broadcast_to(a.error, a.shape), np.broadcast_to(b.error, b.shape)
    value = np.einsum(spec, a.value, b.value)
    if not Bounds.on:
        return checked(Approx(value, 0.0))
    terms = max(1, int(np.prod(x.shape + w.shape) ** 0.5))
    error = (
        np.einsum(spec, x, ew)
        + np.einsum(spec, ex, w + ew)
        + (0.25 * terms**0.5 * STEP + Bounds.product) * np.einsum(spec, x, w)
    )
    return checked(Approx(value, error))


def summed(a: Approx, start: float = 0.0) -> Approx:
    """The sum over the last dimension."""
    size = a.shape[-1]
    wide = np.abs(a.value).sum(-1) + abs(start)
    error = np.broadcast_to(a.error, a.shape).sum(-1) + 0.5 * STEP * size**0.5 * wide
    return checked(Approx(a.value.sum(-1) + start, error))


def extreme(a: Approx, largest: bool) -> Approx:
    error = np.broadcast_to(a.error, a.shape).max(-1)
    return Approx(a.value.max(-1) if largest else a.value.min(-1), error if a.value.dtype.kind == "f" else 0.0)
