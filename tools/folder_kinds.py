"""The models that `record_folders.py` records: (name, model_type, settings), of odd sizes; a place is a seed."""

from __future__ import annotations

from typing import Any

LLAMA: dict[str, Any] = {
    "vocab_size": 131,
    "hidden_size": 60,
    "intermediate_size": 77,
    "num_hidden_layers": 2,
    "num_attention_heads": 6,
    "num_key_value_heads": 2,
    "max_position_embeddings": 96,
    "bos_token_id": 1,
    "eos_token_id": 2,
    "pad_token_id": 0,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 24, "rope_theta": 10000.0}
LLAMA3 = {"rope_type": "llama3", "factor": 8.0, "original_max_position_embeddings": 24, "rope_theta": 10000.0}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
HALF = {"partial_rotary_factor": 0.5}
LONG = DEFAULT | {
    "rope_type": "longrope",
    "short_factor": [1.0, 1.1, 1.3, 1.6, 2.0],
    "long_factor": [1.5, 2.0, 3.0, 5.0, 7.5],
    "original_max_position_embeddings": 24,
}
GEMMA = LLAMA | {"head_dim": 16, "sliding_window": 11, "query_pre_attn_scalar": 20}
FALCON = {key: LLAMA[key] for key in LLAMA if key not in ("intermediate_size", "num_key_value_heads")} | {
    "hidden_size": 72
}
SMALL = {"vocab_size": 131, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False}
EXPERTS = {"num_local_experts": 5, "num_experts_per_tok": 2, "intermediate_size": 45}
STRETCHED = DEFAULT | {"rope_type": "dynamic", "alpha": 50.0, "factor": 1.0}
VISION = {
    **{"hidden_size": 32, "intermediate_size": 37, "num_hidden_layers": 1, "num_attention_heads": 2},
    **{"image_size": 28, "patch_size": 14},
}
MSCALE = YARN | {"mscale": 1.0, "mscale_all_dim": 0.6}
DEEPSEEK = LLAMA | {
    **{"num_key_value_heads": 6, "num_hidden_layers": 3, "first_k_dense_replace": 1, "rms_norm_eps": 1e-5},
    **{"q_lora_rank": 17, "kv_lora_rank": 14, "qk_nope_head_dim": 10, "qk_rope_head_dim": 8, "v_head_dim": 9},
    **{"moe_intermediate_size": 33, "n_routed_experts": 8, "n_shared_experts": 2, "num_experts_per_tok": 3},
    **{"n_group": 4, "topk_group": 2, "routed_scaling_factor": 1.5},
}
STATES = {key: LLAMA[key] for key in ("vocab_size", "hidden_size", "num_hidden_layers", "eos_token_id", "pad_token_id")}
KINDS: list[tuple[str, str, dict[str, Any]]] = [
    ("llama-biased", "llama", LLAMA | {"attention_bias": True}),
    (
        "llama-3",
        "llama",
        LLAMA | {"rope_parameters": LLAMA3 | {"low_freq_factor": 1.0, "high_freq_factor": 4.0}},
    ),
    ("qwen2", "qwen2", LLAMA),
    ("qwen2-yarn", "qwen2", LLAMA | {"hidden_size": 72, "tie_word_embeddings": True, "rope_parameters": YARN}),
    ("qwen3", "qwen3", LLAMA | {"head_dim": 16, "tie_word_embeddings": True}),
    ("mistral-window", "mistral", LLAMA | {"head_dim": 12, "sliding_window": 11}),
    ("gemma2", "gemma2", GEMMA | {"num_hidden_layers": 3}),
    ("gemma3", "gemma3_text", GEMMA | {"num_hidden_layers": 6}),
    ("phi3", "phi3", LLAMA | {"sliding_window": 13, "original_max_position_embeddings": 96}),
    ("pythia", "gpt_neox", LLAMA | {"hidden_size": 72, "rotary_pct": 0.5}),
    ("opt", "opt", LLAMA | {"ffn_dim": 101, "word_embed_proj_dim": 60}),
    ("mixtral", "mixtral", LLAMA | {"intermediate_size": 45, "num_local_experts": 5, "num_experts_per_tok": 2}),
    (
        "qwen3-moe",
        "qwen3_moe",
        LLAMA | {"head_dim": 16, "moe_intermediate_size": 33, "num_experts": 7, "num_experts_per_tok": 3},
    ),
    (
        "gpt2-untied",
        "gpt2",
        {
            **{"vocab_size": 131, "n_embd": 60, "n_inner": 77, "n_layer": 2, "n_head": 6, "n_positions": 96},
            **{"activation_function": "gelu", "tie_word_embeddings": False, "bos_token_id": 1, "eos_token_id": 2},
        },
    ),
    (
        "gpt2-by-layer",
        "gpt2",
        {
            **{"vocab_size": 131, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 96, "bos_token_id": 1},
            **{"scale_attn_by_inverse_layer_idx": True, "reorder_and_upcast_attn": True, "eos_token_id": 2},
            **{"tie_word_embeddings": False},
        },
    ),
    (
        "opt-350m",
        "opt",
        LLAMA
        | {"ffn_dim": 101, "word_embed_proj_dim": 36, "do_layer_norm_before": False, "activation_function": "gelu"},
    ),
    ("phi3-long", "phi3", LLAMA | {"rope_parameters": LONG, "original_max_position_embeddings": 24}),
    ("smollm3", "smollm3", LLAMA | {"num_hidden_layers": 4}),
    (
        "granite",
        "granite",
        LLAMA
        | {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0},
    ),
    ("olmo2", "olmo2", LLAMA),
    ("phi", "phi", LLAMA | {"hidden_size": 72, "rope_parameters": DEFAULT | HALF}),
    ("stablelm", "stablelm", LLAMA | {"hidden_size": 72, "use_qkv_bias": True, "rope_parameters": DEFAULT | HALF}),
    (
        "qwen2-moe",
        "qwen2_moe",
        LLAMA
        | {"moe_intermediate_size": 33, "num_experts": 7, "num_experts_per_tok": 3}
        | {"shared_expert_intermediate_size": 45},
    ),
    (
        "gptj",
        "gptj",
        {
            **{"vocab_size": 131, "n_embd": 72, "n_inner": 101, "n_layer": 2, "n_head": 6, "n_positions": 96},
            **{"rotary_dim": 8, "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": False},
        },
    ),
    ("falcon", "falcon", FALCON),
    ("falcon-groups", "falcon", FALCON | {"new_decoder_architecture": True, "num_kv_heads": 2}),
    (
        "falcon-one-norm",
        "falcon",
        FALCON | {"new_decoder_architecture": True, "num_kv_heads": 3, "num_ln_in_parallel_attn": 1},
    ),
    ("llama-mlp-biased", "llama", LLAMA | {"mlp_bias": True, "attention_bias": True, "hidden_act": "gelu"}),
    ("llama-dynamic", "llama", LLAMA | {"rope_parameters": DEFAULT | {"rope_type": "dynamic", "factor": 2.0}}),
    (
        "llama-yarn",
        "llama",
        LLAMA | {"rope_parameters": YARN | {"mscale": 0.7, "mscale_all_dim": 0.4, "truncate": False}},
    ),
    ("qwen2-window", "qwen2", LLAMA | {"use_sliding_window": True, "sliding_window": 9, "max_window_layers": 1}),
    (
        "qwen3-biased",
        "qwen3",
        LLAMA
        | {
            "head_dim": 16,
            "attention_bias": True,
            "use_sliding_window": True,
            "sliding_window": 9,
            "max_window_layers": 1,
        },
    ),
    ("mixtral-window", "mixtral", LLAMA | {"intermediate_size": 45, "num_local_experts": 5, "sliding_window": 7}),
    ("gemma", "gemma", LLAMA | {"head_dim": 16, "tie_word_embeddings": False}),
    (
        "gemma3-images",
        "gemma3",
        {"text_config": GEMMA | {"num_hidden_layers": 3, "final_logit_softcapping": 20.0}, "vision_config": VISION},
    ),
    ("granite-biased", "granite", LLAMA | {"attention_bias": True, "mlp_bias": True}),
    ("starcoder2", "starcoder2", LLAMA | {"sliding_window": 9, "tie_word_embeddings": False}),
    ("cohere", "cohere", LLAMA | {"logit_scale": 0.25, "hidden_size": 72, "tie_word_embeddings": False}),
    ("cohere-norms", "cohere", LLAMA | {"logit_scale": 0.5, "use_qk_norm": True, "hidden_size": 72}),
    (
        "cohere2",
        "cohere2",
        LLAMA | {"logit_scale": 0.5, "hidden_size": 72, "sliding_window": 9, "num_hidden_layers": 4},
    ),
    ("bloom", "bloom", {**SMALL, "hidden_size": 60, "n_layer": 2, "n_head": 6, "pad_token_id": 0}),
    ("mpt", "mpt", {**SMALL, "d_model": 60, "n_layers": 2, "n_heads": 6, "max_seq_len": 96}),
    (
        "gpt-neo",
        "gpt_neo",
        {
            **SMALL,
            **{"hidden_size": 60, "num_layers": 2, "attention_types": [[["global", "local"], 1]], "num_heads": 6},
            **{"intermediate_size": 77, "window_size": 9, "max_position_embeddings": 96},
        },
    ),
    ("codegen", "codegen", {**SMALL, "n_embd": 64, "n_layer": 2, "n_head": 8, "n_positions": 96, "rotary_dim": 4}),
    ("starcoder", "gpt_bigcode", {**SMALL, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 96, "n_inner": 77}),
    (
        "starcoder-heads",
        "gpt_bigcode",
        {**SMALL, "n_embd": 60, "n_layer": 2, "n_head": 6, "n_positions": 96, "multi_query": False},
    ),
    ("nemotron", "nemotron", LLAMA | {"hidden_size": 72}),
    ("arcee", "arcee", LLAMA),
    ("jais2", "jais2", LLAMA),
    ("exaone4", "exaone4", LLAMA | {"num_hidden_layers": 4, "sliding_window": 9, "sliding_window_pattern": 4}),
    ("glm", "glm", LLAMA | {"head_dim": 16, "hidden_size": 72, "attention_bias": True}),
    ("glm4", "glm4", LLAMA | {"head_dim": 16, "hidden_size": 72}),
    ("ernie", "ernie4_5", LLAMA | {"head_dim": 16, "use_bias": True, "tie_word_embeddings": False}),
    ("helium", "helium", LLAMA | {"head_dim": 10}),
    ("seed-oss", "seed_oss", LLAMA | {"head_dim": 16, "attention_bias": True, "attention_out_bias": False}),
    ("internlm3", "internlm3", LLAMA | {"head_dim": 16}),
    ("hunyuan", "hunyuan_v1_dense", LLAMA | {"head_dim": 16, "rope_parameters": STRETCHED}),
    ("olmo", "olmo", LLAMA | {"clip_qkv": 2.0}),
    ("olmo3", "olmo3", LLAMA | {"num_hidden_layers": 4, "sliding_window": 9}),
    ("olmoe", "olmoe", LLAMA | {"intermediate_size": 33, "num_experts": 7, "num_experts_per_tok": 3}),
    ("granite-moe", "granitemoe", LLAMA | EXPERTS | {"embedding_multiplier": 3.0, "residual_multiplier": 0.6}),
    ("granite-shared", "granitemoeshared", LLAMA | EXPERTS | {"shared_intermediate_size": 33}),
    (
        "gpt-oss",
        "gpt_oss",
        LLAMA | EXPERTS | {"head_dim": 16, "sliding_window": 9, "rope_parameters": YARN | {"truncate": False}},
    ),
    ("ministral", "ministral", LLAMA | {"head_dim": 16, "sliding_window": 9}),
    ("ministral3", "ministral3", LLAMA | {"head_dim": 16}),
    ("cwm", "cwm", LLAMA | {"head_dim": 16, "sliding_window": 9}),
    ("hyperclovax", "hyperclovax", LLAMA | {"head_dim": 16, "residual_multiplier": 0.6}),
    (
        "mistral3",
        "mistral3",
        {
            "text_config": LLAMA | {"model_type": "mistral", "head_dim": 16, "tie_word_embeddings": False},
            "vision_config": VISION | {"model_type": "pixtral", "head_dim": 16},
            "tie_word_embeddings": False,
        },
    ),
    (
        "qwen2-moe-dense",
        "qwen2_moe",
        LLAMA
        | {"moe_intermediate_size": 33, "num_experts": 7, "num_experts_per_tok": 3, "num_hidden_layers": 4}
        | {"shared_expert_intermediate_size": 45, "mlp_only_layers": [1, 3], "norm_topk_prob": True},
    ),
    (
        "qwen3-moe-dense",
        "qwen3_moe",
        LLAMA
        | {"head_dim": 16, "moe_intermediate_size": 33, "num_experts": 7, "num_experts_per_tok": 3}
        | {"num_hidden_layers": 3, "decoder_sparse_step": 2, "norm_topk_prob": True},
    ),
    ("deepseek-v2", "deepseek_v2", DEEPSEEK | {"topk_method": "group_limited_greedy", "rope_parameters": MSCALE}),
    ("deepseek-v2-lite", "deepseek_v2", DEEPSEEK | {"q_lora_rank": None, "n_group": 1, "topk_group": 1}),
    ("deepseek-v3", "deepseek_v3", DEEPSEEK | {"norm_topk_prob": True, "rope_parameters": MSCALE | {"mscale": 0.7}}),
    (
        "mamba",
        "mamba",
        STATES | {"state_size": 5, "time_step_rank": 7, "use_bias": True},
    ),
    (
        "mamba2",
        "mamba2",
        STATES | {"state_size": 9, "num_heads": 6, "head_dim": 20, "n_groups": 2, "chunk_size": 16},
    ),
    (
        "falcon-mamba",
        "falcon_mamba",
        STATES | {"state_size": 5, "time_step_rank": 7, "mixer_rms_eps": 1e-5},
    ),
    (
        "glm4-moe",
        "glm4_moe",
        LLAMA
        | {"hidden_size": 72, "num_hidden_layers": 3, "use_qk_norm": True, "attention_bias": True, "head_dim": 12}
        | {"moe_intermediate_size": 33, "n_routed_experts": 8, "num_experts_per_tok": 3, "routed_scaling_factor": 1.5}
        | {"rope_parameters": DEFAULT | HALF},
    ),
    (
        "lfm2",
        "lfm2",
        LLAMA | {"layer_types": ["conv", "full_attention", "conv"], "num_hidden_layers": 3} | {"block_multiple_of": 7},
    ),
    (
        "rwkv",
        "rwkv",
        {key: LLAMA[key] for key in ("vocab_size", "hidden_size", "intermediate_size", "eos_token_id")}
        | {"num_hidden_layers": 3, "rescale_every": 2, "context_length": 96},
    ),
]
"""The first ones are where they were, for their seeds."""
