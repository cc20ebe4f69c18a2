"""The sampler that options ask for."""

from __future__ import annotations

import math

from lispgpt.base.errors import UserError
from lispgpt.runtime.samplers.base import Sampler
from lispgpt.runtime.samplers.greedy import Greedy
from lispgpt.runtime.samplers.weighted import Weighted


def make_sampler(
    temperature: float | None = None,
    top_k: int | None = None,
    top_p: float | None = None,
    seed: int | None = None,
    greedy: bool = False,
    min_p: float | None = None,
) -> Sampler:
    """A sampler for the given options; None leaves one off.

    The logits are divided by `temperature` (default 1; 0 means greedy), then cut to the `top_k` largest (0: all), then
    to the smallest set of most probable tokens whose probabilities reach `top_p` (0 < top_p <= 1) of what is left, and
    to those that are at least `min_p` (0 <= min_p <= 1) times as probable as the most probable one.
    seed: an integer >= 0 makes the choices repeatable, on every device that computes the same logits.  UserError for
    values out of range.
    """
    temperature = 1.0 if temperature is None else temperature
    if not (math.isfinite(temperature) and temperature >= 0):
        raise UserError(f"the temperature is {temperature:g}, which must be 0 (greedy) or a positive number")
    if top_k is not None and top_k < 0:
        raise UserError(f"top-k is {top_k}, which must be 0 (all tokens) or a positive number of tokens")
    if top_p is not None and not 0 < top_p <= 1:
        raise UserError(f"top-p is {top_p:g}, which must be above 0 and at most 1")
    if min_p is not None and not 0 <= min_p <= 1:
        raise UserError(f"min-p is {min_p:g}, which must be from 0 (all tokens) to 1")
    if seed is not None and seed < 0:
        raise UserError(f"the seed is {seed}, which must not be negative")
    if greedy or temperature == 0:
        return Greedy()
    return Weighted(
        temperature, top_k or None, None if top_p is None or top_p >= 1 else top_p, seed, min_p=min_p or 0.0
    )
