"""Llama in Hugging Face's folders, versions 1 to 3 and models built like it (Mistral, TinyStories' and others)."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.architecture import Part, integer, number, require
from lispgpt.runtime.checkpoints.llama import LlamaShape

NAME = "Llama"
MODEL_TYPES = ("llama", "mistral")
PREFIX = "model."
IGNORED = (".rotary_emb.inv_freq",)
HEAD = ("lm_head.weight", "embed_tokens.weight")

_WHOLE = {"wte": "embed_tokens.weight", "normf-w": "norm.weight", "head-w": "lm_head.weight"}
_PER_LAYER = {
    "norm1-w": ("input_layernorm",),
    "qkv-w": ("self_attn.q_proj", "self_attn.k_proj", "self_attn.v_proj"),
    "proj-w": ("self_attn.o_proj",),
    "norm2-w": ("post_attention_layernorm",),
    "gate-w": ("mlp.gate_proj",),
    "up-w": ("mlp.up_proj",),
    "down-w": ("mlp.down_proj",),
}
_REQUIRED = {
    "hidden_act": ("silu", "swish"),
    "attention_bias": (False,),
    "mlp_bias": (False,),
    "sliding_window": (None,),
}


def read_config(path: Path, data: dict[str, Any]) -> tuple[LlamaShape, dict[str, Any]]:
    require(path, data, _REQUIRED, "Llama")
    keys = ("vocab_size", "max_position_embeddings", "num_hidden_layers", "num_attention_heads", "hidden_size")
    vocab, context, layers, heads, width = (integer(path, data, "Llama", key) for key in keys)
    kv_heads = integer(path, data | {"all heads": heads}, "Llama", "num_key_value_heads", "all heads")
    if data.get("head_dim") is None and width % heads:
        raise UserError(f"{path}: hidden_size ({width}) is not a multiple of num_attention_heads ({heads})")
    shape = LlamaShape(
        vocab=vocab,
        context=context,
        layers=layers,
        heads=heads,
        kv_heads=kv_heads,
        width=width,
        hidden=integer(path, data, "Llama", "intermediate_size"),
        head_width=integer(path, data | {"even share": width // heads}, "Llama", "head_dim", "even share"),
        epsilon=number(data, "rms_norm_eps", 1e-6),
        tied_head=data.get("tie_word_embeddings") is True,
        **_rotary(path, data),
    )
    return shape, {}


def _rotary(path: Path, data: dict[str, Any]) -> dict[str, Any]:
    """The shape's settings of rotary positions, which newer folders keep in rope_parameters."""
    rotary = data.get("rope_parameters") or data.get("rope_scaling") or {}
    rotary = {"rope_theta": data.get("rope_theta", 10000.0)} | rotary
    kind = rotary.get("rope_type", rotary.get("type", "default"))
    found: dict[str, Any] = {"rope_theta": number(rotary, "rope_theta", 10000.0)}
    if kind == "default":
        return found
    if kind not in ("linear", "llama3"):
        raise UserError(f"{path}: rope_type is {kind!r}, and only 'default', 'linear' and 'llama3' are known here")
    found["rope_factor"] = number(rotary, "factor", 1.0)
    if kind == "llama3":
        found["rope_low"] = number(rotary, "low_freq_factor", 1.0)
        found["rope_high"] = number(rotary, "high_freq_factor", 4.0)
        found["rope_original"] = integer(path, rotary, "Llama", "original_max_position_embeddings")
    return found


def shape_from(config: dict[str, Any]) -> LlamaShape:
    return LlamaShape.from_config(config)


def parts(shape: LlamaShape) -> Iterator[Part]:
    kv = shape.kv_heads * shape.head_width
    rows = {"self_attn.q_proj": shape.heads * shape.head_width, "self_attn.k_proj": kv, "self_attn.v_proj": kv}
    for name, extents, stacked in shape.tensors():
        if not stacked:
            yield Part(name, 0, _WHOLE[name], extents)
            continue
        for layer in range(shape.layers):
            for module in _PER_LAYER[name]:
                part = (rows.get(module, extents[1]), *extents[2:])
                yield Part(name, layer, f"layers.{layer}.{module}.weight", part)


def config_json(shape: LlamaShape, config: dict[str, Any], dtype: str) -> dict[str, Any]:
    written = {
        "architectures": ["LlamaForCausalLM"],
        "model_type": "llama",
        "hidden_act": "silu",
        "rms_norm_eps": shape.epsilon,
        "max_position_embeddings": shape.context,
        "hidden_size": shape.width,
        "intermediate_size": shape.hidden,
        "num_attention_heads": shape.heads,
        "num_key_value_heads": shape.kv_heads,
        "head_dim": shape.head_width,
        "num_hidden_layers": shape.layers,
        "vocab_size": shape.vocab,
        "tie_word_embeddings": shape.tied_head,
        "rope_theta": shape.rope_theta,
        "bos_token_id": shape.vocab - 1,
        "eos_token_id": shape.vocab - 1,
        "dtype": dtype,
    }
    if shape.rope_factor != 1.0:
        kind = "llama3" if shape.rope_original else "linear"
        scaling = {"rope_type": kind, "factor": shape.rope_factor}
        if shape.rope_original:
            scaling |= {"low_freq_factor": shape.rope_low, "high_freq_factor": shape.rope_high}
            scaling["original_max_position_embeddings"] = shape.rope_original
        written["rope_scaling"] = scaling
    return written
