"""How far numbers that a device computed are from those that they should be."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from lispgpt.base.precisions import EXACT

ALLOWED = {EXACT: 1e-3, "fast": 1e-2}
"""How far a number that one kernel makes may be off, beside the largest of its result."""
ALLOWED_LOGITS = {EXACT: 1e-3, "fast": 1e-1}
"""The same of logits, which have gone through all layers."""
ROUNDED = 2.0**-7
"""The same of numbers that are stored in 16 bits, where a last bit may be another."""


@dataclass(frozen=True)
class Difference:
    """Between an array and what it should be.

    worst: the largest distance, beside the largest number that should be there; infinite where a number is none, or a
    whole number is another.  wrong, count: how many numbers are further off than is allowed, of how many.  first: the
    place of the first of those in the flat array, or of the worst.  found, wanted: the numbers there.
    """

    worst: float
    wrong: int
    count: int
    first: int
    found: float
    wanted: float

    def __str__(self) -> str:
        worst = "no distance is known" if np.isinf(self.worst) else f"at most {self.worst:.1e} of the largest"
        return (
            f"{self.wrong:,} of {self.count:,} numbers are off, {worst}; "
            f"the first is number {self.first:,}: {self.found:.6g}, and should be {self.wanted:.6g}"
        )


def difference(found: np.ndarray, wanted: np.ndarray, allowed: float) -> Difference:
    """Between float arrays of one size; allowed: see `ALLOWED`.  NaN is wrong even where it should be there."""
    with np.errstate(all="ignore"):
        found, wanted = found.ravel().astype(np.float64), wanted.ravel().astype(np.float64)
        size = np.max(np.abs(wanted), where=np.isfinite(wanted), initial=0.0)
        off = np.abs(found - wanted) / (size or 1.0)
    off[found == wanted] = 0.0
    off[np.isnan(off)] = np.inf
    return _told(off, off > allowed, found, wanted)


def whole_difference(found: np.ndarray, wanted: np.ndarray) -> Difference:
    """Between arrays of whole numbers, which are equal; of words that are a float's bits, as near as rounding goes."""
    other = found.ravel() != wanted.ravel()
    if found.dtype == np.int32 and other.any():
        with np.errstate(all="ignore"):
            one, two = (words.ravel().view(np.float32).astype(np.float64) for words in (found, wanted))
            normal = (np.abs(two) > np.finfo(np.float32).tiny) & np.isfinite(one) & np.isfinite(two)
            other &= ~(normal & (np.abs(one - two) <= 1e-5 * np.abs(two)))
    off = np.where(other, np.inf, 0.0)
    return _told(off, other, found.ravel().astype(np.float64), wanted.ravel().astype(np.float64))


def _told(off: np.ndarray, wrong: np.ndarray, found: np.ndarray, wanted: np.ndarray) -> Difference:
    if not off.size:
        return Difference(0.0, 0, 0, 0, 0.0, 0.0)
    first = int(np.argmax(wrong)) if wrong.any() else int(np.argmax(off))
    return Difference(float(off.max()), int(wrong.sum()), off.size, first, float(found[first]), float(wanted[first]))


def of_bytes(found: np.ndarray, wanted: np.ndarray, element: str, precision: str) -> Difference:
    """Between two windows of bytes that hold elements of a type, as one kernel of that precision writes them."""
    if element == "bf16":
        one, two = (_widened(part.view(np.uint16)) for part in (found, wanted))
        return difference(one, two, max(ROUNDED, ALLOWED[precision]))
    if element == "f16":
        return difference(found.view(np.float16), wanted.view(np.float16), max(ROUNDED, ALLOWED[precision]))
    if element == "f32":
        return difference(found.view(np.float32), wanted.view(np.float32), ALLOWED[precision])
    return whole_difference(*(part.view(np.int32) if element == "i32" else part for part in (found, wanted)))


def _widened(bits: np.ndarray) -> np.ndarray:
    return (bits.astype(np.uint32) << 16).view(np.float32)
