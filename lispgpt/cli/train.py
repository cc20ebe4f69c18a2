"""`lispgpt train`: begin a run of training steps, or go on with one."""

from __future__ import annotations

import dataclasses
import functools
from collections.abc import Callable
from pathlib import Path
from typing import Any

import click

from lispgpt.base.folders import cache_folder
from lispgpt.base.precisions import PRECISIONS
from lispgpt.base.reading import is_there
from lispgpt.cli.completing import TARGET
from lispgpt.cli.launched import options as device_options
from lispgpt.cli.options import FIRST_NAN, PATH, QUICK, checkpoint_option, guarded, parse_settings, together
from lispgpt.cli.progress import Progress
from lispgpt.cli.run import MOST_THREADS
from lispgpt.cli.terminal import say
from lispgpt.cli.trace import TIMELINE_OPTION
from lispgpt.runtime.checkpoints.sealed import RUN
from lispgpt.runtime.checkpoints.seeded import PRESETS
from lispgpt.runtime.timeline import recording
from lispgpt.runtime.training.options import Options
from lispgpt.runtime.training.trainer import Trainer
from lispgpt.training.runs import train as train_program

SCHEDULES = click.Choice(["cosine", "linear", "constant"])
WHOLE, FROM_ONE, NUMBER = click.IntRange(0), click.IntRange(1), click.FloatRange(0)
STEPS: dict[str, tuple[Any, str]] = {
    "steps": (FROM_ONE, "Steps of the whole run."),
    "batch": (FROM_ONE, "Sequences of a micro-batch."),
    "length": (FROM_ONE, "Tokens of a sequence."),
    "accumulate": (FROM_ONE, "Micro-batches of a step."),
    "lr": (NUMBER, "The peak of the learning rate."),
    "min-lr": (NUMBER, "The learning rate of the last step [a tenth of --lr]."),
    "warmup": (WHOLE, "Steps in which the learning rate grows [a tenth of --steps, at most 100]."),
    "clip": (NUMBER, "The largest norm of the gradient; 0 for any."),
    "weight-decay": (NUMBER, "Of matrices, at each step."),
    "beta1": (NUMBER, "Of the mean of gradients."),
    "beta2": (NUMBER, "Of the mean of their squares."),
    "seed": (WHOLE, "Of the initial weights, the data's order, and dropout."),
    "eval-every": (WHOLE, "Steps between evaluations; 0 for none."),
    "eval-batches": (FROM_ONE, "Batches of an evaluation, at most."),
    "sample-every": (WHOLE, "Steps between texts that the model writes; 0 for none."),
    "sample": (str, "What those go on from."),
    "sample-tokens": (FROM_ONE, "How many tokens those have."),
    "checkpoint-every": (WHOLE, "Steps between checkpoints; 0 for the last one only."),
    "keep": (FROM_ONE, "How many checkpoints to keep."),
}
DATA = ("data", "val_data", "val_fraction", "tokenizer", "vocab_size")
BEGINNING = (*DATA, "checkpoint", "preset", "settings", "schedule", "precision", "lora", "mask_documents")


def step_options(command: Callable[..., Any]) -> Callable[..., Any]:
    """Add the options that `Options` has, None where they are not given."""
    defaults = {field.name: field.default for field in dataclasses.fields(Options)}
    for name, (kind, text) in reversed(STEPS.items()):
        default = defaults[name.replace("-", "_")]
        shown = text if default in (None, "") else f"{text}  [default: {default}]"
        command = click.option(f"--{name}", type=kind, help=shown)(command)
    return command


