"""Each word for arrays beside numpy's float64, values and gradients, at many ranks, axes and sizes, of every type."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
import vocabulary
from compiled_models import compile_text
from emulated_cuda.device import EmulatedCuda
from vocabulary import Case

from lispgpt.compiler.present import compiled_target
from lispgpt.runtime.checkpoints.none import NoWeights
from lispgpt.runtime.devices import open_device
from lispgpt.runtime.session import Session

INTERPRETER = "cuda:sm_90"
"""What the tests' interpreter of PTX runs."""


def wrong(made: list[Case], folder: Path, target: str = "cpu", quick: bool = False) -> list[str]:
    rng = seeded.rng()
    artifact = compile_text(vocabulary.program(made), folder, target=compiled_target(target), quick=quick)
    said = []
    device = EmulatedCuda() if target == INTERPRETER else open_device(target)
    with Session(artifact, device, NoWeights()) as session:
        for number, case in enumerate(made):
            given = case.inputs(rng)
            said.append(case.problem(session.run(f"e{number}", **given), given, rng))
    return [each for each in said if each]


def some(of_each: int) -> list[Case]:
    """Cases of all groups."""
    rng = seeded.rng()
    groups = [vocabulary.cases(group, rng) for group in vocabulary.GROUPS]
    return [group[n] for group in groups for n in rng.choice(len(group), of_each, replace=False)]


def test_words_are_those_of_numpy(tmp_path: Path) -> None:
    """Some that are drawn, and some at the ends of what there is."""
    x = seeded.rng().standard_normal((5, 1)).astype(np.float32)
    whole, wide = np.arange(-7, 8, dtype=np.int32).reshape(3, 5), seeded.rng().standard_normal((3, 5))
    ends = [
        Case("(cumsum x 1)", lambda x: x.cumsum(1), {"x": x}, ("x",)),
        Case("(nth (symmetric-eigen (slice x [0 0] [1 1])) 0)", lambda x: x[0], {"x": x}, ("x",)),
        Case("(max-along n -1)", lambda n: n.max(-1), {"n": whole}),
        Case("(* x (flip (tanh x) 1))", lambda x: x * np.flip(np.tanh(x), 1), {"x": wide}, ("x",), 1e-13),
    ]
    assert not wrong([*ends, *some(1)], tmp_path, quick=True)


@pytest.mark.slow
@pytest.mark.parametrize("quick", [True, False])
@pytest.mark.parametrize("group", vocabulary.GROUPS)
def test_all_words_are_those_of_numpy(group: str, quick: bool, tmp_path: Path) -> None:
    assert not wrong(vocabulary.cases(group, seeded.rng()), tmp_path, quick=quick)


@pytest.mark.slow
@pytest.mark.parametrize("target", ["emulated:gfx1151", INTERPRETER])
def test_some_words_on_gpus_are_those_of_numpy(target: str, tmp_path: Path) -> None:
    """Run it after a change of what GPUs are given for sums, scatters, loops or types."""
    known = ("float32", "int32") if target == INTERPRETER else ("float32", "float16", "int64", "int32", "int16", "bool")
    on_gpus = [case for case in some(4) if all(array.dtype.name in known for array in case.given.values())]
    assert not wrong(on_gpus, tmp_path, target)
