"""`lispgpt opt`: passes on a file of MLIR."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.base.files import write_text
from lispgpt.base.reading import read_text
from lispgpt.base.source import Span
from lispgpt.cli.completing import TARGET
from lispgpt.cli.options import PATH, all_of, contained, observer_of, watching_options
from lispgpt.cli.terminal import echo
from lispgpt.compiler.driver import read_source
from lispgpt.compiler.runners import check_chooses, runner_for
from lispgpt.ir.diagnostics import Diagnostics
from lispgpt.ir.mlir import ir, new_context
from lispgpt.passes.base import load_passes
from lispgpt.passes.effects import refuse_linked
from lispgpt.passes.pipeline import Pipeline, Stage, parse_calls
from lispgpt.passes.targets import find_target
from lispgpt.passes.value_names import Names
from lispgpt.pipelines.pipeline_file import pipeline_path, read_pipeline


@click.command("opt")
@click.argument("file", type=PATH)
@click.option(
    "--pipeline", "pipeline_text", help="A pipeline file, or passes as name{option=value},…; default: the target's."
)
@click.option(
    "--skip", default=0, type=click.IntRange(0), help="Leave out the pipeline's first passes (a dump's number)."
)
@click.option("--passes", type=PATH, multiple=True, metavar="FILE.py", help="Your own passes, for --pipeline to name.")
@click.option("--schedules", type=PATH, multiple=True, metavar="FILE", help="Schedules that choose-tiles tries first.")
@click.option("--target", type=TARGET, default="cpu", show_default=True, help="Whose capabilities schedules read.")
@all_of(watching_options())
@click.option("-o", "output", type=PATH, help="Where the result goes (default: standard output).")
@contained
def opt(
    file: Path,
    pipeline_text: str | None,
    skip: int,
    passes: tuple[Path, ...],
    schedules: tuple[Path, ...],
    target: str,
    output: Path | None,
    **watching: Any,
) -> None:
    """Run passes on FILE, which holds MLIR, such as a dump of --dump-dir."""
    for own in passes:
        load_passes(own)
    chip, observer = find_target(target), observer_of(watching, echo)
    if pipeline_text is None:
        pipeline = read_pipeline(pipeline_path(chip.pipeline))
    elif pipeline_text.endswith(".lisp") or Path(pipeline_text).is_file():
        pipeline = read_pipeline(Path(pipeline_text))
    else:
        pipeline = Pipeline("command line", (Stage("passes", parse_calls(pipeline_text)),))
    pipeline = pipeline.after(skip)
    with new_context() as context, ir.Location.unknown():
        pipeline.check()
        check_chooses(pipeline, schedules)
        module = parse_module(context, file)
        refuse_linked(module)
        runner = runner_for(chip, schedules, observer=observer)
        runner.names = Names(read_text(file))
        runner.run(module, pipeline)
        text = runner.text(module)
    observer.tell_times()
    if output is None:
        echo(text)
    else:
        write_text(output, text)


def parse_module(context: ir.Context, file: Path) -> ir.Module:
    """A module from a file; MLIR's complaint at its place in the file as a UserError."""
    source = read_source(file)
    with Diagnostics(context) as diagnostics:
        try:
            return ir.Module.parse(source.text.encode(), context)
        except ir.MLIRError as error:
            said = error.error_diagnostics[0] if error.error_diagnostics else None
            message = diagnostics.text() or (said.message if said else str(error))
            place = re.search(r'"-":(\d+):(\d+)', str(said.location) if said else str(error))
            span = diagnostics.span()
            if span is None and place is not None and int(place[1]) <= source.text.count("\n") + 1:
                start = source.offset(int(place[1]), int(place[2]))
                span = Span(source, start, start + 1)
            raise UserError(f"{file} is not valid MLIR: {message}", span) from error
