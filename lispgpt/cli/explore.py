"""`lispgpt explore`: a program from its lines to machine code, on one page."""

from __future__ import annotations

import shlex
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
@click.option("--prompt", help="Show the tensors of this sentence on the forms that make them (on the CPU).")
@click.option(
    "--tokenizer", "tokenizer_path", type=PATH, help="A tokenizer file (default: the one beside the checkpoint)."
)
@click.option("--profile", is_flag=True, help="Measure how long each kernel takes, on the target's device.")
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
    prompt: str | None,
    tokenizer_path: Path | None,
    profile: bool,
) -> None:
    """Write one page on which PROGRAM can be followed to machine code.

    Its forms, what each pass makes of them, every kernel's code, the plan and its memory stand side by side; what is
    clicked lights up in all of them.  The file needs no network and nothing else.  Where a pass fails, the page ends
    there.
    """
    from lispgpt.explore.document import document
    from lispgpt.explore.page import page
    from lispgpt.explore.recording import record
    from lispgpt.explore.running import sentence, times
    from lispgpt.runtime import tokenizers

    without_op_classes()
    found = find_given(program, checkpoint)
    request = Request(
        found.program, compiled_target(target), config_settings(settings, context), found.config, pipeline
    )
    request = replace(request, batch=batch or 1, sizes=parse_shapes(shapes), schedules=schedules, precision=precision)
    recording = record(request)
    path = output or Path(f"{program.stem}.html")
    seen, measured = None, []
    if prompt is not None and recording.failure is None:
        seen = sentence(recording, prompt, found.checkpoint, tokenizers.find(found.weights, tokenizer_path))
    if profile and recording.artifact is not None:
        measured = times(recording.artifact, found.checkpoint, target)
    text = page(*document(recording, shlex.join(["lispgpt", *sys.argv[1:]]), seen, measured))
    write_text(path, text)
    say(f"{path}: {recording.target}, {len(recording.history.steps)} functions, {len(text.encode()):,} bytes")
    if recording.failure is not None:
        raise recording.failure
