"""Random model programs against float64 numpy: see `run.py`, which runs as many as wanted and shrinks what fails."""

from __future__ import annotations

import pytest
from fuzz.campaign import check_group, groups, work_for
from fuzz.generate import program
from fuzz.program import source

COUNTS = {"cpu": 120, "checked": 16, "cuda:sm_90": 10, "rocm:gfx1151": 6}
COMPILED = {"cuda:sm_90a": 8, "rocm:gfx942": 8, "rocm:gfx1201": 8}


def failures_of(target: str, first: int, count: int, execute: bool) -> list[int]:
    """The seeds of the programs that fail, after printing each with the command that repeats it."""
    failures = []
    for seeds in groups(range(first, first + count), 8):
        failures += check_group({seed: program(seed) for seed in seeds}, target, work_for(target, execute))
    for failure in failures:
        repeat = f"python tests/fuzz/run.py --seed {failure.seed} --count 1 --targets {target}"
        repeat += " --execute-emulated" * execute
        print(f"{failure.kind}: {failure.message}\n{source({'out': program(failure.seed)})}repeat: {repeat}\n")
    return [failure.seed for failure in failures]


@pytest.mark.parametrize("target", COUNTS)
def test_random_programs_are_right(target: str, fresh_seed: int) -> None:
    """On a CPU, on one whose launches are held to what they say of their arguments, and on emulated GPUs."""
    if target.startswith("rocm"):
        pytest.importorskip("tinygrad")
    assert failures_of(target, fresh_seed, COUNTS[target], execute=True) == []


@pytest.mark.parametrize("target", COMPILED)
def test_random_programs_compile(target: str, fresh_seed: int) -> None:
    assert failures_of(target, fresh_seed, COMPILED[target], execute=False) == []


@pytest.mark.parametrize("seed", [507, 7018, 20085, 510402, 1378482782])
def test_programs_that_were_wrong_once_are_right(seed: int) -> None:
    assert failures_of("cpu", seed, 1, execute=True) == []
