"""`lispgpt bench`: how fast a model is on a device, beside what is least and what others take."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Iterator
from dataclasses import asdict
from pathlib import Path
from typing import Any

import click

import lispgpt
from lispgpt.base.files import write_text
from lispgpt.base.folders import cache_folder
from lispgpt.base.host import cores
from lispgpt.bench import peers
from lispgpt.bench.comparison import Comparison, assumptions, compare
from lispgpt.bench.comparison import table as kernel_table
from lispgpt.bench.measures import Bench, Measure, table
from lispgpt.bench.processes import measure_whole
from lispgpt.bench.published import page
from lispgpt.cli.completing import TARGET
from lispgpt.cli.options import FORMAT, PATH, guarded, parse_settings, precision_option, schedules_option
from lispgpt.cli.run import MOST_THREADS
from lispgpt.cli.terminal import echo
from lispgpt.compiler.folders import PROGRAMS, is_folder
from lispgpt.runtime.checkpoints.make import make
from lispgpt.runtime.checkpoints.seeded import PRESETS

GPT2 = "gpt2-124m"
DEFAULT = PROGRAMS / "gpt2_generate.lisp"


@click.command("bench")
@click.argument("program", type=PATH, required=False)
@click.option("--checkpoint", type=PATH, help="Weights (default: random ones of a GPT-2 124M, made once).")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--context", type=click.IntRange(1), help="Positions to make code and memory for.")
@click.option(
    "--target", type=TARGET, default="auto", show_default=True, help="auto, cpu, cuda, rocm, emulated:gfx1151, …"
)
@precision_option()
@schedules_option()
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@click.option("--at", multiple=True, type=click.IntRange(0), default=(64, 512), help="Positions of decode steps.")
@click.option(
    "--prompt", "prompts", multiple=True, type=click.IntRange(1), default=(128, 512), help="Prompts' lengths."
)
@click.option("--batch", "batches", multiple=True, type=click.IntRange(2), help="Sequences of a step, and of texts.")
@click.option("--lookup", type=click.IntRange(1), help="Measure drafts of so many tokens on a repeating text.")
@click.option("--rounds", type=click.IntRange(1), default=5, show_default=True, help="The middle one counts.")
@click.option("--kernels", is_flag=True, help="Each kernel of a step and of a prompt beside what is predicted of it.")
@click.option("--processes/--no-processes", default=True, help="Time whole processes: compiling, the first token.")
@click.option("--peers/--no-peers", default=True, help="Measure PyTorch and llama.cpp, where they are installed.")
@click.option(
    "--peer-python",
    default=sys.executable,
    help="The interpreter that may have torch and transformers, or llama_cpp and gguf (default: this one).",
)
@click.option("--json", "json_", type=PATH, help="Also write the figures to this file.")
@click.option("--publish", type=PATH, help="Also write a Markdown page of figures, machine, versions and command.")
@FORMAT
@click.pass_context
@guarded
def bench(ctx: click.Context, program: Path | None, **options: Any) -> int:
    """Measure PROGRAM (or a Hugging Face folder; by default GPT-2 124M with random weights) on a device."""
    kept = cache_folder(ctx.obj["environment"])
    folder_alone = program is not None and options["checkpoint"] is None
    checkpoint = options["checkpoint"] or (None if folder_alone else _random_gpt2(kept))
    typed = [] if program is None else [str(program)]
    typed += ["--checkpoint", str(checkpoint)] if options["checkpoint"] else []
    program = program or DEFAULT
    settled = [word for setting in options["settings"] for word in ("--set", setting)]
    settled += [
        word
        for name in ("context", "target", "threads", "precision")
        if options[name]
        for word in (f"--{name}", str(options[name]))
    ]
    settled += [word for path in options["schedules"] for word in ("--schedules", str(path))]
    words = [str(program), *([] if checkpoint is None else ["--checkpoint", str(checkpoint)]), *settled]
    given = {name: options[name] for name in ("target", "context", "threads", "precision", "schedules")}
    whole = None
    if options["processes"]:
        whole = measure_whole(words, options["rounds"])
    with lispgpt.load(program, checkpoint, settings=parse_settings(options["settings"]), cache=kept, **given) as model:
        made = Bench(model, options["rounds"])
        found: dict[str, Any] = {"model": str(program if folder_alone else checkpoint)}
        found |= {"device": model.session.device.name, "target": model.artifact.target, "precision": given["precision"]}
        found["rates"] = None if made.rates is None else str(made.rates)
        text = options["format_"] == "text"
        _say(text, f"{found['device']}, {found['target']}")
        if whole is not None:
            found["whole"] = asdict(whole)
            _say(
                text,
                f"compile from nothing {whole.compile_s:.2f} s; first token of a process, compiled before "
                f"{whole.first_token_s:.2f} s; at most {whole.peak_bytes / 1e6:.0f} MB on the host",
            )
        device_bytes = sum(buffer.nbytes for buffer in model.artifact.plan.buffers)
        found["buffers"] = device_bytes
        _say(text, f"buffers of {device_bytes / 1e6:.0f} MB")
        source = _source(model, program, options["checkpoint"], kept) if options["peers"] else None
        others = _peers(options, source, model)
        measures: list[Measure] = []
        try:
            for measure in measures_of(made, options):
                measures.append(measure)
                for peer in others:
                    peer.measure(measure, options["rounds"])
        finally:
            for peer in others:
                peer.close()
        _say(text, table(measures))
        found["checked"] = False
        if not model.artifact.target.startswith("cpu"):
            again = shlex.join(["lispgpt", "check", *words])
            _say(text, f"nobody has checked the tokens of what was measured: {again} compares them with the CPU's")
        found["measures"] = [{**asdict(measure), "share": measure.share} for measure in measures]
        if others:
            found["peers"] = peers.described(measures, others)
            _say(text, peers.table(measures, others))
        elif options["peers"]:
            found["no_peers"] = _why_no_peers(options, source, checkpoint or program)
            _say(text, f"no peers are measured: {found['no_peers']}")
        if options["kernels"]:
            compared = list(compare(model, options["at"][0], max(options["prompts"]), True, options["rounds"]))
            _say(text, _kernels(compared, model))
            found["entries"] = [asdict(each) for each in compared]
        if options["publish"]:
            command = shlex.join(["lispgpt", "bench", *typed, *settled, *_asked(options)])
            write_text(options["publish"], page(command, found, model.artifact.config, measures, others))
    if options["json_"]:
        write_text(options["json_"], json.dumps(found, indent=2) + "\n")
    if not text:
        echo(json.dumps(found))
    return 0


def _asked(options: dict[str, Any]) -> list[str]:
    """The options that say what is measured, as they are typed."""
    several = {"--at": "at", "--prompt": "prompts", "--batch": "batches"}
    words = [word for flag, name in several.items() for value in options[name] for word in (flag, str(value))]
    words += ["--lookup", str(options["lookup"])] if options["lookup"] else []
    return [*words, "--rounds", str(options["rounds"])]


def _random_gpt2(folder: Path) -> Path:
    path = folder / "bench" / f"{GPT2}.bin"
    if not path.exists():
        path.parent.mkdir(parents=True, exist_ok=True)
        make(path, PRESETS[GPT2], "llmc", "bf16", 0)
    return path


def measures_of(made: Bench, options: dict[str, Any]) -> Iterator[Measure]:
    """What is asked for, each once: late positions and long prompts are those that the context has room for."""
    positions = dict.fromkeys(made.within(position) for position in options["at"])
    for position in positions:
        yield made.decode(position)
    for batch in dict.fromkeys(options["batches"]):
        for position in positions:
            yield made.decode(position, batch)
        yield made.ragged(batch)
    for count in dict.fromkeys(min(count, made.generator.context) for count in options["prompts"]):
        yield made.prompt(count)
    if options["lookup"]:
        yield from made.lookup(options["lookup"])


def _source(model: lispgpt.Model, program: Path, checkpoint: Path | None, kept: Path) -> peers.Source | None:
    """What peers can run of what is measured: a folder, a GGUF file, or the GPT-2 124M of random weights."""
    config = model.artifact.config
    given = str(config.get("weight-type", "f32")), int(config["context"])
    for path in (program, checkpoint):
        if path is not None and is_folder(path):
            return peers.Source(str(path), None, *given)
        if path is not None and path.suffix == ".gguf":
            return peers.Source(None, str(path), *given)
    if checkpoint is not None or program != DEFAULT:
        return None
    sizes = {"n_layer": "layers", "n_head": "heads", "n_embd": "width", "vocab_size": "vocab", "n_positions": "context"}
    own = {theirs: int(config[ours]) for theirs, ours in sizes.items()}
    return peers.Source(own, str(kept / "bench" / f"{GPT2}.gguf"), *given)


def _peers(options: dict[str, Any], source: peers.Source | None, model: lispgpt.Model) -> list[peers.Peer]:
    """Those that run; none on emulated GPUs, or where nothing of what they could run is measured."""
    target = options["target"].partition(":")[0]
    if source is None or target == "emulated":
        return []
    threads = options["threads"] or cores()
    return peers.start(options["peer_python"], source, threads, not model.artifact.target.startswith("cpu"))


def _why_no_peers(options: dict[str, Any], source: peers.Source | None, model: Path) -> str:
    if options["target"].partition(":")[0] == "emulated":
        return "an emulated GPU has no speed to compare"
    if source is None:
        return f"PyTorch and llama.cpp read Hugging Face folders and GGUF files, and {model} is neither"
    return f"{options['peer_python']} has nothing that reads {model} (see --peer-python)"


def _kernels(compared: list[Comparison], model: lispgpt.Model) -> str:
    return "\n".join([*(f"\n{kernel_table(each)}" for each in compared), f"\n{assumptions(model)}"])


def _say(text: bool, words: str) -> None:
    if text:
        echo(words)
