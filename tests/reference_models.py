"""The five small models of examples/ that are not GPT-2 or Llama in float64 numpy, by the papers that they name."""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np

Weights = Mapping[str, np.ndarray]


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def silu(x: np.ndarray) -> np.ndarray:
    return x * sigmoid(x)


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x * x).mean(-1, keepdims=True) + 1e-5) * weight


def layer_norm(x: np.ndarray, weight: np.ndarray, bias: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * weight + bias


def classify(w: Weights, x: np.ndarray) -> np.ndarray:
    """Scores [batch classes] of x [batch pixels]."""
    h = np.maximum(x @ w["in-w"].T + w["in-b"], 0)
    h = np.maximum(h @ w["middle-w"].T + w["middle-b"], 0)
    return h @ w["out-w"].T + w["out-b"]


def mixture(w: Weights, x: np.ndarray, top: int) -> tuple[np.ndarray, float]:
    """y [rows width], and by how little an expert was chosen over the next one: below rounding either is right."""
    closest = np.inf
    for layer in range(len(w["router-w"])):
        h = rms_norm(x, w["norm-w"][layer])
        scores = h @ w["router-w"][layer].T
        order = np.argsort(-scores, 1)
        ranked = np.take_along_axis(scores, order, 1)
        closest = min(closest, (ranked[:, :top] - ranked[:, 1 : top + 1]).min())
        shares = softmax(ranked[:, :top])
        y = np.zeros_like(x)
        for row, place in np.ndindex(len(x), top):
            gate, up, down = (w[name][layer, order[row, place]] for name in ("gate-w", "up-w", "down-w"))
            y[row] += shares[row, place] * (down @ (silu(gate @ h[row]) * (up @ h[row])))
        x = x + y
    return x, closest


def score(w: Weights, tokens: np.ndarray, heads: int, window: int, theta: float = 1e4) -> np.ndarray:
    """Logits [texts length vocab] of tokens [texts length]."""
    return np.stack([_score_one(w, text, heads, window, theta) for text in tokens])


def _score_one(w: Weights, tokens: np.ndarray, heads: int, window: int, theta: float) -> np.ndarray:
    x, places = w["wte"][tokens], np.arange(len(tokens))
    for layer in range(len(w["qkv-w"])):
        qkv = rms_norm(x, w["norm1-w"][layer]) @ w["qkv-w"][layer].T
        q, k, v = (part.reshape(len(tokens), heads, -1) for part in np.split(qkv, 3, 1))
        q, k = _turned(q, places, theta), _turned(k, places, theta)
        distance = places[:, None] - places
        bias = np.where((distance >= 0) & (distance < window), 0.0, -np.inf)
        x = x + _attention(q, k, v, bias) @ w["proj-w"][layer].T
        h = rms_norm(x, w["norm2-w"][layer])
        x = x + (silu(h @ w["gate-w"][layer].T) * (h @ w["up-w"][layer].T)) @ w["down-w"][layer].T
    return rms_norm(x, w["normf-w"]) @ w["wte"].T


def _turned(x: np.ndarray, places: np.ndarray, theta: float) -> np.ndarray:
    half = x.shape[2] // 2
    angles = places[:, None, None] * theta ** -(np.arange(half) / half)
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * np.cos(angles) - b * np.sin(angles), b * np.cos(angles) + a * np.sin(angles)], 2)


def _attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, bias: np.ndarray) -> np.ndarray:
    """[rows heads*size]; bias [(heads) rows rows], -inf for what is not seen."""
    scores = np.einsum("shd,thd->hst", q, k) / np.sqrt(q.shape[2]) + bias
    return np.einsum("hst,thd->shd", softmax(scores), v).reshape(len(q), -1)


def alibi(w: Weights, tokens: np.ndarray, heads: int) -> np.ndarray:
    """Logits [length vocab] after each of one text's tokens."""
    x, places = w["wte"][tokens], np.arange(len(tokens))
    distance = places[:, None] - places
    slopes = 2.0 ** (-8 * np.arange(1, heads + 1) / heads)
    bias = np.where(distance >= 0, -slopes[:, None, None] * distance, -np.inf)
    for layer in range(len(w["qkv-w"])):
        h = layer_norm(x, w["norm1-w"][layer], w["norm1-b"][layer])
        qkv = h @ w["qkv-w"][layer].T + w["qkv-b"][layer]
        q, k, v = (part.reshape(len(tokens), heads, -1) for part in np.split(qkv, 3, 1))
        x = x + _attention(q, k, v, bias) @ w["proj-w"][layer].T + w["proj-b"][layer]
        h = layer_norm(x, w["norm2-w"][layer], w["norm2-b"][layer]) @ w["in-w"][layer].T + w["in-b"][layer]
        h = 0.5 * h * (1 + np.tanh(np.sqrt(2 / np.pi) * (h + 0.044715 * h**3)))
        x = x + h @ w["out-w"][layer].T + w["out-b"][layer]
    return layer_norm(x, w["normf-w"], w["normf-b"]) @ w["wte"].T


def recurrence(w: Weights, tokens: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Logits [length vocab] after each of one text's tokens, and the memory [layers hidden] after the last."""
    layers, hidden = w["keep-b"].shape
    memory, logits = np.zeros((layers, hidden)), []
    for token in tokens:
        x = w["wte"][token]
        for layer in range(layers):
            h = rms_norm(x, w["norm-w"][layer])
            keep = sigmoid(w["keep-w"][layer] @ h + w["keep-b"][layer])
            memory[layer] = keep * memory[layer] + (1 - keep) * (w["new-w"][layer] @ h)
            x = x + w["out-w"][layer] @ (memory[layer] * silu(w["gate-w"][layer] @ h))
        logits.append(w["wte"] @ rms_norm(x, w["normf-w"]))
    return np.array(logits), memory
