"""What runs pipelines, with the schedules that a compilation chooses from: the library's, and the user's.

What schedules are made of is imported where a pipeline chooses among any.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.observer import Observer
from lispgpt.language.forms.schedules import ScheduleForm
from lispgpt.language.schedules import KERNELS
from lispgpt.passes.library import NO_SCHEDULES, Library
from lispgpt.passes.pipeline import Pipeline, Runner
from lispgpt.passes.targets import Target

CHOOSES, COMPARES = "choose-tiles", "choose"
"""The passes that are given schedules."""


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
        raise UserError(
            f"schedules are of a GPU's kernels (--target rocm:…, cuda:…): pipeline {pipeline.name} has no "
            f"{CHOOSES} pass, which would choose among them"
        )


def _library(
    target: Target, files: Sequence[Path], own: Sequence[ScheduleForm], tuned: Mapping[str, str], pipeline: Pipeline
) -> Library:
    """Needs an active ir.Context."""
    calls = [call for call in pipeline.calls if call.name in (CHOOSES, COMPARES)]
    if not calls:
        return NO_SCHEDULES
    from lispgpt.compiler.schedules import schedule_of, schedules_of

    used = any(call.name == COMPARES or dict(call.options).get("use") for call in calls)
    common = [one for path in sorted(KERNELS.glob("*.lisp")) for one in schedules_of(path, target)] if used else []
    mine = list(map(schedule_of, own))
    for path in files:
        found = schedules_of(path, target)
        if not found:
            raise UserError(f"{path} has no (schedule …)")
        mine += found
    return Library(tuple(mine), tuple(common), tuned)
