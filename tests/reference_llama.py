"""Llama in plain float64 numpy: the reference that compiled models are compared with."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

from lispgpt.runtime.checkpoints.llama import LlamaShape


def rms_norm(x: np.ndarray, weight: np.ndarray, epsilon: float) -> np.ndarray:
    """Over the last dimension."""
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + epsilon) * weight


def frequencies(shape: LlamaShape) -> np.ndarray:
    """Radians per position of a head's pairs, [head_width / 2], those that turn slowly divided as Llama 3.1 does."""
    plain = shape.rope_theta ** (-2 * np.arange(shape.head_width // 2) / shape.head_width)
    turns = plain * shape.rope_original / (2 * np.pi)
    kept = np.clip((turns - shape.rope_low) / (shape.rope_high - shape.rope_low), 0, 1)
    return plain * kept + plain / shape.rope_factor * (1 - kept)


def rotate(x: np.ndarray, angles: np.ndarray) -> np.ndarray:
    """x [rows, heads, size] with the pair (i, i + size / 2) as a complex number turned by angles [rows, size / 2]."""
    half = x.shape[-1] // 2
    turned = (x[..., :half] + 1j * x[..., half:]) * np.exp(1j * angles)[:, None]
    return np.concatenate([turned.real, turned.imag], -1)


def attention(qkv: np.ndarray, shape: LlamaShape) -> np.ndarray:
    """Causal attention of rows [n, (heads + 2 kv_heads) * head_width] from position 0 on → [n, heads * head_width]."""
    rows, groups, size = len(qkv), shape.kv_heads, shape.head_width
    angles = np.arange(rows)[:, None] * frequencies(shape)
    q, k, v = np.split(qkv.reshape(rows, -1, size), [shape.heads, shape.heads + groups], axis=1)
    q = rotate(q, angles).reshape(rows, groups, -1, size)
    scores = np.einsum("ighd,jgd->ghij", q, rotate(k, angles)) / np.sqrt(size)
    scores = np.where(np.tril(np.ones((rows, rows), bool)), scores, -np.inf)
    scores = np.exp(scores - scores.max(-1, keepdims=True))
    weights = scores / scores.sum(-1, keepdims=True)
    return np.einsum("ghij,jgd->ighd", weights, v).reshape(rows, -1)


def logits(weights: Mapping[str, np.ndarray], shape: LlamaShape, tokens: list[int]) -> np.ndarray:
    """Logits [len(tokens), vocab] of one sequence from position 0."""
    w = weights
    x = w["wte"][tokens]
    for i in range(shape.layers):
        qkv = rms_norm(x, w["norm1-w"][i], shape.epsilon) @ w["qkv-w"][i].T
        x = x + attention(qkv, shape) @ w["proj-w"][i].T
        normed = rms_norm(x, w["norm2-w"][i], shape.epsilon)
        gate = normed @ w["gate-w"][i].T
        x = x + (gate / (1 + np.exp(-gate)) * (normed @ w["up-w"][i].T)) @ w["down-w"][i].T
    return rms_norm(x, w["normf-w"], shape.epsilon) @ w["wte" if shape.tied_head else "head-w"].T
