"""Compiles random loops, runs them looped and unrolled, and compares both with float64."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import Weights, compile_text, poison
from fuzz.rounds.program import HEADER, Rounds

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

TOLERANCE = {"cpu": 1e-4, "rocm": 2e-3, "cuda": 2e-3}
"""How far off results may be beside their largest element: GPUs take products' F32 in pieces."""
SLOPES = 3e-3
"""The same of gradients, beside differences of numbers that are close."""


def compile_programs(programs: dict[str, Rounds], target: str) -> Artifact:
    """All in one module."""
    text = "\n".join([HEADER, *(entry for program in programs.values() for entry in program.entries().values())])
    with tempfile.TemporaryDirectory() as folder:
        return compile_text(text, Path(folder), target=target)


def run(artifact: Artifact, device: Any, programs: dict[str, Rounds]) -> dict[str, str]:
    """What is wrong with which."""
    problems = {}
    tolerance = TOLERANCE[artifact.target.partition(":")[0]]
    with Session(artifact, device, Weights({})) as session:  # type: ignore[arg-type]
        for name, program in programs.items():
            wanted, wrong = program.evaluate(np.float64), []
            for entry in program.entries():
                poison(session)
                found = session.run(entry, **program.weights)
                if entry.endswith("-gradient"):
                    wrong.append(_difference(entry, found[entry], program.slopes(), max(tolerance, SLOPES)))
                    continue
                wrong += [_difference(f"{entry}.{key}", found[key], wanted[int(key[1:])], tolerance) for key in found]
            if any(wrong):
                problems[name] = "\n".join(text for text in wrong if text)
    return problems


def _difference(what: str, found: np.ndarray, wanted: np.ndarray, tolerance: float) -> str:
    if found.shape != wanted.shape:
        return f"{what} has shape {found.shape}, and {wanted.shape} is wanted"
    bad = ~(np.abs(found - wanted) <= tolerance * max(float(np.abs(wanted).max(initial=0.0)), 1e-2))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{what}{list(place)} is {found[place]!r}, wanted {wanted[place]!r} ({int(bad.sum())} of {bad.size} are wrong)"
    )
