"""Every kernel of GPT-2 124M at its real shape, all workgroups of it, on emulated AMD GPUs, against float64.

Two layers of twelve have every kernel there is: layers share theirs, and the first one reads its rows from the table.
"""

from __future__ import annotations

from functools import cache
from pathlib import Path

import numpy as np
import pytest
import reference_gpt2
import seeded
from compiled_models import rounded_to_bf16
from emulated_amd.running import CHIPS, Emulation

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.samplers.weighted import Weighted

PROGRAM = Path(__file__).resolve().parent.parent.parent / "examples" / "gpt2_generate.lisp"
VOCAB, HEADS, WIDTH, LAYERS, CONTEXT = 50257, 12, 768, 2, 1024
SIZES = {"layers": LAYERS, "heads": HEADS, "width": WIDTH, "vocab": VOCAB, "padded-vocab": 50304, "context": CONTEXT}
COMPARED = 500
"""Logits; each is a column's own sum."""


@cache
def artifact(chip: str) -> Artifact:
    compiled, _ = compile_request(Request(PROGRAM, f"rocm:{chip}", {**SIZES, "weight-type": "bf16"}), Observer())
    return compiled


class Model:
    """Random weights on a chip, and what float64 makes of them."""

    def __init__(self, chip: str, seed: int) -> None:
        self.random, self.seed = np.random.default_rng(seed), seed
        self.exact, values = {}, {}
        for buffer in artifact(chip).plan.buffers:
            if buffer.kind == "weight":
                weight = self.random.normal(0, 0.05, buffer.shape).astype(np.float32)
                weight = rounded_to_bf16(weight) if buffer.dtype == "bf16" else weight
                self.exact[buffer.name] = weight.astype(np.float64)
                bits = (weight.view(np.uint32) >> 16).astype(np.uint16)
                values[buffer.name] = bits if buffer.dtype == "bf16" else weight
            elif buffer.kind == "state":
                values[buffer.name] = np.zeros(buffer.nbytes, np.uint8)
        self.tokens = self.random.integers(0, VOCAB, CONTEXT).astype(np.int32)
        self.emulation = Emulation(artifact(chip), values)

    def run(self, name: str, first: int, count: int, **inputs: np.ndarray) -> np.ndarray:
        """Run an entry on `count` tokens from position `first` on; its logits after the last of them, once checked."""
        emulation, positions = self.emulation, np.arange(first, first + count, dtype=np.int32)
        entry = emulation.entry(name, count)
        given = {"tokens": self.tokens[positions], "positions": positions, **inputs}
        for input_name, place in entry.inputs.items():
            emulation.buffers[place][:] = np.ascontiguousarray(given[input_name]).view(np.uint8).reshape(-1)
        for place in entry.results.values():
            emulation.buffers[place][:] = 0xFF
        emulation.run(entry)
        logits = emulation.buffers[entry.results["logits"]].view(np.float32)[-SIZES["padded-vocab"] :][:VOCAB]
        seen = [int(token) for token in self.tokens[: first + count]]
        expected = reference_gpt2.logits(self.exact, HEADS, seen, COMPARED)[-1]
        about = f"{name} of {count} from position {first}, seed {self.seed}"
        np.testing.assert_allclose(
            logits[:COMPARED], expected, rtol=0, atol=2e-4 * np.abs(expected).max(), err_msg=about
        )
        assert np.isfinite(logits).all(), about
        return logits

    def next_token(self, name: str) -> int:
        entry = self.emulation.entry(name, 1)
        return int(self.emulation.buffers[entry.results["next"]].view(np.int32)[0])


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_decoding_and_short_prompts(chip: str) -> None:
    model = Model(chip, seeded.fresh_seed())
    model.run("prefill", 0, 16)
    model.run("prefill", 16, 128)
    logits = model.run("decode-greedy", 144, 1)
    assert model.next_token("decode-greedy") == logits.argmax(), model.seed
    sampler = Weighted(0.9, 40, 0.95, model.seed)
    logits = model.run("decode-drawn", 144, 1, sampling=sampler.settings(144))
    assert model.next_token("decode-drawn") == sampler(logits), model.seed


@pytest.mark.slow
@pytest.mark.parametrize("chip", CHIPS)
def test_a_prompt_as_long_as_the_context(chip: str) -> None:
    Model(chip, seeded.fresh_seed()).run("prefill", 0, CONTEXT)
