"""`lispgpt checkpoint`: look into checkpoints, make random ones, and convert between formats."""

from __future__ import annotations

import json
import math
from dataclasses import replace
from pathlib import Path
from typing import Any

import click
from rich.console import Console
from rich.table import Table
from rich.text import Text

from lispgpt.base.dtypes import BLOCK_DTYPES, DTYPES, WEIGHT_DTYPES, find_dtype
from lispgpt.base.errors import UserError, visible
from lispgpt.cli.groups import Group
from lispgpt.cli.options import parse_settings
from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.folders import Kind, is_folder, is_model, names_in, open_weights, program_for
from lispgpt.compiler.request import Request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.adapter import Adapter
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.huggingface import merge as merge_adapter
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import convert as convert_checkpoint
from lispgpt.runtime.checkpoints.make import convert_to_blocks, make_for
from lispgpt.runtime.checkpoints.make import make as make_checkpoint
from lispgpt.runtime.checkpoints.named import program_of
from lispgpt.runtime.checkpoints.seeded import PRESETS
from lispgpt.runtime.gguf.header import is_gguf, read_header
from lispgpt.training.evaluation import evaluate

FORMATS = click.Choice(["llmc", "huggingface"])
DTYPE = click.Choice(WEIGHT_DTYPES)
ANY_DTYPE = click.Choice((*WEIGHT_DTYPES, *BLOCK_DTYPES))


@click.group(cls=Group)
def checkpoint() -> None:
    """Look into checkpoints, make random ones, convert between formats."""


@checkpoint.command()
@click.argument("path", type=click.Path(path_type=Path))
@click.option("--json", "as_json", is_flag=True, help="Print one JSON object instead of a table.")
@click.option("--check", is_flag=True, help="Also read all weights and fail on NaN or infinity.")
def info(path: Path, as_json: bool, check: bool) -> None:
    """Show a checkpoint's format, sizes and tensors."""
    if is_gguf(path) and (kind := Kind.of(path)).name not in kind.known:
        if check:
            raise UserError(f"{path}: --check reads weights by a program, and there is none for its architecture")
        facts = _facts_of_gguf(path)
    else:
        opened = open_weights(path)
        if check:
            opened.check_finite()
        facts = _facts(opened)
    if as_json:
        echo(json.dumps(facts))
        return
    echo(f"{facts['path']}: {facts['format']}, {facts['parameters']:,} parameters, {facts['bytes']:,} bytes")
    echo("  ".join(f"{key} {value}" for key, value in facts["config"].items()))
    table = Table("tensor", "shape", "type", "MB")
    for name, tensor in facts["tensors"].items():
        known = DTYPES.get(tensor["dtype"])
        megabytes = f"{known.nbytes(math.prod(tensor['shape'])) / 1e6:.2f}" if known else ""
        table.add_row(Text(visible(name)), " x ".join(map(str, tensor["shape"])), tensor["dtype"], megabytes)
    Console().print(table)


@checkpoint.command()
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--preset", type=click.Choice(list(PRESETS)), help="The sizes of a known model.")
@click.option("--layers", type=click.IntRange(1), help="Transformer layers.")
@click.option("--heads", type=click.IntRange(1), help="Attention heads; they divide the width.")
@click.option("--width", type=click.IntRange(1), help="Channels of the residual stream.")
@click.option("--vocab", type=click.IntRange(1), help="Tokens, before padding to a multiple of 128.")
@click.option("--context", type=click.IntRange(1), help="Positions.")
@click.option("--format", "format_name", type=FORMATS, default="llmc", show_default=True, help="Whose files they are.")
@click.option("--dtype", type=DTYPE, default="bf16", show_default=True, help="Type of the weights.")
@click.option("--seed", type=int, default=0, show_default=True, help="What the random weights are drawn by.")
@click.option("--initial", is_flag=True, help="As training begins: the loss is near ln(vocabulary).")
@click.option("--for", "program", type=click.Path(path_type=Path), help="A model program: its weights, as safetensors.")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="With --for: set a value of its config.")
def make(
    out: Path,
    preset: str | None,
    format_name: str,
    dtype: str,
    seed: int,
    initial: bool,
    program: Path | None,
    settings: tuple[str, ...],
    **sizes: int | None,
) -> None:
    """Write seeded random weights to OUT: a GPT-2's, by its preset a Llama's, or any program's, and a tokenizer.

    Give a preset, all five sizes of a GPT-2, or --for a program; sizes beside a preset replace the preset's.  Weights
    are so loud that a text depends on all of its context, and --initial ones such as training begins with.
    """
    if program is not None:
        if initial:
            raise click.UsageError("--initial belongs to a preset or sizes: lispgpt train begins with a program's own")
        if preset is not None or any(size is not None for size in sizes.values()):
            raise click.UsageError("--for takes the program's own sizes, which --set changes")
        found = declared(Request(program, overrides=parse_settings(settings)))
        if not found.weights:
            raise UserError(f"{program} has no weights")
        _report(
            out,
            make_for(out, found.config, found.weights, seed),
            "the config names no vocabulary of at least 257 tokens",
        )
        return
    if settings:
        raise click.UsageError("--set belongs to --for PROGRAM")
    shape = _shape(preset, sizes)
    tokenizer = make_checkpoint(out, shape, format_name, dtype, seed, _initial(shape, seed) if initial else None)
    _report(out, tokenizer, "a vocabulary below 257 tokens has none")


