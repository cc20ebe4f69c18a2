"""The most probable token."""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.samplers.base import require_numbers


class Greedy:
    """argmax; the lowest id of equals."""

    def __call__(self, logits: np.ndarray) -> int:
        token = int(np.argmax(logits))  # a NaN counts as largest here, so looking at the winner finds it
        require_numbers(float(logits[token]))
        return token
