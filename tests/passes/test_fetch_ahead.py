"""Weights that kernels bring to the cache for later ones: the PTX, run on numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
from compiled_models import compile_text, random_weights
from emulated_cuda.device import EmulatedCuda

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PIPELINE = Path(__file__).parents[2] / "passes" / "pipelines" / "gpu.lisp"
PROGRAM = """
(require nn)
(config context 1)
(weights (x [70 96]) (scale [96]) (w [200 96] bf16) (v [72 200] bf16))
(entry out [tokens positions] (linear (gelu (linear (rms-norm x scale 1e-2) w)) v))
"""


def made(folder: Path, options: str, target: str = "cuda:sm_90a") -> Artifact:
    pipeline = folder / "mine.lisp"
    assert "(pass fetch-ahead)" in PIPELINE.read_text()
    pipeline.write_text(PIPELINE.read_text().replace("(pass fetch-ahead)", f"(pass fetch-ahead {{{options}}})"))
    return compile_text(PROGRAM, folder, target=target, pipeline=pipeline)


def arguments(artifact: Artifact) -> list[list[str]]:
    return [[argument.buffer for argument in launch.arguments] for launch in artifact.plan.entries[0].launches]


def test_a_product_brings_the_next_ones_weights(tmp_path: Path) -> None:
    artifact = made(tmp_path, ":least 16")
    first, second = arguments(artifact)[-2:]
    assert first[-1] == "v" and "w" in first and second.count("v") == 1
    assert artifact.code.count(b"cp.async.bulk.prefetch.L2.global") == 1
    weights, found = random_weights(artifact), []
    for options in (":least 16", ":least 16 :most 16"):  # which is none
        with Session(made(tmp_path, options), EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
            found.append(session.run("out", np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))["out"])
    assert np.isfinite(found[0]).all() and np.array_equal(*found)


def test_neither_small_weights_nor_chips_without_bulk_copies_are_asked(tmp_path: Path) -> None:
    for options, target in (("", "cuda:sm_90a"), (":least 16", "cuda:sm_90"), (":least 16", "rocm:gfx1151")):
        artifact = made(tmp_path, options, target)
        assert all(set(names) <= {"arena", "x", "scale", "w"} for names in arguments(artifact)[:-1])
