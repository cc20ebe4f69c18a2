"""What PEFT makes of models with adapters of seeded random values (see tools/record_adapters.py)."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from recorded_folders import weights_of

from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

RECORDED = Path(__file__).parent / "references" / "adapters.json"


@dataclass(frozen=True)
class RecordedAdapter:
    """base: the recorded folder that it changes.  config: adapter_config.json.  logits: what follows the prompt;
    continued: by greedy decoding."""

    name: str
    base: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Sequence[int]]
    seed: int
    prompt: list[int]
    logits: list[float]
    continued: list[int]

    def write(self, path: Path, **changes: Any) -> Path:
        """Write the folder.  changes: of its config."""
        path.mkdir(parents=True)
        (path / "adapter_config.json").write_text(json.dumps({**self.config, **changes}))
        header = [(name, tuple(shape), "f32") for name, shape in self.tensors.items()]
        values = (weights_of(name, shape, "lora", self.seed) for name, shape in self.tensors.items())
        write_safetensors(path / "adapter_model.safetensors", header, values)
        return path


def adapters() -> list[RecordedAdapter]:
    return [RecordedAdapter(**each) for each in json.loads(RECORDED.read_text())]


def wide_adapter(path: Path, seed: int, rank: int = 5, layers: int = 4, width: int = 192) -> Path:
    """The folder of one for all matrices of a GPT-2, by default examples/models/austen, of another rank than
    `small_adapter`'s."""
    sizes = {"attn.c_attn": (1, 3), "attn.c_proj": (1, 1), "mlp.c_fc": (1, 4), "mlp.c_proj": (4, 1)}
    kinds = {kind: (into * width, out * width) for kind, (into, out) in sizes.items()}
    config = {"peft_type": "LORA", "r": rank, "lora_alpha": 2 * rank, "fan_in_fan_out": True, "use_rslora": True}
    tensors = {}
    for layer in range(layers):
        for kind, (into, out) in kinds.items():
            start = f"base_model.model.transformer.h.{layer}.{kind}.lora"
            tensors |= {f"{start}_A.weight": (rank, into), f"{start}_B.weight": (out, rank)}
    return RecordedAdapter(path.name, "austen", config, tensors, seed, [], [], []).write(path)


def small_adapter(path: Path, seed: int = 1) -> Path:
    """The folder of one for examples/models/austen."""
    config = {"peft_type": "LORA", "r": 2, "lora_alpha": 4, "fan_in_fan_out": True, "target_modules": ["c_attn"]}
    start = "base_model.model.transformer.h.1.attn.c_attn.lora"
    tensors = {f"{start}_A.weight": (2, 192), f"{start}_B.weight": (576, 2)}
    return RecordedAdapter(path.name, "austen", config, tensors, seed, [], [], []).write(path)
