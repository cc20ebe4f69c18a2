"""The models that `record_converted.py` converts: (name, model_type, tokenizer, rule of words, settings).

tokenizer: "bytes" is byte-level BPE, "pieces" SentencePiece's.  The rule has the name that llama.cpp has for it.  Sizes
are small; windows, original lengths and periods of layers are shorter than the recorded texts, so that each counts.
"""

from __future__ import annotations

from typing import Any

SIZES: dict[str, Any] = {
    **{"hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 2, "num_attention_heads": 4},
    **{"num_key_value_heads": 2, "max_position_embeddings": 96},
}
OLDER: dict[str, Any] = {"n_embd": 32, "n_layer": 2, "n_head": 4, "n_positions": 96}
DEFAULT = {"rope_type": "default", "rope_theta": 10000.0}
LINEAR = {"rope_type": "linear", "rope_theta": 10000.0, "factor": 2.0}
YARN = {"rope_type": "yarn", "rope_theta": 10000.0, "factor": 4.0, "original_max_position_embeddings": 24}
LLAMA3 = {"rope_type": "llama3", "rope_theta": 10000.0, "factor": 8.0, "original_max_position_embeddings": 24}
LLAMA3 |= {"low_freq_factor": 1.0, "high_freq_factor": 4.0}
LONG = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 24}
LONG |= {"short_factor": [1.0, 1.1, 1.4, 2.0], "long_factor": [1.5, 2.5, 4.0, 7.0]}
LATER = {"rope_type": "longrope", "rope_theta": 10000.0, "original_max_position_embeddings": 24}
LATER |= {"partial_rotary_factor": 0.75, "short_factor": [1.0, 1.2, 1.5], "long_factor": [1.5, 3.0, 6.0]}
NEAR_AND_FAR = {
    "full_attention": DEFAULT | {"rope_theta": 100000.0},
    "sliding_attention": DEFAULT,
}
HALF = {"rope_parameters": DEFAULT | {"partial_rotary_factor": 0.5}}
EXPERTS = {"num_experts": 4, "num_experts_per_tok": 2, "moe_intermediate_size": 32, "decoder_sparse_step": 1}
GEMMA = SIZES | {"head_dim": 16, "sliding_window": 9, "query_pre_attn_scalar": 16}

CONVERTED: list[tuple[str, str, str, str, dict[str, Any]]] = [
    ("llama", "llama", "pieces", "", SIZES),
    ("llama-3", "llama", "bytes", "llama-bpe", SIZES | {"rope_parameters": LLAMA3, "tie_word_embeddings": True}),
    ("llama-linear", "llama", "pieces", "", SIZES | {"rope_parameters": LINEAR}),
    ("llama-yarn", "llama", "bytes", "llama-bpe", SIZES | {"rope_parameters": YARN}),
    ("mistral", "mistral", "bytes", "tekken", SIZES | {"sliding_window": None, "head_dim": 12}),
    ("mixtral", "mixtral", "pieces", "", SIZES | {"num_local_experts": 4, "num_experts_per_tok": 2}),
    ("qwen2", "qwen2", "bytes", "qwen2", SIZES | {"tie_word_embeddings": True}),
    ("qwen2-yarn", "qwen2", "bytes", "qwen2", SIZES | {"rope_parameters": YARN}),
    ("qwen2-moe", "qwen2_moe", "bytes", "qwen2", SIZES | EXPERTS | {"shared_expert_intermediate_size": 40}),
    ("qwen3", "qwen3", "bytes", "qwen2", SIZES | {"head_dim": 16}),
    ("qwen3-moe", "qwen3_moe", "bytes", "qwen2", SIZES | EXPERTS | {"head_dim": 16, "norm_topk_prob": True}),
    ("phi", "phi", "bytes", "phi-2", SIZES | HALF | {"num_key_value_heads": 4, "intermediate_size": 128}),
    ("phi3", "phi3", "pieces", "", SIZES | {"original_max_position_embeddings": 96}),
    ("phi3-window", "phi3", "pieces", "", SIZES | {"sliding_window": 9, "original_max_position_embeddings": 96}),
    ("phi3-long", "phi3", "pieces", "", SIZES | {"rope_parameters": LONG, "original_max_position_embeddings": 24}),
    (
        "phi4-mini",
        "phi3",
        "bytes",
        "gpt-4o",
        SIZES | {"rope_parameters": LATER, "original_max_position_embeddings": 24, "tie_word_embeddings": True},
    ),
    ("gemma", "gemma", "pieces", "", SIZES | {"head_dim": 16}),
    ("gemma2", "gemma2", "pieces", "", GEMMA | {"num_hidden_layers": 3}),
    ("gemma3", "gemma3_text", "pieces", "", GEMMA | {"num_hidden_layers": 6, "rope_parameters": NEAR_AND_FAR}),
    ("gpt2", "gpt2", "bytes", "gpt-2", OLDER),
    ("starcoder", "gpt_bigcode", "bytes", "starcoder", OLDER),
    ("starcoder2", "starcoder2", "bytes", "starcoder", SIZES | {"use_bias": True}),
    ("gpt-neox", "gpt_neox", "bytes", "olmo", SIZES | {"rotary_pct": 0.5}),
    ("bloom", "bloom", "bytes", "bloom", {"hidden_size": 32, "n_layer": 2, "n_head": 4, "seq_length": 96}),
    ("mpt", "mpt", "bytes", "mpt", {"d_model": 32, "n_layers": 2, "n_heads": 4, "max_seq_len": 96}),
    ("stablelm", "stablelm", "bytes", "stablelm2", SIZES | HALF),
    ("olmo", "olmo", "bytes", "olmo", SIZES | {"clip_qkv": 2.0}),
    ("olmo2", "olmo2", "bytes", "dbrx", SIZES),
    ("olmo3", "olmo3", "bytes", "dbrx", SIZES | {"num_hidden_layers": 4, "sliding_window": 9}),
    ("olmoe", "olmoe", "bytes", "olmo", SIZES | {"num_experts": 4, "num_experts_per_tok": 2}),
    ("cohere", "cohere", "bytes", "command-r", SIZES | {"logit_scale": 0.25, "use_qk_norm": False}),
    (
        "granite",
        "granite",
        "bytes",
        "refact",
        SIZES
        | {"embedding_multiplier": 3.0, "attention_multiplier": 0.2, "residual_multiplier": 0.6, "logits_scaling": 2.0},
    ),
    ("smollm3", "smollm3", "bytes", "smollm", SIZES | {"num_hidden_layers": 4}),
    ("glm4", "glm4", "bytes", "glm4", SIZES | HALF | {"head_dim": 8}),
    ("exaone4", "exaone4", "bytes", "exaone4", SIZES | {"sliding_window": None, "layer_types": ["full_attention"] * 2}),
    ("ernie4_5", "ernie4_5", "pieces", "", SIZES | {"head_dim": 8}),
    ("nemotron", "nemotron", "pieces", "", SIZES | HALF | {"head_dim": 8}),
]
