"""Attention over caches that are kept, shared, masked or unread in other ways than the library's, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from attention_variants import Stored
from compiled_models import poison
from emulated_cuda.entries import run

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

CONTEXT, SIZE = 24, 8

PROGRAM = """
(require nn)
(config context 24)
(weights (q [128 16]) (k [128 8]) (v [128 8]))
(state STATE)
(defn look [q keys values position]             ; q [rows 2 8], keys and values [b context 8]
  (let [[b s] [(batch) (/ (dim q 0) (batch))]
        positions (reshape (row-positions) [b s])
        scores (contract [b s h t] (reshape q [b s 2 8]) [b s h d] keys [b t d])
        seen (tensor [i b j s h 2 t context]
               (select (<= (cast t i32) (position (at positions i j))) (* 0.3535533906 (at scores i j h t)) -inf))]
    (reshape (contract [b s h d] (softmax seen) [b s h t] values [b t d]) [(* b s) 16])))
(defn part-of [cache which]
  (reshape (slice cache [0 which 0 0 0] [(batch) nil 1 context 8]) [(batch) context 8]))
(entry out [tokens positions]
  (let [n (dim tokens 0)
        q (reshape (slice q [0 0] [n 16]) [n 2 8])
        [k v] [(reshape (slice k [0 0] [n 8]) [n 1 8]) (reshape (slice v [0 0] [n 8]) [n 1 8])]]
    BODY))
"""

BOTH = "kv [1 2 1 context 8] f32"
CASES = {
    "unread": (BOTH, "(let [unread (attend q k v (kv 0))] (reshape q [n 16]))"),
    "in two states": (
        "ks [1 1 1 context 8] f32) (vs [1 1 1 context 8] f32",
        """(look q (part-of (write-state (ks 0) (write-rows (read-state (ks 0)) 0 k)) 0)
                   (part-of (write-state (vs 0) (write-rows (read-state (vs 0)) 0 v)) 0) (fn [p] p))""",
    ),
    "looked at twice": (
        BOTH,
        """(let [first (attend q k v (kv 0)) cache (read-state (kv 0))]
             (* 0.5 (+ first (look q (part-of cache 0) (part-of cache 1) (fn [p] p)))))""",
    ),
    "looked at up to the row before": (
        BOTH,
        """(let [cache (write-state (kv 0) (write-rows (write-rows (read-state (kv 0)) 0 k) 1 v))]
             (look q (part-of cache 0) (part-of cache 1) (fn [p] (max 0 (- p 1)))))""",
    ),
    "written from the other end": (
        BOTH,
        """(let [cache (write-state (kv 0) (write-rows (write-rows (read-state (kv 0)) 1 v) 0 k))]
             (look q (part-of cache 0) (part-of cache 1) (fn [p] p)))""",
    ),
}


def compiled(name: str, target: str, folder: Path, batch: int = 1) -> Artifact:
    state, body = CASES[name]
    (folder / "cache.lisp").write_text(PROGRAM.replace("STATE", f"({state})").replace("BODY", body))
    return compile_request(Request(folder / "cache.lisp", target, batch=batch), Observer())[0]


def expected(name: str, q: np.ndarray, k: np.ndarray, v: np.ndarray, positions: range) -> np.ndarray:
    """float64 [rows 16], of keys and values of all positions."""
    rows = []
    for row, position in enumerate(positions):
        last = max(0, position - 1) if "before" in name else position
        for head in range(2):
            scores = k[: last + 1].astype(np.float64) @ q[row, head * SIZE : (head + 1) * SIZE] / np.sqrt(SIZE)
            weights = np.exp(scores - scores.max())
            rows.append(weights / weights.sum() @ v[: last + 1])
    return q[: len(positions)] if name == "unread" else np.reshape(rows, (-1, 2 * SIZE))


@pytest.mark.drawn
@pytest.mark.parametrize("name", CASES)
def test_values(name: str, tmp_path: Path) -> None:
    """16 rows, then one, in each of two sequences of a batch as in one sequence."""
    rng = seeded.rng()
    q = rng.standard_normal((128, 2 * SIZE), dtype=np.float32)
    k, v = rng.standard_normal((2, 128, SIZE), dtype=np.float32)
    artifact = compiled(name, "cpu", tmp_path)
    with Session(artifact, CpuDevice(2), Stored({"q": q, "k": k, "v": v})) as session:  # type: ignore[arg-type]
        poison(session)
        for first, rows in ((0, 16), (16, 1), (17, 1)):
            positions = np.arange(first, first + rows, dtype=np.int32)
            (found,) = session.run("out", np.zeros((1, rows), np.int32), positions[None]).values()
            written = [*range(16), 0, 0][: first + rows]
            wanted = expected(name, q, k[written], v[written], range(first, first + rows))
            np.testing.assert_allclose(found, wanted, atol=1e-5, err_msg=f"position {first}")


@pytest.mark.drawn
@pytest.mark.parametrize("name", CASES)
@pytest.mark.parametrize("rows", [1, pytest.param(16, marks=pytest.mark.slow)])
def test_values_on_nvidia(name: str, rows: int, tmp_path: Path) -> None:
    """After others' keys and values; past them the cache holds NaN."""
    rng, first = seeded.rng(), 7
    q = rng.standard_normal((128, 2 * SIZE), dtype=np.float32)
    k, v = rng.standard_normal((2, 128, SIZE), dtype=np.float32)
    kv = np.full((2, CONTEXT, SIZE), np.nan, np.float32)
    kv[:, :first] = rng.standard_normal((2, first, SIZE))
    positions = np.arange(first, first + rows, dtype=np.int32)
    artifact = compiled(name, "cuda:sm_90", tmp_path)
    entry = next(e for e in artifact.plan.entries if e.sizes["positions"] == rows)
    given = {"q": q, "k": k, "v": v, "kv": kv, "ks": kv[0], "vs": kv[1], "positions": positions}
    found = run(artifact, entry, {**given, "tokens": np.zeros(rows, np.int32)})
    after = [np.concatenate([kv[i, :first], (k, v)[i][:rows]]) for i in range(2)]
    wanted = expected(name, q, after[0], after[1], range(first, first + rows))
    np.testing.assert_allclose(found, wanted, atol=1e-4)


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["rocm:gfx942", "rocm:gfx1201"])
def test_they_compile_for_amd(target: str, tmp_path: Path) -> None:
    for name in CASES:
        assert compiled(name, target, tmp_path, batch=2).kernels
