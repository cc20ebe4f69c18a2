"""Random model programs against float64 numpy: see `run.py`, which runs as many as wanted and shrinks what fails."""

from __future__ import annotations

from typing import Any

import pytest
from fuzz.parallel import Check, failures
from fuzz.shrink import shrink
from fuzz.typed.builder import generate
from fuzz.typed.smaller import smaller

COUNTS = {"cpu": 24, "checked": 8, "cuda:sm_90a": 6, "rocm:gfx942": 6, "rocm:gfx1151": 6, "rocm:gfx1201": 6}
TYPED_COUNTS = {"cpu": 12, "checked": 4, "cuda:sm_90a": 4, "rocm:gfx942": 4, "rocm:gfx1151": 4, "rocm:gfx1201": 4}
WIDE_COUNTS = {"cpu": 8, "checked": 2, "cuda:sm_90a": 4, "rocm:gfx942": 2, "rocm:gfx1151": 2, "rocm:gfx1201": 2}
MUTATED_COUNTS = {"cpu": 8, "cuda:sm_90a": 3, "rocm:gfx1151": 3}
ROUNDS_COUNTS = {"cpu": 8, "checked": 2, "cuda:sm_90a": 2, "rocm:gfx1151": 2}
BY_GENERATOR = {
    "plain": COUNTS,
    "typed": TYPED_COUNTS,
    "wide": WIDE_COUNTS,
    "mutated": MUTATED_COUNTS,
    "rounds": ROUNDS_COUNTS,
}
CASES = [(target, generator) for generator, counts in BY_GENERATOR.items() for target in counts]


def failures_of(target: str, first: int, count: int, generator: str) -> list[int]:
    """The seeds of the programs that fail, after printing each with the command that repeats and shrinks it."""
    check = Check(target, generator, execute=generator != "mutated")
    found = list(failures(check, first, count, jobs=2 if count > check.group else 1))
    for failure in found:
        text = check.text(check.program(failure.seed))
        print(f"{failure.kind}: {failure.message}\n{text}repeat: {check.repeated(failure.seed)}\n")
    return [failure.seed for failure in found]


@pytest.mark.drawn
@pytest.mark.parametrize(("target", "generator"), CASES)
def test_random_programs_are_right(target: str, generator: str, fresh_seed: int) -> None:
    """On a CPU, on one whose launches are held to what they say of their arguments, and on emulated GPUs (examples that
    were changed are only compiled for these)."""
    if target.startswith("rocm"):
        pytest.importorskip("tinygrad")
    assert failures_of(target, fresh_seed, BY_GENERATOR[generator][target], generator) == []


@pytest.mark.parametrize("seed", [507, 7018, 20085, 510402, 1378482782])
def test_programs_that_were_wrong_once_are_right(seed: int) -> None:
    assert failures_of("cpu", seed, 1, "plain") == []


def test_a_typed_program_is_shrunk_to_what_fails() -> None:
    """What is left of one that counts as failing for a softmax has it, and is shorter."""
    seed, made = next((s, p) for s, p in ((s, generate(s)) for s in range(200)) if _fails(p) and len(p.entries) > 1)
    smallest = shrink(made, smaller, _fails, most=60)
    assert _fails(smallest), seed
    assert len(smallest.text) < len(generate(seed).text), smallest.text
    assert len(smallest.entries) == len(smallest.runs) == 1, smallest.text


def _fails(made: Any) -> bool:
    return "(softmax" in made.text
