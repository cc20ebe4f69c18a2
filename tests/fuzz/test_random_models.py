"""Random model programs against float64 numpy: see `run.py`, which runs as many as wanted and shrinks what fails."""

from __future__ import annotations

import pytest
from fuzz.campaign import check_group, groups, work_for
from fuzz.generate import program
from fuzz.program import source

COUNTS = {"cpu": 160, "checked": 24}


@pytest.mark.parametrize("target", COUNTS)
def test_random_programs_are_right(target: str, fresh_seed: int) -> None:
    failures = []
    for seeds in groups(range(fresh_seed, fresh_seed + COUNTS[target]), 8):
        failures += check_group({seed: program(seed) for seed in seeds}, target, work_for(target))
    for failure in failures:
        repeat = f"python tests/fuzz/run.py --seed {failure.seed} --count 1 --targets {target}"
        print(f"{failure.kind}: {failure.message}\n{source({'out': program(failure.seed)})}repeat: {repeat}\n")
    assert [failure.seed for failure in failures] == []
