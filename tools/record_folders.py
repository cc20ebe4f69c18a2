"""Record what Hugging Face transformers generates from random models of many kinds, as tests/references/folders.json.

Run it from the project's root in an environment of its own (the project itself needs neither torch nor transformers):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy safetensors torch transformers
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_folders.py [NAME …]

Without names it records those of `folder_kinds.py` and `hybrid_kinds.py` that are not there yet.
transformers says what a folder of each kind has; its values are made from a seed, by the tests' own rule, and run in
float32.  Of several prompts the one is kept whose text is the most varied while the best two logits stay apart.
"""

from __future__ import annotations

import json
import sys
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from folder_kinds import KINDS
from hybrid_kinds import HYBRIDS
from record_references import quality
from recorded_folders import RECORDED, Folder
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM, AutoModelForImageTextToText
from transformers.models.auto.modeling_auto import MODEL_FOR_CAUSAL_LM_MAPPING_NAMES

NEW_TOKENS, CANDIDATES, WIDE_ENOUGH = 24, 6, 0.02
LENGTHS = (1, 5, 33)


def main() -> None:
    torch.set_num_threads(1)  # more only wait for each other in models this small
    before = {each["name"]: each for each in json.loads(RECORDED.read_text())}
    recorded = []
    for seed, (name, kind, settings) in enumerate(KINDS + HYBRIDS):
        for dtype in ("f32", "bf16"):
            folder = before.get(f"{name}-{dtype}")
            if folder is None or name in sys.argv[1:]:
                folder = record(name, kind, settings, dtype, 100 + seed)
                print(name, dtype, [min(case["gaps"]) for case in folder["cases"]])
            recorded.append(folder)
    RECORDED.write_text("[" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in recorded) + "]\n")
    print(f"wrote {RECORDED} ({RECORDED.stat().st_size} bytes)")


def record(name: str, kind: str, settings: dict[str, Any], dtype: str, seed: int) -> dict[str, Any]:
    config = AutoConfig.for_model(kind, **settings)
    loader = AutoModelForCausalLM if kind in MODEL_FOR_CAUSAL_LM_MAPPING_NAMES else AutoModelForImageTextToText
    with tempfile.TemporaryDirectory() as place:
        loader.from_config(config).save_pretrained(place)
        with safe_open(Path(place) / "model.safetensors", "numpy") as file:
            tensors = {key: file.get_slice(key).get_shape() for key in sorted(file.keys())}
        data = json.loads((Path(place) / "config.json").read_text())
    data.pop("transformers_version", None)
    folder = Folder(f"{name}-{dtype}", data, tensors, dtype, seed, [])
    with tempfile.TemporaryDirectory() as place:
        path = folder.write(Path(place) / "model")
        more = {"experts_implementation": "eager"} if any("expert" in key for key in data) else {}
        model, found = loader.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more
        )
    assert not any(found.values()), found
    chance, cases = np.random.default_rng(seed), []
    for length in LENGTHS:
        tried = [run(model.eval(), chance.integers(3, 131, length).tolist()) for _ in range(CANDIDATES)]
        cases.append(max(tried, key=lambda case: quality(case, WIDE_ENOUGH)))
    return {**vars(replace(folder)), "cases": cases}


@torch.no_grad()
def run(model: Any, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens, each from the whole text before it, and the gap of the best two logits before each."""
    text, gaps = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = model(torch.tensor([text]), use_cache=False).logits[0, -1].numpy()
        best = np.sort(logits)[-2:]
        gaps.append(round(float(best[1] - best[0]), 4))
        text.append(int(logits.argmax()))
    return {"prompt": prompt, "tokens": text[len(prompt) :], "gaps": gaps}


if __name__ == "__main__":
    main()
