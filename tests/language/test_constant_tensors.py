"""Tensors of numbers that are known while compiling, and the rotary angles that are made of them, on CPUs and GPUs."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from emulated_amd.running import Emulation
from emulated_cuda import entries

import lispgpt
from lispgpt.base.errors import UserError

ANGLES = """
(require nn)
(config context 1)
(entry f [(positions [n] i32)] {{:shapes [{{n {rows}}}]}}
  (rotary-angles positions {pairs} (rotary-frequency {theta} {pairs})))
"""


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a", "cuda:sm_80", "rocm:gfx1151"])
def test_angles_at_far_positions_are_the_same_everywhere(target: str, tmp_path: Path) -> None:
    """To the bit: of frequencies that are rounded once."""
    rng = seeded.rng()
    pairs, theta = int(rng.choice([16, 32, 48, 64])), float(rng.choice([10000.0, 500000.0]))
    positions = np.sort(rng.integers(0, 1 << 17, 24)).astype(np.int32)
    text = ANGLES.format(rows=positions.size, pairs=pairs, theta=theta)
    wanted = positions.astype(np.float32)[:, None] * (theta ** (-np.arange(pairs) / pairs)).astype(np.float32)
    if target == "cpu":
        program = tmp_path / "angles.lisp"
        program.write_text(text)
        with lispgpt.load(program) as model:
            found = model.run("f", positions=positions)["f"]
    else:
        artifact = compile_text(text, tmp_path, target=target)
        entry, given = artifact.plan.entries[0], {"positions": positions}
        cuda = target.startswith("cuda")
        found = entries.run(artifact, entry, given) if cuda else Emulation(artifact, given).run(entry)
    np.testing.assert_array_equal(found.reshape(wanted.shape), wanted)


@pytest.mark.parametrize(
    ("form", "said"),
    [
        ("(: [1.0 2.0] tensor<3xf32>)", "2 numbers are a tensor<2x…>, not a tensor<3xf32>"),
        ("(: [1.0 2.0] f32)", "2 numbers are a tensor<2x…>, not a f32"),
        ("(: [1 2.5] tensor<2xi32>)", "holds whole numbers"),
    ],
)
def test_numbers_that_do_not_fit_are_refused(form: str, said: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=r"program\.lisp:1:") as caught:
        compile_text(
            f"(require nn)(config context 1)(entry f [(x [n] f32)] {{:shapes [{{n 2}}]}} (+ x {form}))", tmp_path
        )
    assert said in str(caught.value)
