"""What runs pipelines, with the schedules that a compilation chooses from: the library's, and the user's.

What schedules are made of is imported where a pipeline chooses among any.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.observer import Observer
from lispgpt.base.reading import read_text
from lispgpt.language.forms.schedules import ScheduleForm
from lispgpt.language.schedules import KERNELS
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.pipeline import PassCall, Pipeline, Runner
from lispgpt.passes.targets import Cpu, Target

CHOOSES, COMPARE = "choose-tiles", ("choose", "join-products")
"""The passes that are given schedules."""

SCHEDULE = re.compile(r"^\(schedule (\S+)", re.MULTILINE)
"""Where a file has one, and its name."""


def runner_for(
    target: Target,
    files: Sequence[Path] = (),
    own: Sequence[ScheduleForm] = (),
    observer: Observer | None = None,
    tuned: Mapping[str, str] | None = None,
) -> Runner:
    """What runs pipelines with the schedules that their passes may want: the library's where a pass uses any, those of
    the files, and ahead of them the model's own.  tuned: see `Library`."""
    return Runner(target, observer or Observer(), library=partial(_library, target, files, own, tuned or {}))


def check_chooses(pipeline: Pipeline, files: Sequence[Path]) -> None:
    """UserError where files hold schedules and no pass of a pipeline would choose among them."""
    if files and all(call.name != CHOOSES for call in pipeline.calls):
        raise UserError(f"pipeline {pipeline.name} has no {CHOOSES} pass, which would choose among schedules")


def _files_of(calls: Sequence[PassCall]) -> list[Path]:
    """The files of the library that passes choose from: those that have the schedules which they name, or all."""
    files = sorted(KERNELS.glob("*.lisp"))
    if any(call.name in COMPARE for call in calls):
        return files
    names = {name for call in calls for name in str(dict(call.options).get("use", "")).split()}
    of = {name: path for path in files for name in SCHEDULE.findall(read_text(path))}
    return [path for path in files if path in {of.get(name) for name in names} or names - of.keys()]


def _library(
    target: Target, files: Sequence[Path], own: Sequence[ScheduleForm], tuned: Mapping[str, str], pipeline: Pipeline
) -> Library:
    """Needs an active ir.Context."""
    calls = [call for call in pipeline.calls if call.name in (CHOOSES, *COMPARE)]
    if not calls:
        return NO_SCHEDULES
    from lispgpt.compiler.schedules import schedule_of, schedules_of

    common = [one for path in _files_of(calls) for one in schedules_of(path, target)]
    mine = list(map(schedule_of, own))
    for path in files:
        found = schedules_of(path, target)
        if not found:
            raise UserError(f"{path} has no (schedule …)")
        if isinstance(target, Cpu) and all(one.of != "rows" for one in found):
            raise UserError(f"{path} has no schedule of rows, which are all that CPUs run of tile programs")
        mine += found
    return Library(tuple(mine), tuple(common), tuned)
