"""Record what Hugging Face transformers generates from seeded random models, as tests/references/ARCHITECTURE.json.

Run it from the project's root in an environment of its own (the project itself needs neither torch nor transformers):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy safetensors tokenizers torch transformers
    PYTHONPATH=. /tmp/references/bin/python tools/record_references.py gpt2 llama

Each model is made by this project as a Hugging Face folder, loaded by transformers, and run in float32 on the stored
(perhaps BF16-rounded) weights.  Prompts are random; of several the one is kept whose greedy text is the most varied
while the best two logits stay far enough apart for a correct program with a BF16 cache to agree on every token.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM

from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import PRESETS

NEW_TOKENS = 64
WIDE_ENOUGH = 0.05
GPT2: list[tuple[str, Gpt2Shape, str, int, tuple[int, ...], int]] = [
    # name, shape (vocab, context, layers, heads, width), dtype, seed, prompt lengths, candidates for each prompt
    ("odd-f32", Gpt2Shape.unpadded(211, 192, 3, 6, 96), "f32", 11, (1, 2, 7, 33, 64, 100), 8),
    ("odd-bf16", Gpt2Shape.unpadded(211, 192, 3, 6, 96), "bf16", 12, (1, 3, 17, 64, 65, 100), 8),
    ("small-bf16", Gpt2Shape.unpadded(300, 128, 2, 4, 64), "bf16", 13, (1, 5, 40, 64), 8),
    ("uneven-f32", Gpt2Shape.unpadded(131, 168, 1, 3, 42), "f32", 14, (1, 12, 100), 8),
    ("long-bf16", Gpt2Shape.unpadded(1009, 1024, 4, 8, 128), "bf16", 15, (1, 64, 100, 900), 8),
    ("gpt2-124m-bf16", PRESETS["gpt2-124m"], "bf16", 16, (5, 100), 3),
]
LLAMA: list[tuple[str, LlamaShape, str, int, tuple[int, ...], int]] = [
    # as above, with the shape's vocab, context, layers, heads, kv_heads, width, hidden, head_width, theta
    ("grouped-f32", LlamaShape(131, 192, 3, 6, 2, 96, 77, 16), "f32", 21, (1, 2, 33, 64, 100), 4),
    ("halves-of-five-bf16", LlamaShape(211, 168, 2, 6, 3, 60, 101, 10, 500000.0), "bf16", 22, (1, 17, 65, 100), 4),
    ("one-key-bf16", LlamaShape(300, 176, 2, 6, 1, 48, 131, 8, epsilon=1e-6), "bf16", 23, (1, 5, 40, 100), 4),
    ("tied-f32", LlamaShape(131, 192, 2, 6, 6, 48, 85, 8, tied_head=True), "f32", 24, (1, 12, 100), 4),
    (
        "slowed-bf16",
        LlamaShape(307, 192, 2, 6, 2, 66, 99, 24, rope_factor=8.0, rope_original=32),
        "bf16",
        25,
        (1, 64, 100),
        4,
    ),
    ("slowed-alike-f32", LlamaShape(97, 192, 1, 4, 2, 56, 33, 14, rope_factor=4.0), "f32", 26, (3, 90), 4),
]
MODELS: dict[str, list[Any]] = {"gpt2": GPT2, "llama": LLAMA}


def main() -> None:
    for architecture in sys.argv[1:] or MODELS:
        record(architecture)


def record(architecture: str) -> None:
    out = Path(f"tests/references/{architecture}.json")
    models = []
    for name, shape, dtype, seed, lengths, candidates in MODELS[architecture]:
        with tempfile.TemporaryDirectory() as folder:
            make(Path(folder) / "model", shape, "huggingface", dtype, seed)
            model = AutoModelForCausalLM.from_pretrained(Path(folder) / "model", dtype=torch.float32).eval()
        chance = np.random.default_rng(seed)
        cases = []
        for length in lengths:
            tried = [run(model, shape, chance.integers(0, shape.vocab, length).tolist()) for _ in range(candidates)]
            cases.append(max(tried, key=lambda case: quality(case, WIDE_ENOUGH)))
            distinct = len(set(cases[-1]["tokens"]))
            print(f"{name}: prompt of {length}, smallest gap {min(cases[-1]['gaps'])}, {distinct} distinct tokens")
        sizes = {key: value for key, value in asdict(shape).items() if key != "padded_vocab"}
        models.append({"name": name, "shape": sizes, "dtype": dtype, "seed": seed, "cases": cases})
    out.write_text("[" + ",\n".join(json.dumps(model, separators=(",", ":")) for model in models) + "]\n")
    print(f"wrote {out} ({out.stat().st_size} bytes)")


def quality(case: dict[str, Any], wide_enough: float) -> float:
    """More is better: the distinct tokens where all gaps are wide enough, else the smallest gap."""
    smallest = min(case["gaps"])
    return len(set(case["tokens"])) if smallest >= wide_enough else smallest


@torch.no_grad()
def run(model: Any, shape: Any, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens, the gap of the best two logits before each, and 16 of the logits that follow the prompt."""
    past, fed, tokens, gaps = None, prompt, [], []
    sampled: dict[str, float] = {}
    for _ in range(min(NEW_TOKENS, shape.context - len(prompt))):
        output = model(torch.tensor([fed]), past_key_values=past, use_cache=True)
        past, logits = output.past_key_values, output.logits[0, -1].numpy()
        if not tokens:
            places = np.linspace(0, shape.vocab - 1, 16).astype(int)
            sampled = {str(place): round(float(logits[place]), 5) for place in places}
        best = np.sort(logits)[-2:]
        gaps.append(round(float(best[1] - best[0]), 4))
        tokens.append(int(logits.argmax()))
        fed = tokens[-1:]
    return {"prompt": prompt, "tokens": tokens, "gaps": gaps, "logits": sampled}


if __name__ == "__main__":
    main()
