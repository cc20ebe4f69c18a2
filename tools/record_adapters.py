"""Record what PEFT makes of models with adapters, as tests/references/adapters.json.

Run it from the project's root in an environment of its own (the project itself needs none of these):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy safetensors torch transformers peft
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_adapters.py

PEFT says what an adapter's folder has; its values are made from a seed, by the tests' own rule, and added to recorded
models of seeded weights, in float32.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from peft import LoraConfig, PeftModel, get_peft_model
from recorded_adapters import RECORDED, RecordedAdapter
from recorded_folders import RECORDED as FOLDERS
from recorded_folders import Folder
from safetensors import safe_open
from transformers import AutoModelForCausalLM

ADAPTERS: tuple[tuple[str, str, dict[str, Any]], ...] = (
    (
        "plain",
        "gpt2-untied-f32",
        {"r": 4, "lora_alpha": 8, "target_modules": ["c_attn", "c_proj"], "fan_in_fan_out": True},
    ),
    ("stabilised", "llama-3-f32", {"r": 3, "lora_alpha": 5, "use_rslora": True, "target_modules": "all-linear"}),
    (
        "patterns",
        "llama-3-f32",
        {
            "r": 2,
            "lora_alpha": 4,
            "target_modules": ["q_proj", "v_proj", "down_proj"],
            "rank_pattern": {"layers.1.self_attn.q_proj": 5, "down_proj": 1},
            "alpha_pattern": {"v_proj": 3},
        },
    ),
    ("saved", "qwen2-f32", {"r": 2, "lora_alpha": 2, "target_modules": ["o_proj"], "modules_to_save": ["lm_head"]}),
)
"""Names, the recorded models that they change, and what PEFT is told."""


def main() -> None:
    torch.set_num_threads(1)
    known = {each["name"]: Folder(**each) for each in json.loads(FOLDERS.read_text())}
    found = [record(seed, name, known[base], settings) for seed, (name, base, settings) in enumerate(ADAPTERS)]
    RECORDED.write_text("[" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in found) + "]\n")
    print(f"wrote {RECORDED} ({RECORDED.stat().st_size} bytes)")


def record(seed: int, name: str, base: Folder, settings: dict[str, Any]) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as place:
        path = base.write(Path(place) / "base")
        made = get_peft_model(load(path), LoraConfig(task_type="CAUSAL_LM", **settings))
        made.save_pretrained(Path(place) / "own")
        with safe_open(Path(place) / "own" / "adapter_model.safetensors", "numpy") as file:
            tensors = {key: file.get_slice(key).get_shape() for key in sorted(file.keys())}
        config = json.loads((Path(place) / "own" / "adapter_config.json").read_text())
        config |= {"base_model_name_or_path": None}
        adapter = RecordedAdapter(name, base.name, config, tensors, seed, [], [], [])
        model = PeftModel.from_pretrained(load(path), adapter.write(Path(place) / "adapter")).eval()
        prompt = np.random.default_rng(seed).integers(3, 131, 9).tolist()
        with torch.no_grad():
            logits = model(torch.tensor([prompt])).logits[0, -1]
            plain = load(path)(torch.tensor([prompt])).logits[0, -1]
            tokens = model.generate(torch.tensor([prompt]), max_new_tokens=12, do_sample=False, eos_token_id=None)
        assert (logits - plain).abs().max() > 0.1, "the adapter does nothing"
        continued = tokens[0, len(prompt) :].tolist()
        found = {**vars(adapter), "prompt": prompt, "logits": [round(v, 5) for v in logits.tolist()]}
        return found | {"continued": continued}


def load(path: Path) -> Any:
    return AutoModelForCausalLM.from_pretrained(path, dtype=torch.float32, attn_implementation="eager").eval()


if __name__ == "__main__":
    main()
