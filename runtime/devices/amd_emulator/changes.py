"""What instructions do to an operand's bits before they compute: parts of it, its sign, a wider type."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

Change = Callable[[Any], Any]
u32, u64 = np.uint32, np.uint64


def bit_field(low: int, size: int, signed: bool = False) -> Change:
    """Some bits of a word, as a number with its sign or without."""
    left, right = u32(32 - low - size), u32(32 - size)
    if signed:
        return lambda value: ((value << left).view(np.int32) >> right.view(np.int32)).view(u32)
    return lambda value: value << left >> right


def absolute(bits: int) -> Change:
    mask = (u64 if bits == 64 else u32)((1 << bits - 1) - 1)
    return lambda value: value & mask


def negated(bits: int) -> Change:
    sign = (u64 if bits == 64 else u32)(1 << bits - 1)
    return lambda value: value ^ sign


def widened(value: Any) -> Any:
    """F16 as F32."""
    return value.astype(np.uint16).view(np.float16).astype(np.float32).view(u32)


def halves(bits: int, picks: tuple[int, int], flips: tuple[bool, bool]) -> Change:
    """Two halves of an operand, each one of its two, with its sign changed or not."""
    kind, half = (u64 if bits == 64 else u32), bits // 2
    mask, signs = kind((1 << half) - 1), kind(sum(flip << half - 1 + half * n for n, flip in enumerate(flips)))

    def change(value: Any) -> Any:
        low, high = ((value >> kind(half) if pick else value) & mask for pick in picks)
        return (low | high << kind(half)) ^ signs

    return change
