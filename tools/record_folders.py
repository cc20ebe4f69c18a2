"""Record what Hugging Face transformers generates from random models of many kinds, as tests/references/folders.json.

Run it from the project's root in an environment of its own (the project itself needs neither torch nor transformers):

    python -m venv /tmp/references && /tmp/references/bin/pip install numpy safetensors torch transformers
    PYTHONPATH=.:tests /tmp/references/bin/python tools/record_folders.py

transformers says what a folder of each kind has; its values are made from a seed, by the tests' own rule, and run in
float32.  Of several prompts the one is kept whose text is the most varied while the best two logits stay apart.
"""

from __future__ import annotations

import json
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from record_references import quality
from recorded_folders import RECORDED, Folder
from safetensors import safe_open
from transformers import AutoConfig, AutoModelForCausalLM

NEW_TOKENS, CANDIDATES, WIDE_ENOUGH = 24, 6, 0.02
LENGTHS = (1, 5, 33)
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
    "original_max_position_embeddings": 60,
}
GEMMA = LLAMA | {"head_dim": 16, "sliding_window": 11, "query_pre_attn_scalar": 20}
FALCON = {key: LLAMA[key] for key in LLAMA if key not in ("intermediate_size", "num_key_value_heads")} | {
    "hidden_size": 72
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
    ("phi3-long", "phi3", LLAMA | {"rope_parameters": LONG, "original_max_position_embeddings": 60}),
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


def main() -> None:
    recorded = []
    for seed, (name, kind, settings) in enumerate(KINDS):
        for dtype in ("f32", "bf16"):
            folder = record(name, kind, settings, dtype, 100 + seed)
            print(name, dtype, [min(case["gaps"]) for case in folder["cases"]])
            recorded.append(folder)
    RECORDED.write_text("[" + ",\n".join(json.dumps(each, separators=(",", ":")) for each in recorded) + "]\n")
    print(f"wrote {RECORDED} ({RECORDED.stat().st_size} bytes)")


def record(name: str, kind: str, settings: dict[str, Any], dtype: str, seed: int) -> dict[str, Any]:
    config = AutoConfig.for_model(kind, **settings)
    with tempfile.TemporaryDirectory() as place:
        AutoModelForCausalLM.from_config(config).save_pretrained(place)
        with safe_open(Path(place) / "model.safetensors", "numpy") as file:
            tensors = {key: file.get_slice(key).get_shape() for key in sorted(file.keys())}
        data = json.loads((Path(place) / "config.json").read_text())
    data.pop("transformers_version", None)
    folder = Folder(f"{name}-{dtype}", data, tensors, dtype, seed, [])
    with tempfile.TemporaryDirectory() as place:
        path = folder.write(Path(place) / "model")
        more = {"experts_implementation": "eager"} if any(word in kind for word in ("xtral", "moe", "seek")) else {}
        model, found = AutoModelForCausalLM.from_pretrained(
            path, dtype=torch.float32, attn_implementation="eager", output_loading_info=True, **more
        )
    assert not any(found.values()), found
    chance, cases = np.random.default_rng(seed), []
    for length in LENGTHS:
        tried = [run(model.eval(), chance.integers(3, 131, length).tolist()) for _ in range(CANDIDATES)]
        cases.append(max(tried, key=lambda case: quality(case, WIDE_ENOUGH)))
    return {**vars(replace(folder)), "cases": cases}


@torch.no_grad()
def run(model: Any, prompt: list[int]) -> dict[str, Any]:
    """Greedy tokens, each from the whole text before it, and the gap of the best two logits before each."""
    text, gaps = list(prompt), []
    for _ in range(NEW_TOKENS):
        logits = model(torch.tensor([text]), use_cache=False).logits[0, -1].numpy()
        best = np.sort(logits)[-2:]
        gaps.append(round(float(best[1] - best[0]), 4))
        text.append(int(logits.argmax()))
    return {"prompt": prompt, "tokens": text[len(prompt) :], "gaps": gaps}


if __name__ == "__main__":
    main()
