"""Prefill's attention over tiles that bulk copies bring: the PTX for sm_90a, on numpy, against float64."""

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

CONTEXT, DEPTH = 200, 64

PROGRAM = """
(require nn)
(config context {context})
(weights (q [{rows} {width}]) (k [{rows} {shared}]) (v [{rows} {shared}]))
(state (kv [1 batch 2 {groups} context {depth}] bf16))
(entry out [tokens positions]
  (let [rows (dim tokens 0)
        heads-of (fn [x count] (reshape (slice x [0 0] [rows (dim x 1)]) [rows count {depth}]))]
    (attend (heads-of q {heads}) (heads-of k {groups}) (heads-of v {groups}) (kv 0) {weigh})))
"""

WEIGH = {
    "plain": "",
    "near": "(fn [score head t position] (select (< (- position t) (: 70 i32)) score -inf))",
    "sloped": "(lowered-by (alibi-slope 2))",
}


@dataclass(frozen=True)
class Case:
    """starts: each text's first position."""

    starts: tuple[int, ...] = (50,)
    rows: int = 128
    heads: int = 1
    groups: int = 1
    weigh: str = "plain"
    precision: str = "exact"
    context: int = CONTEXT

    @property
    def tolerance(self) -> float:
        return 3e-5 if self.precision == "exact" else 1e-2


CASES = [
    Case(precision="fast"),
    Case((0,), 64, context=64),
    Case((3, 60), 72, heads=2),
    Case((0, 30), 65, precision="fast", weigh="near"),
    Case((71,), heads=2, weigh="near"),
    Case((50,), 96, heads=2, weigh="sloped"),
    Case((5,), 190, heads=2, groups=1),
    Case((5,), 190),
    Case((0,), 128),
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_rows_are_exact_to_their_precision(case: Case, tmp_path: Path) -> None:
    """Past the last position of each text the cache holds NaN, as behind its end."""
    random, texts = seeded.rng(), len(case.starts)
    q = 3 * random.standard_normal((texts, case.rows, case.heads, DEPTH), np.float32)
    k, v = random.standard_normal((2, texts, case.rows, case.groups, DEPTH), np.float32)
    cache = np.full((1, texts, 2, case.groups, case.context, DEPTH), np.nan, np.float32)
    positions = np.stack([np.arange(start, start + case.rows, dtype=np.int32) for start in case.starts])
    for text, start in enumerate(case.starts):
        cache[0, text, :, :, :start] = random.standard_normal((2, case.groups, start, DEPTH), np.float32)
    stored = bf16(cache)
    artifact = compiled(case, tmp_path)
    (entry,) = artifact.plan.entries
    rows = {name: x.reshape(texts * case.rows, -1) for name, x in (("q", q), ("k", k), ("v", v))}
    found = run(artifact, entry, {**rows, "kv": stored, "positions": positions})
    whole = as_float(stored)
    for text in range(texts):
        new = as_float(bf16(np.stack([k[text], v[text]])))
        whole[0, text][:, :, positions[text]] = new.transpose(0, 2, 1, 3)
    expected = np.stack([attention(case, q[i], *whole[0, i], positions[i]) for i in range(texts)])
    assert np.linalg.norm(found.reshape(expected.shape) - expected) <= case.tolerance * np.linalg.norm(expected)


def test_tiles_come_by_bulk_copies(tmp_path: Path) -> None:
    assert "cp.async.bulk.tensor" in compiled(Case(), tmp_path).code.decode()


def compiled(case: Case, folder: Path) -> Artifact:
    program, rows = folder / "attention.lisp", len(case.starts) * case.rows
    sizes = {"rows": rows, "width": case.heads * DEPTH, "shared": case.groups * DEPTH, "context": case.context}
    facts = {"heads": case.heads, "groups": case.groups, "depth": DEPTH, "weigh": WEIGH[case.weigh]}
    program.write_text(PROGRAM.format(**sizes, **facts))
    shape = ({"batch": len(case.starts), "positions": case.rows},)
    request = Request(program, "cuda:sm_90a", precision=case.precision, sizes=shape)
    return compile_request(request, Observer())[0]


def attention(case: Case, q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: np.ndarray) -> np.ndarray:
    """float64 [rows heads depth], of keys and values [groups context depth]."""
    out = np.empty(q.shape)
    for row, position in enumerate(positions):
        seen = np.arange(max(0, position - 69) if case.weigh == "near" else 0, position + 1)
        for head in range(case.heads):
            keys, weighted = (x[head * case.groups // case.heads, seen].astype(np.float64) for x in (k, v))
            scores = keys @ q[row, head].astype(np.float64) / np.sqrt(DEPTH)
            scores -= 2.0 ** (-4 * (head + 1)) * (position - seen) if case.weigh == "sloped" else 0
            weights = np.exp(scores - scores.max())
            out[row, head] = weights @ weighted / weights.sum()
    return out


def as_float(stored: np.ndarray) -> np.ndarray:
    return (stored.astype(np.uint32) << np.uint32(16)).view(np.float32)
