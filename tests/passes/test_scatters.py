"""Rows added where numbers say, as a gather's gradient is: bit for bit the sums in the rows' order, on every target."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import poison, random_weights
from emulated_amd.running import Emulation
from emulated_cuda.device import EmulatedCuda

import lispgpt
from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn)
(require gradients)
(config vocab 11 width 8)
(weights (table [vocab width] f32))
(entry gathered [(ids [n] i32) (g [n width] f32)] {:shapes [{n COUNT}]}
  (first (gradients (sum (sum (* g (rows table ids)))) [table])))
"""
SHAPES = [(300, 96, 64), (7, 600, 130), (40, 2500, 20), (1, 3, 3)]
"""Places, rows, and columns: one window, columns that vectors do not divide, several windows, and one place."""


def sums(artifact: Artifact, ids: np.ndarray, g: np.ndarray) -> np.ndarray:
    if artifact.target.startswith("rocm"):
        emulation = Emulation(artifact, {"ids": ids, "g": g})
        return emulation.run(artifact.plan.entries[0])
    device = CpuDevice(2) if artifact.target == "cpu" else EmulatedCuda()
    with Session(artifact, device, random_weights(artifact)) as session:  # type: ignore[arg-type]
        poison(session)
        return session.run("gathered", ids=ids, g=g)["gathered"]


@pytest.mark.drawn
@pytest.mark.parametrize("shape", SHAPES)
@pytest.mark.parametrize(
    "target", ["cpu", "cuda:sm_90a", "rocm:gfx1151", pytest.param("rocm:gfx942", marks=pytest.mark.slow)]
)
def test_rows_are_added_in_their_order(target: str, shape: tuple[int, int, int], tmp_path: Path) -> None:
    """Of the numbers a few are frequent, as words of a text are; at those that none is, the sum is zero."""
    places, rows, columns = shape
    (tmp_path / "gathered.lisp").write_text(PROGRAM.replace("COUNT", str(rows)))
    request = Request(tmp_path / "gathered.lisp", target, overrides={"vocab": places, "width": columns})
    artifact, _ = compile_request(request, Observer())
    rng = seeded.rng()
    ids = np.minimum(rng.exponential(places / 5, rows), places - 1).astype(np.int32)
    g = rng.standard_normal((rows, columns)).astype(np.float32)
    wanted = np.zeros((places, columns), np.float32)
    for number, row in zip(ids, g, strict=True):
        wanted[number] += row
    np.testing.assert_array_equal(sums(artifact, ids, g).reshape(places, columns), wanted)


BOTH = """
(require nn)
(require gradients)
(entry slopes [(x [9 2])]
  (let [part (slice (matmul-transposed x x) [1 2] [4 5])
        both (insert part (insert part (tensor [i 8 j 5] 0.0) [0 0] [4 5]) [4 0] [4 5])]
    (first (gradients (sum (sum (tensor [i 8 j 5] (* (at both i j) (at both (- 7 i) j))))) [x]))))
"""


def test_what_rows_were_added_to_is_read_in_parts(tmp_path: Path) -> None:
    """Its memory is that of a sum, which rows are added to in place, and of which slices are read after."""
    (tmp_path / "slopes.lisp").write_text(BOTH)
    x = seeded.rng().standard_normal((9, 2)).astype(np.float32)
    with lispgpt.load(tmp_path / "slopes.lisp") as model:
        found = model.run("slopes", x=x)["slopes"]
    exact = x.astype(np.float64)
    part = (exact @ exact.T)[1:5, 2:7]
    by_product = np.zeros((9, 9))
    by_product[1:5, 2:7] = 4 * part[::-1]
    np.testing.assert_allclose(found, (by_product + by_product.T) @ exact, rtol=1e-4, atol=1e-4)
