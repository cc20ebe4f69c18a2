"""Gradients of the library's layers, and of programs made of several of them, against float64 central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from gradient_checks import check, drawn


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def rms_norm(x: np.ndarray, w: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    """Causal; [texts rows heads size], of keys and values fewer heads."""
    k, v = (np.repeat(x, q.shape[2] // x.shape[2], 2) for x in (k, v))
    scores = np.einsum("bshd,bthd->bhst", q, k) / np.sqrt(q.shape[-1])
    seen = np.where(np.tri(*scores.shape[-2:], dtype=bool), scores, -1e30)
    return np.einsum("bhst,bthd->bshd", softmax(seen), v)


def rotated(x: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """[rows heads size], by the angles of positions."""
    half = x.shape[-1] // 2
    angles = ids[:, None] * 10000.0 ** (-np.arange(half) / half)
    c, s = np.cos(angles)[:, None], np.sin(angles)[:, None]
    a, b = x[..., :half], x[..., half:]
    return np.concatenate([a * c - b * s, b * c + a * s], -1)


def head_loss(x: np.ndarray, w: np.ndarray, b: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """The mean of -log softmax over the first 9 columns at the targets, which are ids less 2."""
    scores, targets = (x @ w.T + b)[:, :9], ids - 2
    losses = np.log(np.exp(scores).sum(-1)) - scores[np.arange(len(x)), np.maximum(targets, 0)]
    return (losses * (targets >= 0)).sum() / max((targets >= 0).sum(), 1)


def experts(x: np.ndarray, router: np.ndarray, w: np.ndarray) -> np.ndarray:
    """Of each row the most liked expert's matrix, times its share."""
    scores = softmax(x @ router.T)
    best = scores.argmax(-1)
    return np.einsum("ri,roi->ro", x, w[best]) * scores[np.arange(len(x)), best][:, None]


ROTATE = """(defn turned [x ids]
  (let [pairs (/ (dim x 2) 2)
        angles (rotary-angles ids pairs (rotary-frequency 10000.0 pairs))]
    (rotate x (cos angles) (sin angles))))"""
EXPERTS = """(defn mixed [x router w]
  (let [[n in] (shape x)
        scores (softmax (linear x router))
        best (argmax scores)
        own (tensor [r n o (dim w 1) i in] (at w (at best r) o i))
        y (contract [r o] x [r i] own [r o i])]
    (tensor [r n o (dim w 1)] (* (at y r o) (at scores r (at best r))))))"""
BLOCK = """(defn block [x n qkv proj]
  (let [h (rms-norm x n 1e-5)
        a (causal-self-attention (linear h qkv) 2 2)]
    (+ x (linear a proj))))"""
TARGETS = "(tensor [r 8] (- (at ids r) 2))"


def block(x: np.ndarray, n: np.ndarray, qkv: np.ndarray, proj: np.ndarray) -> np.ndarray:
    parts = [p.reshape(2, 3, 2, 2) for p in np.split(rms_norm(x, n) @ qkv.T, 3, -1)]
    return x + attention(*parts).reshape(6, 4) @ proj.T


