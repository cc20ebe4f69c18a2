"""Low-rank adapters in PEFT's format, added to the weights that they change: W + s B A, with s = alpha / r.

"LoRA: Low-Rank Adaptation of Large Language Models", Hu et al. 2021; rsLoRA, Kalajdzievski 2023, has
s = alpha / sqrt(r).  A folder holds adapter_config.json, and adapter_model.safetensors with A [r in] and B [out r] of
each module, and whole tensors of `modules_to_save`.
"""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np

from lispgpt.base.dtypes import FLOATS_OF_8_BITS, find_dtype
from lispgpt.base.errors import UserError
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import is_there
from lispgpt.runtime.checkpoints.numbers import converted, f32_to_bf16, is_finite
from lispgpt.runtime.checkpoints.safetensors_file import Stored, read_safetensors

CONFIG, WEIGHTS = "adapter_config.json", "adapter_model.safetensors"
START = "base_model.model."
_HALF = re.compile(r"(.+)\.lora_(embedding_)?([AB])(?:\.\w+)?(?:\.weight)?")
_PLAIN_NAME = re.compile(r"\^?\w+(\.\w+)*")
_EMBEDS = re.compile(r"(^|\.)(wte|embed_tokens|embed_in|word_embeddings|embeddings?)\.weight$")
_HEAD = re.compile(r"(^|\.)(lm_head|embed_out|output)\.weight$")
REFUSED = {
    "use_dora": "DoRA, which scales each column",
    "lora_bias": "biases of its own",
    "use_qalora": "QALoRA",
    "layer_replication": "layers that are repeated",
    "target_parameters": "parameters that are no module's weight",
    "trainable_token_indices": "rows of single tokens",
    "alora_invocation_tokens": "tokens that switch it on",
    "megatron_config": "Megatron's layers",
}
"""Settings that change what an adapter means in ways that are not known here."""
PLAIN = (True, False, None, "gaussian", "eva", "orthogonal")
"""Beginnings that leave the model's own weights as they are."""


@dataclass(frozen=True)
class Pair:
    """What is added to one module's weight: scale * b @ a, turned where `turned`.  a: f32 [r in], b: f32 [out r]."""

    a: np.ndarray
    b: np.ndarray
    scale: float
    turned: bool

    def added(self) -> np.ndarray:
        """f32, of the weight's shape"""
        found = (self.b @ self.a) * np.float32(self.scale)
        return found.T if self.turned else found


