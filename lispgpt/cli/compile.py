"""`lispgpt compile`: a program to an artifact, or the text of one of its stages."""

from __future__ import annotations

import time
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing, write_text
from lispgpt.base.folders import cache_folder
from lispgpt.cli.options import PATH, compile_options, contained, observer_of, parse_settings
from lispgpt.cli.requested import requested
from lispgpt.cli.terminal import counted, echo, say
from lispgpt.compiler.driver import Observer, Request, compile_program, emit, evaluate_request, is_program, job_of
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.kernel_report import kernel_table
from lispgpt.compiler.trust import remember
from lispgpt.compiler.tuning import tuned
from lispgpt.ir.mlir import new_context, without_op_classes
from lispgpt.programs import launch


@click.command("compile")
@click.argument("program", type=PATH)
@compile_options
@click.option("-o", "output", type=PATH, help="The artifact to write (default: the program's name with .lgpt).")
@click.option(
    "--emit", "stage", default="artifact", show_default=True, help="forms, mlir, a stage of the pipeline, asm."
)
@click.option("--devices", type=click.IntRange(1), default=1, help="Share the batch of each entry among so many.")
@click.option("--shard-optimizer", is_flag=True, help="Have each of them keep its part of the optimizer's states.")
@click.option("--report", is_flag=True, help="Print a row for each kernel: grid, registers, memory, work, floor.")
@contained
def compile_(
    program: Path,
    output: Path | None,
    stage: str,
    devices: int,
    shard_optimizer: bool,
    report: bool,
    **options: Any,
) -> None:
    """Compile PROGRAM to an artifact (or print one stage of it with --emit)."""
    without_op_classes()
    given = find_given(program, options["checkpoint"])
    for notice in given.notices(parse_settings(options["settings"])):
        say(notice)
    request = requested(given, options)
    kept = cache_folder(click.get_current_context().obj["environment"])
    request = tuned(replace(request, devices=devices, shares_states=shard_optimizer), kept)
    observer = observer_of(options, echo)
    if stage != "artifact":
        text = emit(request, stage, observer)
        if output is None:
            echo(text)
        else:
            write_text(output, text)
        return
    started = time.monotonic()
    with new_context():
        with observer.timing("evaluate"):
            evaluated = evaluate_request(request)
        if is_program(evaluated):
            _write_objects(launch.build(job_of(evaluated, request, observer)), request, output)
            return
        artifact = compile_program(evaluated, request, observer)
    path = output or Path(request.program.stem + ".lgpt")
    artifact.save(path)
    remember(kept, artifact)
    own = f" and {sum(map(len, artifact.objects)):,} for the chip itself" if artifact.objects else ""
    launches = max((len(e.first_launches) for e in artifact.plan.entries), default=0)
    say(
        f"{path}: {artifact.target}, {counted(len(artifact.kernels), 'kernel')}, at most "
        f"{counted(launches, 'launch', 'launches')} a step, "
        f"{len(artifact.code):,} bytes of code{own}, in {time.monotonic() - started:.2f} s",
    )
    if report:
        echo(kernel_table(artifact, emit(request, "asm", Observer())))


def _write_objects(objects: dict[str, bytes], request: Request, output: Path | None) -> None:
    """A single object to the file asked for; several, or by default, to a folder."""
    chip = request.target.replace(":", "-")
    path = output or Path(f"{request.program.stem}.{chip}")
    try:
        if output is not None and len(objects) == 1:
            files = {output: next(iter(objects.values()))}
        else:
            path.mkdir(parents=True, exist_ok=True)
            files = {path / name: code for name, code in objects.items()}
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    for file, code in files.items():
        with replacing(file) as stream:
            stream.write(code)
        say(f"{file}: {request.target}, {len(code):,} bytes")
