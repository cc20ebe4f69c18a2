"""Ranges of seeds, whose programs several processes check."""

from __future__ import annotations

import multiprocessing
from collections.abc import Iterator, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from typing import Any

from fuzz.campaign import Failure, check_group, work_for
from fuzz.generate import program
from fuzz.program import source
from fuzz.typed.builder import generate


@dataclass(frozen=True)
class Check:
    """target: as `lispgpt --target` has it, or "checked".  typed: programs of the second generator.  execute: also run
    what is compiled for GPUs, on emulators.  group: programs that share a child, and untyped ones a module."""

    target: str
    typed: bool = False
    execute: bool = False
    group: int = 8

    def program(self, seed: int) -> Any:
        return generate(seed) if self.typed else program(seed)

    def text(self, made: Any) -> str:
        return made.text if self.typed else source({"out": made})

    def repeated(self, seed: int) -> str:
        """The command that repeats one, and shrinks it where it fails."""
        options = " --typed" * self.typed + " --execute-emulated" * self.execute
        return f"python tests/fuzz/run.py --seed {seed} --count 1 --targets {self.target}{options}"

    def failures(self, seeds: Sequence[int]) -> list[Failure]:
        return list(self.failures_of({seed: self.program(seed) for seed in seeds}))

    def failures_of(self, programs: dict[int, Any]) -> Iterator[Failure]:
        return check_group(programs, self.target, work_for(self.target, self.execute, self.typed))


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
