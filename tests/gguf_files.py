"""GGUF files of the recorded folders, written as llama.cpp's converter would: its names, its order of rows, its norms.

This is the other way round from what is tested: from a folder's tensors to a file's.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
from recorded_folders import Folder, weights_of

from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.runtime.checkpoints.blocks import in_blocks_of
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16

ARCHITECTURES = {
    **{"llama": "llama", "mistral": "llama", "mixtral": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "phi3": "phi3"},
    **{"qwen3_moe": "qwen3moe", "gemma2": "gemma2", "gemma3_text": "gemma3", "gpt_neox": "gptneox", "gpt2": "gpt2"},
    **{"gemma": "gemma", "phi": "phi2", "stablelm": "stablelm", "olmo": "olmo", "olmo2": "olmo2", "olmoe": "olmoe"},
    **{"cohere": "command-r", "granite": "granite", "qwen2_moe": "qwen2moe", "smollm3": "smollm3", "glm4": "glm4"},
    **{"exaone4": "exaone4", "ernie4_5": "ernie4_5", "nemotron": "nemotron", "starcoder2": "starcoder2"},
    **{"gpt_bigcode": "starcoder", "bloom": "bloom", "mpt": "mpt"},
}
PREFIXES = dict.fromkeys(("gpt2", "bloom", "mpt", "gpt_bigcode"), "transformer.") | {"gpt_neox": "gpt_neox."}
PERMUTED = ("llama", "mistral", "mixtral", "granite", "olmo", "smollm3")
"""Whose queries' and keys' columns are in turns what folders have in halves."""


def write_gguf(
    folder: Folder,
    path: Path,
    kind: str = "F32",
    tokenizer: Mapping[str, Any] | None = None,
    others: Mapping[str, str] | None = None,
) -> Path:
    """Write a folder's model with matrices of a type (where their rows are of whole blocks, else in F32).

    others: of those whose names start so, their own type.
    """
    config = dict(folder.config)
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(str(path), architecture)
    _add_settings(writer, config, architecture)
    for name, value in (tokenizer or {}).items():
        getattr(writer, f"add_{name}")(value)
    for name, values in _tensors(folder, config, architecture).items():
        own = next((own for start, own in (others or {}).items() if name.startswith(start)), kind)
        stored = gguf.GGMLQuantizationType[own]
        block, _ = gguf.GGML_QUANT_SIZES[stored]
        if values.ndim < 2 or values.shape[-1] % block or "_norm" in name:
            stored = gguf.GGMLQuantizationType.F32
        writer.add_tensor(name, _stored(values, stored), raw_dtype=stored)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def _stored(values: np.ndarray, kind: gguf.GGMLQuantizationType) -> np.ndarray:
    """As the package has them, or as blocks that it does not make."""
    name = kind.name.lower()
    if name in BLOCK_DTYPES:
        return in_blocks_of(values, name).view(np.uint8)
    return gguf.quants.quantize(values, kind)


def _add_settings(writer: gguf.GGUFWriter, config: dict[str, Any], architecture: str) -> None:
    heads = _first(config, "num_attention_heads", "n_head", "n_heads")
    width = _first(config, "hidden_size", "n_embd", "d_model")
    writer.add_context_length(
        _first(config, "max_position_embeddings", "n_positions", "max_seq_len", "seq_length") or 96
    )
    writer.add_embedding_length(width)
    writer.add_block_count(_first(config, "num_hidden_layers", "n_layer", "n_layers"))
    writer.add_head_count(heads)
    writer.add_feed_forward_length(_first(config, "intermediate_size", "n_inner") or 4 * width)
    if "rms_norm_eps" in config:
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    else:
        names = ("layer_norm_eps", "layer_norm_epsilon", "norm_epsilon", "norm_eps")
        writer.add_layer_norm_eps(_first(config, *names) or 1e-5)
    size = config.get("head_dim") or width // heads
    if "num_key_value_heads" in config:
        writer.add_head_count_kv(config["num_key_value_heads"])
        writer.add_key_length(size)
        writer.add_value_length(size)
    if config.get("multi_query"):
        writer.add_head_count_kv(1)
    if "use_parallel_residual" in config:
        writer.add_parallel_residual(config["use_parallel_residual"])
    scales = {"embedding_multiplier": "embedding_scale", "attention_multiplier": "attention_scale"}
    scales |= {"residual_multiplier": "residual_scale", "logits_scaling": "logit_scale", "logit_scale": "logit_scale"}
    for setting, own in (scales | {"clip_qkv": "clamp_kqv"}).items():
        if config.get(setting):
            getattr(writer, f"add_{own}")(config[setting])
    if architecture == "mpt":
        writer.add_max_alibi_bias(config["attn_config"]["alibi_bias_max"])
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
    if config.get("shared_expert_intermediate_size"):
        writer.add_expert_shared_feed_forward_length(config["shared_expert_intermediate_size"])
    rope = config.get("rope_parameters") or {}
    if rope:
        writer.add_rope_dimension_count(int(rope.get("partial_rotary_factor", 1.0) * size))
    if "rope_theta" in rope:
        writer.add_rope_freq_base(rope["rope_theta"])
    if rope.get("rope_type") == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(rope["factor"])
        writer.add_rope_scaling_orig_ctx_len(rope["original_max_position_embeddings"])


def _first(config: dict[str, Any], *names: str) -> Any:
    return next((config[name] for name in names if config.get(name) is not None), None)


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
        full = full.removeprefix("transformer.") if kind == "bloom" else full
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
    if kind in PERMUTED and (".q_proj." in name or ".k_proj." in name):
        heads = config["num_attention_heads" if ".q_proj." in name else "num_key_value_heads"]
        return values.reshape(heads, 2, -1, *values.shape[1:]).swapaxes(1, 2).reshape(values.shape)
    if kind in ("gpt_neox", "bloom") and ".query_key_value." in name:
        heads = _first(config, "num_attention_heads", "n_head")
        return values.reshape(heads, 3, -1, *values.shape[1:]).swapaxes(0, 1).reshape(values.shape)
    if kind == "gpt2" and values.ndim == 2 and ("attn.c_" in name or "mlp.c_" in name):
        return values.T
    if ("gemma" in kind or kind == "nemotron") and name.endswith("norm.weight"):
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


def write_vocabulary(path: Path, rule: str, tokens: Sequence[str], merges: Sequence[str]) -> Path:
    """Write a file with nothing but a byte-level tokenizer, whose first token is a control one."""
    writer = gguf.GGUFWriter(str(path), "llama")
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre(rule)
    writer.add_token_list(tokens)
    writer.add_token_merges(merges)
    writer.add_token_types([3] + [1] * (len(tokens) - 1))
    writer.add_eos_token_id(0)
    writer.add_bos_token_id(0)
    writer.add_add_bos_token(False)
    config = {"hidden_size": 32, "num_hidden_layers": 1, "num_attention_heads": 2, "num_key_value_heads": 2}
    _add_settings(writer, config | {"intermediate_size": 32, "rms_norm_eps": 1e-5}, "llama")
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
