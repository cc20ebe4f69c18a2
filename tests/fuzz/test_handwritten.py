"""Programs that users wrote by hand: run on the CPU against numpy, and compiled for GPUs of both vendors."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import random_weights, rounded_to_bf16
from fuzz import written_models, written_tensors
from fuzz.written import Written

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PROGRAMS = written_tensors.PROGRAMS + written_models.PROGRAMS
CHIPS = ["rocm:gfx942", "rocm:gfx1151", "rocm:gfx1201", "cuda:sm_90a"]


def compiled(program: Written, folder: Path, target: str) -> Artifact:
    path = folder / "written.lisp"
    path.write_text(program.text)
    shapes = {name: of[1] if len(of) == 2 and isinstance(of[1], tuple) else of for name, of in program.given.items()}
    request = Request(path, target, inputs={"f": {name: list(shape) for name, shape in shapes.items()}})
    return compile_request(request, Observer())[0]


def drawn(program: Written) -> dict[str, np.ndarray]:
    rng, found = seeded.rng(), {}
    for name, of in program.given.items():
        if len(of) == 2 and isinstance(of[1], tuple):
            found[name] = rng.integers(0, of[0], of[1]).astype(np.int32)
        else:
            found[name] = np.asarray(rng.standard_normal(of), np.float32)
    return found


@pytest.mark.drawn
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_a_program_gives_what_numpy_does(program: Written, tmp_path: Path) -> None:
    artifact = compiled(program, tmp_path, "cpu")
    weights = random_weights(artifact)
    for name, facts in artifact.weights.items():
        if facts["dtype"] in ("bf16", "f16"):
            weights.values[name] = rounded_to_bf16(weights.values[name])
    before: Any = None
    with Session(artifact, CheckedCpuDevice(2), weights) as session:  # type: ignore[arg-type]
        for _ in range(program.times):
            given = drawn(program)
            found = session.run("f", **given)
            exact = {n: a.astype(np.float64) if a.dtype == np.float32 else a for n, a in given.items()}
            before = program.right(exact, weights.exact(), before)
            assert found.keys() == before.keys()
            for name, right in before.items():
                right = np.asarray(right)
                assert found[name].shape == right.shape, f"{name}: {found[name].shape}, and {right.shape} is right"
                limit = program.tolerance * max(1.0, np.abs(right).max(initial=0))
                limit = 0 if right.dtype.kind in "iu" and found[name].dtype.kind in "iu" else limit
                error = np.abs(found[name].astype(np.float64) - right)
                assert np.all(error <= limit), f"{name} is {found[name]}, and {right} is right"


@pytest.mark.slow
@pytest.mark.parametrize("target", CHIPS)
@pytest.mark.parametrize("program", PROGRAMS, ids=[program.name for program in PROGRAMS])
def test_a_program_compiles_for_a_gpu(program: Written, target: str, tmp_path: Path) -> None:
    assert compiled(program, tmp_path, target).plan.entries
