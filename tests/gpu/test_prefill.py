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
    "mixtral": {"kv-heads": 2, "hidden": 128, "experts": 6},
    "gemma2": {"kv-heads": 2, "hidden": 384, "window": 64, "head-width": 64},
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_logits_of_prompts_are_the_cpus(name: str, chip: Chip, shared: Path) -> None:
    sizes = chip.sized(
        {"layers": 2, "heads": 4, "width": 256, "context": 1200}, {"layers": 1, "heads": 2, "width": 64, "context": 40}
    )
    few = chip.sized({}, {"hidden": 64, "kv-heads": 1})
    own = {key: few.get(key, value) for key, value in PROGRAMS[name].items()}
    pair = Pair(chip, EXAMPLES / f"{name}.lisp", shared, {**sizes, **own, "vocab": VOCAB})
    rng, worst = seeded.rng(), 0.0
    for length in chip.sized((1, 5, 17, 127, 128, 300, 1111), (17,)):
        tokens = [int(t) for t in rng.integers(0, VOCAB, length)]
        with pair.on_cpu() as model:
            right = model.logits(tokens)
        size = np.abs(right).max()
        for precision, allowed in (("exact", NEAR), ("fast", FAST)):
            with pair.on_chip(precision=precision) as model:
                found = model.logits(tokens)
            about = f"{pair.about}, {precision}, {length} tokens"
            np.testing.assert_allclose(found, right, rtol=0, atol=allowed * size, err_msg=about)
            off = np.linalg.norm(found - right) / np.linalg.norm(right)
            assert off <= allowed / 3, f"{about}: {off}"
            worst = max(worst, off if precision == "fast" else 0)
    assert chip.emulated or worst > 1e-5, "fast is not exact"
