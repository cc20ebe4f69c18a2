"""The example of a user's own layers, against float64."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import numpy as np
import recorded
import seeded
from reference_gpt2 import float64_weights
from reference_llama import rms_norm

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.generate import Generator

WINDOW = 32


def attention(qkv: np.ndarray, shape: LlamaShape) -> np.ndarray:
    """Causal attention over the last WINDOW positions, whose scores fall by 2^(-8 (h + 1) / heads) a position."""
    rows = len(qkv)
    q, k, v = np.split(qkv.reshape(rows, -1, shape.head_width), [shape.heads, shape.heads + shape.kv_heads], axis=1)
    k, v = (np.repeat(part, shape.heads // shape.kv_heads, axis=1) for part in (k, v))
    distance = np.arange(rows)[:, None] - np.arange(rows)
    slopes = 2 ** (-8 * (np.arange(shape.heads) + 1) / shape.heads)
    scores = np.einsum("ihd,jhd->hij", q, k) / np.sqrt(shape.head_width) - slopes[:, None, None] * distance
    weights = np.where((distance >= 0) & (distance < WINDOW), np.exp(scores), 0)
    return np.einsum("hij,jhd->ihd", weights / weights.sum(-1, keepdims=True), v).reshape(rows, -1)


def logits(w: Mapping[str, np.ndarray], shape: LlamaShape, tokens: list[int]) -> np.ndarray:
    x = w["wte"][tokens]
    for i in range(shape.layers):
        qkv = rms_norm(x, w["norm1-w"][i], shape.epsilon) @ w["qkv-w"][i].T
        x = x + attention(qkv, shape) @ w["proj-w"][i].T
        normed = rms_norm(x, w["norm2-w"][i], shape.epsilon)
        gate = np.maximum(normed @ w["gate-w"][i].T, 0) ** 2
        x = x + (gate * (normed @ w["up-w"][i].T)) @ w["down-w"][i].T
    return rms_norm(x, w["normf-w"], shape.epsilon) @ w["head-w"].T


def test_logits_are_near_the_float64_reference(tmp_path: Path, examples: Path) -> None:
    rng = seeded.rng()
    groups, sharing = int(rng.integers(1, 4)), int(rng.integers(1, 4))
    shape = LlamaShape(97, 120, 2, groups * sharing, groups, 40, 51, 2 * int(rng.integers(2, 12)))
    make(tmp_path / "model", shape, "huggingface", "f32", int(rng.integers(1 << 30)))
    tokens = [int(t) for t in rng.integers(0, shape.vocab, int(rng.integers(60, 110)))]
    wanted = logits(float64_weights(checkpoints.open(tmp_path / "model")), shape, tokens)
    prompt = int(rng.integers(40, len(tokens)))
    seen: list[np.ndarray] = []
    with recorded.open_session(examples / "my_layers.lisp", tmp_path / "model") as session:
        generator = Generator(session, "logits", sampler=lambda row: seen.append(row.copy()) or 0)
        generator.prefill(tokens[:prompt])
        for token in tokens[prompt:]:
            generator.tokens.append(token)
            generator.decode()
    tolerance = 1e-4 * np.abs(wanted).max()
    np.testing.assert_allclose(seen, wanted[prompt - 1 :], atol=tolerance, rtol=0, err_msg=f"{shape} {tokens}")


def test_own_layers_fuse_like_the_librarys(examples: Path) -> None:
    artifact, _ = compile_request(Request(examples / "my_layers.lisp"), Observer())
    step = next(entry for entry in artifact.plan.entries if entry.sizes["positions"] == 1)
    assert len(step.launches) == 1 + 8 * 2 + 2
