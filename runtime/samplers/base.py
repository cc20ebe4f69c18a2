"""What a sampler is, and what is wrong with logits.

A sampler is called with one sequence's logits, a float32 array already cut to the real vocabulary (padding rows can
therefore never be chosen), and returns a token id.  It may keep state, such as its random stream; it may not change the
array.  A new one is one file in this folder; copy `greedy.py`.  On GPUs greedy and weighted choices are made by kernels
(`sampling.lisp` of the language's library); with any other sampler each step's logits come to the host.
"""

from __future__ import annotations

import math
from typing import Protocol

import numpy as np

from lispgpt.base.errors import UserError


class Sampler(Protocol):
    """Chooses a token."""

    def __call__(self, logits: np.ndarray) -> int:
        """logits: f32 [vocab] → token id; UserError if they hold NaN or nothing above -Inf."""


def require_numbers(largest: float) -> None:
    """UserError unless the largest of some logits is a number."""
    if not math.isfinite(largest):
        raise damaged_logits(str(largest))


def damaged_logits(largest: str) -> UserError:
    """What to raise where the best logit is no number to choose by."""
    return UserError(f"the model's best logit is {largest}: its weights are damaged or its arithmetic overflowed")


def real_of(bits: int) -> float:
    """The number whose F32 has these bits."""
    return float(np.int32(bits).view(np.float32))


def log_probability(logits: np.ndarray, token: int) -> float:
    """The natural logarithm of a token's probability in softmax(logits); logits: f32 [vocab]."""
    exact = logits.astype(np.float64)
    top = exact.max()
    return float(exact[token] - top - np.log(np.exp(exact - top).sum()))
