"""What a GGUF file says of rotary positions, as config.json would say it."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.gguf.header import Header

FREQUENCIES, LONG, SHORT = "rope_freqs.weight", "rope_factors_long.weight", "rope_factors_short.weight"
"""Tensors that are settings: what frequencies are divided by, always or in long and in short texts."""
THETA = 10000.0
"""Where a file says no `rope.freq_base`."""
LOW, HIGH = 1.0, 4.0
"""Of all models with Llama 3.1's rotary frequencies; files have but what they come to."""
_NAMES = {
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}


def scaling_of(header: Header, data: Mapping[str, Any], divisors: Mapping[str, np.ndarray]) -> dict[str, Any]:
    """`rope_scaling`; empty where positions are turned plainly.

    data: the file's settings without its architecture's name.  divisors: by the tensors' names, those that are there.
    """
    said = {key.removeprefix("rope.scaling."): value for key, value in data.items() if key.startswith("rope.scaling.")}
    factor, kind = said.get("factor") or data.get("rope.scale_linear") or 0.0, said.get("type") or "linear"
    found: dict[str, Any] = {name: said[key] for key, name in _NAMES.items() if key in said}
    share = said.get("attn_factor") or 1.0
    if LONG in divisors and SHORT in divisors:
        factors = {"long_factor": divisors[LONG].tolist(), "short_factor": divisors[SHORT].tolist()}
        return found | factors | {"rope_type": "longrope", "attention_factor": share}
    if FREQUENCIES in divisors:
        found = _slowed(header, divisors[FREQUENCIES], float(data.get("rope.freq_base") or THETA))
    elif kind == "linear" and factor:
        found |= {"rope_type": "linear", "factor": factor}
    elif kind == "yarn" and factor:
        found |= {"rope_type": "yarn", "factor": factor}
        if share != 1.0 or said.get("yarn_attn_factor"):
            own = said.get("yarn_attn_factor") or (1 + 0.1 * math.log(factor) if factor > 1 else 1.0)
            return found | {"attention_factor": own * share}
    elif kind not in ("none", "linear"):
        raise UserError(f"{header.path}: {header.architecture}.rope.scaling.type is {kind!r}, without what it goes by")
    else:
        found = {}
    if share != 1.0:
        found = {"rope_type": "default"} | found | {"attention_factor": share}
    return found


def _slowed(header: Header, divisors: np.ndarray, theta: float) -> dict[str, Any]:
    """The settings of Llama 3.1's rotary frequencies that come to these divisors; UserError where none do."""
    given = divisors.astype(np.float64)
    factor, pairs = float(given.max()), given.size
    turns = theta ** (-np.arange(pairs) / pairs) / (2 * math.pi)
    between = np.flatnonzero((given > 1.001) & (given < 0.999 * factor))
    if factor > 1.001 and between.size:
        kept = (1 / given[between] - 1 / factor) / (1 - 1 / factor)
        original = round(float(np.median((LOW + kept * (HIGH - LOW)) / turns[between])))
        share = np.clip((original * turns - LOW) / (HIGH - LOW), 0, 1)
        if np.allclose(1 / (share + (1 - share) / factor), given, rtol=1e-2):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": original,
            }
    if np.allclose(given, given[0], rtol=1e-3):
        return {"rope_type": "linear", "factor": float(given[0])}
    raise UserError(f"{header.path}: its {FREQUENCIES} is not what Llama 3.1's frequencies are for any length")
