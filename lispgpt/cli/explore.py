"""`lispgpt explore`: a program from its lines to machine code, on one page."""

from __future__ import annotations

import shlex
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any

import click

from lispgpt.base.files import write_text
from lispgpt.base.reading import is_there
from lispgpt.cli.options import PATH, all_of, contained, given_among, parse_settings, program_options
from lispgpt.cli.requested import requested
from lispgpt.cli.terminal import say
from lispgpt.compiler.folders import find_given, program_of_run
from lispgpt.compiler.present import running_target
from lispgpt.ir.mlir import without_op_classes
from lispgpt.runtime.checkpoints.sealed import RUN


@click.command("explore")
@click.argument("program", type=PATH)
@click.option("-o", "output", type=PATH, help="The page to write (default: the program's name with .html).")
@all_of(program_options())
@click.option("--prompt", help="Show the tensors of this sentence on the forms that make them (on the CPU).")
@click.option(
    "--tokenizer", "tokenizer_path", type=PATH, help="A tokenizer file (default: the one beside the checkpoint)."
)
@click.option("--profile", is_flag=True, help="Measure how long each kernel takes, on the target's device.")
@contained
def explore(
    program: Path,
    output: Path | None,
    prompt: str | None,
    tokenizer_path: Path | None,
    profile: bool,
    **options: Any,
) -> None:
    """Write one page on which PROGRAM, or what a run of training trains, can be followed to machine code.

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
    found, of_steps = find_given(program, options["checkpoint"]), dict[str, Any]()
    if not options["checkpoint"] and is_there(program / RUN):
        found, of_steps = find_given(program_of_run(program), program), _asked_by_steps(program, options, prompt)
    for notice in found.notices(parse_settings(options["settings"])):
        say(notice)
    asked = options["target"]
    if profile:
        options["target"] = running_target(asked)
    recording = record(replace(requested(found, options), **of_steps))
    path = output or Path(f"{program.stem}.html")
    seen, measured = None, []
    if prompt is not None and recording.failure is None:
        seen = sentence(recording, prompt, found.checkpoint, tokenizers.find(found.weights, tokenizer_path))
    if profile and recording.artifact is not None:
        measured = times(recording.artifact, found.checkpoint, asked)
    text = page(*document(recording, shlex.join(["lispgpt", *sys.argv[1:]]), seen, measured))
    write_text(path, text)
    say(f"{path}: {recording.target}, {len(recording.history.steps)} functions, {len(text.encode()):,} bytes")
    if recording.failure is not None:
        raise recording.failure


def _asked_by_steps(run: Path, options: dict[str, Any], prompt: str | None) -> dict[str, Any]:
    """What the steps of a run want of a request; its target and precision become options, where none are given.  A
    prompt goes through other entries, which are there in their place."""
    from lispgpt.training.going_on import asked_by_steps

    asked, context = asked_by_steps(run), click.get_current_context()
    own = {name: asked.pop(name) for name in ("target", "precision")}
    options |= {name: value for name, value in own.items() if not given_among(context, (name,))}
    shown: dict[str, Any] = asked if prompt is None else {"unsized": True}
    return {} if options["shapes"] else shown
