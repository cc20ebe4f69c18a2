"""`lispgpt explore`: a program from its lines to machine code, on one page."""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import click

from lispgpt.base.files import write_text
from lispgpt.cli.completing import TARGET
from lispgpt.cli.options import PATH, config_settings, contained, parse_shapes, precision_option
from lispgpt.cli.terminal import say
from lispgpt.compiler.folders import find_given
from lispgpt.compiler.present import compiled_target
from lispgpt.compiler.request import Request
from lispgpt.ir.mlir import without_op_classes


@click.command("explore")
@click.argument("program", type=PATH)
@click.option("-o", "output", type=PATH, help="The page to write (default: the program's name with .html).")
@click.option("--checkpoint", type=PATH, help="A checkpoint; its header sets the program's config.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--context", type=click.IntRange(1), help="Positions to make code for (default: the checkpoint's).")
@click.option("--target", type=TARGET, default="cpu", show_default=True, help="cpu, rocm:gfx1151, cuda:sm_90a, …")
@precision_option()
@click.option("--pipeline", type=PATH, help="A pipeline file in place of the target's own.")
@click.option("--schedules", type=PATH, multiple=True, metavar="FILE", help="Schedules of your own.")
@click.option("--batch", type=click.IntRange(1, 1 << 16), help="Sequences in a decode step beside the single one.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=SIZE,…", help="Sizes of an entry's free dimensions.")
@contained
def explore(
    program: Path,
    output: Path | None,
    checkpoint: Path | None,
    settings: tuple[str, ...],
    context: int | None,
    target: str,
    precision: str,
    pipeline: Path | None,
    schedules: tuple[Path, ...],
    batch: int | None,
    shapes: tuple[str, ...],
) -> None:
    """Write one page on which PROGRAM can be followed to machine code.

    Its forms, what each pass makes of them, every kernel's code, the plan and its memory stand side by side; what is
    clicked lights up in all of them.  The file needs no network and nothing else.  Where a pass fails, the page ends
    there.
    """
    from lispgpt.explore.document import document
    from lispgpt.explore.page import page
    from lispgpt.explore.recording import record

    without_op_classes()
    found = find_given(program, checkpoint)
    request = Request(
        found.program, compiled_target(target), config_settings(settings, context), found.config, pipeline
    )
    request = replace(request, batch=batch or 1, sizes=parse_shapes(shapes), schedules=schedules, precision=precision)
    recording = record(request)
    path = output or Path(f"{program.stem}.html")
    text = page(*document(recording, " ".join(["lispgpt", *sys.argv[1:]])))
    write_text(path, text)
    say(f"{path}: {recording.target}, {len(recording.history.steps)} functions, {len(text.encode()):,} bytes")
    if recording.failure is not None:
        raise recording.failure
