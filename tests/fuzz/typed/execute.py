"""Compiles typed programs for a target, runs them where they can run here, and compares with what is right."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import Weights, compile_text, poison
from fuzz.typed.approx import GPU_PRODUCTS, Approx
from fuzz.typed.program import Program

from lispgpt.runtime.arrays import readable
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

SLACK = 4.0
"""How many times the bound of its error a result may be off: functions differ in their last places."""


def compile_program(program: Program, target: str) -> Artifact:
    with tempfile.TemporaryDirectory() as folder:
        return compile_text(program.text, Path(folder), target=target)


def run(artifact: Artifact, device: Any, program: Program) -> str:
    """What is wrong after any of the runs, or with what the program holds behind them; "" of what is right."""
    program.evaluate(0.0 if artifact.target.startswith("cpu") else GPU_PRODUCTS)
    weights = Weights({n: v.astype(np.float32) for n, v in program.weights.items()}, program.bf16)
    wrong = []
    with Session(artifact, device, weights) as session:  # type: ignore[arg-type]
        poison(session)
        for number, made in enumerate(program.runs):
            found = session.run(made.entry, **made.inputs)
            where = f"run {number} of {made.entry} {made.sizes}"
            wrong += [difference(f"{where}, {name}", found[name], right) for name, right in made.right.items()]
        declared = {buffer.name: buffer for buffer in artifact.plan.buffers}
        for name, right in program.after.items():
            if name in declared:
                wrong.append(
                    difference(f"{name} behind all runs", readable(session.read(name), declared[name].dtype), right)
                )
    return "\n".join(text for text in wrong if text)


def difference(what: str, found: np.ndarray, right: Approx) -> str:
    """How an array is out of its bounds; "" where it is within."""
    if found.shape != right.shape:
        return f"{what} has shape {found.shape}, and {right.shape} is wanted"
    value, error = right.value, np.broadcast_to(right.error, right.shape)
    bound = SLACK * error + 1e-6 * np.abs(value).max(initial=0) if value.dtype.kind == "f" else error
    bad = ~(np.abs(found.astype(np.float64) - value) <= bound)
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return (
        f"{what}{list(place)} is {found[place]!r}, wanted {value[place]!r} within {np.asarray(bound)[place]:.3g} "
        f"({int(bad.sum())} of {bad.size} are wrong)"
    )
