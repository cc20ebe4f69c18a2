"""Dropout: the words that an element draws, its gradient, and what the drawing costs."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.samplers.philox import philox4x32
from lispgpt.runtime.session import Session

PROGRAM = """
(require training)
(weights (w [COLUMNS]))
(entry drop [(x [ROWS COLUMNS] f32) (step [] i32) (seed [] i32)]
  (let [y (dropout (tensor [r ROWS c COLUMNS] (* (at x r c) (at w c))) 0.3 [seed step] PLACE)]
    {:y y :dw (first (gradients (sum (sum y)) [w]))}))
"""


def program(rows: int, columns: int, place: int) -> str:
    return PROGRAM.replace("ROWS", str(rows)).replace("COLUMNS", str(columns)).replace("PLACE", str(place))


@pytest.mark.parametrize(("rows", "columns"), [(9, 64), (7, 5), (3, 1)])
@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_an_element_has_a_word_of_its_own(target: str, rows: int, columns: int, tmp_path: Path) -> None:
    """That of its number among all words of the counter's calls; the gradient drops the same ones."""
    rng = seeded.rng()
    place, step, seed = (int(n) for n in rng.integers(0, 1 << 30, 3))
    artifact = compile_text(program(rows, columns, place), tmp_path, target=target)
    x, weights = rng.standard_normal((rows, columns)).astype(np.float32), random_weights(artifact)
    device = CpuDevice(2) if target == "cpu" else EmulatedCuda()
    with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
        found = session.run("drop", x=x, step=np.int32(step), seed=np.int32(seed))
    words = philox4x32(np.arange(-(-x.size // 4)), (step, place, 0), (seed, 0)).reshape(-1)[: x.size]
    kept = (words >> 8).reshape(x.shape) * 2.0**-24 >= np.float32(0.3)
    np.testing.assert_allclose(found["y"], np.where(kept, x * weights.exact()["w"] / 0.7, 0), rtol=1e-5)
    np.testing.assert_allclose(found["dw"], np.where(kept, x / 0.7, 0).sum(0), rtol=1e-4, atol=1e-5)


def test_four_neighbours_draw_by_one_call(tmp_path: Path) -> None:
    """Ten rounds of two products each, in every kernel that drops."""
    artifact = compile_text(program(256, 768, 3), tmp_path, target="cuda:sm_90a")
    products = [
        len(re.findall(r"\bmul\.(?:hi|wide)\.u32", kernel)) for kernel in artifact.code.decode().split(".entry")
    ]
    drawing = [count for count in products if count > 8]
    assert drawing and max(drawing) <= 20 + 6, "products of the rounds, and some of addresses"