@checkpoint.command()
@click.argument("source", type=click.Path(path_type=Path))
@click.argument("out", type=click.Path(path_type=Path))
@click.option("--format", "format_name", type=FORMATS, help="llmc by default; types in blocks are safetensors.")
@click.option("--dtype", type=ANY_DTYPE, help="Type of the weights; the source's by default.")
@click.option("--program", type=click.Path(path_type=Path), help="Reads SOURCE by its names, and is evaluated.")
@click.option("--data", type=click.Path(path_type=Path), multiple=True, help="Print the perplexity of both on a text.")
@click.option("--most", type=click.IntRange(1), help="With --data: sequences at most.")
@click.option("--merge", type=click.Path(path_type=Path), help="Add a LoRA's folder to SOURCE's weights; same types.")
def convert(
    source: Path,
    out: Path,
    format_name: str | None,
    dtype: str | None,
    program: Path | None,
    data: tuple[Path, ...],
    most: int | None,
    merge: Path | None,
) -> None:
    """Rewrite a checkpoint, and the tokenizer beside it, in another format or type, or with a LoRA added."""
    evaluated = program_for(source) if program is None and is_model(source) else program
    if data and evaluated is None:
        raise click.UsageError("--data needs --program, whose loss or logits are evaluated")
    if merge is not None:
        tokenizer = _merge(source, merge, out, program, format_name or dtype)
    elif dtype not in BLOCK_DTYPES:
        tokenizer = convert_checkpoint(source, out, format_name or "llmc", dtype)
    elif format_name is not None:
        raise click.UsageError(f"{dtype} is written as safetensors, by the program's names, and not as {format_name}")
    else:
        named = program_of(source) if evaluated is None else evaluated.name
        left, tokenizer = convert_to_blocks(open_weights(source, program), out, dtype, named)
        if left:
            say(f"kept as they are, since their rows are not of whole blocks: {', '.join(left)}")
    if data and evaluated is not None:
        for path in (source, out):
            found = evaluate(evaluated, path, data, most=most)
            echo(f"{path}: perplexity {found.perplexity:.4f}, of {found.targets:,} tokens")
    _report(out, tokenizer, f"none was found beside {source}")


def _merge(source: Path, adapter: Path, out: Path, program: Path | None, other: str | None) -> Path | None:
    """Write a folder with an adapter added; where its tokenizer lies."""
    if other is not None:
        raise click.UsageError(f"--merge keeps format and types: convert what it writes to {other}")
    if not is_folder(source):
        raise UserError(f"{source} is no Hugging Face folder, and {adapter} is an adapter of such")
    names = names_in(program or program_for(source))
    merge_adapter(source, Adapter(adapter), () if names is None else names.prefix, out)
    found = out / "tokenizer.json"
    return found if found.exists() else None


def _facts(opened: checkpoints.Checkpoint) -> dict[str, Any]:
    infos = {name: opened.info(name) for name in opened.names()}
    return {
        "format": opened.format,
        "path": str(opened.path),
        "parameters": sum(math.prod(tensor.shape) for tensor in infos.values()),
        "bytes": sum(find_dtype(tensor.dtype).nbytes(math.prod(tensor.shape)) for tensor in infos.values()),
        "config": opened.config,
        "tensors": {name: {"shape": tensor.shape, "dtype": tensor.dtype} for name, tensor in infos.items()},
    }


def _facts_of_gguf(path: Path) -> dict[str, Any]:
    """Of a file of an architecture that there is no program for: by its own names, without tokenizers' lists."""
    header = read_header(path)
    short = {key: value for key, value in header.metadata.items() if not isinstance(value, list) or len(value) <= 64}
    return {
        "format": f"gguf of the architecture {header.architecture}, which no program here is for",
        "path": str(path),
        "parameters": sum(math.prod(place.shape) for place in header.tensors),
        "bytes": sum(place.nbytes for place in header.tensors),
        "config": {key: value for key, value in short.items() if not key.endswith("chat_template")},
        "tensors": {place.name: {"shape": place.shape, "dtype": place.kind} for place in header.tensors},
    }


def _shape(preset: str | None, sizes: dict[str, int | None]) -> Gpt2Shape | LlamaShape:
    chosen = {name: size for name, size in sizes.items() if size is not None}
    if preset is not None:
        base = PRESETS[preset]
        if isinstance(base, LlamaShape):
            return replace(base, **chosen)  # type: ignore[arg-type]
        chosen = {name: getattr(base, name) for name in sizes} | chosen
    missing = [f"--{name}" for name in sizes if name not in chosen]
    if missing:
        raise UserError(f"give --preset, or also {', '.join(missing)}")
    return Gpt2Shape.unpadded(**chosen)


def _initial(shape: Gpt2Shape | LlamaShape, seed: int) -> InitialWeights:
    """Small normal matrices, norms that change nothing, and biases of zero."""
    weights = [(name, extents, "f32", stacked) for name, extents, stacked in shape.tensors()]
    norms = [name for name, *_ in weights if name.startswith(("ln", "norm")) and name.endswith("w")]
    return InitialWeights(shape.config("f32"), weights, dict.fromkeys(norms, ("constant", 1.0)), seed)


def _report(out: Path, tokenizer: Path | None, why_none: str) -> None:
    say(f"wrote {out}")
    say(f"wrote {tokenizer}" if tokenizer else f"wrote no tokenizer: {why_none}")
