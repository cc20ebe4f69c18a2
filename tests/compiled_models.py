"""Compiles model programs for the CPU and runs them on weights made here; all that a step should write is poisoned."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import seeded

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.checkpoints.base import Checkpoint, TensorInfo
from lispgpt.runtime.decoding import GREEDY, PREFILL
from lispgpt.runtime.devices.checked import CheckedCpuDevice
from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.session import Session


def rounded_to_bf16(values: np.ndarray) -> np.ndarray:
    """float32 values with a BF16's bits, rounded toward zero: any BF16 value serves as a weight."""
    return (values.astype(np.float32).view(np.uint32) & 0xFFFF0000).view(np.float32)


@dataclass
class Weights(Checkpoint):
    """A checkpoint of arrays.  values: float32 arrays by name; bf16: the names stored as BF16."""

    values: dict[str, np.ndarray]
    bf16: frozenset[str] = frozenset()
    config: dict[str, Any] = field(default_factory=dict)
    format: str = "made here"
    path: Path = Path("weights made here")

    def names(self) -> tuple[str, ...]:
        return tuple(self.values)

    def info(self, name: str) -> TensorInfo:
        return TensorInfo(self.values[name].shape, "bf16" if name in self.bf16 else "f32", False)

    def view(self, name: str) -> np.ndarray:
        values = np.ascontiguousarray(self.values[name], np.float32)
        return (values.view(np.uint32) >> 16).astype(np.uint16) if name in self.bf16 else values

    def read_layer_into(self, name: str, layer: int, destination: np.ndarray, dtype: str) -> None:
        destination[...] = self.view(name) if dtype == self.info(name).dtype else self.values[name]

    def check_finite(self, names: object = None) -> None:
        """Weights made here are finite."""

    def exact(self) -> dict[str, np.ndarray]:
        return {name: values.astype(np.float64) for name, values in self.values.items()}


def random_weights(artifact: Artifact, scale: float = 0.4, seed: int | None = None) -> Weights:
    """Fresh normal weights in the shapes and types that a model declares; seed: None for others each time."""
    rng = seeded.rng() if seed is None else np.random.default_rng(seed)
    bf16 = frozenset(name for name, facts in artifact.weights.items() if facts["dtype"] == "bf16")
    values = {n: rng.normal(0, scale, facts["shape"]).astype(np.float32) for n, facts in artifact.weights.items()}
    return Weights({n: rounded_to_bf16(v) if n in bf16 else v for n, v in values.items()}, bf16)


def compile_model(
    program: Path,
    batch: int = 1,
    pipeline: Path | None = None,
    entries: Sequence[str] | None = None,
    sizes: Sequence[Mapping[str, int]] = (),
    **settings: Any,
) -> Artifact:
    """A model program, with config values given by name (underscores for dashes), for the CPU."""
    given = {name.replace("_", "-"): value for name, value in settings.items()}
    chosen = {"batch": batch, "pipeline": pipeline, "entries": entries, "sizes": sizes}
    return compile_request(Request(program, overrides=given, **chosen), Observer())[0]  # type: ignore[arg-type]


def compile_text(text: str, folder: Path, **options: Any) -> Artifact:
    """A program's text, by default for the CPU; options: a Request's."""
    path = folder / "program.lisp"
    path.write_text(text)
    return compile_request(Request(path, **options), Observer())[0]


def open_checked(artifact: Artifact, weights: Weights | None = None) -> Session:
    """A session on the CPU that holds every launch to what it says it reads and writes."""
    return Session(artifact, CheckedCpuDevice(2), weights or random_weights(artifact))  # type: ignore[arg-type]


def open_poisoned(artifact: Artifact, weights: Weights, threads: int = 2) -> Session:
    """A session on the CPU whose arena and results are NaN (and -1 as integers) before the first step."""
    session = Session(artifact, CpuDevice(threads), weights)  # type: ignore[arg-type]
    poison(session)
    return session


def poison(session: Session) -> None:
    """Fill the arena and the results with bytes that read as NaN."""
    for buffer in session.artifact.plan.buffers:
        if buffer.kind in ("arena", "result"):
            session.device.copy_in(session._buffers[buffer.name], np.full(buffer.nbytes, 0xFF, np.uint8))


def step(session: Session, tokens: Any, positions: Any, entry: str = "logits") -> dict[str, np.ndarray]:
    """Run an entry on [batch, positions] (or, for one sequence, flat) tokens over poisoned memory."""
    poison(session)
    tokens, positions = (np.array(a, np.int32, ndmin=2) for a in (tokens, positions))
    return run_rows(session, tokens, positions, entry)


def run_rows(session: Session, tokens: Any, positions: Any, entry: str = "logits") -> dict[str, np.ndarray]:
    """Run an entry on [batch, positions] tokens; of a program that generates, that made of it for so many positions."""
    if entry == "logits" and session.entries(GREEDY):
        entry = GREEDY if np.shape(tokens)[1] == 1 else PREFILL
    return session.run(entry, tokens, positions)


def shapes_of(session: Session, entry: str = "logits") -> list[tuple[int, int]]:
    """The (batch, positions) that an entry, or the decoding made from it, was compiled for."""
    entries = [made for name in (entry, PREFILL, GREEDY) for made in session.entries(name)]
    return sorted({(e.sizes["batch"], e.sizes["positions"]) for e in entries})
