"""What notebooks show of a model: what is known of it without compiling or loading anything for that."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from math import prod
from typing import Any

from lispgpt.base.html import table
from lispgpt.compiler.compiled import Declared
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.plan.artifact import Artifact


def model_html(
    title: str, about: Declared | Artifact | None, checkpoint: Checkpoint | None, loaded: Artifact | None
) -> str:
    """Tables of a model's facts and of the entries that are compiled.

    about: what the program or artifact says of itself.  loaded: the artifact that is on the device.
    """
    facts = [*_facts(about), ("checkpoint", "none" if checkpoint is None else checkpoint.path)]
    return table(title, ("", ""), facts) + ("" if loaded is None else loaded.plan.table("Compiled"))


def _facts(about: Declared | Artifact | None) -> Iterator[tuple[str, Any]]:
    if about is None:
        return
    if isinstance(about, Artifact):
        shapes = [weight["shape"] for weight in about.weights.values()]
        entries = [entry.name for entry in about.plan.entries]
    else:
        shapes, entries = [shape for _, shape, _, _ in about.weights], list(about.entries)
    yield "entries", ", ".join(dict.fromkeys(entries))
    yield "weights", f"{len(shapes)}, {sum(map(prod, shapes)):,} parameters"
    yield "config", _config(about.config)


def _config(config: Mapping[str, Any]) -> str:
    return ", ".join(f"{name} {value}" for name, value in config.items() if value not in ("", [], ()))
