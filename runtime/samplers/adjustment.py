"""What is changed about logits before a token is chosen: penalties for tokens that the text has, and biases.

A token's logit x becomes, with n how often it was generated so far,

    x / repeat where x > 0, x * repeat elsewhere    if the prompt or what was generated has it
    x - presence - frequency * n                    if n > 0
    x + bias                                        if it has a bias

in this order ("CTRL", Keskar et al. 2019, for `repeat`).  A device does the same from the arrays that are kept here.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

import numpy as np

from lispgpt.base.errors import UserError

LARGEST = 1e30
"""A bias that leaves room for logits in f32."""
IN_PROMPT = 1 << 30
"""The bit of a token's count that says that the prompt has it."""


@dataclass(frozen=True)
class Penalties:
    """repeat 1, presence and frequency 0 leave logits as they are; so does a bias of 0.  UserError for others' values.

    logit_bias: by the token's id; -inf forbids the token.
    """

    repeat: float = 1.0
    presence: float = 0.0
    frequency: float = 0.0
    logit_bias: Mapping[int, float] = field(default_factory=dict)

    def __post_init__(self) -> None:
        if not (math.isfinite(self.repeat) and self.repeat > 0):
            raise UserError(f"the repeat penalty is {self.repeat:g}, which must be a positive number (1: none)")
        for name, value in (("presence", self.presence), ("frequency", self.frequency)):
            if not math.isfinite(value):
                raise UserError(f"the {name} penalty is {value:g}, which must be a number (0: none)")
        for token, bias in self.logit_bias.items():
            if math.isnan(bias) or (bias != -math.inf and abs(bias) > LARGEST):
                raise UserError(f"the bias of token {token} is {bias:g}, which must be a number up to 1e30, or -inf")

    @property
    def none(self) -> bool:
        """Whether all logits stay as they are."""
        plain = self.repeat == 1 and self.presence == 0 and self.frequency == 0
        return plain and not any(self.logit_bias.values())


class Adjustment:
    """Penalties of one text, and the tokens that it has so far.

    counts: i32 [vocab], how often each token was generated, with `IN_PROMPT` where the prompt has it.  bias: f32
    [vocab].  strengths: f32 [3], the penalties repeat, presence and frequency.
    """

    def __init__(self, penalties: Penalties, vocab: int) -> None:
        known = range(vocab)
        tokens = penalties.logit_bias
        wrong = next((t for t in tokens if not isinstance(t, (int, np.integer)) or t not in known), None)
        if wrong is not None:
            raise UserError(
                f"there is no token {wrong!r} to give a bias: the vocabulary has {vocab} (0 to {vocab - 1})"
            )
        self.counts = np.zeros(vocab, np.int32)
        self.bias = np.zeros(vocab, np.float32)
        for token, bias in tokens.items():
            self.bias[token] = bias
        self.strengths = np.array([penalties.repeat, penalties.presence, penalties.frequency], np.float32)

    def read(self, prompt: Iterable[int]) -> None:
        """Count a prompt's tokens."""
        self.counts[np.fromiter(prompt, np.int64)] |= IN_PROMPT

    def wrote(self, token: int) -> None:
        """Count a token that was generated."""
        self.counts[token] += 1

    def __call__(self, logits: np.ndarray) -> np.ndarray:
        """f32 [vocab] → f32 [vocab]"""
        repeat, presence, frequency = self.strengths
        generated = self.counts & (IN_PROMPT - 1)
        repeated = np.where(logits > 0, logits / repeat, logits * repeat)
        found = np.where(self.counts != 0, repeated, logits)
        found = found - np.where(generated > 0, presence, np.float32(0)) - frequency * generated.astype(np.float32)
        return np.asarray(found + self.bias, np.float32)
