"""Floats of 8 bits: what their patterns stand for, and the patterns that are nearest to numbers."""

from __future__ import annotations

from functools import cache

import numpy as np

from lispgpt.base.dtypes import DTYPES

LARGEST = 448.0
"""The largest number of E4M3."""


@cache
def floats_of_8_bits(kind: str) -> np.ndarray:
    """The f32 value of each pattern, [256]."""
    patterns = np.arange(256)
    mantissa_bits, bias = (3, 7) if kind == "f8e4m3" else (2, 15)
    exponent, mantissa = (patterns & 0x7F) >> mantissa_bits, patterns & ((1 << mantissa_bits) - 1)
    share = mantissa / (1 << mantissa_bits)
    size = np.where(exponent > 0, np.ldexp(1 + share, exponent - bias), np.ldexp(share, 1 - bias))
    limit = DTYPES[kind].smallest_nonfinite or 0
    largest = np.nan if kind == "f8e4m3" else np.where(mantissa > 0, np.nan, np.inf)
    values: np.ndarray = np.where((patterns & 0x7F) >= limit, largest, size) * np.where(patterns < 128, 1, -1)
    return values.astype(np.float32)


def nearest_e4m3(values: np.ndarray) -> np.ndarray:
    """The patterns of E4M3, as uint8, that are nearest to f32 numbers of at most LARGEST; ties go to even patterns."""
    exponent = np.maximum(np.where(values == 0, -6, np.frexp(values)[1] - 1), -6)
    steps = np.rint(np.ldexp(np.abs(values), 3 - exponent)).astype(np.int32)  # a step is the last of three bits
    found: np.ndarray = (steps + 8 * (exponent + 6) + 128 * np.signbit(values)).astype(np.uint8)
    return found
