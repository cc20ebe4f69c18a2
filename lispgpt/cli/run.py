"""`lispgpt run`: generate text with a model program or artifact, run an entry of it, or a program with a `main`."""

from __future__ import annotations

import json
import os
import select
import stat
import sys
import time
from collections.abc import Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import click

from lispgpt.api import Model
from lispgpt.base.folders import cache_folder, trusted_keys
from lispgpt.cli.arrays import read_inputs, write_results
from lispgpt.cli.options import PATH, compile_options, config_settings, guarded, parse_shapes
from lispgpt.compiler.cache import Cache
from lispgpt.compiler.compiled import run_or_compile
from lispgpt.compiler.folders import Given, find_given
from lispgpt.compiler.present import matching_artifact, running_target
from lispgpt.compiler.request import Observer, Request
from lispgpt.compiler.trust import check_trusted
from lispgpt.runtime import tokenizers
from lispgpt.runtime.devices import wake_driver
from lispgpt.runtime.generate import Generator
from lispgpt.runtime.plan.artifact import Artifact

MOST_THREADS = 4096


@click.command("run", context_settings={"ignore_unknown_options": False, "allow_interspersed_args": True})
@click.argument("program", type=PATH)
@click.argument("arguments", nargs=-1)
@compile_options
@click.option("--tokenizer", "tokenizer_path", type=PATH, help="A tokenizer file (default: beside the checkpoint).")
@click.option("--prompt", "prompts", multiple=True, help="Text to continue; - reads standard input.  Repeatable.")
@click.option("--prompt-tokens", metavar="1,2,3", help="Token ids to continue.")
@click.option("--max-new-tokens", type=click.IntRange(0), help="How many tokens to generate at most.")
@click.option("--greedy", is_flag=True, help="Always take the most probable token.")
@click.option("--temperature", type=float, help="Divide logits by this; 0 is greedy.")
@click.option("--top-k", type=int, help="Sample among the k most probable tokens (0: all).")
@click.option("--top-p", type=float, help="Sample among the most probable tokens that sum to this probability.")
@click.option("--seed", type=int, help="Make sampling repeatable.")
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@click.option("--format", "format_", type=click.Choice(["text", "json"]), default="text", show_default=True)
@click.option("--stats", is_flag=True, help="Print times and memory bandwidth to standard error.")
@click.option(
    "--profile",
    is_flag=True,
    help="Print each kernel's time in a decode step, and its floor, to standard error.",
)
@click.option("--entry", help="Run this entry instead of generating.")
@click.option("--input", "inputs", multiple=True, metavar="NAME=FILE.npy", help="An input of the entry, or its JSON.")
@click.option("--output", type=PATH, help="Where its results go: FILE.npz, or FILE.npy for one (default: printed).")
@click.option("--check", is_flag=True, help="Check that every kernel reads and writes what it says (on a CPU, slow).")
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
    started = time.time()
    given = find_given(program, options["checkpoint"])
    observer = Observer(options["dump_dir"], options["print_after"], lambda text: click.echo(text, err=True))
    cache = None if options["no_cache"] else Cache(_cache_folder(ctx))
    source = _source(given, options)
    if isinstance(source, Artifact) and not options["trust"]:
        check_trusted(source, given.program, [_cache_folder(ctx)], trusted_keys(ctx.obj["environment"]))
    if isinstance(source, Request) and options["entry"] is None:
        emulated = options["target"].startswith("emulated:")
        wake = None if emulated else partial(wake_driver, source.target)
        found = run_or_compile(source, observer, cache, options["arguments"], wake, emulated)
        if isinstance(found, int):
            return found
        source = found
    if options["arguments"]:
        raise click.UsageError("only a program with a `main` takes arguments")
    compiled = time.time()
    tokenizer = tokenizers.find(given.weights, options["tokenizer_path"])
    chosen = {name: options[name] for name in ("threads", "check", "trace")}
    chosen |= {"name": str(program), "cache": cache, "observer": observer, "device": options["target"]}
    with Model(source, given.checkpoint, tokenizer, **chosen) as model:
        if options["entry"] is not None:
            write_results(model.run(options["entry"], **read_inputs(options["inputs"])), options["output"])
            return 0
        if options["inputs"] or options["output"]:
            raise click.UsageError("--input and --output belong to an entry: give --entry NAME")
        _generate(model, options, {"process": ctx.obj["started"], "run": started, "compiled": compiled})
    return 0