class Adapter:
    """An adapter's folder; UserError for one that is damaged, or that does something else."""

    def __init__(self, folder: str | Path) -> None:
        self.path = Path(folder)
        if not is_there(self.path / CONFIG):
            raise UserError(f"{self.path} is no adapter in PEFT's format: it has no {CONFIG}")
        self._config = read_json(self.path / CONFIG)
        self._check_settings()
        self.pairs: dict[str, Pair] = {}
        self.whole: dict[str, Stored] = {}
        self._read(read_safetensors(self.path / WEIGHTS))

    def _check_settings(self) -> None:
        config = self.path / CONFIG
        if self._config.get("peft_type") != "LORA":
            raise UserError(f"{config}: peft_type is {self._config.get('peft_type')!r}, and LORA is known here")
        for name, what in REFUSED.items():
            if self._config.get(name):
                raise UserError(f"{config}: {name} asks for {what}, which is not known here")
        if self._config.get("bias", "none") != "none":
            raise UserError(
                f"{config}: bias is {self._config['bias']!r}; adapters that train biases are not known here"
            )
        if self._config.get("init_lora_weights", True) not in PLAIN:
            how = self._config["init_lora_weights"]
            raise UserError(f"{config}: init_lora_weights {how!r} changes the model's own weights; convert the adapter")

    def _read(self, tensors: Mapping[str, Stored]) -> None:
        halves: dict[str, dict[str, tuple[np.ndarray, bool]]] = {}
        for key, tensor in tensors.items():
            name = key.removeprefix(START)
            found = _HALF.fullmatch(name)
            if found is None and "lora_" not in name and name.endswith((".weight", ".bias")):
                self.whole[name.replace(".modules_to_save.", ".")] = tensor
            elif found is None:
                raise UserError(f"{self.path / WEIGHTS}: tensor {key!r} is no part of a LoRA")
            else:
                halves.setdefault(found[1], {})[found[3]] = (self._matrix(key, tensor), bool(found[2]))
        for module, each in halves.items():
            self.pairs[f"{module}.weight"] = self._pair(module, each)

    def _matrix(self, key: str, tensor: Stored) -> np.ndarray:
        if tensor.dtype not in ("f32", "bf16", "f16") or tensor.array.ndim != 2:
            raise UserError(f"{self.path / WEIGHTS}: tensor {key!r} is no matrix of F32, F16 or BF16")
        if not is_finite(tensor.array, tensor.dtype):
            raise UserError(f"{self.path / WEIGHTS}: tensor {key!r} holds NaN or infinity")
        return np.ascontiguousarray(converted(tensor.array, tensor.dtype, "f32"), np.float32)

    def _pair(self, module: str, halves: Mapping[str, tuple[np.ndarray, bool]]) -> Pair:
        if len(halves) < 2 or halves["A"][0].shape[0] != halves["B"][0].shape[1]:
            raise UserError(f"{self.path / WEIGHTS}: A and B of {module} do not fit each other")
        (a, embeds), (b, _) = halves["A"], halves["B"]
        rank, alpha = self._number("r", "rank_pattern", module), self._number("lora_alpha", "alpha_pattern", module)
        if rank != len(a):
            raise UserError(f"{self.path}: {module} has rank {len(a)}, and {CONFIG} says {rank:g}")
        scale = alpha / (math.sqrt(rank) if self._config.get("use_rslora") else rank)
        return Pair(a, b, scale, embeds or bool(self._config.get("fan_in_fan_out")))

    def _number(self, name: str, patterns: str, module: str) -> float:
        """A module's own number, or all modules'."""
        own, value = self._config.get(patterns) or {}, self._config.get(name)
        for key in own if isinstance(own, Mapping) else ():
            if not _PLAIN_NAME.fullmatch(key):
                raise UserError(f"{self.path / CONFIG}: {patterns} has {key[:60]!r}, which is no module's name")
            if f".{module}".endswith(f".{key.removeprefix('^')}"):
                value = own[key]
                break
        if isinstance(value, bool) or not isinstance(value, int | float) or not 0 < value < 1 << 31:
            raise UserError(f"{self.path / CONFIG}: {name} is {value!r}, and no number above 0")
        return value

    def merged(self, stored: Mapping[str, Stored], short: Callable[[str], str]) -> dict[str, Stored]:
        """The model's tensors with what the adapter adds, each in its own type; UserError where one does not fit.

        stored: by names that `short` makes of the adapter's.
        """
        found = dict(stored)
        for name, pair in self.pairs.items():
            old = self._old(stored, short(name), name)
            added = pair.added()
            if added.shape != old.shape:
                raise UserError(f"{self.path}: {name} adds {_by(added.shape)} to what is {_by(old.shape)}")
            found[short(name)] = replace(old, array=_stored(_values(old) + added, old.dtype))
        for name, tensor in self.whole.items():
            old = self._old(stored, short(name), name)
            if tensor.shape != old.shape:
                raise UserError(f"{self.path}: {name} is {_by(tensor.shape)} in place of {_by(old.shape)}")
            found[short(name)] = replace(tensor, array=_stored(_values(tensor), old.dtype), dtype=old.dtype)
        return found

    def _old(self, stored: Mapping[str, Stored], name: str, said: str) -> Stored:
        old = stored.get(name)
        if old is None:
            raise UserError(f"{self.path} changes {said}, which the model has not")
        if _EMBEDS.search(name) and not any(_HEAD.search(each) for each in stored):
            raise UserError(f"{self.path} changes {said}, which is the model's head, too")
        if find_dtype(old.dtype).block > 1 or old.dtype in FLOATS_OF_8_BITS or old.scales is not None:
            raise UserError(f"{self.path} changes {said}, which is in {old.dtype}: adapters are for F32, F16 and BF16")
        return old


def _values(tensor: Stored) -> np.ndarray:
    return converted(tensor.array, tensor.dtype, "f32")


def _stored(values: np.ndarray, dtype: str) -> np.ndarray:
    return f32_to_bf16(values) if dtype == "bf16" else values.astype(find_dtype(dtype).numpy, order="C")


def _by(shape: Sequence[int]) -> str:
    return " by ".join(map(str, shape))
