"""A token drawn at random by its probability, after temperature, top-k and top-p."""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.samplers.base import require_numbers

_FIRST_LOOK = 1024
"""How many of the most probable tokens top-p looks at before it sorts more of the vocabulary."""


class Weighted:
    """Draws from softmax(logits / temperature), cut to the top_k largest, then to the nucleus of probability top_p.

    top_k, top_p: None leaves them off.  Among equal logits lower ids count as larger.
    """

    def __init__(self, temperature: float, top_k: int | None, top_p: float | None, seed: int | None) -> None:
        self._temperature, self._top_k, self._top_p = temperature, top_k, top_p
        self._generator = np.random.Generator(np.random.PCG64(seed))

    def __call__(self, logits: np.ndarray) -> int:
        largest = float(logits.max())
        require_numbers(largest)
        if self._top_k is not None and self._top_k < logits.size:
            tokens = _largest(logits, self._top_k)
            weights = self._weights(logits[tokens], largest)
        elif self._top_p is not None:
            tokens, weights = self._nucleus(logits, largest, self._top_p)
        else:
            return self._draw(self._weights(logits, largest))
        if self._top_p is not None:
            kept = 1 + int(np.searchsorted(np.cumsum(weights), self._top_p * weights.sum()))
            weights = weights[:kept]
        return int(tokens[self._draw(weights)])

    def _weights(self, logits: np.ndarray, largest: float) -> np.ndarray:
        with np.errstate(over="ignore"):
            return np.exp((logits.astype(np.float64) - largest) / self._temperature)

    def _nucleus(self, logits: np.ndarray, largest: float, top_p: float) -> tuple[np.ndarray, np.ndarray]:
        """All tokens in order of probability and their weights, or as many of the first ones as reach top_p.

        The weights left out are summed into one last entry, which top_p cannot reach.
        """
        weights = self._weights(logits, largest)
        total, count = weights.sum(), _FIRST_LOOK
        while count < logits.size:
            tokens = _largest(logits, count)
            chosen = weights[tokens]
            # A little more than needed, so that rounding in the sums cannot let the rest be chosen.
            if chosen.sum() >= min(1.0, top_p + 1e-9) * total:
                return tokens, np.append(chosen, max(0.0, total - chosen.sum()))
            count *= 8
        tokens = _largest(logits, logits.size)
        return tokens, weights[tokens]

    def _draw(self, weights: np.ndarray) -> int:
        edges = np.cumsum(weights)
        index = int(np.searchsorted(edges, self._generator.random() * edges[-1], side="right"))
        return min(index, int(np.flatnonzero(weights)[-1]))


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, largest first; of equals the lowest ids."""
    if count < logits.size:
        threshold = np.partition(logits, logits.size - count)[logits.size - count]
        above = np.flatnonzero(logits > threshold)
        equal = np.flatnonzero(logits == threshold)[: count - above.size]
        candidates = np.concatenate([above, equal])
        candidates.sort()
    else:
        candidates = np.arange(logits.size)
    return candidates[np.argsort(-logits[candidates], kind="stable")]
