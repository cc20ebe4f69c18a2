"""A token drawn at random by its probability, after temperature, top-k, top-p and min-p.

Every token has an exponential clock whose rate is its probability, and the first to ring is drawn: it has the largest
w_i / e_i, where w_i is the token's weight and e_i = -ln(1 - u_i) for uniform u_i.  The u_i of draw number n come from a
counter-based generator, keyed by the seed and counted by i, n and the sequence's stream, so that the library's
`draw-token` makes the same choice on a device from `settings`, whatever order it works in.
"""

from __future__ import annotations

import secrets

import numpy as np

from lispgpt.runtime.samplers.base import require_numbers
from lispgpt.runtime.samplers.philox import philox4x32

_EVERY_TOKEN = (1 << 31) - 1
_LEAST, _MOST = float(np.finfo(np.float32).tiny), float(np.finfo(np.float32).max)


class Weighted:
    """Draws from softmax(logits / temperature), cut to the top_k largest, then to the nucleus of probability top_p,
    then to tokens at least min_p times as probable as the most probable.

    top_k, top_p: None leaves them off.  Among equal logits lower ids count as larger.  seed: its last 64 bits count;
    None takes one that nobody chose.  stream: below 2^32, tells sequences with one seed apart.  drawn: how many tokens
    have been drawn, which whoever draws elsewhere has to count on.
    """

    def __init__(
        self,
        temperature: float,
        top_k: int | None,
        top_p: float | None,
        seed: int | None,
        stream: int = 0,
        min_p: float = 0.0,
    ) -> None:
        self._temperature, self._top_k, self._top_p, self._stream = temperature, top_k, top_p, stream
        self._min_p = np.float32(min_p)
        seed = secrets.randbits(64) if seed is None else seed
        self._key = (seed & 0xFFFFFFFF, seed >> 32 & 0xFFFFFFFF)
        self.drawn = 0

    def settings(self, position: int) -> np.ndarray:
        """What a device draws by, i32 [8], where the next token to draw follows the one at `position`.

        The words: log2(e) / temperature as F32, top_k, top_p as F32, the seed's low and high words, the stream,
        what to add to a token's position for the number of the draw that follows it, and min_p as F32.
        """
        scale = min(max(float(np.log2(np.e)) / self._temperature, _LEAST), _MOST)
        top_p = np.inf if self._top_p is None else max(self._top_p, _LEAST)
        reals = np.array([scale, top_p, self._min_p], np.float32).view(np.uint32)
        top_k = _EVERY_TOKEN if self._top_k is None else min(self._top_k, _EVERY_TOKEN)
        draw = (self.drawn - position) & 0xFFFFFFFF
        words = (int(reals[0]), top_k, int(reals[1]), *self._key, self._stream, draw, int(reals[2]))
        return np.array(words, np.uint32).view(np.int32)

    def __call__(self, logits: np.ndarray) -> int:
        largest = float(logits.max())
        require_numbers(largest)
        tokens = np.arange(logits.size)
        if self._top_k is not None and self._top_k < logits.size:
            tokens = _largest(logits, self._top_k)
            logits = logits[tokens]
        with np.errstate(over="ignore"):
            weights = np.exp((logits.astype(np.float64) - largest) / self._temperature)
        needed = np.inf if self._top_p is None else self._top_p * weights.sum()
        if self._min_p > 0:
            likely = weights >= self._min_p
            tokens, logits, weights = tokens[likely], logits[likely], weights[likely]
        winner = self._first(tokens, weights)
        if self._top_p is not None:
            while True:
                above = (logits > logits[winner]) | ((logits == logits[winner]) & (tokens < tokens[winner]))
                if weights[above].sum() < needed:
                    break
                # Not in the nucleus, so neither is any less probable token.
                tokens, logits, weights = tokens[above], logits[above], weights[above]
                winner = self._first(tokens, weights)
        self.drawn += 1
        return int(tokens[winner])

    def _first(self, tokens: np.ndarray, weights: np.ndarray) -> int:
        """Which of these tokens' clocks rings first."""
        uniform = self._uniform(tokens)
        # u is at most -ln(1 - u), and cheaper.
        fastest = weights / uniform
        leader = np.argmax(fastest)
        possible = np.flatnonzero(fastest >= weights[leader] / -np.log1p(-uniform[leader]))
        races = weights[possible] / -np.log1p(-uniform[possible])
        return int(possible[np.argmax(races)])

    def _uniform(self, tokens: np.ndarray) -> np.ndarray:
        """A number between 0 and 1 for each token in this draw; four neighbours share a counter."""
        rest, last = (self.drawn & 0xFFFFFFFF, self._stream, 0), int(tokens.max())
        if tokens.size * 4 < last:
            words = philox4x32(tokens >> 2, rest, self._key)[np.arange(tokens.size), tokens & 3]
        else:
            words = philox4x32(np.arange(last // 4 + 1), rest, self._key).reshape(-1)
            words = words[: tokens.size] if tokens.size == last + 1 else words[tokens]
        return (words + 0.5) * 2.0**-32


def _largest(logits: np.ndarray, count: int) -> np.ndarray:
    """Ids of the `count` largest logits, in order; of equals the lowest."""
    threshold = np.partition(logits, logits.size - count)[logits.size - count]
    above = np.flatnonzero(logits > threshold)
    equal = np.flatnonzero(logits == threshold)[: count - above.size]
    return np.sort(np.concatenate([above, equal]))
