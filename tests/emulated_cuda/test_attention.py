"""Prefill's attention for NVIDIA: the PTX, run on numpy, against float64."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import seeded
from emulated_cuda.entries import run
from emulated_cuda.registers import bf16

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.artifact import Artifact

pytestmark = pytest.mark.drawn

ROWS, CONTEXT = 128, 200

PROGRAM = """
(require nn)
(config context {context})
(weights (q [{rows} {width}]) (k [{rows} {shared}]) (v [{rows} {shared}]))
(state (kv [1 2 {groups} context {depth}] {cache}))
(entry out [tokens positions]
  (let [rows (dim tokens 0)
        heads-of (fn [x count] (reshape (slice x [0 0] [rows (dim x 1)]) [rows count {depth}]))]
    (attend (heads-of q {heads}) (heads-of k {groups}) (heads-of v {groups}) (kv 0) {weigh})))
"""

NEAR = "(fn [score head t position] (select (< (- position t) (: 70 i32)) score -inf))"


@dataclass(frozen=True)
class Case:
    cache: str = "f32"
    heads: int = 2
    groups: int = 2
    depth: int = 64
    near: bool = False
    chip: str = "sm_90"


CASES = [Case(), Case("bf16"), Case(heads=4), Case("bf16", depth=40), Case(near=True)]
CASES += [
    Case(heads=1, groups=1, depth=128),
    Case(chip="sm_90a"),
    Case("bf16", heads=4, near=True, chip="sm_90a"),
    Case(depth=40, chip="sm_90a"),
]


@pytest.mark.parametrize("case", [Case(heads=1, groups=1, depth=32), *CASES], ids=str)
def test_attention_is_exact_to_16_bits(case: Case, tmp_path: Path) -> None:
    """Rows at positions 50 to 177, after others' keys and values; past them the cache holds NaN."""
    random = seeded.rng()
    q = 3 * random.standard_normal((ROWS, case.heads, case.depth), np.float32)
    k, v = random.standard_normal((2, ROWS, case.groups, case.depth), np.float32)
    cache = np.full((1, 2, case.groups, CONTEXT, case.depth), np.nan, np.float32)
    cache[0, :, :, :50] = random.standard_normal((2, case.groups, 50, case.depth), np.float32)
    positions = np.arange(50, 50 + ROWS, dtype=np.int32)
    stored = as_stored(cache, case.cache)
    artifact = compiled(case, tmp_path)
    entry = next(e for e in artifact.plan.entries if e.sizes["positions"] == ROWS)
    found = run(artifact, entry, {"q": q, "k": k, "v": v, "kv": stored, "positions": positions})
    after = as_float(stored).copy()
    after[0, :, :, positions] = as_float(as_stored(np.stack([k, v]), case.cache)).transpose(1, 0, 2, 3)
    expected = attention(q, after[0, 0], after[0, 1], positions, 70 if case.near else CONTEXT)
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= 3e-5 * np.linalg.norm(expected)


def compiled(case: Case, folder: Path) -> Artifact:
    program = folder / "attention.lisp"
    sizes = {"rows": CONTEXT, "width": case.heads * case.depth, "shared": case.groups * case.depth, "context": CONTEXT}
    facts = {"heads": case.heads, "groups": case.groups, "depth": case.depth, "cache": case.cache}
    program.write_text(PROGRAM.format(**sizes, **facts, weigh=NEAR if case.near else ""))
    artifact, _ = compile_request(Request(program, f"cuda:{case.chip}"), Observer())
    return artifact


def attention(q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray, near: int) -> np.ndarray:
    """float64 [rows heads depth], of keys and values [groups context depth]."""
    sharing = q.shape[1] // k.shape[0]
    out = np.empty(q.shape)
    for row, position in enumerate(positions):
        seen = slice(max(0, position - near + 1), position + 1)
        for head in range(q.shape[1]):
            keys, weighted = (x[head // sharing, seen].astype(np.float64) for x in (k, v))
            scores = keys @ q[row, head].astype(np.float64) / np.sqrt(q.shape[2])
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ weighted / weights.sum()
    return out


def as_stored(values: np.ndarray, cache: str) -> np.ndarray:
    return bf16(values) if cache == "bf16" else values


def as_float(stored: np.ndarray) -> np.ndarray:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32) if stored.dtype == np.uint16 else stored