CASES: list[tuple[str, Callable[..., Any], dict[str, Any], str]] = [
    (
        "(causal-attention q k v)",
        attention,
        {"q": (2, 4, 2, 3), "k": (2, 4, 2, 3), "v": (2, 4, 2, 3)},
        "",
    ),
    (
        "(causal-attention q k v)",
        attention,
        {"q": (1, 5, 4, 2), "k": (1, 5, 2, 2), "v": (1, 5, 2, 2)},
        "",
    ),
    ("(block x n qkv proj)", block, {"x": (6, 4), "n": (4,), "qkv": (12, 4), "proj": (4, 4)}, BLOCK),
    ("(turned x ids)", rotated, {"x": (5, 2, 6), "ids": (9, 5)}, ROTATE),
    ("(mixed x router w)", experts, {"x": (5, 4), "router": (3, 4), "w": (3, 2, 4)}, EXPERTS),
    (
        f"(first (head-loss x w {TARGETS} 9 b))",
        lambda x, w, b, ids: head_loss(x, w, b, ids),
        {"x": (8, 4), "w": (11, 4), "b": (11,), "ids": (11, 8)},
        "",
    ),
    (
        f"(first (cross-entropy (linear x w b) {TARGETS} 9))",
        lambda x, w, b, ids: head_loss(x, w, b, ids),
        {"x": (8, 4), "w": (11, 4), "b": (11,), "ids": (11, 8)},
        "",
    ),
    ("(column-sums (* x (sin x)))", lambda x: (x * np.sin(x)).sum(0), {"x": (32, 3)}, ""),
    (
        "(* (slice x [0 4] [3 2]) (* (sin (slice x [0 0] [3 2])) (slice x [0 2] [3 2])))",
        lambda x: x[:, 4:] * np.sin(x[:, :2]) * x[:, 2:4],
        {"x": (3, 6)},
        "",
    ),
    (
        "(+ (slice x [0 1 0] [3 1 4]) (exp (slice x [0 0 0] [3 1 4])))",
        lambda x: x[:, 1:] + np.exp(x[:, :1]),
        {"x": (3, 2, 4)},
        "",
    ),
    ("(* b (column-sums x))", lambda x, b: b * x.sum(0), {"x": (64, 3), "b": (3,)}, ""),
    (
        "(insert (slice x [0 1] [3 2]) (insert (sin y) (tensor [i 3 j 5] 0.5) [0 0] [3 3]) [0 3] [3 2])",
        lambda x, y: np.concatenate([np.sin(y), x[:, 1:3]], 1),
        {"x": (3, 4), "y": (3, 3)},
        "",
    ),
    (
        "(tensor [i 4 j 3] (at t (at ids i) j (at more j)))",
        lambda t, ids, more: t[ids][:, np.arange(3), more],
        {"t": (6, 3, 5), "ids": (6, 4), "more": (5, 3)},
        "",
    ),
    (
        "(tensor [i 4 k 2 j 3] (at t k (at ids i) j))",
        lambda t, ids: t[:2, ids, :3].transpose(1, 0, 2),
        {"t": (3, 6, 4), "ids": (6, 4)},
        "",
    ),
    ("(tensor [i 6] (at x (at ids i)))", lambda x, ids: x[ids], {"x": (4,), "ids": (4, 6)}, ""),
    (
        "(linear (silu (linear (rows t ids) a)) t)",
        lambda t, a, ids: silu(t[ids] @ a.T) @ t.T,
        {"t": (6, 3), "a": (3, 3), "ids": (6, 4)},
        "",
    ),
]


@pytest.mark.drawn
@pytest.mark.parametrize(
    "expression,function,shapes,definitions", CASES, ids=[f"{n}-{case[0][:40]}" for n, case in enumerate(CASES)]
)
def test_gradients_of_layers_are_those_of_finite_differences(
    expression: str, function: Callable[..., Any], shapes: dict[str, Any], definitions: str
) -> None:
    seed = seeded.fresh_seed()
    given = drawn(shapes, seed)
    small = {name: array * np.float32(0.5) if array.dtype == np.float32 else array for name, array in given.items()}
    check(expression, function, small, seed, definitions)


@pytest.mark.parametrize("rows", [1, 3, 100])
def test_chunks_of_the_head_are_together_the_whole(rows: int) -> None:
    """Of 8 rows, so many at once: the loss and its gradients stay what they are."""
    seed = seeded.fresh_seed()
    expression = f"(first (head-loss x w {TARGETS} 9 b))"
    given = drawn({"x": (8, 4), "w": (11, 4), "b": (11,), "ids": (11, 8)}, seed)
    check(expression, lambda x, w, b, ids: head_loss(x, w, b, ids), given, seed, settings={"head-rows": rows})
