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
from lispgpt.runtime.gguf.header import Header

_NAMES = {
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "block_count": ("num_hidden_layers", "n_layer", "n_layers"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.clamp_kqv": ("clip_qkv",),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logit_scale", "logits_scaling"),
    "attention.sliding_window": ("sliding_window",),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",),
    "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq",),
}
_SCALING = {
    "type": "rope_type",
    "factor": "factor",
    "original_context_length": "original_max_position_embeddings",
    "yarn_beta_fast": "beta_fast",
    "yarn_beta_slow": "beta_slow",
}
LOW, HIGH = 1.0, 4.0
"""Of all models with Llama 3.1's rotary frequencies; files have but what they come to."""


def config_of(header: Header, shapes: Mapping[str, tuple[int, ...]], frequencies: np.ndarray | None) -> dict[str, Any]:
    """What config.json would have.

    shapes: of all tensors.  frequencies: the tensor of what rotary frequencies are divided by, if there is one.
    """
    kind = header.architecture
    data = {key.removeprefix(f"{kind}."): value for key, value in header.metadata.items() if key.startswith(f"{kind}.")}
    if "token_embd.weight" not in shapes:
        raise UserError(f"{header.path} has no tensor 'token_embd.weight': is it a language model?")
    found: dict[str, Any] = {}
    for key, names in _NAMES.items():
        if _is_said(data.get(key)):
            check_one(header.path, f"{kind}.{key}", data[key], names[0])
            found |= dict.fromkeys(names, data[key])
    if "num_attention_heads" in found:  # as many, where nothing else is said
        found.setdefault("num_key_value_heads", found["num_attention_heads"])
    found["vocab_size"] = shapes["token_embd.weight"][0]
    found["tie_word_embeddings"] = "output.weight" not in shapes
    biased = any(name.startswith("blk.0.attn_q") and name.endswith(".bias") for name in shapes)
    found |= dict.fromkeys(("attention_bias", "use_qkv_bias", "qkv_bias", "use_bias"), biased)
    found["attention_out_bias"] = "blk.0.attn_output.bias" in shapes
    found["mlp_bias"] = "blk.0.ffn_down.bias" in shapes
    found["use_qk_norm"] = found["qk_layernorm"] = "blk.0.attn_q_norm.weight" in shapes
    size = data.get("attention.key_length") or _share(data)
    if size and "rope.dimension_count" in data:
        found["partial_rotary_factor"] = found["rotary_pct"] = data["rope.dimension_count"] / size
    scaling = {name: data[f"rope.scaling.{key}"] for key, name in _SCALING.items() if f"rope.scaling.{key}" in data}
    if frequencies is not None:
        scaling = _slowed(header, frequencies, float(data.get("rope.freq_base", 10000.0)))
    if scaling.get("rope_type", "none") != "none":
        found["rope_scaling"] = scaling
    return found


def _is_said(value: Any) -> bool:
    """Whether a setting has a value; a number of 0 is how some files leave one out."""
    return isinstance(value, bool) or value not in (None, 0)


def _share(data: Mapping[str, Any]) -> int | None:
    width, heads = data.get("embedding_length"), data.get("attention.head_count")
    return width // heads if isinstance(width, int) and isinstance(heads, int) and heads else None


def _slowed(header: Header, divisors: np.ndarray, theta: float) -> dict[str, Any]:
    """The settings of Llama 3.1's rotary frequencies that come to these divisors; UserError where none do."""
    given = divisors.astype(np.float64)
    factor, pairs = float(given.max()), given.size
    turns = theta ** (-np.arange(pairs) / pairs) / (2 * math.pi)
    between = np.flatnonzero((given > 1.001) & (given < 0.999 * factor))
    if factor > 1.001 and between.size:
        kept = (1 / given[between] - 1 / factor) / (1 - 1 / factor)
        original = round(float(np.median((LOW + kept * (HIGH - LOW)) / turns[between])))
        share = np.clip((original * turns - LOW) / (HIGH - LOW), 0, 1)
        if np.allclose(1 / (share + (1 - share) / factor), given, rtol=1e-2):
            return {
                "rope_type": "llama3",
                "factor": factor,
                "low_freq_factor": LOW,
                "high_freq_factor": HIGH,
                "original_max_position_embeddings": original,
            }
    if np.allclose(given, given[0], rtol=1e-3):
        return {"rope_type": "linear", "factor": float(given[0])}
    raise UserError(f"{header.path}: its rope_freqs.weight is not what Llama 3.1's frequencies are for any length")


def rows_of(config: Mapping[str, Any], sizes: Sequence[int | str | None], rows: int, place: str) -> tuple[int, ...]:
    """The sizes that a matrix's rows are rearranged by: numbers, config.json's names of numbers, and None for the rest;
    UserError where they do not divide the rows."""
    known = [config.get(size) if isinstance(size, str) else size for size in sizes]
    product = math.prod(size for size in known if isinstance(size, int))
    unsaid = any(type(n) is not int and size is not None for n, size in zip(known, sizes, strict=True))
    if unsaid or not product or rows % product:
        raise UserError(f"{place} has {rows} rows, which are not those of {' x '.join(map(str, sizes))}")
    return tuple(rows // product if size is None else size for size in known)
