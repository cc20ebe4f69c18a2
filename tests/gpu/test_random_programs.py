"""The fuzzer's random programs, executed on the GPU, against float64: --gpu-programs N runs N of each generator."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from fuzz.execute import compile_programs
from fuzz.execute import run as run_plain
from fuzz.generate import program as plain
from fuzz.program import source
from fuzz.typed.builder import generate as typed
from fuzz.typed.execute import compile_program as compile_typed
from fuzz.typed.execute import run as run_typed
from fuzz.wide.execute import compile_program as compile_wide
from fuzz.wide.execute import run as run_wide
from fuzz.wide.program import generate as wide
from gpu.chips import Chip

SHARE = {"plain": 1.0, "typed": 0.5, "wide": 0.25}
"""How many of each generator's programs there are, beside the first's."""


def plain_wrong(chip: Chip, seed: int) -> tuple[str, str]:
    made = {f"p{seed}": plain(seed)}
    found = run_plain(compile_programs(made, chip.target), chip.open(), made, {f"p{seed}": seed})
    return source({"out": made[f"p{seed}"]}), "\n".join(found.values())


def typed_wrong(chip: Chip, seed: int) -> tuple[str, str]:
    made: Any = typed(seed)
    return made.text, run_typed(compile_typed(made, chip.target), chip.open(), made)


def wide_wrong(chip: Chip, seed: int) -> tuple[str, str]:
    made: Any = wide(seed)
    return made.text, run_wide(compile_wide(made, chip.target), chip.open(), made)


GENERATORS: dict[str, Callable[[Chip, int], tuple[str, str]]] = {
    "plain": plain_wrong,
    "typed": typed_wrong,
    "wide": wide_wrong,
}
"""Each: a program of a seed, and what is wrong with what the GPU makes of it."""


@pytest.mark.parametrize("generator", GENERATORS)
def test_random_programs_are_right(generator: str, chip: Chip, fresh_seed: int, request: pytest.FixtureRequest) -> None:
    count, failed = round(SHARE[generator] * request.config.getoption("--gpu-programs")), []
    for seed in range(fresh_seed, fresh_seed + max(1, chip.sized(count, 2))):
        text, wrong = GENERATORS[generator](chip, seed)
        if wrong:
            failed.append(seed)
            print(f"---- seed {seed}: {wrong}\n{text}")
    assert not failed
