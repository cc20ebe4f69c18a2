"""Bodies for fewer threads than their block has, with barriers in loops and branches, in one launch with others."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from compiled_models import random_weights
from emulated_amd.running import Emulation
from emulated_cuda.device import EmulatedCuda
from one_launch import pipeline

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PROGRAM = """
(require nn kernels)
(require-dialect arith gpu memref scf)
(config context 1)
(weights (x [18 128]) (w [128 64]))
(kernel fold-rows [x y]                        ; a row's halves are added, then their halves, down to one element
  (let [row (block-id x)
        i (thread-id x)
        all (shared [128] f32)]
    (scf.for i (: 128 index) (: 64 index)
      (region (block [(: c index)] (memref.store (memref.load x row c) all c) (scf.yield))))
    (gpu.barrier)
    (scf.for (arith.divui i (: 64 index)) (+ (: 1 index) (arith.remui row (: 3 index))) (: 1 index)
      (region (block [(: round index)]
        (let [half (arith.shrui (: 64 index) round)]
          (when (< i half)
            (memref.store (+ (memref.load all i) (memref.load all (+ i half))) all i))
          (gpu.barrier))
        (scf.yield))))
    (when (= (arith.remui row (: 2 index)) (: 1 index))
      (do
        (gpu.barrier)
        (when (= i 0) (memref.store (* (memref.load all (: 1 index)) 2.0) all (: 0 index)))
        (gpu.barrier)))
    (memref.store (memref.load all i) y row i)))
(entry out [tokens positions]
  (let [y (launch fold-rows [18] [64] x (output (tensor-type [18 64] f32)))
        z (linear y w)]
    (launch fold-rows [18] [64] z (output (tensor-type [18 64] f32)))))
"""


def folded(x: np.ndarray) -> np.ndarray:
    found = np.array(x, np.float64)
    for row, values in enumerate(found):
        for round_ in range(1 + row % 3):
            half = 64 >> round_
            values[:half] += values[half : 2 * half]
        if row % 2:
            values[0] = 2 * values[1]
    return found[:, :64]


@pytest.mark.parametrize("target", ["cuda:sm_80", "rocm:gfx1151"])
def test_idle_threads_meet_every_barrier(target: str, tmp_path: Path) -> None:
    program = tmp_path / "fold.lisp"
    program.write_text(PROGRAM)
    given = pipeline(tmp_path, ':when "always" :workers 4')
    artifact = compile_request(Request(program, target, pipeline=given), Observer())[0]
    (entry,) = artifact.plan.entries
    (launch,) = entry.launches
    assert launch.block[0] > 64, entry.remarks
    weights = random_weights(artifact, scale=0.3)
    exact = weights.exact()
    wanted = folded(folded(exact["x"]) @ exact["w"].T)
    np.testing.assert_allclose(run(artifact, weights), wanted, rtol=1e-4, atol=1e-4)


def run(artifact: Artifact, weights: object) -> np.ndarray:
    numbers = np.zeros((1, 1), np.int32)
    if artifact.target.startswith("cuda"):
        with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
            return session.run("out", numbers, numbers)["out"]
    values = {name: weights.view(name) for name in weights.names()}  # type: ignore[attr-defined]
    emulation = Emulation(artifact, values | {"tokens": numbers, "positions": numbers})
    return emulation.run(artifact.plan.entries[0]).reshape(18, 64)
