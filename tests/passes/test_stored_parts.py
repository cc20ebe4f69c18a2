"""What products read in F32, stored in two BF16 parts: the PTX, run on numpy, against float64."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
from compiled_models import Weights, compile_text, poison, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.compiler.driver import Observer, Request, emit
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PIPELINE = Path(__file__).parents[2] / "passes" / "pipelines" / "gpu.lisp"
CHAIN = """
(require nn)
(config context 1)
(weights (x [{rows} 96]) (scale [96]) (w [{hidden} 96] bf16) (v [{outputs} {hidden}] {second}))
(entry out [tokens positions] (linear (gelu (linear (rms-norm x scale 1e-2) w)) v))
"""
ATTENTION = """
(require nn)
(config context 48)
(weights (q [48 2 64]) (k [48 2 64]) (v [48 2 64]) (w [40 128] bf16))
(state (kv [1 2 2 48 64]))
(entry out [tokens positions]
  (linear (reshape (attend (slice q [0 0 0] [(dim tokens 0) 2 64]) (slice k [0 0 0] [(dim tokens 0) 2 64])
                           (slice v [0 0 0] [(dim tokens 0) 2 64]) (kv 0)) [(dim tokens 0) 128]) w))
"""


def chain(folder: Path, rows: int, hidden: int, outputs: int, second: str = "bf16", options: str = "") -> Artifact:
    pipeline = folder / "mine.lisp"
    scheduled = f"schedule-gpu-warpgroups {{{options}}})"
    pipeline.write_text(
        PIPELINE.read_text().replace("(pass choose) ", "").replace("schedule-gpu-warpgroups)", scheduled)
    )
    text = CHAIN.format(rows=rows, hidden=hidden, outputs=outputs, second=second)
    return compile_text(text, folder, target="cuda:sm_90a", pipeline=pipeline)


def run(artifact: Artifact, weights: Weights, positions: int = 1) -> np.ndarray:
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        poison(session)
        given = np.zeros((1, positions), np.int32), np.arange(positions, dtype=np.int32)[None]
        return session.run("out", *given)["out"].astype(np.float64)


def expected(a: dict[str, np.ndarray]) -> np.ndarray:
    n = a["x"] / np.sqrt((a["x"] ** 2).mean(-1, keepdims=True) + 0.01) * a["scale"]
    y = n @ a["w"].T
    return 0.5 * y * (1 + np.tanh(0.7978845608028654 * (y + 0.044715 * y**3))) @ a["v"].T


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("rows", "hidden", "outputs", "options"),
    [
        (70, 200, 72, ""),
        (64, 136, 40, ":splits 2"),
        (256, 128, 64, ":pair 2"),
        pytest.param(704, 208, 208, ":rows 64 :outputs 16", marks=pytest.mark.slow),  # more tiles than blocks
    ],
)
def test_products_of_parts_keep_sixteen_bits(
    tmp_path: Path, rows: int, hidden: int, outputs: int, options: str
) -> None:
    artifact = chain(tmp_path, rows, hidden, outputs, options=options)
    kernels = [facts for name, facts in artifact.kernels.items() if name.startswith("contraction")]
    assert len(kernels) == 2 and all(len(facts["tensor_maps"]) >= 3 for facts in kernels)
    assert len(artifact.plan.entries[0].launches) == 3, "parts are stored by the kernels that make them"
    weights = random_weights(artifact)
    wanted = expected(weights.exact())
    found = run(artifact, weights)
    assert np.linalg.norm(found - wanted) <= 2e-5 * np.linalg.norm(wanted)


def test_attention_stores_its_result_in_parts(tmp_path: Path) -> None:
    artifact = compile_text(ATTENTION, tmp_path, target="cuda:sm_90a", sizes=[{"batch": 1, "positions": 48}])
    kernels = artifact.kernels
    names = [launch.kernel for launch in artifact.plan.entries[0].launches]
    assert [name.partition("_")[0] for name in names] == ["attention", "attention", "contraction"]
    assert len(kernels[names[-1]]["tensor_maps"]) >= 3
    weights = random_weights(artifact, 1.0)
    found, a = run(artifact, weights, 48), weights.exact()
    scores = np.einsum("qhd,thd->hqt", a["q"], a["k"]) / 8
    scores = np.where(np.tri(48, dtype=bool), scores, -np.inf)
    made = np.exp(scores - scores.max(-1, keepdims=True))
    made = np.einsum("hqt,thd->qhd", made / made.sum(-1, keepdims=True), a["v"])
    wanted = made.reshape(48, 128) @ a["w"].T
    assert np.linalg.norm(found - wanted) <= 5e-5 * np.linalg.norm(wanted)


def kernels(folder: Path, target: str, rows: int = 70, second: str = "bf16") -> str:
    path = folder / "chain.lisp"
    path.write_text(CHAIN.format(rows=rows, hidden=200, outputs=72, second=second))
    return emit(Request(path, target=target), "kernels", Observer())


@pytest.mark.parametrize(("target", "rows"), [("cuda:sm_90", 70), ("cuda:sm_90a", 20), ("rocm:gfx1151", 70)])
def test_where_nothing_gains_by_parts_there_are_none(tmp_path: Path, target: str, rows: int) -> None:
    assert "truncf" not in kernels(tmp_path, target, rows)


@pytest.mark.parametrize(("second", "count"), [("bf16", 4), ("f32", 2)])
def test_only_what_meets_short_weights_is_in_parts(tmp_path: Path, second: str, count: int) -> None:
    text = kernels(tmp_path, "cuda:sm_90a", second=second)
    assert len(re.findall("arith.truncf", text)) == count
