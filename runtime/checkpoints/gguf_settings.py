"""A GGUF file's metadata as the config.json of its model's Hugging Face folder would say it.

Programs say once what config.json calls their settings (`hugging-face`); llama.cpp has one name for each setting in all
architectures, `ARCHITECTURE.attention.head_count` and the like, so that one table turns these into those.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.base.config_json import check_one
from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.checkpoints.gguf_keys import NAMES, check_keys
from lispgpt.runtime.checkpoints.gguf_positions import THETA, scaling_of
from lispgpt.runtime.gguf.header import Header

WINDOW, PATTERN = "attention.sliding_window", "attention.sliding_window_pattern"


def config_of(
    header: Header,
    shapes: Mapping[str, tuple[int, ...]],
    divisors: Mapping[str, np.ndarray] | None = None,
    names: FolderMap | None = None,
) -> dict[str, Any]:
    """What config.json would have.

    shapes: of all tensors.  divisors: the tensors of what rotary frequencies are divided by, those that are there.
    names: of the program, which has to account for every setting.
    """
    kind = header.architecture
    given = {k.removeprefix(f"{kind}."): v for k, v in header.metadata.items() if k.startswith(f"{kind}.")}
    data = {key: value if key == PATTERN else _of_all_layers(value) for key, value in given.items()}
    if "token_embd.weight" not in shapes:
        raise UserError(f"{header.path} has no tensor 'token_embd.weight': is it a language model?")
    found: dict[str, Any] = {}
    for key, own in NAMES.items():
        if _is_said(data.get(key)) and key not in (PATTERN, "rope.dimension_count", "rope.freq_base_swa"):
            check_one(header.path, f"{kind}.{key}", data[key], own[0])
            found |= {name: data[key] for name in own if "." not in name}
    if "num_attention_heads" in found:  # as many, where nothing else is said
        found.setdefault("num_key_value_heads", found["num_attention_heads"])
    found |= _of_tensors(shapes) | _of_windows(header, data) | _of_positions(data, found)
    if scaling := scaling_of(header, data, divisors or {}):
        found["rope_scaling"] = scaling
    if names is not None:
        found |= {"model_type": _model_type(header, names), **names.gguf.settings}
        check_keys(header, data, found, names)
    return found


def _of_all_layers(value: Any) -> Any:
    """A value that is said for each layer, where all have the same."""
    return value[0] if isinstance(value, list) and value and all(each == value[0] for each in value) else value


def _of_tensors(shapes: Mapping[str, tuple[int, ...]]) -> dict[str, Any]:
    biased = any(name.startswith("blk.0.attn_q") and name.endswith(".bias") for name in shapes)
    return {
        "vocab_size": shapes["token_embd.weight"][0],
        "tie_word_embeddings": "output.weight" not in shapes,
        **dict.fromkeys(("attention_bias", "use_qkv_bias", "qkv_bias", "use_bias"), biased),
        "attention_out_bias": "blk.0.attn_output.bias" in shapes,
        "mlp_bias": "blk.0.ffn_down.bias" in shapes,
        **dict.fromkeys(("use_qk_norm", "qk_layernorm"), "blk.0.attn_q_norm.weight" in shapes),
    }


def _of_windows(header: Header, data: Mapping[str, Any]) -> dict[str, Any]:
    """How far layers look back, null where nothing is said, and which do."""
    pattern, layers = data.get(PATTERN), data.get("block_count")
    found: dict[str, Any] = {} if _is_said(data.get(WINDOW)) else {"sliding_window": None}
    if type(pattern) is int and type(layers) is int:
        pattern = [not pattern or number % pattern < pattern - 1 for number in range(min(layers, 1 << 12))]
    if pattern is not None:
        if not isinstance(pattern, list) or len(pattern) != layers or not all(each in (0, 1) for each in pattern):
            raise UserError(f"{header.path}: {header.architecture}.{PATTERN} is not one word for each of its layers")
        found["layer_types"] = ["sliding_attention" if each else "full_attention" for each in pattern]
    return found


def _of_positions(data: Mapping[str, Any], found: Mapping[str, Any]) -> dict[str, Any]:
    own: dict[str, Any] = {"rope_theta": found.get("rope_theta", THETA)}
    size = data.get("attention.key_length") or _share(data)
    if size and "rope.dimension_count" in data:
        own |= dict.fromkeys(("partial_rotary_factor", "rotary_pct"), data["rope.dimension_count"] / size)
    if _is_said(data.get(WINDOW)) and "rope.freq_base_swa" in data:
        near = data["rope.freq_base_swa"]
        places = {"sliding_attention": {"rope_theta": near}, "full_attention": {"rope_theta": own["rope_theta"]}}
        own |= {"rope_local_base_freq": near, "rope_parameters": places}
    return own


def _model_type(header: Header, names: FolderMap) -> str:
    """What config.json would call the kind of model."""
    fitting = [kind for kind in names.gguf.kinds if header.is_of(kind)]
    if fitting:
        return names.gguf.kinds[max(fitting, key=len)]
    return header.architecture if header.architecture in names.types else names.types[0]


def _is_said(value: Any) -> bool:
    """Whether a setting has a value; a number of 0 is how some files leave one out."""
    return isinstance(value, bool) or value not in (None, 0)


def _share(data: Mapping[str, Any]) -> int | None:
    width, heads = data.get("embedding_length"), data.get("attention.head_count")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def rows_of(config: Mapping[str, Any], sizes: Sequence[int | str | None], rows: int, place: str) -> tuple[int, ...]:
    """The sizes that a matrix's rows are rearranged by: numbers, config.json's names of numbers, and None for the rest;
    UserError where they do not divide the rows."""
    known = [config.get(size) if isinstance(size, str) else size for size in sizes]
    product = math.prod(size for size in known if isinstance(size, int))
    unsaid = any(type(n) is not int and size is not None for n, size in zip(known, sizes, strict=True))
    if unsaid or not product or rows % product:
        raise UserError(f"{place} has {rows} rows, which are not those of {' x '.join(map(str, sizes))}")
    return tuple(rows // product if size is None else size for size in known)
