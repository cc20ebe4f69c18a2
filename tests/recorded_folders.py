"""What transformers generates from Hugging Face folders of seeded random weights (see tools/record_folders.py)."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.runtime.checkpoints.numbers import copy_converted
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

RECORDED = Path(__file__).parent / "references" / "folders.json"


@dataclass(frozen=True)
class Folder:
    """config.json, the tensors' names and shapes, and what greedy decoding makes of weights of a seed."""

    name: str
    config: Mapping[str, Any]
    tensors: Mapping[str, Sequence[int]]
    dtype: str
    seed: int
    cases: list[Any]

    def write(self, path: Path, shards: int = 1) -> Path:
        """Write the folder, in so many files."""
        path.mkdir(parents=True)
        (path / "config.json").write_text(json.dumps(self.config))
        names, places = list(self.tensors), {}
        for number in range(shards):
            file = f"model-{number + 1:05}-of-{shards:05}.safetensors" if shards > 1 else "model.safetensors"
            own = names[number::shards]
            places |= dict.fromkeys(own, file)
            write_safetensors(path / file, [(n, tuple(self.tensors[n]), self.dtype) for n in own], self._values(own))
        if shards > 1:
            (path / "model.safetensors.index.json").write_text(json.dumps({"weight_map": places}))
        return path

    def _values(self, names: Sequence[str]) -> Iterator[np.ndarray]:
        for name in names:
            values = weights_of(name, self.tensors[name], self.config["model_type"], self.seed)
            if self.dtype == "bf16":
                rounded = np.empty((values.size, 1), np.uint16)
                copy_converted(values.reshape(-1, 1), "f32", rounded, "bf16")
                yield rounded
            else:
                yield values


def weights_of(name: str, shape: Sequence[int], kind: str, seed: int) -> np.ndarray:
    """The values of a tensor: norms near what leaves rows as they are, all else about zero, small for the embeddings
    of models that scale them."""
    rng = np.random.default_rng([seed, *name.encode()])
    values = rng.standard_normal(shape, np.float32)
    if len(shape) > 1:
        return values * np.float32(0.02 if "gemma" in kind and "embed" in name else 0.25)
    norms = "norm" in name or (kind == "rwkv" and "ln" in name)
    neutral = 1 if norms and "bias" not in name and "gemma" not in kind else 0
    return np.float32(0.3) * values + np.float32(neutral)


def folders() -> list[Folder]:
    """All that were recorded, with `recorded.Case`s."""
    from recorded import Case  # which needs the compiler, and this module's other users do not

    found = []
    for entry in json.loads(RECORDED.read_text()):
        cases = [Case(logits={}, **case) for case in entry.pop("cases")]
        found.append(Folder(cases=cases, **entry))
    return found
