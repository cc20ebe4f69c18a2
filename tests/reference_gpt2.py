"""GPT-2 in plain float64 numpy: the reference that compiled models are compared with."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np


def float64_weights(checkpoint: Any) -> dict[str, np.ndarray]:
    """All of a checkpoint's tensors as float64, exactly as stored (BF16 widened), by llm.c's stacked names."""
    weights = {}
    for name in checkpoint.names():
        exact = np.empty(checkpoint.info(name).shape, np.float32)
        checkpoint.read_into(name, exact, "f32")
        weights[name] = exact.astype(np.float64)
    return weights


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray, epsilon: float = 1e-5) -> np.ndarray:
    """Over the last dimension."""
    centered = x - x.mean(-1, keepdims=True)
    return centered / np.sqrt((centered**2).mean(-1, keepdims=True) + epsilon) * weight + bias


def gelu(x: np.ndarray) -> np.ndarray:
    """The tanh form, as GPT-2 and llm.c have it."""
    return 0.5 * x * (1 + np.tanh(np.sqrt(2 / np.pi) * (x + 0.044715 * x**3)))


def attention(qkv: np.ndarray, heads: int) -> np.ndarray:
    """Causal attention of rows [n, 3 * width] (thirds q, k, v; heads contiguous in each) → [n, width]."""
    rows, width = qkv.shape[0], qkv.shape[1] // 3
    q, k, v = (third.reshape(rows, heads, -1).transpose(1, 0, 2) for third in np.split(qkv, 3, axis=1))
    scores = q @ k.transpose(0, 2, 1) / np.sqrt(width // heads)
    scores = np.where(np.tril(np.ones((rows, rows), bool)), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    return (scores / scores.sum(-1, keepdims=True) @ v).transpose(1, 0, 2).reshape(rows, width)


def logits(
    weights: Mapping[str, np.ndarray], heads: int, tokens: list[int], vocab: int, epsilon: float = 1e-5
) -> np.ndarray:
    """Logits [len(tokens), vocab] of one sequence from position 0, every position attending to those before it."""
    w = weights
    x = w["wte"][tokens] + w["wpe"][: len(tokens)]
    for i in range(len(w["ln1-w"])):
        normed = layer_norm(x, w["ln1-w"][i], w["ln1-b"][i], epsilon)
        attended = attention(normed @ w["qkv-w"][i].T + w["qkv-b"][i], heads)
        x = x + attended @ w["proj-w"][i].T + w["proj-b"][i]
        normed = layer_norm(x, w["ln2-w"][i], w["ln2-b"][i], epsilon)
        x = x + gelu(normed @ w["fc-w"][i].T + w["fc-b"][i]) @ w["out-w"][i].T + w["out-b"][i]
    return layer_norm(x, w["lnf-w"], w["lnf-b"], epsilon) @ w["wte"][:vocab].T


def greedy(weights: Mapping[str, np.ndarray], heads: int, prompt: list[int], count: int, vocab: int) -> list[int]:
    """The next `count` tokens, the whole sequence computed anew for each."""
    tokens = list(prompt)
    for _ in range(count):
        tokens.append(int(logits(weights, heads, tokens, vocab)[-1].argmax()))
    return tokens[len(prompt) :]
