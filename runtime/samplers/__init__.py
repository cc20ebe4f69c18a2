"""Samplers: which token follows, given one row of logits (see `base`)."""

from __future__ import annotations

from lispgpt.runtime.samplers.base import Sampler
from lispgpt.runtime.samplers.options import make_sampler

__all__ = ["Sampler", "make_sampler"]
