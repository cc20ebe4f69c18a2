"""Folders by their tensors: heads that are tied, and StableLM 2 12B's norms of each head, beside numpy's."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_folders
import seeded
from recorded_folders import weights_of

import lispgpt
from lispgpt.runtime.checkpoints.safetensors_file import write_safetensors

TOKENS = np.array([3, 14, 15, 92, 65, 35, 89])


def logits_of(path: Path, config: dict[str, Any], tensors: dict[str, np.ndarray]) -> np.ndarray:
    path.mkdir()
    (path / "config.json").write_text(json.dumps(config))
    header = [(name, array.shape, "f32") for name, array in tensors.items()]
    write_safetensors(path / "model.safetensors", header, [array.copy() for array in tensors.values()])
    with lispgpt.load(path) as model:
        return model.logits(TOKENS.tolist())


@pytest.mark.slow
@pytest.mark.parametrize("name", ["phi-f32", "gptj-f32", "codegen-f32", "glm4-moe-f32", "deepseek-v3-f32"])
def test_a_tied_head_is_the_embeddings(name: str, tmp_path: Path) -> None:
    folder = next(folder for folder in recorded_folders.folders() if folder.name == name)
    tensors = {k: weights_of(k, shape, folder.config["model_type"], folder.seed) for k, shape in folder.tensors.items()}
    embeddings = tensors[next(key for key in tensors if "embed_tokens" in key or "wte" in key)]
    own = logits_of(tmp_path / "own", dict(folder.config), {**tensors, "lm_head.weight": embeddings})
    del tensors["lm_head.weight"]
    tied = logits_of(tmp_path / "tied", {**folder.config, "tie_word_embeddings": True}, tensors)
    assert np.isfinite(own).all() and np.array_equal(tied, own)


WIDTH, HEADS, SHARED, SIZE, TURNED, HIDDEN, LAYERS = 24, 4, 2, 6, 4, 17, 2
STABLELM = {"model_type": "stablelm", "vocab_size": 101, "hidden_size": WIDTH, "intermediate_size": HIDDEN}
STABLELM |= {"num_hidden_layers": LAYERS, "num_attention_heads": HEADS, "num_key_value_heads": SHARED}
STABLELM |= {"max_position_embeddings": 32, "partial_rotary_factor": TURNED / SIZE, "layer_norm_eps": 1e-5}
STABLELM |= {"qk_layernorm": True, "use_parallel_residual": True, "hidden_act": "silu"}


def shapes() -> dict[str, tuple[int, ...]]:
    found: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (101, WIDTH), "lm_head.weight": (101, WIDTH)}
    found |= {f"model.norm.{part}": (WIDTH,) for part in ("weight", "bias")}
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        found |= {f"{start}input_layernorm.{part}": (WIDTH,) for part in ("weight", "bias")}
        for of, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
            found[f"{start}self_attn.{of}_proj.weight"] = (heads * SIZE, WIDTH)
            norms = range(heads if of != "v" else 0)
            found |= {f"{start}self_attn.{of}_layernorm.norms.{head}.weight": (SIZE,) for head in norms}
        found[f"{start}self_attn.o_proj.weight"] = (WIDTH, HEADS * SIZE)
        found |= {f"{start}mlp.{part}_proj.weight": (HIDDEN, WIDTH) for part in ("gate", "up")}
        found[f"{start}mlp.down_proj.weight"] = (WIDTH, HIDDEN)
    return found


def normed(x: np.ndarray, weight: np.ndarray, bias: Any = 0.0) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def turned(x: np.ndarray) -> np.ndarray:
    """x [positions heads size] with the first columns of each head turned."""
    half = TURNED // 2
    angles = np.arange(len(x))[:, None, None] * 10000.0 ** (-np.arange(half) / half)
    a, b = x[..., :half], x[..., half:TURNED]
    both = [a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)]
    return np.concatenate([*both, x[..., TURNED:]], -1)


def reference(w: dict[str, np.ndarray]) -> np.ndarray:
    x, count = w["model.embed_tokens.weight"][TOKENS], len(TOKENS)
    for layer in range(LAYERS):
        start = f"model.layers.{layer}."
        y = normed(x, w[f"{start}input_layernorm.weight"], w[f"{start}input_layernorm.bias"])
        parts = []
        for of, heads in (("q", HEADS), ("k", SHARED), ("v", SHARED)):
            part = (y @ w[f"{start}self_attn.{of}_proj.weight"].T).reshape(count, heads, SIZE)
            if of != "v":
                norms = [w[f"{start}self_attn.{of}_layernorm.norms.{head}.weight"] for head in range(heads)]
                part = turned(normed(part, np.stack(norms)))
            parts.append(np.repeat(part, HEADS // heads, axis=1))
        scores = np.einsum("shd,thd->hst", *parts[:2]) / np.sqrt(SIZE)
        scores = np.exp(np.where(np.tri(count, dtype=bool), scores, -np.inf))
        found = np.einsum("hst,thd->shd", scores / scores.sum(-1, keepdims=True), parts[2]).reshape(count, -1)
        gate = y @ w[f"{start}mlp.gate_proj.weight"].T
        fed = gate / (1 + np.exp(-gate)) * (y @ w[f"{start}mlp.up_proj.weight"].T)
        x = x + found @ w[f"{start}self_attn.o_proj.weight"].T + fed @ w[f"{start}mlp.down_proj.weight"].T
    return normed(x, w["model.norm.weight"], w["model.norm.bias"]) @ w["lm_head.weight"].T


@pytest.mark.slow
def test_norms_of_each_head_are_those_of_numpy(tmp_path: Path) -> None:
    rng = seeded.rng()
    tensors = {name: (0.4 * rng.standard_normal(shape)).astype(np.float32) for name, shape in shapes().items()}
    tensors |= {name: array + np.float32(1) for name, array in tensors.items() if "norm" in name}
    wanted = reference({name: array.astype(np.float64) for name, array in tensors.items()})
    np.testing.assert_allclose(
        logits_of(tmp_path / "model", STABLELM, tensors), wanted, atol=1e-4 * np.abs(wanted).max()
    )
