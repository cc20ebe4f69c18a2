"""Many programs on many targets: in groups that share a module, each alone where its group fails, in children."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Any

from emulated_cuda.device import EmulatedCuda
from fuzz.execute import compile_programs, run
from fuzz.mutated.execute import check
from fuzz.rounds import execute as rounds
from fuzz.typed.execute import compile_program
from fuzz.typed.execute import run as run_typed
from fuzz.wide import execute as wide

from lispgpt.base.child import Reporter, run_in_child
from lispgpt.base.errors import InternalError, UserError
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.devices.emulated import EmulatedDevice

_NAMES = r"kernel \w+|function \w+|/\S+|`\(.*?`|[\w-]*\d[\w.]*|[%'\"`]+"
"""What differs between messages of one cause: names, paths, forms, numbers."""

Work = Callable[[dict[str, Any], dict[str, int], str], dict[str, str]]
"""Compiles (and runs) programs by name, with their seeds, for a target: what is wrong with which."""


@dataclass(frozen=True)
class Failure:
    """kind: "wrong" (values), "refused" (a user error), "bug" (any other exception) or "crash" (a signal)."""

    seed: int
    target: str
    kind: str
    message: str

    @property
    def family(self) -> str:
        """What failures of one cause have in common, roughly: the message without its numbers and names."""
        lines = [line for line in self.message.splitlines() if line.strip() and "--dump-dir" not in line] or [""]
        last = {"refused": lines[0].partition("error:")[2], "wrong": "wrong values"}.get(self.kind, lines[-1])
        return f"{self.target} {self.kind} " + re.sub(_NAMES, "#", last)[:160]


def compile_only(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    compile_programs(programs, target)
    return {}


def compile_and_run(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """On this machine's CPU, or on an emulated GPU."""
    artifact = compile_programs(programs, "cpu" if target == "checked" else target)
    return run(artifact, device_for(target), programs, seeds)


def compile_typed(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    for program in programs.values():
        compile_program(program, target)
    return {}


def run_each_typed(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """Typed programs, each with a file of its own."""
    wrong = {}
    for name, program in programs.items():
        artifact = compile_program(program, "cpu" if target == "checked" else target)
        wrong[name] = run_typed(artifact, device_for(target), program)
    return {name: text for name, text in wrong.items() if text}


def compile_mutated(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """Examples that were changed: compiled or refused."""
    return {name: text for name, program in programs.items() if (text := check(program, seeds[name], target, None))}


def run_each_mutated(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """Examples that were changed: refused, or as float64 has them before any pass."""
    chip = "cpu" if target == "checked" else target
    found = {name: check(program, seeds[name], chip, device_for(target)) for name, program in programs.items()}
    return {name: text for name, text in found.items() if text}


def compile_wide(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    for program in programs.values():
        wide.compile_program(program, target)
    return {}


def run_each_wide(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """Wide programs, each with a file of its own."""
    chip = "cpu" if target == "checked" else target
    found = {
        name: wide.run(wide.compile_program(program, chip), device_for(target), program)
        for name, program in programs.items()
    }
    return {name: text for name, text in found.items() if text}


def compile_rounds(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    rounds.compile_programs(programs, target)
    return {}


def run_each_round(programs: dict[str, Any], seeds: dict[str, int], target: str) -> dict[str, str]:
    """Loops, in one module."""
    artifact = rounds.compile_programs(programs, "cpu" if target == "checked" else target)
    return rounds.run(artifact, device_for(target), programs)


WORKS: dict[str, tuple[Work, Work]] = {
    "plain": (compile_only, compile_and_run),
    "typed": (compile_typed, run_each_typed),
    "mutated": (compile_mutated, run_each_mutated),
    "wide": (compile_wide, run_each_wide),
    "rounds": (compile_rounds, run_each_round),
}
"""By generator: what compiles its programs, and what runs them too."""


def device_for(target: str) -> Any:
    """What runs programs for a target; `checked` is the CPU whose launches are held to what they say of arguments."""
    kind, _, chip = target.partition(":")
    if kind == "cuda":
        return EmulatedCuda()
    if kind == "rocm":
        return EmulatedDevice(chip)
    return CheckedCpuDevice(2) if kind == "checked" else CpuDevice(2)


def work_for(target: str, emulate: bool = False, generator: str = "plain") -> Work:
    """Programs of a generator, run on the CPU, and for GPUs where asked."""
    return WORKS[generator][emulate or target in ("cpu", "checked")]


def check_group(programs: dict[int, Any], target: str, work: Work) -> Iterator[Failure]:
    """The failures of programs by seed: of the group in one module, or of each by itself where that fails."""
    named = {f"p{seed}": program for seed, program in programs.items()}
    failure = _attempt(named, target, work)
    if failure is None:
        return
    if isinstance(failure, dict):
        yield from (Failure(int(name[1:]), target, "wrong", message) for name, message in failure.items())
    elif len(programs) == 1:
        yield Failure(next(iter(programs)), target, *failure)
    else:
        for seed, program in programs.items():
            yield from check_group({seed: program}, target, work)


def _attempt(programs: dict[str, Any], target: str, work: Work) -> dict[str, str] | tuple[str, str] | None:
    seeds = {name: int(name[1:]) for name in programs}

    def inside(reporter: Reporter) -> int:
        reporter.give(work(programs, seeds, target))
        return 0

    try:
        outcome = run_in_child(inside)
    except UserError as error:
        return "refused", error.render()
    except InternalError as error:
        return "bug", str(error)
    if outcome.signal_number:
        return "crash", f"ended by {outcome.reason}"
    return outcome.value or None
