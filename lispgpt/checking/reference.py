"""What a model says in float64 throughout, where it is small enough: which of a device and the CPU is off."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

import numpy as np

from lispgpt.base.dtypes import ROW_DTYPES
from lispgpt.base.precisions import EXACT
from lispgpt.checking.difference import ALLOWED_LOGITS, Difference, difference
from lispgpt.runtime.plan.artifact import Artifact

MOST_BYTES = 2 << 30
"""Of weights and states as float64."""
MOST_WORK = 1 << 34
"""Numbers of weights times tokens: what a core takes some ten seconds for."""
NARROW = ("bf16", "f16")
ALLOWED_PACKED = 0.4
"""How far off logits may be, beside the largest, where keys and values are packed in 8 bits."""
TIMES_CPU = 4
"""How many times as far off as a CPU's a device's logits may be, where that is more than is allowed anyway."""


@dataclass(frozen=True)
class Reference:
    """What a text's logits are held to.

    cpu: the CPU's [tokens, vocabulary].  exact: the same in float64, or None.  unknown: why there are none.  allowed:
    how far off what is right may be from them, beside the largest; more where states are of 16 bits, which float64 does
    not round to.
    """

    cpu: np.ndarray
    exact: np.ndarray | None = None
    unknown: str = ""
    allowed: float = ALLOWED_LOGITS[EXACT]

    def best(self) -> np.ndarray:
        """The logits that are nearest to what the model says."""
        return self.cpu if self.exact is None else self.exact

    def of_cpu(self) -> Difference | None:
        """How far off the CPU's are, where that is known."""
        return None if self.exact is None else difference(self.cpu, self.exact, self.allowed)

    @cached_property
    def allowed_of_device(self) -> float:
        """How far off a device's right logits may be from those in float64: not much more than the CPU's are, whose
        states are rounded alike."""
        off = self.of_cpu()
        return self.allowed if off is None else min(self.allowed, max(ALLOWED_LOGITS[EXACT], TIMES_CPU * off.worst))


def why_not(artifact: Artifact, tokens: int) -> str:
    """Why so many tokens of a model are not run in float64, or ""."""
    nbytes = 8 * sum(numbers_in(artifact, kind) for kind in ("weight", "state"))
    if nbytes > MOST_BYTES:
        return f"weights and states would take {nbytes / 2**30:.1f} GiB, and {MOST_BYTES >> 30} are the most"
    if numbers_in(artifact, "weight") * tokens > MOST_WORK:
        return f"{tokens} tokens would take minutes"
    return ""


def numbers_in(artifact: Artifact, kind: str) -> int:
    """How many numbers the buffers of a kind have."""
    return sum(prod(buffer.shape) for buffer in artifact.plan.buffers if buffer.kind == kind)


def allowed_beside(artifact: Artifact) -> float:
    """How far off right logits may be from those in float64, beside the largest."""
    kinds = {facts["dtype"] for facts in artifact.states.values()}
    if kinds.intersection(ROW_DTYPES):
        return ALLOWED_PACKED
    return ALLOWED_LOGITS["fast" if kinds.intersection(NARROW) else EXACT]
