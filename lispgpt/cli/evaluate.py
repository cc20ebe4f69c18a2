"""`lispgpt evaluate`: a model's loss, perplexity and accuracy on text or tokens."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import click

from lispgpt.base.folders import cache_folder
from lispgpt.cli.completing import TARGET
from lispgpt.cli.launched import options as device_options
from lispgpt.cli.options import FORMAT, PATH, guarded, parse_settings, precision_option, together
from lispgpt.cli.run import MOST_THREADS
from lispgpt.cli.terminal import echo
from lispgpt.training.evaluation import evaluate as evaluate_model


@click.command("evaluate")
@click.argument("program", type=PATH)
@click.option("--checkpoint", type=PATH, help="Weights, or a run's folder (default: PROGRAM, where it is a folder).")
@click.option("--data", type=PATH, multiple=True, required=True, help="Text, JSON lines, token shards, or folders.")
@click.option("--tokenizer", type=PATH, help="A tokenizer file (default: beside the checkpoint).")
@click.option("--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config.")
@click.option("--batch", type=click.IntRange(1), default=1, show_default=True, help="Sequences at once.")
@click.option("--length", type=click.IntRange(1), help="Tokens of a sequence (default: the context, up to 1024).")
@click.option("--most", type=click.IntRange(1), help="Batches at most, spread over the data.")
@click.option(
    "--target", type=TARGET, default="cpu", show_default=True, help="cpu, cuda, rocm, auto, emulated:gfx1151, …"
)
@precision_option()
@click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all).")
@device_options
@FORMAT
@click.option("--no-cache", is_flag=True, help="Compile even where the result is cached.")
@click.pass_context
@guarded
def evaluate(ctx: click.Context, program: Path, **options: Any) -> int:
    """Measure how well PROGRAM, with a checkpoint, predicts each token of some data from those before it.

    PROGRAM may be a run's folder or a Hugging Face folder alone.
    """
    cache = None if options["no_cache"] else cache_folder(ctx.obj["environment"])
    names = ("tokenizer", "batch", "length", "most", "target", "precision", "threads", "engine")
    given = {name: options[name] for name in names}
    given |= {name: options[name] for name in ("devices", "patience") if options[name] is not None}
    with together(ctx.obj["environment"], options["patience"]) as peers:
        given |= {"settings": parse_settings(options["settings"]), "cache": cache, "peers": peers}
        found = evaluate_model(program, options["checkpoint"], options["data"], **given)
    if peers is not None and peers.place.rank:
        return 0
    if options["format_"] == "json":
        shown = ("loss", "perplexity", "accuracy", "targets")
        echo(json.dumps({name: getattr(found, name) for name in shown}))
    else:
        echo(
            f"loss {found.loss:.4f}  perplexity {found.perplexity:.2f}  accuracy {found.accuracy:.2%}  "
            f"of {found.targets:,} tokens"
        )
    return 0