@click.command("train")
@click.argument("program", type=PATH, required=False)
@click.argument("more_data", type=PATH, nargs=-1, metavar="[DATA]...")
@click.option("--run", type=PATH, help="The run's folder: a new one, or that to go on in.")
@click.option("--resume", is_flag=True, help="Go on with the run in the folder; needs nothing else.")
@click.option(
    "--data", type=PATH, multiple=True, help="Text, JSON lines, token shards, folders; .npz; script.py:batches."
)
@click.option("--val-data", type=PATH, multiple=True, help="Data to validate with.  Repeatable.")
@click.option("--val-fraction", type=float, help="Of --data, to validate with.  [default: 0.05]")
@click.option("--tokenizer", type=PATH, help="A tokenizer file.")
@click.option("--vocab-size", type=click.IntRange(1), help="Make a tokenizer of so many tokens of the data.")
@checkpoint_option("Weights to begin with, and their sizes.")
@click.option("--preset", type=click.Choice(list(PRESETS)), help="The sizes of a known model.")
@click.option("--lora", metavar="rank=R,…", help="Train an adapter: rank=16,alpha=32,targets=q_proj+v_proj.")
@click.option("--mask-documents", is_flag=True, default=None, help="Have no document of a sequence see another.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--schedule", type=SCHEDULES, help="How the learning rate falls (--set schedule=…).")
@step_options
@click.option("--target", type=TARGET, help="cpu, cuda, rocm, auto, emulated:gfx1151, …  [default: cpu]")
@click.option("--precision", type=click.Choice(PRECISIONS), help="fast: see `lispgpt run`.  [default: exact]")
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@device_options
@click.option("--shard-optimizer", is_flag=True, help="Have each device keep its part of the optimizer's states alone.")
@click.option("--profile", is_flag=True, help="Print each kernel's time in a step, and its floor, at the end.")
@TIMELINE_OPTION
@FIRST_NAN
@QUICK
@click.option("--no-cache", is_flag=True, help="Compile even where the result is cached.")
@click.pass_context
@functools.partial(guarded, ends_itself=True)
def train(ctx: click.Context, program: Path | None, run: Path | None, resume: bool, **options: Any) -> int:
    """Train PROGRAM on data, keeping all that is needed to go on in a folder.

    PROGRAM may be a model: a Hugging Face folder, a model of the hub, or a GGUF file of floats.  Its own program is
    trained from its weights, and a folder's checkpoints are folders like it, which `lispgpt run RUN` runs.  With --lora
    an adapter of a folder is trained, in PEFT's format: `lispgpt run FOLDER --adapter RUN` adds the newest checkpoint.

    What stands behind PROGRAM or --data PATH is more data.
    Several devices take the parts of one batch: with --devices in processes that are started here, else in those that
    mpirun, srun or torchrun has started.
    Ctrl-C writes a checkpoint and ends.  `lispgpt train --run FOLDER --resume` goes on as if nothing had happened.
    """
    options["data"] += options["more_data"]
    given = {name: options[name] for name in BEGINNING if options[name] not in (None, ())}
    if run is None:
        program, run = None, _run_in(program, resume)
    if resume and given:
        raise click.UsageError("--resume goes on with what the run began with: it takes no data and no settings")
    if not resume and program is None:
        raise click.UsageError("give a PROGRAM to train, or --resume")
    settings = parse_settings(given.pop("settings", ()))
    if "schedule" in given:
        settings |= {"schedule": given.pop("schedule")}
    given |= {name: value for key in STEPS if (value := options[name := key.replace("-", "_")]) is not None}
    given |= {name: options[name] for name in ("target", "threads", "engine", "shard_optimizer", "first_nan", "quick")}
    given |= {name: options[name] for name in ("devices", "patience") if options[name] is not None}
    given |= {"cache": None if options["no_cache"] else cache_folder(ctx.obj["environment"])}
    given |= {"profile": _profile if options["profile"] else None}
    watched = recording(options["timeline"])
    with watched, together(ctx.obj["environment"], options["patience"]) as peers, Progress() as progress:
        given |= {"peers": peers, "watcher": progress if peers is None or peers.place.rank == 0 else None}
        outcome = train_program(program, run=run, resume=resume, settings=settings, **given)
    if outcome.interrupted and (peers is None or peers.place.rank == 0):
        command = f"lispgpt train --run {run} --resume"
        say(f"interrupted at step {outcome.step}, which is kept; `{command}` goes on")
        return 130
    return 0


def _run_in(program: Path | None, resume: bool) -> Path:
    """The folder of the run that goes on, where it alone is named."""
    if program is None or not is_there(program / RUN):
        raise click.UsageError("give --run FOLDER: a new one, for what the run keeps, or that of the run to go on with")
    if not resume:
        raise click.UsageError(f"{program} is a run's folder: `lispgpt train --run {program} --resume` goes on with it")
    return program


def _profile(trainer: Trainer) -> None:
    """Print how long each kernel of a step's entries takes."""
    from lispgpt.runtime.profile import measured_rates, profile_entry, table

    rates = measured_rates(trainer.session)
    for entry, inputs in trainer.profiled():
        profile = profile_entry(trainer.session, entry, trainer.rows, inputs, alone=True)
        known = f"floors at {rates}" if rates else "floors are known for GPUs alone"
        say(f"{entry.label}, kernel by kernel; {known}\n{table(profile, rates)}")