def _cache_folder(ctx: click.Context) -> Path:
    return cache_folder(ctx.obj["environment"])


def _source(given: Given, options: Mapping[str, Any]) -> Request | Artifact:
    """The artifact in a file, or what to compile."""
    if given.artifact is not None:
        artifact = matching_artifact(given.program, given.artifact, given.checkpoint)
        if options["context"] not in (None, artifact.config.get("context")):
            raise click.UsageError(f"--context is for programs: {given.program} has its own")
        return artifact
    target, sizes = running_target(options["target"]), parse_shapes(options["shapes"])
    settings = config_settings(options["settings"], options["context"], given.config, target)
    return Request(
        given.program, target, settings, given.config, options["pipeline"], options["batch"], sizes, unsized=True
    )


def _generate(model: Model, options: Mapping[str, Any], times: dict[str, float]) -> None:
    """Print text as it comes, and what was asked for of how it went."""
    sampler, settings = _sampler(model, options)
    texts = _texts(options)
    prompts = [model.prompt(prompt) for prompt in _prompts(options, texts)]
    device = model.session.device
    click.echo(f"running on {device.name}", err=True)
    loaded = time.time()
    reports = []
    for number, prompt in enumerate(prompts):
        generator, text = model.generator(sampler), texts[number % len(texts)] if texts else ""
        reports.append({"prompt_tokens": prompt, **_print_text(model, generator, prompt, text, options)})
    report = reports[0]
    if options["profile"]:
        _profile(generator)
    timing = {
        "compile_s": times["compiled"] - times["run"],
        "load_s": loaded - times["compiled"],
        "prefill_s": report["first"] - loaded,
        "decode_ms_per_token": report["decode_ms"],
        "first_token_s": report["first"] - times["process"],
    }
    if options["stats"]:
        _print_stats(model.artifact, timing, len(prompts[0]), settings)
    if options["format_"] == "json":
        sequences = [{key: each[key] for key in ("prompt_tokens", "tokens", "text")} for each in reports]
        result: dict[str, Any] = sequences[0] if len(sequences) == 1 else {"sequences": sequences}
        result |= {"target": model.artifact.target.partition(":")[0], "device": device.name, "timing": timing}
        click.echo(json.dumps(result))


def _sampler(model: Model, options: Mapping[str, Any]) -> tuple[Any, str]:
    """The sampler (None: greedy on the device) from the options, and its settings in words."""
    given = {name: options[name] for name in ("temperature", "top_k", "top_p", "seed")}
    contradicting = next((name for name in list(given)[:3] if given[name] is not None), None)
    if options["greedy"] and contradicting:
        raise click.UsageError(f"--greedy contradicts --{contradicting.replace('_', '-')}")
    sampler = model.sampler(greedy=options["greedy"], **given)
    if sampler is None:
        return None, "greedy"
    defaults = model.artifact.generate["options"] if model.artifact.generate else {}
    values = {
        name: defaults.get(name.replace("_", "-")) if given[name] is None else given[name] for name in list(given)[:3]
    }
    return sampler, ", ".join(f"{name} {value}" for name, value in values.items() if value is not None)


def _prompts(options: Mapping[str, Any], texts: Sequence[str]) -> Sequence[str | list[int]]:
    """What to continue, as many as --batch says: each --prompt, or one that is continued so often."""
    tokens, batch = options["prompt_tokens"], options["batch"]
    if texts and tokens is not None:
        raise click.UsageError("give --prompt or --prompt-tokens, not both")
    if len(texts) > 1 and batch not in (1, len(texts)):
        raise click.UsageError(f"--batch {batch} wants one --prompt or {batch} of them, not {len(texts)}")
    if tokens is not None:
        try:
            return [[int(t) for t in tokens.split(",") if t.strip()]] * batch
        except ValueError:
            raise click.UsageError(f"--prompt-tokens wants numbers such as 1,2,3, not {tokens!r}") from None
    prompts: list[str | list[int]] = [*texts] or [""]
    return prompts * (batch if len(texts) < 2 else 1)


