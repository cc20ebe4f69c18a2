"""`lispgpt compile`: a program to an artifact, or the text of one of its stages."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import click

from lispgpt.compile_options import PATH, compile_options, parse_settings
from lispgpt.driver import Observer, Request, compile_request, emit
from lispgpt.runtime import checkpoints


@click.command("compile")
@click.argument("program", type=PATH)
@compile_options
@click.option("-o", "output", type=PATH, help="The artifact to write (default: the program's name with .lgpt).")
@click.option(
    "--emit", "stage", default="artifact", show_default=True, help="forms, mlir, a stage of the pipeline, asm."
)
def compile_(
    program: Path,
    checkpoint: Path | None,
    settings: tuple[str, ...],
    target: str,
    pipeline: Path | None,
    batch: int,
    dump_dir: Path | None,
    print_after: tuple[str, ...],
    output: Path | None,
    stage: str,
) -> None:
    """Compile PROGRAM to an artifact (or print one stage of it with --emit)."""
    header: dict[str, Any] = dict(checkpoints.open(checkpoint).config) if checkpoint else {}
    request = Request(program, target, parse_settings(settings), header, pipeline, batch)
    observer = Observer(dump_dir, print_after, click.echo)
    if stage != "artifact":
        text = emit(request, stage, observer)
        if output is None:
            click.echo(text)
        else:
            output.write_text(text)
        return
    started = time.time()
    artifact, _ = compile_request(request, observer)
    path = output or Path(program.stem + ".lgpt")
    artifact.save(path)
    launches = max((len(e.launches) for e in artifact.plan.entries), default=0)
    click.echo(
        f"{path}: {artifact.target}, {len(artifact.kernels)} kernels, at most {launches} launches a step, "
        f"{len(artifact.code):,} bytes of code, in {time.time() - started:.2f} s",
        err=True,
    )
