"""Every setting of a GGUF file's architecture is read, is known to change nothing, or is refused by its name.

`NAMES` is what config.json calls a setting.  One that the program reads by none of these names has to have a value that
changes nothing, or one that the program's `gguf` form requires.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime.gguf.header import Header

NAMES: dict[str, tuple[str, ...]] = {
    "context_length": ("max_position_embeddings", "n_positions", "max_seq_len", "seq_length"),
    "block_count": ("num_hidden_layers", "n_layer", "n_layers"),
    "embedding_length": ("hidden_size", "n_embd", "d_model"),
    "feed_forward_length": ("intermediate_size", "n_inner"),
    "attention.head_count": ("num_attention_heads", "n_head", "n_heads"),
    "attention.head_count_kv": ("num_key_value_heads",),
    "attention.key_length": ("head_dim",),
    "attention.layer_norm_rms_epsilon": ("rms_norm_eps",),
    "attention.layer_norm_epsilon": ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps"),
    "attention.clamp_kqv": ("clip_qkv", "attn_config.clip_qkv"),
    "attention.max_alibi_bias": ("attn_config.alibi_bias_max",),
    "attention.scale": ("attention_multiplier",),
    "embedding_scale": ("embedding_multiplier",),
    "residual_scale": ("residual_multiplier",),
    "logit_scale": ("logit_scale", "logits_scaling"),
    "attention.sliding_window": ("sliding_window",),
    "attention.sliding_window_pattern": ("layer_types", "sliding_window_pattern"),
    "attn_logit_softcapping": ("attn_logit_softcapping",),
    "final_logit_softcapping": ("final_logit_softcapping",),
    "expert_count": ("num_local_experts", "num_experts"),
    "expert_used_count": ("num_experts_per_tok",),
    "expert_feed_forward_length": ("moe_intermediate_size",),
    "expert_shared_feed_forward_length": ("shared_expert_intermediate_size",),
    "use_parallel_residual": ("use_parallel_residual",),
    "rope.freq_base": ("rope_theta",),
    "rope.freq_base_swa": ("rope_local_base_freq", "rope_parameters.sliding_attention.rope_theta"),
    "rope.dimension_count": ("partial_rotary_factor", "rotary_pct"),
}
SHAPES = (
    *("vocab_size", "feed_forward_length", "expert_feed_forward_length", "expert_shared_feed_forward_length"),
    *("attention.key_length", "attention.value_length", "expert_count", "attention.head_count_kv"),
)
"""What tensors' shapes say, too, against which the program is held."""
HARMLESS = (
    *("tensor_data_layout", "rope.scaling.finetuned", "rope.scaling.original_context_length", "context_length"),
    *("rope.dimension_sections", "pooling_type", "rope.freq_base"),
)
"""The first two are notes; sections turn texts as all of them would; a base that a program reads nothing of has no
positions that are turned."""
SCALING = ("type", "factor", "attn_factor", "yarn_beta_fast", "yarn_beta_slow", "yarn_attn_factor")
CAUSAL = "attention.causal"
NEUTRAL: dict[str, tuple[Any, ...]] = {
    "logit_scale": (1.0,),
    "embedding_scale": (1.0,),
    "residual_scale": (1.0,),
    "attention.value_scale": (1.0,),
    "attention.output_scale": (1.0,),
    "expert_weights_scale": (1.0,),
    "expert_gating_func": (1,),
    "expert_group_count": (1,),
    "expert_group_used_count": (1,),
    "interleave_moe_layer_step": (1,),
    "moe_every_n_layers": (1,),
    "attention.sliding_window_pattern": (1,),
    "rope.scaling.type": ("none",),
    "rope.scaling.factor": (1.0,),
    "rope.scale_linear": (1.0,),
    "rope.scaling.attn_factor": (1.0,),
    "rope.scaling.yarn_ext_factor": (1.0, -1.0),
}
"""Values that change nothing, beside 0, false and nothing."""
SAME = {
    "attention.key_length_swa": "attention.key_length",
    "attention.value_length_swa": "attention.key_length",
    "rope.dimension_count_swa": "rope.dimension_count",
    "rope.freq_base_swa": "rope.freq_base",
    "embedding_length_out": "embedding_length",
}
"""What changes nothing where it is another setting's value."""


def check_keys(header: Header, data: Mapping[str, Any], config: Mapping[str, Any], names: FolderMap) -> None:
    """UserError for the first setting that the program does not account for.

    data: the settings without the architecture's name.  config: what they come to, as config.json would say it.
    """
    read = {key for setting in names.config.values() for key in setting.keys} | set(names.requires)
    for key, value in data.items():
        allowed = names.gguf.requires.get(key)
        known = _is_among(value, allowed) if allowed is not None else _is_accounted(key, value, data, config, read)
        if not known:
            shown = str(value) if len(str(value)) <= 60 else f"{str(value)[:57]}…"
            advice = f"is {shown}, which changes the model, and the program does not know it"
            raise UserError(f"{header.path}: {header.architecture}.{key} {advice}")


def _is_accounted(key: str, value: Any, data: Mapping[str, Any], config: Mapping[str, Any], read: set[str]) -> bool:
    if key in HARMLESS or key in SHAPES or any(name in read for name in NAMES.get(key, ())):
        return True
    if key == CAUSAL:
        return value is True
    scales = any(name.startswith("rope_scaling.") for name in read)
    if key == "rope.scale_linear" or (key.startswith("rope.scaling.") and key[13:] in SCALING):
        return scales or "rope_scaling" not in config
    if key == "rope.dimension_count":
        return config.get("partial_rotary_factor") in (None, 1.0)
    if key in SAME:
        return _is_among(value, (data.get(SAME[key]), *NEUTRAL.get(key, ()), 0))
    return _is_among(value, (0, 0.0, False, "", [], *NEUTRAL.get(key, ())))


def _is_among(value: Any, allowed: Sequence[Any]) -> bool:
    if isinstance(value, list) and value and all(item in (0, False, -1) for item in value):
        return True
    return any(
        math.isclose(value, one, rel_tol=1e-6)
        if isinstance(value, float) and type(one) in (int, float)
        else value == one
        for one in allowed
    )
