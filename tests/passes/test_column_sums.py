"""Sums of columns that rows kernels make beside their rows: gradients of norms and of biases."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from emulated_amd.running import Emulation
from emulated_cuda import entries

from lispgpt.runtime.plan.artifact import Artifact

ROWS, COLUMNS = 8192, 288
TARGETS = ["cuda:sm_80", "cuda:sm_90a", "rocm:gfx1151"]

NORM = """
(require nn)
(require gradients)
(entry f [(x [n m] f32) (g [m] f32) (b [m] f32) (t [n m] f32)] {{:shapes [{{n {n} m {m}}}]}}
  (let [y (layer-norm x g b 1e-5)
        loss (sum (sum (* t y)))
        [dx dg db] (gradients loss [x g b])]
    {{:dx dx :dg dg :db db}}))
"""

PARTS = """
(require nn)
(require gradients)
(require-dialect tensor)
(entry f [(x [n 2 m] f32) (b [2 m] f32)] {{:shapes [{{n {n} m {m}}}]}}
  (let [y (tensor [r n j 2 c m] (+ (at x r j c) (at b j c)))
        loss (sum (sum (sum (tensor [r n j 2 c m] (* (* (at y r j c) (at y r j c)) (at y r j c))))))
        [dx db] (gradients loss [x b])]
    {{:dx dx :db db}}))
"""


def results(artifact: Artifact, given: dict[str, np.ndarray], target: str) -> dict[str, np.ndarray]:
    """By name, flat; what is not written is NaN."""
    entry = artifact.plan.entries[0]
    if target.startswith("cuda"):
        return {name: value.reshape(-1) for name, value in entries.run_all(artifact, entry, given).items()}
    emulation = Emulation(artifact, given)
    emulation.run(entry)
    return {name: emulation.buffers[place].view(np.float32).reshape(-1) for name, place in entry.results.items()}


def shares(artifact: Artifact) -> list[int]:
    """The blocks of launches of rows kernels that have a share of the rows each."""
    launches = artifact.plan.entries[0].launches
    return [step.grid[0] for step in launches if step.kernel.startswith("rows") and step.grid[0] in (512, 1024)]


@pytest.mark.drawn
@pytest.mark.parametrize("target", TARGETS)
def test_a_norms_gradients_are_made_with_its_rows(target: str, tmp_path: Path) -> None:
    artifact = compile_text(NORM.format(n=ROWS, m=COLUMNS), tmp_path, target=target)
    rng = seeded.rng()
    given = {name: rng.standard_normal((ROWS, COLUMNS)).astype(np.float32) for name in "xt"}
    given |= {name: rng.standard_normal(COLUMNS).astype(np.float32) for name in "gb"}
    found = results(artifact, given, target)
    x, t, g = (given[name].astype(np.float64) for name in "xtg")
    scale = 1 / np.sqrt(x.var(1, keepdims=True) + 1e-5)
    unit = (x - x.mean(1, keepdims=True)) * scale
    inner = t * g - (t * g).mean(1, keepdims=True) - unit * (t * g * unit).mean(1, keepdims=True)
    np.testing.assert_allclose(found["dx"].reshape(x.shape), inner * scale, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["dg"], (t * unit).sum(0), rtol=1e-4, atol=1e-2)
    np.testing.assert_allclose(found["db"], t.sum(0), rtol=1e-4, atol=1e-2)
    assert shares(artifact) == [512]


@pytest.mark.drawn
@pytest.mark.parametrize("target", TARGETS)
def test_sums_of_several_rows_of_columns_are_made_with_them(target: str, tmp_path: Path) -> None:
    artifact = compile_text(PARTS.format(n=ROWS, m=COLUMNS), tmp_path, target=target)
    rng = seeded.rng()
    given = {"x": rng.standard_normal((ROWS, 2, COLUMNS)).astype(np.float32)}
    given["b"] = rng.standard_normal((2, COLUMNS)).astype(np.float32)
    found = results(artifact, given, target)
    slopes = 3 * (given["x"].astype(np.float64) + given["b"]) ** 2
    np.testing.assert_allclose(found["dx"].reshape(slopes.shape), slopes, rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(found["db"].reshape(2, COLUMNS), slopes.sum(0), rtol=1e-4)
    assert shares(artifact) == [1024]


@pytest.mark.parametrize(("rows", "columns"), [(8192, 258), (8192, 128), (512, 256)])
def test_odd_few_and_short_rows_are_summed_by_kernels_of_their_own(rows: int, columns: int, tmp_path: Path) -> None:
    artifact = compile_text(NORM.format(n=rows, m=columns), tmp_path, target="cuda:sm_80")
    kernels = {step.kernel for step in artifact.plan.entries[0].launches}
    assert any(name.startswith("generic") and name.endswith(f"x{columns}") for name in kernels)
