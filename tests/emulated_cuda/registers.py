"""What registers hold: bits, of integers, of f32, of f64, or of two bf16."""

from __future__ import annotations

import re
from functools import lru_cache

import numpy as np

LANES = np.arange(32)
SIGNED = {8: np.int8, 16: np.int16, 32: np.int32, 64: np.int64}
UNSIGNED = {8: np.uint8, 16: np.uint16, 32: np.uint32, 64: np.uint64}


def names(operand: str) -> list[str]:
    return [name.strip() for name in operand.strip("{}").split(",")]


def bf16(values: np.ndarray) -> np.ndarray:
    """To the nearest, ties to even; NaN stays NaN."""
    bits = values.view(np.uint32).astype(np.uint64)
    rounded = (bits + 0x7FFF + (bits >> np.uint64(16) & np.uint64(1))) >> np.uint64(16)
    return np.where(np.isnan(values), np.uint64(0x7FFF), rounded).astype(np.uint16)


def bytes_of(words: np.ndarray) -> np.ndarray:
    return np.ascontiguousarray(words).view(np.uint8).reshape(len(words), 4)


def halves(words: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Two bf16 numbers of each 32-bit word, the low one first."""
    return (words << np.uint32(16)).view(np.float32), (words & np.uint32(0xFFFF0000)).view(np.float32)


@lru_cache(256)
def same(operand: str, width: int) -> np.ndarray:
    """The bits of an operand that is a number, or that no instruction has written, for so many threads."""
    if operand.startswith(("0f", "0d")):
        number = int(operand[2:], 16)
    else:
        number = int(operand.rstrip("U"), 0) if re.match(r"-?\d", operand) else -1
    return np.full(width, number & (2**64 - 1), np.uint64)
