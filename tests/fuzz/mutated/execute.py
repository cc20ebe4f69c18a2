"""Compiles a mutated example, runs its entries one after the other, and compares with what float64 gives."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import numpy as np
from compiled_models import Weights, poison, rounded_to_bf16
from fuzz.mutated.interpret import Unknown, entries, run

from lispgpt.base.errors import UserError
from lispgpt.compiler.driver import Observer, Request, compile_program, evaluate_request
from lispgpt.ir.mlir import new_context
from lispgpt.ir.structure import shape_of, strings
from lispgpt.runtime.session import Session

EXACT, ROUNDED = 2e-3, 6e-2
"""How far off an element may be, by the largest of its result: where no number is rounded to 16 bits, and where one is
that lay between two."""


def check(text: str, seed: int, target: str, device: Any) -> str:
    """What is wrong with a program; "" where it is right, is refused, or has nothing to compare.

    device: what runs it; None where it is only to be compiled.
    """
    try:
        return _checked(text, seed, target, device)
    except UserError:
        return ""


def _checked(text: str, seed: int, target: str, device: Any) -> str:
    with tempfile.TemporaryDirectory() as folder, new_context():
        path = Path(folder) / "mutated.lisp"
        path.write_text(text)
        sizes = ({"batch": 3},) if "classifier_train" in text.splitlines()[0] else ()
        request = Request(path, target, sizes=sizes)
        reference = evaluate_request(request)
        wanted = None if device is None else _Reference(reference, np.random.default_rng(seed))
        artifact = compile_program(reference if device is None else evaluate_request(request), request, Observer())
        return "" if wanted is None else _compared(artifact, device, wanted)


class _Reference:
    """A program's weights and states, and what its entries make of them, in float64."""

    def __init__(self, made: Any, rng: np.random.Generator) -> None:
        self.entries, self.rng = entries(made.module), rng
        self.rounds = any(word in str(made.module) for word in ("arith.truncf", "f16>"))
        self.kinds = {w.name: w.dtype for w in made.weights}
        values = {w.name: rng.normal(0, 0.25, w.shape).astype(np.float32) for w in made.weights}
        values = {n: v if self.kinds[n] == "f32" else rounded_to_bf16(v) for n, v in values.items()}
        bf16 = frozenset(n for n, dtype in self.kinds.items() if dtype == "bf16")
        self.weights = Weights(values, bf16)
        self.held = {f"weight:{n}": v.astype(np.float64) for n, v in values.items()}
        for entry in self.entries.values():
            arguments = zip(strings(entry.attributes["arguments"]), entry.regions[0].blocks[0].arguments, strict=True)
            self.held |= {name: np.zeros(shape_of(v)) for name, v in arguments if name.startswith("state:")}

    def inputs(
        self, plan: Any, entry: Any, shapes: tuple[tuple[int, ...], ...], position: int
    ) -> dict[str, np.ndarray]:
        """Random inputs for an entry; positions go on."""
        dtypes = {buffer.name: buffer.dtype for buffer in plan.buffers}
        made: dict[str, np.ndarray] = {}
        for name, shape in zip(sorted(entry.inputs), shapes, strict=True):
            if name == "positions":
                made[name] = np.broadcast_to(np.arange(position, position + shape[-1], dtype=np.int32), shape)
            elif dtypes[entry.inputs[name]] == "i32":
                made[name] = self.rng.integers(0, 3, shape).astype(np.int32)
            else:
                made[name] = self.rng.normal(0, 1, shape).astype(np.float32)
        return made

    def step(self, name: str, shapes: tuple[tuple[int, ...], ...], inputs: dict[str, np.ndarray]) -> dict[str, Any]:
        """The results of an entry; states and weights that it changes are held."""
        given = {f"input:{key}": value for key, value in inputs.items()}
        found = run(self.entries[name, shapes], {**self.held, **given})
        self.held.update({key: value for key, value in found.items() if key in self.held})
        return {key.partition(":")[2]: value for key, value in found.items() if key.startswith("result:")}


def _compared(artifact: Any, device: Any, wanted: _Reference) -> str:
    allowed = ROUNDED if wanted.rounds else EXACT
    position = 0
    with Session(artifact, device, wanted.weights) as session:
        poison(session)
        known = {entry.name: entry for entry in reversed(artifact.plan.entries)}
        for name, shapes in list(wanted.entries)[:4]:
            if name not in known or any(np.prod(shape) > 4096 for shape in shapes):
                continue
            inputs = wanted.inputs(artifact.plan, known[name], shapes, position)
            position += inputs["positions"].shape[-1] if "positions" in inputs else 0
            try:
                right = wanted.step(name, shapes, inputs)
            except Unknown:
                return ""
            found = session.run(name, **inputs)
            for key, value in right.items():
                problem = _difference(found[key], value, allowed)
                if problem:
                    return f"{key} of {name} {shapes} {problem}"
    return ""


def _difference(found: np.ndarray, right: np.ndarray, allowed: float) -> str:
    """How an array is off; "" where it is near, or what is right is no finite float."""
    if right.dtype.kind != "f" or not np.isfinite(right).all() or np.abs(right).max(initial=0) > 1e20:
        return ""
    found = found.reshape(right.shape)
    bad = ~(np.abs(found.astype(np.float64) - right) <= allowed * (np.abs(right).max(initial=0) + 1e-6))
    if not bad.any():
        return ""
    place = tuple(int(i) for i in np.argwhere(bad)[0])
    return f"{list(place)} is {found[place]!r}, wanted {right[place]!r} ({int(bad.sum())} of {bad.size})"
