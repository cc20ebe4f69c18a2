"""`lispgpt run`: generate text with a model program or artifact, run an entry of it, or a program with a `main`."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import click

from lispgpt.api import load
from lispgpt.base.folders import cache_folder, trusted_keys
from lispgpt.base.precisions import EXACT
from lispgpt.cli.arrays import read_inputs, write_results
from lispgpt.cli.completing import ENTRY
from lispgpt.cli.generate import OF_TEXTS, choices, generate, sampling_options
from lispgpt.cli.options import (
    ADAPTER,
    COMMAND_LINE,
    DRAFT,
    FIRST_NAN,
    FORMAT,
    PATH,
    WATCHING,
    all_of,
    compile_options,
    config_settings,
    given_among,
    guarded,
    observer_of,
    parse_shapes,
    parse_up_to,
)
from lispgpt.cli.prompts import Prompts, prompt_options
from lispgpt.cli.sections import Sectioned
from lispgpt.cli.terminal import say
from lispgpt.cli.trace import TIMELINE_OPTION
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import run_or_compile
from lispgpt.compiler.folders import Given, find_given
from lispgpt.compiler.present import matching_artifact, running_target
from lispgpt.compiler.request import Request, prompt_size
from lispgpt.compiler.trust import check_trusted
from lispgpt.execution.model import Model
from lispgpt.runtime import tokenizers
from lispgpt.runtime.decoding import DRAWN
from lispgpt.runtime.devices import wake_driver
from lispgpt.runtime.plan.artifact import Artifact
from lispgpt.runtime.timeline import recording

MOST_THREADS = 4096

OF_MODELS = (
    *OF_TEXTS,
    "checkpoint",
    "batch",
    "shapes",
    "up_to",
    "format_",
    "inputs",
    "output",
    "check",
    "first_nan",
    "timeline",
    "trace",
)
"""Options that a program with a `main` has no use for."""

OF_COMPILING = ("quick", "settings", "pipeline", "schedules", "shapes", "up_to", *WATCHING)
"""Options that an artifact has no use for."""


@click.command(
    "run", cls=Sectioned, context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True}
)
@click.argument("program", type=PATH)
@click.argument("arguments", nargs=-1)
@compile_options
@click.option("--tokenizer", "tokenizer_path", type=PATH, help="A tokenizer file (default: beside the checkpoint).")
@ADAPTER
@DRAFT
@all_of(prompt_options() + sampling_options())
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@FORMAT
@click.option("--stats", is_flag=True, help="Print times and memory bandwidth to standard error.")
@click.option(
    "--profile",
    is_flag=True,
    help="Print each kernel's time in a decode step, and its floor, to standard error.",
)
@click.option("--entry", type=ENTRY, help="Run this entry instead of generating.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input of the entry, or its JSON.")
@click.option("--output", type=PATH, help="Where its results go: FILE.npz, or FILE.npy for one (default: printed).")
@click.option("--check", is_flag=True, help="Check that every kernel reads and writes what it says (on a CPU, slow).")
@FIRST_NAN
@TIMELINE_OPTION
@click.option("--trace", default="", metavar="KERNEL", help="Print a kernel's instructions (on an emulated GPU).")
@click.option("--trust", is_flag=True, help="Run an artifact from elsewhere: it is code, with your rights.")
@click.option("--no-cache", is_flag=True, help="Compile even where the result is cached.")
@click.pass_context
@guarded
def run(ctx: click.Context, program: Path, **options: Any) -> int:
    """Run PROGRAM: a model (.lisp or .lgpt) generates text or runs an entry; a program with a `main` gets ARGUMENTS.

    Programs and artifacts are code: they run with your rights.  Artifacts run that you compiled here, and those that a
    key you listed has signed (lispgpt sign --help).
    """
    started = time.monotonic()
    given = find_given(program, options["checkpoint"], options["adapter"])
    for notice in given.notices(config_settings(options["settings"], options["context"])):
        say(notice)
    observer = observer_of(options, say)
    cache = None if options["no_cache"] else Cache(_cache_folder(ctx))
    prompts, said = Prompts(options), choices(options)
    generates = options["entry"] is None
    if not generates and (of_texts := given_among(ctx, OF_TEXTS)):
        raise click.UsageError(f"{of_texts} is for texts that are generated, and --entry runs an entry once")
    source = asked = _source(given, options, prompts.batch if generates else options["batch"] or 1)
    if generates and isinstance(source, Request):
        greedy = said.get("greedy") or said.get("temperature") == 0
        source = replace(source, longest=prompt_size(prompts.longest()), unneeded=(DRAWN,) if greedy else ())
    if isinstance(source, Artifact) and not options["trust"]:
        check_trusted(source, given.program, [_cache_folder(ctx)], trusted_keys(ctx.obj["environment"]))
    if generates and isinstance(source, Request):
        emulated = options["target"].startswith("emulated:")
        wake = None if emulated else partial(wake_driver, source.target)
        of_models = given_among(ctx, OF_MODELS)
        found = run_or_compile(source, observer, cache, options["arguments"], wake, emulated, of_models)
        if isinstance(found, int):
            return found
        source = found
    if options["arguments"]:
        raise click.UsageError("only a program with a `main` takes arguments")
    compiled = time.monotonic()
    tokenizer = tokenizers.find(given.weights, options["tokenizer_path"])
    chosen = {name: options[name] for name in ("threads", "check", "trace", "first_nan")}
    chosen |= {
        "program": asked if isinstance(asked, Request) else None,
        "name": str(program),
        "tell": say,
        "cache": cache,
        "observer": observer,
        "device": options["target"],
    }
    with recording(options["timeline"]), Model(source, given.checkpoint, tokenizer, **chosen) as model:
        if not generates:
            results = model.run(options["entry"], **read_inputs(options["inputs"]))
            write_results(results, options["output"], options["format_"] == "json")
            return 0
        if options["inputs"] or options["output"]:
            raise click.UsageError("--input and --output belong to an entry: give --entry NAME")
        if options["draft"]:
            loading = {name: options[name] for name in ("target", "threads", "trust")}
            model.draft = load(options["draft"], **loading, cache=None if cache is None else _cache_folder(ctx))
        options["beside"] = options["tokenizer_path"] is not None or given.weights is None or not given.weights.is_dir()
        generate(model, prompts, said, options, {"process": ctx.obj["started"], "run": started, "compiled": compiled})
    return 0


def _cache_folder(ctx: click.Context) -> Path:
    return cache_folder(ctx.obj["environment"])


def _source(given: Given, options: Mapping[str, Any], batch: int) -> Request | Artifact:
    """The artifact in a file, or what to compile; batch: sequences at once."""
    if given.artifact is not None:
        artifact = matching_artifact(given.program, given.artifact, given.checkpoint)
        compiling = given_among(click.get_current_context(), OF_COMPILING)
        if compiling:
            raise click.UsageError(f"{compiling} is for programs: {given.program} is compiled")
        _check_target(options["target"], given.program, artifact)
        if options["context"] not in (None, artifact.config.get("context")):
            raise click.UsageError(f"--context is for programs: {given.program} has its own")
        if options["precision"] not in (EXACT, artifact.precision):
            raise click.UsageError(f"--precision is for programs: {given.program} was compiled {artifact.precision}")
        return artifact
    target, sizes = running_target(options["target"]), parse_shapes(options["shapes"])
    settings = config_settings(options["settings"], options["context"])
    made = Request(given.program, target, settings, given.config, options["pipeline"], batch, sizes, unsized=True)
    more = {name: options[name] for name in ("precision", "schedules", "quick")}
    return replace(made, each_op=options["first_nan"], up_to=parse_up_to(options["up_to"]), **more)


def _check_target(asked: str, path: Path, artifact: Artifact) -> None:
    """UsageError where an artifact is asked to run on what it was not compiled for."""
    vendor, colon, _ = asked.partition(":")
    same = asked == artifact.target if colon else vendor == artifact.target.partition(":")[0]
    said = click.get_current_context().get_parameter_source("target") is COMMAND_LINE
    if said and not same and vendor not in ("auto", "emulated"):
        raise click.UsageError(f"--target {asked}: {path} was compiled for {artifact.target}")
