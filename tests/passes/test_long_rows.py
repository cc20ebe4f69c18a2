"""Rows of more elements than threads keep in registers, on GPUs: by wide loads of 16-bit numbers too."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, random_weights
from emulated_amd.running import Emulation
from emulated_cuda import entries

from lispgpt.passes.targets import GPU_CHIPS

PROGRAM = """
(require nn)
(weights (x [{rows} {columns}] {dtype}))
(entry f [(scale [n] f32)] {{:shapes [{{n {rows}}}]}}
  (let [[n m] [{rows} {columns}]
        scores (tensor [r n c m] (select (< c {real}) (cast (at x r c) f32) -inf))
        peak (maximum scores)
        total (sum (tensor [r n c m] (exp (- (at scores r c) (at peak r)))))]
    {{:share (tensor [r n c m] (cast (* (at scale r) (/ (exp (- (at scores r c) (at peak r))) (at total r))) {dtype}))
      :peak peak :total total}}))
"""


def as_f32(data: np.ndarray, dtype: str) -> np.ndarray:
    return (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if dtype == "bf16" else data.view(np.float32)


@pytest.mark.parametrize(
    ("target", "dtype", "rows", "columns"),
    [
        ("cuda:sm_90a", "bf16", 2, 66008),
        ("cuda:sm_90a", "f32", 3, 33004),
        ("rocm:gfx942", "bf16", 2, 66008),
        ("rocm:gfx1151", "f32", 80, 32772),
    ],
)
def test_softmax_of_long_rows(target: str, dtype: str, rows: int, columns: int, tmp_path: Path) -> None:
    """Columns from a place within the last vectors on are not there; rows enough to fill a chip have smaller blocks."""
    real = columns - int(seeded.rng().integers(1, 70))
    text = PROGRAM.format(rows=rows, columns=columns, dtype=dtype, real=real)
    artifact = compile_text(text, tmp_path, target=target)
    weights, entry = random_weights(artifact, 2.0), artifact.plan.entries[0]
    scale = seeded.rng().uniform(1000, 2000, rows).astype(np.float32)
    given = {"x": weights.view("x"), "scale": scale}
    if target.startswith("cuda"):
        found = entries.run_all(artifact, entry, given)
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        found = {name: emulation.buffers[place] for name, place in entry.results.items()}
        found["share"] = as_f32(found["share"], dtype)
    x = weights.exact()["x"][:, :real]
    powers = np.zeros((rows, columns))
    powers[:, :real] = np.exp(x - x.max(1, keepdims=True))
    wanted = scale[:, None] * powers / powers.sum(1, keepdims=True)
    close = 1e-2 if dtype == "bf16" else 1e-4
    np.testing.assert_allclose(found["share"].reshape(wanted.shape), wanted, rtol=close, atol=1e-6)
    np.testing.assert_allclose(found["peak"].view(np.float32).reshape(-1), x.max(1), rtol=1e-6)
    np.testing.assert_allclose(found["total"].view(np.float32).reshape(-1), powers.sum(1), rtol=1e-4)


def test_rows_that_blocks_beside_each_other_read_thrice_are_kept(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(GPU_CHIPS["cuda"], "sm_90a", replace(GPU_CHIPS["cuda"]["sm_90a"], cores=2))
    rows, columns = 5, 34008
    real = columns - int(seeded.rng().integers(1, 70))
    text = PROGRAM.format(rows=rows, columns=columns, dtype="bf16", real=real)
    artifact = compile_text(text, tmp_path, target="cuda:sm_90a")
    (kernel,) = artifact.kernels.values()
    assert kernel["shared_bytes"] > 2 * columns
    assert artifact.code.decode(errors="replace").count("ld.global.v4.b32") <= 9, "one loop reads rows"
    weights = random_weights(artifact, 2.0)
    scale = seeded.rng().uniform(1000, 2000, rows).astype(np.float32)
    found = entries.run_all(artifact, artifact.plan.entries[0], {"x": weights.view("x"), "scale": scale})
    x = weights.exact()["x"][:, :real]
    powers = np.exp(x - x.max(1, keepdims=True))
    wanted = scale[:, None] * powers / powers.sum(1, keepdims=True)
    np.testing.assert_allclose(found["share"].reshape(rows, columns)[:, :real], wanted, rtol=1e-2, atol=1e-6)
    np.testing.assert_allclose(found["total"].view(np.float32).reshape(-1), powers.sum(1), rtol=1e-4)


LONG_PRODUCT = """
(require nn)
(weights (w [{columns} {inner}] bf16))
(entry f [(g [1 {inner}] f32) (u [1 {inner}] f32)] {{:y (linear (* (silu g) u) w)}})
"""


@pytest.mark.parametrize(
    ("target", "inner", "columns", "threads"),
    [
        pytest.param("cuda:sm_80", 17408, 5, 512, marks=pytest.mark.slow),
        pytest.param("rocm:gfx1151", 18944, 3, 512, marks=pytest.mark.slow),
        ("rocm:gfx942", 17408, 6, 512),
    ],
)
def test_a_product_whose_computed_row_is_too_long_for_shared_memory(
    target: str, inner: int, columns: int, threads: int, tmp_path: Path
) -> None:
    """Subgroups that share a row's k compute what they multiply, and threads enough hold all of it."""
    text = LONG_PRODUCT.format(inner=inner, columns=columns)
    artifact = compile_text(text, tmp_path, target=target)
    (kernel,) = artifact.kernels.values()
    assert kernel["block"] == [threads, 1, 1] and kernel["shared_bytes"] == 0
    weights, entry = random_weights(artifact), artifact.plan.entries[0]
    given = {"w": weights.view("w"), **{n: seeded.rng().normal(0, 1, (1, inner)).astype(np.float32) for n in "gu"}}
    if target.startswith("cuda"):
        found = entries.run_all(artifact, entry, given)["y"]
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        found = emulation.buffers[entry.results["y"]]
    g, u = given["g"].astype(np.float64), given["u"].astype(np.float64)
    wanted = (g / (1 + np.exp(-g)) * u) @ weights.exact()["w"].T
    np.testing.assert_allclose(found.view(np.float32).reshape(wanted.shape), wanted, rtol=1e-4, atol=1e-3)
