"""Norms that are put off until behind the products that read them: the PTX, run on numpy, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled_models import Weights, compile_text, poison, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PIPELINE = Path(__file__).parents[2] / "passes" / "pipelines" / "gpu.lisp"
MODEL = """
(require nn)
(config context 1)
(weights (x [{rows} {width}]) (a [{rows} {inner}]) (u [{width} {inner}] bf16) (c [{width}])
         (gamma [{width}]) (beta [{width}]) (w [{outputs} {width}] bf16) (b [{outputs}]) (v [{outputs} {width}] bf16))
(entry out [tokens positions]
  (let [y (+ x (linear (square a) u c))
        n ({norm})]
    {{:first (linear n w b) :second (matmul-transposed n v) :rows y}}))
"""
NORMS = {"layer": "layer-norm y gamma beta 1e-2", "root mean square": "rms-norm y gamma 1e-2",
         "centred": "centred-norm y 1e-2 gamma"}  # fmt: skip


def model(folder: Path, norm: str, rows: int, width: int, inner: int, outputs: int, options: str = "",
          deferred: str = ":most-rows 4096", **request: object) -> Artifact:  # fmt: skip
    pipeline = folder / "mine.lisp"
    text = (
        PIPELINE.read_text()
        .replace("(pass choose) ", "")
        .replace("schedule-gpu-warpgroups)", f"schedule-gpu-warpgroups {{{options}}})")
    )
    pipeline.write_text(text.replace("defer-norms)", f"defer-norms {{{deferred}}})"))
    sizes = {"rows": rows, "width": width, "inner": inner, "outputs": outputs, "norm": NORMS[norm]}
    return compile_text(MODEL.format(**sizes), folder, target="cuda:sm_90a", pipeline=pipeline, **request)


def run(artifact: Artifact, weights: Weights) -> dict[str, np.ndarray]:
    with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
        poison(session)
        given = np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32)
        return {name: found.astype(np.float64) for name, found in session.run("out", *given).items()}


def expected(a: dict[str, np.ndarray], norm: str) -> dict[str, np.ndarray]:
    y = a["x"] + a["a"] ** 2 @ a["u"].T + a["c"]
    centred = y if norm == "root mean square" else y - y.mean(-1, keepdims=True)
    n = centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 0.01) * a["gamma"]
    n = n + a["beta"] if norm == "layer" else n
    return {"first": n @ a["w"].T + a["b"], "second": n @ a["v"].T, "rows": y}


def kernels_of_rows(artifact: Artifact, rows: int) -> list[str]:
    """Those that make rows and are no products."""
    (entry,) = artifact.plan.entries
    return [launch.kernel for launch in entry.launches if launch.kernel.startswith(f"rows_{rows}x")]


def close(found: np.ndarray, wanted: np.ndarray, most: float) -> bool:
    return bool(np.linalg.norm(found - wanted) <= most * np.linalg.norm(wanted))


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("norm", "sizes", "options"),
    [
        ("layer", (70, 96, 72, 80), ""),
        ("layer", (64, 128, 256, 72), ":splits 2"),
        ("layer", (256, 128, 64, 64), ":pair 2"),
        ("root mean square", (96, 192, 136, 200), ""),
        ("centred", (48, 64, 80, 128), ""),
        ("layer", (704, 208, 64, 40), ":rows 64 :outputs 16"),  # more tiles than blocks
        ("layer", (150, 192, 96, 96), ":rows 64 :outputs 96 :splits 1"),  # columns that lanes store
    ],
)
def test_sums_are_scaled_and_shifted(tmp_path: Path, norm: str, sizes: tuple[int, int, int, int], options: str) -> None:
    artifact = model(tmp_path, norm, *sizes, options=options)
    assert len(kernels_of_rows(artifact, sizes[0])) == 1, "only squares are left"
    weights = random_weights(artifact)
    found, wanted = run(artifact, weights), expected(weights.exact(), norm)
    for name, value in wanted.items():
        assert close(found[name], value, 3e-5), name


def test_neighbours_add_up_a_row_where_a_cluster_shares_out_its_tile(tmp_path: Path) -> None:
    """56 columns are 14 vectors: were they shared out without a gap, each thread would add up whole rows."""
    artifact = model(tmp_path, "root mean square", 64, 1024, 256, 112, options=":rows 64 :outputs 56 :splits 2")
    text = artifact.code.decode()
    kernel = text[text.index(".entry contraction_64x112(") :]
    assert kernel[: kernel.index("\n}")].count("shfl") >= 16
    weights = random_weights(artifact)
    found, wanted = run(artifact, weights), expected(weights.exact(), "root mean square")
    assert all(close(found[name], value, 3e-5) for name, value in wanted.items())


def test_activations_that_are_rounded(tmp_path: Path) -> None:
    artifact = model(tmp_path, "layer", 96, 128, 64, 72, precision="fast")
    assert len(kernels_of_rows(artifact, 96)) == 1
    weights = random_weights(artifact)
    found, wanted = run(artifact, weights), expected(weights.exact(), "layer")
    assert all(close(found[name], value, 8e-3) for name, value in wanted.items())


@pytest.mark.parametrize("far", [10.0, 300.0])
def test_errors_are_those_of_rows_that_are_not_centred(tmp_path: Path, far: float) -> None:
    artifact = model(tmp_path, "layer", 64, 128, 64, 72)
    weights = random_weights(artifact)
    weights.values["x"] += far
    found, wanted = run(artifact, weights), expected(weights.exact(), "layer")
    deviation = float(wanted["rows"].std(-1).mean())
    assert close(found["first"], wanted["first"], 2e-5 * (1 + far / deviation)), "means are all that errors grow with"


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("rows", "norm", "deferred"),
    [
        (31, "layer-norm y gamma beta", ""),
        (300, "layer-norm y gamma beta", ""),
        (64, "layer-norm y gamma beta", ":rows 0"),
        (64, "square (layer-norm y gamma beta)", ""),
        (64, "layer-norm x gamma beta", ""),
    ],
)
def test_other_norms_stay_as_they_are(tmp_path: Path, rows: int, norm: str, deferred: str) -> None:
    pipeline = tmp_path / "mine.lisp"
    pipeline.write_text(
        PIPELINE.read_text().replace("(pass choose) ", "").replace("defer-norms)", f"defer-norms {{{deferred}}})")
    )
    text = MODEL.format(rows=rows, width=128, inner=64, outputs=72, norm=norm)
    artifact = compile_text(text, tmp_path, target="cuda:sm_90a", pipeline=pipeline)
    assert artifact.plan.making is None and len(kernels_of_rows(artifact, rows)) > 1
