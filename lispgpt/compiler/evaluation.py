"""A program's text to the MLIR of what was asked for, before any pass."""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.project import project_root
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source
from lispgpt.compiler.request import Request
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import Builtin
from lispgpt.language.model.norms import TrainingWarning
from lispgpt.language.model.sizes import Wanted
from lispgpt.language.program import Program, evaluate
from lispgpt.passes.targets import find_target


def read_source(path: Path) -> Source:
    """A program's text; UserError where it cannot be read or is not UTF-8."""
    return Source(str(path), read_text(path))


def evaluate_request(request: Request, trial: bool = False, kind: type[Evaluator] = Evaluator) -> Program:
    """The program's MLIR for every shape, in the active context; warnings go to standard error.

    trial: see `Wanted`; what matters to training alone is not warned of then.  kind: of evaluator, where somebody
    watches."""
    program = evaluate(
        read_source(request.program),
        overrides=dict(request.overrides),
        checkpoint_config=dict(request.checkpoint_config),
        wanted=replace(wanted(request), trial=trial),
        root=project_root(request.program),
        capabilities=find_target(request.target).capabilities(),
        devices=request.devices,
        words=words,
        float64=request.float64,
        checks_gradients=request.checks_gradients,
        kind=kind,
        more=request.more,
    )
    for warning in program.warnings:
        if not (trial and isinstance(warning, TrainingWarning)):
            print(warning.render("warning"), file=sys.stderr)
    return program


def wanted(request: Request) -> Wanted:
    """The entries to compile, and for what sizes."""
    if request.up_to and request.devices > 1:
        raise UserError(f"{next(iter(request.up_to))} of any size up to one is for one device: leave out --up-to")
    chunks = find_target(request.target).prefill_chunks
    enough = next((size for size in chunks if size >= request.longest > 0), chunks[-1])
    rows = [(1, size) for size in chunks if size <= enough]
    rows += [] if request.batch == 1 else [(request.batch, 1)]
    return Wanted(
        rows,
        request.sizes,
        request.entries,
        request.unneeded,
        request.unsized,
        request.inputs,
        arrays=request.arrays,
        up_to=request.up_to,
    )


def check_has_entries(program: Program, request: Request) -> None:
    """UserError for a program without an entry, and for a request of none."""
    if not program.entries:
        raise UserError(
            f"{request.program} has neither a `main` to run nor an `entry` of a model; "
            "`lispgpt compile --emit mlir` shows what it becomes"
        )
    if request.entries is not None and not request.entries and not program.has_main:
        raise UserError(f"no entry of {request.program} is asked for; it has {', '.join(program.entries)}")


def is_program(program: Program) -> bool:
    """Whether it is to be run by its main, not generated with."""
    return program.has_main and not program.entries


def words() -> Mapping[str, Builtin]:
    """The functions that schedules are made of, by their names."""
    from lispgpt.compiler.schedules import WORDS

    return WORDS
