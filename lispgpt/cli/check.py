"""`lispgpt check`: whether a device computes what a model says, and if not, which kernel does not."""

from __future__ import annotations

import secrets
import shlex
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.folders import cache_folder
from lispgpt.checking.check import Checked, check
from lispgpt.checking.words import told
from lispgpt.cli.completing import TARGET
from lispgpt.cli.options import (
    COMMAND_LINE,
    PATH,
    config_settings,
    given_among,
    guarded,
    precision_option,
    schedules_option,
)
from lispgpt.cli.prompts import numbers
from lispgpt.cli.run import MOST_THREADS
from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.folders import Given, find_given
from lispgpt.compiler.present import compiled_target, running_target
from lispgpt.compiler.request import Request, prompt_size
from lispgpt.execution.model import NEEDS_WEIGHTS
from lispgpt.runtime import tokenizers
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.devices import missing
from lispgpt.runtime.plan.artifact import read_source
from lispgpt.runtime.text import tokens_of


@click.command("check")
@click.argument("program", metavar="MODEL", type=PATH)
@click.option("--checkpoint", type=PATH, help="A checkpoint; its header sets the program's config.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--context", type=click.IntRange(1), help="Positions to make code for (default: the checkpoint's).")
@click.option(
    "--target",
    type=TARGET,
    help="cuda, rocm, emulated:gfx1151, …: what to compare with the CPU (default: the GPU here).",
)
@precision_option()
@click.option("--pipeline", type=PATH, help="A pipeline file in place of the target's own.")
@schedules_option()
@click.option("--tokenizer", type=PATH, help="A tokenizer file (default: beside the checkpoint).")
@click.option("--source", type=PATH, help="The program of an artifact (default: as it was when it was compiled).")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences in a step.")
@click.option("--prompt", help="Text to take in (default: random tokens).")
@click.option("--prompt-tokens", metavar="ID,…", help="The same by tokens.")
@click.option("--length", type=click.IntRange(1), default=17, show_default=True, help="Tokens of a random prompt.")
@click.option("--seed", type=click.IntRange(0), help="Of a random prompt (default: a new one, which is printed).")
@click.option("--steps", type=click.IntRange(0), default=8, show_default=True, help="Decode steps behind the prompt.")
@click.option("--kernels", is_flag=True, help="Compare every kernel, even where logits agree.")
@click.option("--kernel", "only", default="", metavar="NAME", help="Compare this kernel alone.")
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@click.pass_context
@guarded
def check_(ctx: click.Context, program: Path, **options: Any) -> int:
    """Compare what MODEL computes on a device with what it does on the CPU.

    A prompt and some greedy steps run on both, and logits are compared; those of a small model with float64, too, which
    says who of the two is how far off.  Where the device is wrong, its launches run one by one beside the same kernels
    on the CPU, and the first that is wrong is named, with the forms of the program that it was made of and the command
    that repeats it.  MODEL may be an artifact, whose kernels are compared with those of the program that it was made
    of.  Exit code 1 where anything is wrong.
    """
    given = find_given(program, options["checkpoint"])
    for notice in given.notices(config_settings(options["settings"], options["context"])):
        say(notice)
    options["target"] = options["target"] or _gpu_here(given)
    if (lacking := missing(options["target"])) is not None:
        raise UserError(lacking)
    with tempfile.TemporaryDirectory() as folder:
        made = _request(ctx, given, options, Path(folder))
        if given.checkpoint is None and declared(made).weights:
            raise UserError(NEEDS_WEIGHTS)
        prompt = _prompt(options, made, given.weights)
        request = replace(made, longest=prompt_size(len(prompt)))
        cache = Cache(cache_folder(ctx.obj["environment"]))
        more = options["threads"], cache, given.artifact
        checked = Checked(request, given.checkpoint, options["target"], *more)
        found = check(checked, prompt, options["steps"], options["kernels"], options["only"], say)
        echo(told(found, len(prompt), options["target"], made.program, _again(ctx, program, prompt)))
    return 0 if found.right else 1


def _gpu_here(given: Given) -> str:
    """What an artifact was compiled for, or else the GPU of this machine; UserError where it has none."""
    found = compiled_target("auto") if given.artifact is None else given.artifact.target
    if given.artifact is None and found.partition(":")[0] == "cpu":
        raise UserError(
            "there is no GPU here to compare with the CPU; --target emulated:gfx1151 has the CPU run an AMD GPU's "
            "code, instruction by instruction"
        )
    return found


OF_PROGRAMS = ("settings", "context", "precision", "pipeline", "schedules")
"""Options of what is compiled from a program."""


def _request(ctx: click.Context, given: Given, options: dict[str, Any], folder: Path) -> Request:
    """What to compile, or what an artifact was compiled of: its source, or the program that is said to be that.

    folder: where a source may be written.
    """
    target, batch, artifact = running_target(options["target"]), options["batch"], given.artifact
    if artifact is None:
        if options["source"] is not None:
            raise click.UsageError(f"--source is for artifacts: {given.program} is a program")
        settings = config_settings(options["settings"], options["context"])
        made = Request(given.program, target, settings, given.config, options["pipeline"], batch, unsized=True)
        return replace(made, precision=options["precision"], schedules=options["schedules"], unneeded=(DRAWN,))
    if said := given_among(ctx, OF_PROGRAMS):
        raise click.UsageError(f"{said} is for programs: {given.program} is compiled")
    if target != artifact.target:
        raise click.UsageError(f"--target {options['target']}: {given.program} was compiled for {artifact.target}")
    program = options["source"]
    if program is None:
        name, text = read_source(given.program)
        program = folder / Path(name).name
        program.write_text(text, encoding="utf-8")
    return Request(program, target, artifact.config, batch=batch, unsized=True, precision=artifact.precision)


def _prompt(options: dict[str, Any], request: Request, weights: Path | None) -> list[int]:
    """The tokens that are given, or random ones of a seed, which is printed."""
    if options["prompt"] is not None and options["prompt_tokens"] is not None:
        raise click.UsageError("give --prompt or --prompt-tokens, not both")
    if options["prompt_tokens"] is not None:
        return numbers(options["prompt_tokens"])
    if options["prompt"] is not None:
        return tokens_of(options["prompt"], tokenizers.find(weights, options["tokenizer"]))
    config = declared(request).config
    sizes = [config.get(name) for name in ("vocab", "context")]
    if not all(type(size) is int for size in sizes):
        raise UserError("for a random prompt a program's config has to say vocab and context: give --prompt-tokens")
    vocab, context = sizes
    seed = secrets.randbits(32) if options["seed"] is None else options["seed"]
    length = max(1, min(options["length"], context - options["steps"]))
    say(f"a random prompt of {length} tokens: --seed {seed}")
    return [int(token) for token in np.random.default_rng(seed).integers(0, vocab, length)]


def _again(ctx: click.Context, program: Path, prompt: list[int]) -> str:
    """The command that does the same, but for the kernel that is compared."""
    words = ["lispgpt", "check", str(program)]
    for param in ctx.command.params:
        name, value = str(param.name), ctx.params[str(param.name)]
        said = ctx.get_parameter_source(name) is COMMAND_LINE
        if not said or name in ("program", "prompt", "prompt_tokens", "length", "seed", "kernels", "only", "tokenizer"):
            continue
        for each in value if isinstance(value, tuple) else (value,):
            words += [param.opts[0], str(each)]
    return shlex.join([*words, "--prompt-tokens", ",".join(map(str, prompt))])
