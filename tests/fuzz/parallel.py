"""Ranges of seeds, whose programs several processes check."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from fuzz.campaign import Failure, check_group, work_for
from fuzz.generate import program
from fuzz.mutated import mutate
from fuzz.program import source
from fuzz.rounds.program import generate as generate_rounds
from fuzz.typed.builder import generate
from fuzz.wide.program import generate as generate_wide

GENERATORS = {
    "plain": program,
    "typed": generate,
    "mutated": mutate.program,
    "wide": generate_wide,
    "rounds": generate_rounds,
}
"""What makes a program of a seed, by name."""


@dataclass(frozen=True)
class Check:
    """target: as `lispgpt --target` has it, or "checked".  generator: of GENERATORS.  execute: also run what is
    compiled for GPUs, on emulators.  group: programs that share a child, and plain ones a module."""

    target: str
    generator: str = "plain"
    execute: bool = False
    group: int = 8

    def program(self, seed: int) -> Any:
        return GENERATORS[self.generator](seed)

    def text(self, made: Any) -> str:
        texts = {
            "plain": lambda: source({"out": made}),
            "typed": lambda: made.text,
            "mutated": lambda: made,
            "wide": lambda: made.text,
            "rounds": lambda: made.text,
        }
        return str(texts[self.generator]())

    def repeated(self, seed: int) -> str:
        """The command that repeats one, and shrinks it where it fails."""
        options = f" --{self.generator}" * (self.generator != "plain") + " --execute-emulated" * self.execute
        return f"python tests/fuzz/run.py --seed {seed} --count 1 --targets {self.target}{options}"

    def failures(self, seeds: Sequence[int]) -> list[Failure]:
        return list(self.failures_of({seed: self.program(seed) for seed in seeds}))

    def failures_of(self, programs: dict[int, Any]) -> Iterator[Failure]:
        return check_group(programs, self.target, work_for(self.target, self.execute, self.generator))


def failures(check: Check, first: int, count: int, jobs: int) -> Iterator[Failure]:
    """What fails of so many programs from a seed on, as it is found."""
    seeds = range(first, first + count)
    groups = [seeds[i : i + check.group] for i in range(0, count, check.group)]
    if jobs == 1:
        for group in groups:
            yield from check.failures(group)
        return
    with ProcessPoolExecutor(jobs, mp_context=multiprocessing.get_context("spawn")) as pool:
        for found in pool.map(check.failures, groups):
            yield from found
