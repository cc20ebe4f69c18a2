"""What the settings of config.json may be: one table of all that programs and architectures read.

A setting is called by its last name wherever it stands: `factor` is that of `rope_scaling.factor`, too.  What is not in
the table is left to the program that reads it, whose own value says what it has to be.  null stands for nothing said.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import COUNT, NAME, OBJECT, Kind, is_number, is_whole, read_json, shown

MOST = 1 << 31
MOST_LAYERS = 1 << 12


def _listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def _list_of(what: str, holds: Callable[[Any], bool]) -> Kind:
    return Kind(f"a list of {what}", lambda value: isinstance(value, list) and all(map(holds, value)))


SIZE = Kind("a whole number from 1 on", lambda value: is_whole(value, 1))
LAYERS = Kind(f"a whole number from 1 to {MOST_LAYERS}", lambda value: is_whole(value, 1, MOST_LAYERS))
POSITIVE = Kind("a number above 0", lambda value: is_number(value) and value > 0)
NUMBER = Kind("a number", is_number)
SMALL = Kind("a number above 0 and below 1", lambda value: is_number(value) and 0 < value < 1)
FLAG = Kind("true or false", lambda value: isinstance(value, bool))
WHOLE_NUMBERS = _list_of("whole numbers from 0 on", is_whole)
NUMBERS = _list_of("numbers", is_number)
NAMES = _list_of("names", lambda value: isinstance(value, str))
TOKENS = Kind("a token's number or a list of such, -1 for none", lambda v: all(is_whole(t, -1) for t in _listed(v)))

_SETTINGS = (
    (LAYERS, "num_hidden_layers n_layer n_layers num_layers"),
    (
        SIZE,
        """
        vocab_size hidden_size n_embd n_embed d_model num_attention_heads n_head n_heads num_heads
        num_key_value_heads num_kv_heads max_position_embeddings n_positions n_ctx max_seq_len seq_length
        context_length intermediate_size n_inner ffn_dim ffn_hidden_size head_dim attention_head_dim
        attention_hidden_size word_embed_proj_dim moe_intermediate_size moe_shared_expert_intermediate_size
        block_ff_dim block_multiple_of rotary_dim q_lora_rank kv_lora_rank qk_nope_head_dim qk_rope_head_dim
        v_head_dim linear_conv_kernel_dim linear_key_head_dim linear_num_key_heads linear_num_value_heads
        linear_value_head_dim conv_L_cache conv_kernel state_size ssm_state_size n_groups mamba_n_groups
        mamba_n_heads mamba_num_heads mamba_head_dim mamba_d_conv mamba_d_ssm mamba_d_state mamba_dt_rank
        time_step_rank n_group topk_group decoder_sparse_step full_attention_interval no_rope_layer_interval
        attn_layer_period expert_layer_period
        """,
    ),
    (
        COUNT,
        """
        num_experts_per_tok experts_per_token num_experts num_local_experts n_routed_experts n_shared_experts
        shared_expert_intermediate_size shared_intermediate_size first_k_dense_replace max_window_layers
        sliding_window window_size rescale_every attn_layer_offset expert_layer_offset num_ln_in_parallel_attn
        sliding_window_pattern original_max_position_embeddings num_nextn_predict_layers
        """,
    ),
    (SMALL, "rms_norm_eps layer_norm_eps layer_norm_epsilon norm_eps norm_epsilon mixer_rms_eps"),
    (
        POSITIVE,
        """
        rope_theta rotary_emb_base rope_local_base_freq factor low_freq_factor high_freq_factor alpha expand
        mamba_expand partial_rotary_factor rotary_pct query_pre_attn_scalar logits_scaling
        """,
    ),
    (
        NUMBER,
        """
        beta_fast beta_slow attention_factor mscale mscale_all_dim llama_4_scaling_beta attn_logit_softcapping
        final_logit_softcapping clip_qkv logit_scale routed_scaling_factor embedding_multiplier attention_multiplier
        residual_multiplier attention_in_multiplier attention_out_multiplier key_multiplier lm_head_multiplier
        ssm_in_multiplier ssm_out_multiplier swiglu_alpha swiglu_limit
        """,
    ),
    (
        FLAG,
        """
        tie_word_embeddings tie_embedding attention_bias attention_out_bias mlp_bias use_bias use_qkv_bias qkv_bias
        mamba_proj_bias mamba_conv_bias use_conv_bias use_qk_norm qk_layernorm use_post_norm use_sliding_window
        use_parallel_residual scale_attn_by_inverse_layer_idx do_layer_norm_before _remove_final_layer_norm
        multi_query new_decoder_architecture norm_topk_prob mamba_rms_norm mamba_norm_before_gate truncate
        block_auto_adjust_ff_dim
        """,
    ),
    (
        NAME,
        """
        model_type hidden_act hidden_activation activation_function activation rope_type type topk_method
        position_embedding_type hybrid_override_pattern quant_method
        """,
    ),
    (
        OBJECT,
        "text_config rope_parameters rope_scaling full_attention sliding_attention attn_config quantization_config",
    ),
    (NAMES, "layer_types layers_block_type attention_layers"),
    (NUMBERS, "short_factor long_factor ssm_multipliers mlp_multipliers"),
    (WHOLE_NUMBERS, "attn_layer_indices full_attn_idxs mlp_only_layers no_rope_layers"),
    (TOKENS, "eos_token_id"),
)
KINDS = {name: kind for kind, names in _SETTINGS for name in names.split()}
EVERYWHERE = tuple(place + name for place in ("", "rope_parameters.", "rope_scaling.") for name in KINDS)


def read_setting(path: Path, key: str) -> Any:
    """What the file says by one key, None where it says nothing; UserError where that is not what it should be."""
    data = read_json(path)
    check(path, data, [key])
    return data.get(key)


def check(path: Path, data: Mapping[str, Any], keys: Iterable[str] = EVERYWHERE) -> None:
    """UserError for the first of the keys, which may lead into objects, whose value is not of its kind."""
    for key in keys:
        value: Any = data
        parts = key.split(".")
        for number, name in enumerate(parts):
            value = value.get(name)
            if value is None:
                break
            check_one(path, ".".join(parts[: number + 1]), value, name)
            if not isinstance(value, dict):
                break


def check_one(path: Path, key: str, value: Any, name: str) -> None:
    """UserError, which calls it by the key, where a value is not of the kind of the setting of this name."""
    kind = KINDS.get(name)
    if kind is not None and not kind.holds(value):
        raise UserError(f"{path}: {key} is {shown(value)}, and should be {kind.what}")
