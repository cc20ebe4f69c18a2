"""Rows that many subgroups sum up together, on emulated AMD GPUs, against float64."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt

pytestmark = pytest.mark.drawn

PROGRAM = """(require nn)
(entry wide [(x [3 n] f32)] {:shapes [{n 2400} {n 5000}]}
  (+ (sum (tensor [r 3 c n] (at x r c))) (maximum (tensor [r 3 c n] (at x r c)))))
"""


@pytest.mark.parametrize("chip", ["gfx942", "gfx1201"])
def test_sums_and_maxima_over_many_subgroups(chip: str, tmp_path: Path) -> None:
    """Of 608 threads, which are no power of two of subgroups, and of 1,024."""
    program, random = tmp_path / "wide.lisp", seeded.rng()
    program.write_text(PROGRAM)
    with lispgpt.load(program, target=f"emulated:{chip}") as model:
        for n in (2400, 5000):
            x = random.standard_normal((3, n), np.float32)
            found = model.run("wide", x=x)["wide"]
            expected = x.astype(np.float64).sum(1) + x.max(1)
            np.testing.assert_allclose(found, expected, rtol=0, atol=2e-4, err_msg=f"{n} from {x[0, :4]}")
