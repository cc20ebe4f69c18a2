"""A folder in PEFT's format, of an adapter that was trained beside a model."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.checkpoints.adapter import CONFIG, START, WEIGHTS
from lispgpt.runtime.checkpoints.base import Checkpoint
from lispgpt.runtime.checkpoints.huggingface import read_named
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors
from lispgpt.runtime.checkpoints.several_adapters import SUFFIX, A, B, Place, places_of


@dataclass(frozen=True)
class AdapterFolder:
    """How to write an adapter's folder.  model: the folder that it changes; names: what its program calls what is in
    it.  rank, alpha: of all modules; targets: the ends of their names."""

    model: Path
    names: FolderMap
    rank: int
    alpha: float
    targets: Sequence[str]

    @property
    def places(self) -> list[Place]:
        """What of the model is adapted; UserError for a name that nothing there has."""
        return targeted(self.model, self.names, self.targets)

    def write(self, path: Path, source: Checkpoint) -> None:
        """Write the A and B that a checkpoint has into a folder; UserError where the model is gone."""
        if not (self.model / "config.json").is_file():
            raise UserError(f"{self.model} is gone, whose adapter is trained")
        places, full = self.places, self._full_names()
        keys = [
            (f"{START}{full[module].removesuffix(SUFFIX)}.lora_{half}{SUFFIX}", place.name + suffix, layer)
            for place in places
            for layer, module in enumerate(place.modules)
            for half, suffix in (("A", A), ("B", B))
        ]
        shapes = {name: _shape(source, name) for _, name, _ in keys}

        def arrays() -> Iterator[np.ndarray]:
            for _, name, layer in keys:
                array = np.empty(shapes[name], np.float32)
                source.read_layer_into(name, layer, array, "f32")
                yield array

        write_safetensors(path / WEIGHTS, [(key, shapes[name], "f32") for key, name, _ in keys], arrays())
        with replacing(path / CONFIG) as file:
            file.write(json.dumps(self._config(places), indent=2).encode() + b"\n")

    def _full_names(self) -> Mapping[str, str]:
        """Tensors' names as the whole model has them, which folders may leave the beginning of out."""
        start = next(iter(self.names.prefix), "")
        named = read_named(self.model, None, self.names.prefix)
        return {name: start + name if full == name else full for name, (full, _) in named.items()}

    def _config(self, places: Sequence[Place]) -> dict[str, Any]:
        return {
            "peft_type": "LORA",
            "task_type": "CAUSAL_LM",
            "base_model_name_or_path": str(self.model),
            "r": self.rank,
            "lora_alpha": self.alpha,
            "lora_dropout": 0.0,
            "bias": "none",
            "fan_in_fan_out": any(place.turned for place in places),
            "target_modules": sorted({_ending(place) for place in places}),
            "inference_mode": True,
        }


def targeted(model: Path, names: FolderMap, targets: Sequence[str]) -> list[Place]:
    """The places of a folder's modules whose names are these, or end with them; of none given, all that
    layers have.  UserError for a name that nothing there has."""
    every = [place for place in places_of(model, names) if place.stacked]
    chosen = [place for place in every if not targets or any(_is(place, target) for target in targets)]
    for target in targets:
        if not any(_is(place, target) for place in every):
            known = ", ".join(dict.fromkeys(_ending(place) for place in every))
            raise UserError(f"targets has {target!r}, which no matrix of {model}'s layers is called; there are {known}")
    return chosen


def _is(place: Place, target: str) -> bool:
    module = place.modules[0].removesuffix(SUFFIX)
    return module == target or module.endswith(f".{target}")


def _ending(place: Place) -> str:
    return place.modules[0].removesuffix(SUFFIX).rpartition(".")[2]


def _shape(source: Checkpoint, name: str) -> tuple[int, ...]:
    info = source.info(name)
    return info.shape[1:] if info.stacked else info.shape
