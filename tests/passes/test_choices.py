"""Tensors put side by side, on GPUs: what is not taken at a place is not read there."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from emulated_amd.running import Emulation
from emulated_cuda.entries import run_all

PROGRAM = """
(require gradients)
(require nn)
(entry f [(x [20 96] f32) (a [20 32] f32) (b [20 32] f32) (c [20 32] f32)]
  (let [part (fn [i] (slice x [0 (* 32 i)] [20 32]))
        loss (reduce + 0.0 (reshape (+ (* (part 0) a) (* (part 1) b) (* (part 2) c)) [640]))]
    {:g (first (gradients loss [x]))}))
"""


@pytest.mark.parametrize("target", ["cuda:sm_90a", "rocm:gfx1151"])
def test_the_gradient_of_parts_is_theirs_side_by_side(target: str, tmp_path: Path) -> None:
    artifact, rng = compile_text(PROGRAM, tmp_path, target=target), seeded.rng()
    given = {name: rng.standard_normal((20, 96 if name == "x" else 32), np.float32) for name in "xabc"}
    entry = artifact.plan.entries[0]
    if target.startswith("cuda"):
        found = run_all(artifact, entry, given)["g"]
        (made,) = [
            text for text in artifact.code.decode(errors="replace").split(".entry") if text.startswith(" rows_20x3x32(")
        ]
        assert made.count("ld.global") == 1, "all parts are read at each place"
    else:
        emulation = Emulation(artifact, given)
        emulation.run(entry)
        found = emulation.buffers[entry.results["g"]].view(np.float32).reshape(20, 96)
    np.testing.assert_array_equal(found.reshape(20, 96), np.concatenate([given[name] for name in "abc"], 1))
