"""`lispgpt tune`: which schedules of a GPU's kernels are fastest, kept for what is compiled from then on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.base.folders import cache_folder
from lispgpt.bench.candidates import Candidates, measure
from lispgpt.cli.options import PATH, QUICK, all_of, guarded, program_options
from lispgpt.cli.requested import requested
from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.compiled import artifact_of
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.present import running_target
from lispgpt.compiler.tuning import Measured, keep_tuning
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.devices import missing


@click.command("tune")
@click.argument("program", type=PATH)
@all_of([option for option in program_options() if option is not QUICK])
@click.option("--entry", "entries", multiple=True, metavar="NAME", help="Measure kernels of this entry (default: all).")
@click.pass_context
@guarded
def tune(ctx: click.Context, program: Path, **options: Any) -> int:
    """Measure the kernels of PROGRAM by each schedule that they could have, and keep which is fastest.

    Products and attention of GPUs have several schedules, of which compiling takes the one whose modelled time is
    least.  Here each is compiled and timed on the GPU, or, for an emulated one, by what the emulator counts.  What is
    fastest is kept beside the cache, and taken by all that is compiled for the same target with that cache, until
    schedules change: for kernels of other programs, too, that are the same.
    """
    target = options["target"]
    if (lacking := missing(target)) is not None:
        raise UserError(lacking)
    given = find_given(program, options["checkpoint"])
    if given.artifact is not None:
        raise UserError(f"{program} is compiled: its schedules were chosen then; give its program")
    request = requested(given, {**options, "target": running_target(target), "quick": False})
    request = replace(
        request, entries=options["entries"] or None, unneeded=(DRAWN,)
    )  # whose products greedy steps have
    found = measure(lambda schedules: artifact_of(replace(request, tuned=schedules)), target, say)
    for candidates in found:
        echo(_line(candidates))
    kept = {one.identity: Measured(one.microseconds, one.device) for one in found}
    say(f"kept in {keep_tuning(cache_folder(ctx.obj['environment']), request.target, kept)}")
    return 0


def _line(candidates: Candidates) -> str:
    """A kernel with the microseconds of each schedule, the least first."""
    times = sorted(candidates.microseconds.items(), key=lambda one: one[1])
    return f"{candidates.kernel}: " + ", ".join(f"{name} {microseconds:.2f} us" for name, microseconds in times)
