"""A step's attention for NVIDIA, whose first keys and values are copied ahead: the PTX on numpy, against float64."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_cuda.entries import run
from emulated_cuda.registers import bf16

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.passes.targets import GPU_CHIPS

PROGRAM = """
(require nn)
(config context {context})
(weights (qkv [{batch} {width}]))
(state (kv [1 batch 2 {heads} context {depth}] {cache}))
(entry out [tokens positions] (attention qkv (kv 0) {heads}))
"""
PIPELINE = (Path(__file__).parents[2] / "passes/pipelines/gpu.lisp").read_text()
SIZES = {"batch": 3, "heads": 2, "depth": 64, "context": 700}


def attended(qkv: np.ndarray, cache: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """float64 [sequence head depth], of a cache [sequence 2 head context depth] that has the rows' own."""
    out = np.empty(qkv.shape[:1] + qkv.shape[2:])
    for sequence, position in enumerate(positions):
        for head in range(qkv.shape[2]):
            keys, values = cache[sequence, :, head, : position + 1].astype(np.float64)
            scores = keys @ qkv[sequence, 0, head].astype(np.float64) / np.sqrt(qkv.shape[3])
            weights = np.exp(scores - scores.max())
            out[sequence, head] = weights @ values / weights.sum()
    return out


@pytest.mark.parametrize("options", ["", ":copied 1", ":copied 3 :unroll 2", ":copied 0"])
@pytest.mark.parametrize(("cache", "cores"), [("bf16", 2), ("f32", 2), ("bf16", 132)])
def test_a_steps_attention_equals_float64(
    cache: str, cores: int, options: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By one block a row, and by clusters; past the rows' positions the cache holds NaN."""
    chip = replace(GPU_CHIPS["cuda"]["sm_90a"], cores=cores)
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", chip)
    batch, heads, depth, context = SIZES.values()
    program, pipeline = tmp_path / "attention.lisp", tmp_path / "mine.lisp"
    program.write_text(PROGRAM.format(**SIZES, width=3 * heads * depth, cache=cache))
    pipeline.write_text(
        PIPELINE.replace("(pass schedule-gpu-attention)", f"(pass schedule-gpu-attention {{{options}}})")
    )
    request = Request(program, "cuda:sm_90a", pipeline=pipeline, sizes=[{"batch": batch, "positions": 1}])
    artifact, _ = compile_request(request, Observer())
    assert (b"cp.async.cg" in artifact.code) == (options != ":copied 0")

    random = seeded.rng()
    positions = np.array([0, random.integers(1, context - 1), context - 1], np.int32)
    qkv = 2 * random.standard_normal((batch, 3, heads, depth), np.float32)
    kv = random.standard_normal((1, batch, 2, heads, context, depth), np.float32)
    for sequence, position in enumerate(positions):
        kv[0, sequence, :, :, position:] = np.nan
    stored = bf16(kv) if cache == "bf16" else kv
    after = as_float(stored).copy()[0]
    for sequence, position in enumerate(positions):
        own = qkv[sequence, 1:]
        after[sequence, :, :, position] = as_float(bf16(own)) if cache == "bf16" else own
    values = {"qkv": qkv.reshape(batch, -1), "kv": stored, "positions": positions}
    found = run(artifact, artifact.plan.entries[0], values)
    expected = attended(qkv, after, positions)
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= 3e-5 * np.linalg.norm(expected)


def as_float(stored: np.ndarray) -> np.ndarray:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32) if stored.dtype == np.uint16 else stored
