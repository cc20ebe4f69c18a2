"""Which targets, and which artifacts, are for the machine and the checkpoint that are at hand."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.fresh import ask_in_child, call_fresh
from lispgpt.base.host import cpu_signature, missing_features
from lispgpt.compiler.compiled import forks_well
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.devices import best_target, device_kinds, device_module, installed_chip
from lispgpt.runtime.devices.driver import is_used
from lispgpt.runtime.plan.artifact import Artifact


def matching_artifact(path: Path, artifact: Artifact, checkpoint: Checkpoint | None) -> Artifact:
    """The artifact in a file, once it is clear that it was compiled for this machine and this checkpoint's sizes."""
    if artifact.host and artifact.host != cpu_signature():
        raise UserError(
            f"{path} was compiled for another CPU than this one: compile it here, or for a level that both have "
            "(--target cpu:x86-64-v3)"
        )
    lacking = missing_features(artifact.target)
    if lacking:
        raise UserError(f"{path} was compiled for {artifact.target}, and this CPU has no {', '.join(lacking)}")
    given = {} if checkpoint is None else checkpoint.config
    for name, value in given.items():
        own = artifact.config.get(name, value)
        if own != value and name not in ("weight-type", "context"):
            raise UserError(f"the artifact was compiled for {name} {own}, the checkpoint has {value}")
    return artifact


def compiled_target(target: str) -> str:
    """The name of a target to compile for: of "auto" the best device present, of an emulated chip the chip."""
    if not isinstance(target, str):
        raise UserError(f"a target is a name such as cpu, not {target!r}")
    kind, _, chip = target.partition(":")
    if kind == "emulated":
        return f"rocm:{chip}"
    return _asked(best_target) if target == "auto" else target


def running_target(target: str) -> str:
    """The name of a target that is to run here: of a GPU's kind alone, such as "cuda", the chip that is installed."""
    if target in device_kinds() and hasattr(device_module(target), "API"):
        return _asked(installed_chip, target)
    return compiled_target(target)


def _asked(question: Callable[..., str], *about: str) -> str:
    """What a question answers: in a process of its own, unless this one has used a driver already."""
    if is_used():
        return question(*about)
    found: str = ask_in_child(partial(question, *about)) if forks_well() else call_fresh(question, *about)
    return found
