"""Prompts: logits after every token, exact and fast, of lengths that fill tiles and of such that do not."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from gpu.chips import Chip
from gpu.decoding import EXAMPLES, NEAR
from gpu.models import Pair

VOCAB, FAST = 500, 1e-1
"""FAST: how far logits may be, beside their size, where products read activations in BF16."""
PROGRAMS = {
    "gpt2_generate": {},
    "llama_tiny": {"kv-heads": 2, "hidden": 384},
    "mistral": {"kv-heads": 2, "hidden": 384, "window": 50},
    "gemma2": {"kv-heads": 2, "hidden": 384, "window": 64, "head-width": 64},
}
SLOW = ("gemma2",)


@pytest.mark.parametrize("name", [pytest.param(n, marks=pytest.mark.slow if n in SLOW else []) for n in PROGRAMS])
def test_logits_of_prompts_are_the_cpus(name: str, chip: Chip, shared: Path) -> None:
    sizes = chip.sized(
        {"layers": 2, "heads": 4, "width": 256, "context": 1200}, {"layers": 1, "heads": 2, "width": 64, "context": 40}
    )
    few = chip.sized({}, {"hidden": 64, "kv-heads": 1})
    own = {key: few.get(key, value) for key, value in PROGRAMS[name].items()}
    pair, rng = Pair(chip, EXAMPLES / f"{name}.lisp", shared, {**sizes, **own, "vocab": VOCAB}), seeded.rng()
    prompts = [[int(t) for t in rng.integers(0, VOCAB, n)] for n in chip.sized((17, 128, 1111), (17,))]
    with pair.on_cpu() as model:
        rights = [model.logits(prompt) for prompt in prompts]
    worst = {}
    for precision, allowed in (("exact", NEAR), ("fast", FAST)):
        with pair.on_chip(precision=precision) as model:
            every = [model.logits(prompt) for prompt in prompts]
        for found, right in zip(every, rights, strict=True):
            size, about = np.abs(right).max(), f"{pair.about}, {precision}, {len(right)} tokens"
            np.testing.assert_allclose(found, right, rtol=0, atol=allowed * size, err_msg=about)
            off = np.linalg.norm(found - right) / np.linalg.norm(right)
            assert off <= allowed / 3, f"{about}: {off}"
            worst[precision] = max(worst.get(precision, 0), off)
    assert worst["fast"] > worst["exact"], "fast is exact"
