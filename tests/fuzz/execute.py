"""Compiles programs for a target, runs them where they can run here, and compares with what numpy says."""

from __future__ import annotations

import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import Weights, poison
from fuzz.exact import Exact
from fuzz.program import Program, Results, arrays, source

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.checkpoints.base import TensorInfo
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session

PRECISION = {"cpu": 0.0, "rocm": 2.0**-15, "cuda": 2.0**-15}
"""The relative error of a product's terms: matrix instructions take F32 in pieces of BF16."""
SLACK = 4.0
"""How many times the bound of the error an implementation may be off: functions differ in their last places."""


class Wrong(Exception):
    """A compiled program gives something else than numpy."""


@dataclass
class Data(Weights):
    """A checkpoint of arrays that hold what their declared dtypes hold.

    layers: the names of those that have a slice of their first dimension for each layer.
    """

    dtypes: dict[str, str] = field(default_factory=dict)
    layers: frozenset[str] = frozenset()

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self.values[name].shape, self.dtypes[name], name in self.layers)

    def view(self, name: str) -> np.ndarray:
        return stored(self.values[name], self.dtypes[name])


def stored(values: np.ndarray, dtype: str) -> np.ndarray:
    """The bytes of values in a dtype (BF16 as uint16)."""
    if dtype == "i32":
        return np.ascontiguousarray(values, np.int32)
    single = np.ascontiguousarray(values, np.float32)
    return (single.view(np.uint32) >> np.uint32(16)).astype(np.uint16) if dtype == "bf16" else single


def loaded(array: np.ndarray) -> np.ndarray:
    """What stored bytes stand for."""
    if array.dtype == np.uint16:
        array = (array.astype(np.uint32) << np.uint32(16)).view(np.float32)
    return array.astype(np.int64 if array.dtype == np.int32 else np.float64)


def compile_programs(programs: dict[str, Program], target: str) -> Artifact:
    """One artifact with an entry for each program, whose weights and states are prefixed with the entry's name."""
    together = {name: program.prefixed(f"{name}-") for name, program in programs.items()}
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "random.lisp"
        path.write_text(source(together))
        return compile_request(Request(path, target, overrides={}), Observer())[0]


def run(artifact: Artifact, device: Any, programs: dict[str, Program], seeds: dict[str, int]) -> dict[str, str]:
    """Run every entry once over poisoned memory; what is wrong with which."""
    given = {name: arrays(program, np.random.default_rng(seeds[name])) for name, program in programs.items()}
    weights, dtypes, states = {}, {}, {}
    for name, program in programs.items():
        weights |= {f"{name}-{w}": array for w, array in given[name][0].items()}
        states |= {f"{name}-{s}": stored(array, program.states[s].dtype) for s, array in given[name][1].items()}
        dtypes |= {f"{name}-{w}": kind.dtype for w, kind in program.weights.items()}
    problems = {}
    precision = PRECISION[artifact.target.partition(":")[0]]
    with Session(artifact, device, Data(weights, dtypes=dtypes)) as session:  # type: ignore[arg-type]
        poison(session)
        for buffer in artifact.plan.buffers:
            if buffer.kind == "state" and buffer.name in states:
                session.device.copy_in(session._buffers[buffer.name], states[buffer.name])
        for name, program in programs.items():
            found = session.run(name, np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))[name]
            after = {s: session.read(f"{name}-{s}") for s in program.states if f"{name}-{s}" in session._declared}
            try:
                check(program, given[name], found, after, precision)
            except Wrong as error:
                problems[name] = str(error)
    return problems


def check(
    program: Program,
    given: tuple[dict[str, np.ndarray], dict[str, np.ndarray]],
    found: np.ndarray,
    states: dict[str, np.ndarray],
    precision: float,
) -> None:
    """Wrong where the result, or a state as it is afterwards, is out of its bounds."""
    wanted: Results = program.evaluate(*given, precision)
    compare("the result", found, wanted.result)
    for name, array in states.items():
        compare(f"state {name}", array, wanted.states[name])


def compare(what: str, found: np.ndarray, wanted: Exact) -> None:
    """Wrong, with the first element that is out of bounds, unless all are within; nothing known allows anything."""
    if found.shape != wanted.shape:
        raise Wrong(f"{what} has shape {found.shape}, and {wanted.shape} is wanted")
    values: Any = loaded(found)
    known = np.isfinite(wanted.error)
    with np.errstate(all="ignore"):
        within = np.abs(values - wanted.value) <= SLACK * wanted.error
    bad = known & ~within
    if bad.any():
        place = tuple(int(i) for i in np.argwhere(bad)[0])
        raise Wrong(
            f"{what}{list(place)} is {values[place]!r}, wanted {wanted.value[place]!r} within "
            f"{SLACK * wanted.error[place]:.3g} ({int(bad.sum())} of {bad.size} are wrong)"
        )
