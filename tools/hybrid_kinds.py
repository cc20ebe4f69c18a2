"""Kinds for `record_folders.py` whose layers differ, recurrences among them; places go on from the others."""

from __future__ import annotations

from typing import Any

from folder_kinds import EXPERTS, LLAMA

HEADS = {"mamba_n_heads": 6, "mamba_n_groups": 2, "mamba_d_state": 9, "mamba_chunk_size": 16}
HYBRIDS: list[tuple[str, str, dict[str, Any]]] = [
    (
        "granite-hybrid",
        "granitemoehybrid",
        LLAMA
        | HEADS
        | EXPERTS
        | {"num_hidden_layers": 3, "layer_types": ["linear_attention", "full_attention", "linear_attention"]}
        | {"shared_intermediate_size": 33, "attention_multiplier": 0.2, "embedding_multiplier": 3.0}
        | {"residual_multiplier": 0.6, "logits_scaling": 2.0},
    ),
    (
        "granite-hybrid-dense",
        "granitemoehybrid",
        LLAMA
        | HEADS
        | {"num_hidden_layers": 3, "layer_types": ["full_attention", "linear_attention", "full_attention"]}
        | {"num_local_experts": 0, "num_experts_per_tok": 0, "shared_intermediate_size": 77}
        | {"position_embedding_type": "rope", "attention_multiplier": 0.3, "mamba_proj_bias": True}
        | {"mamba_conv_bias": False},
    ),
    (
        "bamba",
        "bamba",
        LLAMA | HEADS | {"hidden_size": 72, "num_hidden_layers": 3, "attn_layer_indices": [1], "attention_bias": True},
    ),
    (
        "jamba",
        "jamba",
        LLAMA
        | {"num_hidden_layers": 4, "attn_layer_period": 4, "attn_layer_offset": 2, "num_experts": 5}
        | {"num_experts_per_tok": 2, "intermediate_size": 45, "mamba_d_state": 5, "mamba_dt_rank": 7},
    ),
    (
        "falcon-h1",
        "falcon_h1",
        LLAMA
        | HEADS
        | {"mamba_d_ssm": 84, "embedding_multiplier": 3.0, "lm_head_multiplier": 0.4, "key_multiplier": 0.7}
        | {"attention_in_multiplier": 0.9, "attention_out_multiplier": 0.8, "ssm_in_multiplier": 1.2}
        | {"ssm_out_multiplier": 0.6, "mlp_multipliers": [0.9, 0.5], "ssm_multipliers": [0.9, 0.8, 1.1, 0.7, 1.3]},
    ),
    (
        "falcon-h1-normed",
        "falcon_h1",
        LLAMA | HEADS | {"head_dim": 16, "mamba_rms_norm": True, "mamba_norm_before_gate": False, "mamba_d_ssm": None},
    ),
    (
        "nemotron-h",
        "nemotron_h",
        {key: value for key, value in LLAMA.items() if key != "num_hidden_layers"}
        | {"layers_block_type": ["linear_attention", "moe", "full_attention", "mlp", "linear_attention"]}
        | {"head_dim": 16, "mamba_num_heads": 6, "mamba_head_dim": 14, "n_groups": 2, "ssm_state_size": 9}
        | {"chunk_size": 16, "n_routed_experts": 8, "n_group": 4, "topk_group": 2, "moe_intermediate_size": 33}
        | {"moe_shared_expert_intermediate_size": 45, "num_experts_per_tok": 3, "routed_scaling_factor": 1.5},
    ),
    (
        "qwen3-next",
        "qwen3_next",
        LLAMA
        | {"num_hidden_layers": 4, "head_dim": 16, "linear_key_head_dim": 6, "linear_value_head_dim": 10}
        | {"linear_num_key_heads": 2, "linear_num_value_heads": 6, "moe_intermediate_size": 33}
        | {"shared_expert_intermediate_size": 45, "num_experts": 7, "num_experts_per_tok": 3},
    ),
]
