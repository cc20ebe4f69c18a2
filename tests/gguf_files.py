"""GGUF files of the recorded folders, written as llama.cpp's converter would: its names, its order of rows, its norms.

This is the other way round from what is tested: from a folder's tensors to a file's.
"""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from recorded_folders import Folder, weights_of

from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16

ARCHITECTURES = {
    **{"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3"},
    **{"qwen2_moe": "qwen2moe", "qwen3_moe": "qwen3moe"},
    **{"gemma2": "gemma2", "gemma3_text": "gemma3", "gpt_neox": "gptneox", "gpt2": "gpt2"},
}
PREFIXES = {"gpt2": "transformer.", "gpt_neox": "gpt_neox."}


def write_gguf(folder: Folder, path: Path, kind: str = "F32", tokenizer: Mapping[str, Any] | None = None) -> Path:
    """Write a folder's model with matrices of a type (where their rows are of whole blocks, else in F32)."""
    config = dict(folder.config)
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(str(path), architecture)
    _add_settings(writer, config, architecture)
    for name, value in (tokenizer or {}).items():
        getattr(writer, f"add_{name}")(value)
    for name, values in _tensors(folder, config, architecture).items():
        stored = gguf.GGMLQuantizationType[kind]
        block, _ = gguf.GGML_QUANT_SIZES[stored]
        if values.ndim < 2 or values.shape[-1] % block or "_norm" in name:
            stored = gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, gguf.quants.quantize(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _add_settings(writer: gguf.GGUFWriter, config: dict[str, Any], architecture: str) -> None:
    heads = config.get("num_attention_heads", config.get("n_head"))
    width = config.get("hidden_size", config.get("n_embd"))
    writer.add_context_length(config.get("max_position_embeddings", config.get("n_positions")))
    writer.add_embedding_length(width)
    writer.add_block_count(config.get("num_hidden_layers", config.get("n_layer")))
    writer.add_head_count(heads)
    writer.add_feed_forward_length(config.get("intermediate_size") or config.get("n_inner") or 4 * width)
    if architecture in ("gpt2", "gptneox"):
        writer.add_layer_norm_eps(config.get("layer_norm_eps", config.get("layer_norm_epsilon", 1e-5)))
    else:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_head_count_kv(config["num_key_value_heads"])
        size = config.get("head_dim") or width // heads
        writer.add_key_length(size)
        writer.add_value_length(size)
    if architecture == "gptneox":
        share = config["rope_parameters"]["partial_rotary_factor"]
        writer.add_rope_dimension_count(int(share * (width // heads)))
        writer.add_parallel_residual(config.get("use_parallel_residual", True))
    if config.get("sliding_window"):
        writer.add_sliding_window(config["sliding_window"])
    for setting in ("attn_logit_softcapping", "final_logit_softcapping"):
        if config.get(setting) is not None:
            getattr(writer, f"add_{setting}")(config[setting])
    experts = config.get("num_local_experts", config.get("num_experts"))
    if experts:
        writer.add_expert_count(experts)
        writer.add_expert_used_count(config["num_experts_per_tok"])
        writer.add_expert_feed_forward_length(config.get("moe_intermediate_size") or config["intermediate_size"])
    if "shared_expert_intermediate_size" in config:
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    rope = config.get("rope_parameters") or {}
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _tensors(folder: Folder, config: dict[str, Any], architecture: str) -> dict[str, np.ndarray]:
    """The file's tensors, in f32, with the folder's rounding."""
    kind = config["model_type"]
    arch = next(a for a, name in gguf.MODEL_ARCH_NAMES.items() if name == architecture)
    table = gguf.get_tensor_name_map(arch, 64)
    found: dict[str, np.ndarray] = {}
    experts: dict[str, list[np.ndarray]] = {}
    for name, shape in folder.tensors.items():
        values = weights_of(name, shape, kind, folder.seed)
        values = bf16_to_f32(f32_to_bf16(values)) if folder.dtype == "bf16" else values
        full = name if name.startswith(("model.", "lm_head", "embed_out", PREFIXES.get(kind, "?"))) else None
        full = full or f"{PREFIXES.get(kind, 'model.')}{name}"
        before, star, after = full.partition(".experts.")
        number, _, rest = after.partition(".")
        own = table.get_name(f"{before}.experts.{rest}" if star else full, (".weight", ".bias"))
        assert own is not None, full
        values = _converted(values, full, config, kind)
        if star:
            assert int(number) == len(experts.setdefault(own, []))
            experts[own].append(values)
        else:
            found[own] = np.ascontiguousarray(values)
    found |= {own: np.stack(several) for own, several in experts.items()}
    rope = config.get("rope_parameters") or {}
    if rope.get("rope_type") == "llama3":
        found["rope_freqs.weight"] = _divisors(rope, config["hidden_size"] // config["num_attention_heads"])
    return found


def _converted(values: np.ndarray, name: str, config: dict[str, Any], kind: str) -> np.ndarray:
    if kind in ("llama", "mistral", "mixtral") and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if kind == "gpt_neox" and ".query_key_value." in name:
        heads = config["num_attention_heads"]
        return values.reshape(heads, 3, -1, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
    if kind == "gpt2" and values.ndim == 2 and ("attn.c_" in name or "mlp.c_" in name):
        return values.T
    if "gemma" in kind and name.endswith("norm.weight"):
        return values + 1
    return values


def _divisors(rope: dict[str, Any], size: int) -> np.ndarray:
    """What Llama 3.1's rotary frequencies are divided by, pair by pair."""
    factor, low, high = rope["factor"], rope["low_freq_factor"], rope["high_freq_factor"]
    original, found = rope["original_max_position_embeddings"], []
    for pair in range(size // 2):
        length = 2 * np.pi * rope["rope_theta"] ** (2 * pair / size)
        if length < original / high:
            found.append(1.0)
        elif length > original / low:
            found.append(factor)
        else:
            share = (original / length - low) / (high - low)
            found.append(1 / ((1 - share) / factor + share))
    return np.array(found, np.float32)
