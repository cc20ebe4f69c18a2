"""Philox4x32-10, the counter-based random generator of "Parallel random numbers: as easy as 1, 2, 3" (Salmon et al.,
SC 2011): any number of its stream can be had by itself, so that every device can draw the same ones."""

from __future__ import annotations

import numpy as np

ROUNDS = 10
MULTIPLIERS = (0xD2511F53, 0xCD9E8D57)
KEY_STEPS = (0x9E3779B9, 0xBB67AE85)
_WORD = np.dtype("<u4")


def philox4x32(first: np.ndarray, rest: tuple[int, int, int], key: tuple[int, int]) -> np.ndarray:
    """The four words of each counter (first[i], *rest) under a key, uint32 [n, 4].

    first: [n], of any integer type; rest, key: words of 32 bits.
    """
    a = first.astype(_WORD)
    b, c, d = (np.full(a.shape, word, _WORD) for word in rest)
    k, m = key
    for _ in range(ROUNDS):
        b_next, from_a = _product(a, MULTIPLIERS[0])
        d_next, from_c = _product(c, MULTIPLIERS[1])
        a, b, c, d = from_c ^ b ^ _WORD.type(k), d_next, from_a ^ d ^ _WORD.type(m), b_next
        k, m = (k + KEY_STEPS[0]) & 0xFFFFFFFF, (m + KEY_STEPS[1]) & 0xFFFFFFFF
    return np.stack([a, b, c, d], axis=1)


def _product(words: np.ndarray, factor: int) -> tuple[np.ndarray, np.ndarray]:
    """The low and the high words of products."""
    products = np.multiply(words, np.uint64(factor), dtype="<u8")
    halves = products.view(_WORD).reshape(-1, 2)
    return halves[:, 0], halves[:, 1]
