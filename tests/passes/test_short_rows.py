"""Many short rows on GPUs: several to a block, each with a team of threads that is a part of a subgroup or one."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from emulated_amd.running import Emulation
from emulated_cuda import entries

PROGRAM = """
(require nn)
(require-dialect tensor)
(entry f [(x [n m] f32) (y [n m] f32)] {{:shapes [{{n {n} m {m}}}]}}
  (let [z (tensor [r n c m] (* (at x r c) (at y r c)))
        mean (/ (sum z) m)]
    {{:rounded (cast (+ z 1.0) bf16) :mean mean :peak (maximum (softmax z))}}))
"""


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx942", "rocm:gfx1151"])
@pytest.mark.parametrize(("rows", "columns"), [(4096, 24), (5000, 64), (4100, 7), (4104, 1), (4097, 40)])
def test_rows_of_a_few_numbers_are_right(target: str, rows: int, columns: int, tmp_path: Path) -> None:
    artifact = compile_text(PROGRAM.format(n=rows, m=columns), tmp_path, target=target)
    rng = seeded.rng()
    given = {name: rng.standard_normal((rows, columns)).astype(np.float32) for name in "xy"}
    entry = artifact.plan.entries[0]
    if target.startswith("cuda"):
        found = entries.run_all(artifact, entry, given)
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        shapes = {b.name: b.shape for b in artifact.plan.buffers}
        found = {}
        for name, place in entry.results.items():
            data = emulation.buffers[place]
            values = (data.view(np.uint16).astype(np.uint32) << 16).view(np.float32) if name == "rounded" else data
            found[name] = values.view(np.float32).reshape(shapes[place])
    z = given["x"].astype(np.float64) * given["y"]
    powers = np.exp(z - z.max(1, keepdims=True))
    np.testing.assert_allclose(found["rounded"].reshape(z.shape), z + 1, rtol=5e-3, atol=5e-3)
    np.testing.assert_allclose(found["mean"].reshape(-1), z.mean(1), rtol=1e-4, atol=1e-5)
    np.testing.assert_allclose(found["peak"].reshape(-1), (powers / powers.sum(1, keepdims=True)).max(1), rtol=1e-4)
    if rows % 8 == 0:
        shared = [s for s in entry.launches if s.grid[0] * 2 <= rows and artifact.kernels[s.kernel]["block"][0] <= 256]
        assert shared, "no block has several rows"


LOSSES = """
(require nn)
(require-dialect tensor)
(entry f [(x [n m] f32) (own [n] f32)] {:shapes [{n 300 m 40}]}
  (let [peak (maximum x)
        total (sum (tensor [r n c m] (exp (- (at x r c) (at peak r)))))]
    {:loss (tensor [r n] (* (at own r) (+ (log (at total r)) (at peak r))))
     :right (tensor [r n] (select (>= (at own r) (at peak r)) 1.0 0.0))}))
"""


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx1151"])
def test_what_is_made_of_sums_of_rows_has_a_block_a_row(target: str, tmp_path: Path) -> None:
    """Where an operand before the sums is none, too: taken for one row, each of its numbers would sum a row twice."""
    artifact = compile_text(LOSSES, tmp_path, target=target)
    rng = seeded.rng()
    given = {"x": rng.standard_normal((300, 40)).astype(np.float32), "own": rng.standard_normal(300).astype(np.float32)}
    entry = artifact.plan.entries[0]
    assert [launch.grid[0] for launch in entry.launches] == [300]
    run = entries.run if target.startswith("cuda") else lambda a, e, values: Emulation(a, values).run(e)
    losses = given["own"] * np.log(np.exp(given["x"].astype(np.float64)).sum(1))
    np.testing.assert_allclose(run(artifact, entry, given).reshape(-1), losses, rtol=1e-4, atol=1e-5)