def _texts(options: Mapping[str, Any]) -> list[str]:
    """The prompts that are text, from the command line or from standard input; none where there are tokens instead."""
    texts = list(options["prompts"])
    if "-" in texts and len(texts) > 1:
        raise click.UsageError("standard input (--prompt -) is one prompt, and cannot stand beside others")
    if texts == ["-"] or (not texts and options["prompt_tokens"] is None):
        read = _standard_input(wait=bool(texts))
        return [read] if read else []
    return texts


def _standard_input(wait: bool) -> str:
    """What is piped or redirected into the command, without the line's end; "" for nothing.

    wait: until it ends, however long that takes; otherwise a pipe in which nothing is yet is left alone, and that said.
    """
    if not wait:
        kind = os.fstat(0).st_mode
        if not (stat.S_ISFIFO(kind) or stat.S_ISREG(kind) or stat.S_ISSOCK(kind)):
            return ""
        if not select.select([0], [], [], 0.1)[0]:
            click.echo("nothing is in the pipe that is standard input, so it is not read; --prompt - waits", err=True)
            return ""
    return sys.stdin.read().removesuffix("\n")


def _print_text(
    model: Model, generator: Generator, prompt: list[int], start: str, options: Mapping[str, Any]
) -> dict[str, Any]:
    """Print text as it comes; tokens, text, the time of the first token and the pace of the rest."""
    shown = options["format_"] == "text"
    times: list[float] = []
    if shown and start:
        _show(start)
    text = model.text(generator, prompt, options["max_new_tokens"])
    for piece in text:
        if len(times) < len(text.tokens):
            times.append(time.time())
        if shown:
            _show(piece)
    if shown:
        _show("\n")
    pace = (times[-1] - times[0]) / (len(times) - 1) * 1e3 if len(times) > 1 else None
    first = times[0] if times else time.time()
    return {"tokens": text.tokens, "text": text.text, "first": first, "decode_ms": pace}


def _show(text: str) -> None:
    sys.stdout.write(text)
    sys.stdout.flush()


def _profile(generator: Generator) -> None:
    """Print how long each kernel of a decode step takes, where it stands after generating."""
    from lispgpt.runtime.profile import measured_rates, profile_entry, table

    session, position = generator.session, min(generator.position, generator.context - 1)
    draws, rates = generator.device_draws(), measured_rates(session)
    entry, inputs = generator.step(position)
    profile = profile_entry(session, entry, [[position]], inputs)
    chosen = f"drawn by the {'device' if draws else 'host'}" if generator.sampler else "the most probable"
    known = f"floors at {rates}" if rates else "floors are known for GPUs alone"
    heading = f"a decode step at position {position}, its token {chosen}, kernel by kernel; {known}"
    click.echo(f"{heading}\n{table(profile, rates)}", err=True)


def _print_stats(artifact: Artifact, timing: dict[str, Any], prompt: int, sampling: str) -> None:
    weights = sum(buffer.nbytes for buffer in artifact.plan.buffers if buffer.kind == "weight")
    states = sum(buffer.nbytes for buffer in artifact.plan.buffers if buffer.kind == "state")
    pace = timing["decode_ms_per_token"]
    decode = f"{pace:.2f} ms/token, {weights / pace / 1e6:.1f} GB/s of weights" if pace else "no token after the first"
    click.echo(
        f"compile {timing['compile_s']:.2f} s, load {timing['load_s']:.2f} s, prefill of {prompt} tokens "
        f"{timing['prefill_s'] * 1e3:.0f} ms, first token {timing['first_token_s']:.2f} s after the start; "
        f"decode ({sampling}): {decode}; "
        f"states of {states / 1e6:,.1f} MB for {artifact.config.get('context')} positions",
        err=True,
    )
