"""Windows of two-byte elements that start between multiples of four bytes of what was computed."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt

PROGRAM = """
(entry out [(x [17] f32)]
  (let [doubled (cast (* x 2.0) bf16)
        joined (insert doubled (cast (- x) bf16) [0] [17])]
    (cast (slice joined [5] [SIZE]) f32)))
"""


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "emulated:gfx942", "emulated:gfx1151"])
@pytest.mark.parametrize("size", [11, 3, 8])
def test_a_window_has_its_elements_wherever_it_starts(size: int, target: str, tmp_path: Path) -> None:
    if target != "cpu":
        pytest.importorskip("tinygrad")
    (tmp_path / "window.lisp").write_text(PROGRAM.replace("SIZE", str(size)))
    x = seeded.rng().integers(-100, 100, 17).astype(np.float32)
    with lispgpt.load(tmp_path / "window.lisp", target=target) as model:
        np.testing.assert_array_equal(model.run("out", x=x)["out"], 2 * x[5 : 5 + size])
