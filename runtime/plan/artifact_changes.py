"""What is different between two artifacts: their kernels, their plans, and what these cost."""

from __future__ import annotations

import difflib
import hashlib
from collections.abc import Iterator, Mapping
from typing import Any

from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.work import Work


def artifact_changes(before: Artifact, after: Artifact) -> Iterator[str]:
    """Lines of a difference, `-` and `+`, under a heading for each part of an artifact that is different.

    A plan's lines are its steps, in order, each with its grid and block.  Cost is what the launches of one run have to
    do, with rows at the end of the context: bytes, operations and, where the chip's rates are known, microseconds.
    """
    yield from _part("artifact", _facts(before), _facts(after))
    yield from _part("weights", _named(before.weights), _named(after.weights))
    yield from _part("states", _named(before.states), _named(after.states))
    yield from _part("kernels", _named(before.kernels), _named(after.kernels))
    old, new = ({entry.label: entry for entry in artifact.plan.entries} for artifact in (before, after))
    for label in dict.fromkeys([*old, *new]):
        yield from _part(f"plan of {label}", _steps(old.get(label)), _steps(new.get(label)))
    yield from _part("cost", _costs(before), _costs(after))


def _part(title: str, before: list[str], after: list[str]) -> Iterator[str]:
    if before == after:
        return
    yield f"@@ {title} @@"
    for number, line in enumerate(difflib.unified_diff(before, after, lineterm="", n=0)):
        if number > 1 and not line.startswith("@@"):  # behind two lines of files' names
            yield line


def _facts(artifact: Artifact) -> list[str]:
    said = {name: getattr(artifact, name) for name in ("target", "host", "precision")}
    said |= dict(artifact.config) | {f"generate {k}": v for k, v in (artifact.generate or {}).items()}
    lines = [f"{name}: {value}" for name, value in said.items()]
    codes = {"code": artifact.code, "code for the chip": b"".join(artifact.objects)}
    sizes = [f"{name}: {len(code):,} bytes, {hashlib.sha256(code).hexdigest()[:12]}" for name, code in codes.items()]
    return [*lines, *sizes, f"arenas: {_arenas(artifact):,} bytes"]


def _arenas(artifact: Artifact) -> int:
    """Bytes that are neither weights, states, inputs nor results."""
    kept = {"weight", "state", "input", "result"}
    return sum(buffer.nbytes for buffer in artifact.plan.buffers if buffer.kind not in kept)


def _named(parts: Mapping[str, Mapping[str, Any]]) -> list[str]:
    return [f"{name}: {_said(facts)}" for name, facts in sorted(parts.items())]


def _said(facts: Mapping[str, Any]) -> str:
    """Facts in a line: "grid=12x1x1 block=128x1x1"."""
    return " ".join(f"{name}={_value(value)}" for name, value in sorted(facts.items()))


def _value(value: Any) -> str:
    if isinstance(value, list):
        return "x".join(map(_value, value)) if all(isinstance(v, int) for v in value) else ",".join(map(_value, value))
    return f"({_said(value)})" if isinstance(value, dict) else str(value)


def _steps(entry: Entry | None) -> list[str]:
    if entry is None:
        return []
    return [f"{step.label}{_extent(step) if isinstance(step, Launch) else ''}" for step in entry.steps]


def _extent(launch: Launch) -> str:
    return f" grid={_value(list(launch.grid))} block={_value(list(launch.block))}"


def _costs(artifact: Artifact) -> list[str]:
    return [f"{entry.label}: {_cost(artifact, entry)}" for entry in artifact.plan.entries]


def _cost(artifact: Artifact, entry: Entry) -> str:
    works = [Work.of(artifact.kernels[launch.kernel]) for launch in entry.launches]
    amounts = [work.at_most(entry) for work in works if work is not None]
    nbytes, operations = sum(a.nbytes for a in amounts), sum(a.operations for a in amounts)
    floor = f", floor {sum(map(artifact.rates.floor, amounts)) * 1e6:.1f} us" if artifact.rates else ""
    return f"{len(works)} launches, {nbytes:,} bytes, {operations:,} operations{floor}"
