"""`lispgpt chat`: a conversation with a model."""

from __future__ import annotations

import warnings
from functools import partial
from pathlib import Path
from typing import Any

import click

from lispgpt import api
from lispgpt.base.folders import cache_folder, trusted_keys
from lispgpt.chat.template import find_template
from lispgpt.cli.chat_session import ChatSession
from lispgpt.cli.completing import TARGET
from lispgpt.cli.generate import choices, sampling_options
from lispgpt.cli.options import ADAPTER, DRAFT, PATH, all_of, config_settings, guarded, precision_option
from lispgpt.cli.run import MOST_THREADS
from lispgpt.cli.terminal import say
from lispgpt.compiler.folders import find_given


def loading_options() -> list[Any]:
    """The options that say with what, how and where a model is loaded."""
    return [
        click.option("--checkpoint", type=PATH, help="A checkpoint, where MODEL is a program or an artifact."),
        click.option("--tokenizer", type=PATH, help="A tokenizer file (default: beside the checkpoint)."),
        click.option("--template", type=PATH, help="A chat template's file (default: the model's own)."),
        click.option(
            "--set", "settings", multiple=True, metavar="NAME=VALUE", help="Set a value of the program's config."
        ),
        click.option("--context", type=click.IntRange(1), help="Positions to take memory for (default: the model's)."),
        click.option(
            "--target", type=TARGET, default="cpu", show_default=True, help="cpu, cuda, rocm, auto, emulated:gfx1151, …"
        ),
        precision_option(),
        click.option("--threads", type=click.IntRange(1, MOST_THREADS), help="CPU threads (default: all)."),
        click.option("--trust", is_flag=True, help="Run an artifact from elsewhere: it is code, with your rights."),
        click.option("--no-cache", is_flag=True, help="Compile even where the result is cached."),
    ]


def load_model(ctx: click.Context, path: Path, options: dict[str, Any], **more: Any) -> api.Model:
    """The model of a command line with `loading_options`; what is to be said of it goes to standard error."""
    environment = ctx.obj["environment"]
    names = ("adapter", "checkpoint", "target", "precision", "threads", "tokenizer", "trust")
    given = {name: options[name] for name in names} | {"draft": options.get("draft")} | more
    given["settings"] = config_settings(options["settings"], options["context"])
    given["cache"] = None if options["no_cache"] else cache_folder(environment)
    with warnings.catch_warnings(record=True) as notices:
        warnings.simplefilter("always")
        model = api.load(path, keys=trusted_keys(environment), **given)
    for notice in notices:
        say(str(notice.message))
    return model


@click.command("chat")
@click.argument("model", type=PATH)
@all_of(loading_options())
@ADAPTER
@DRAFT
@click.option("--system", help="A system message: how the model is to answer.")
@click.option("--prompt", "prompts", multiple=True, help="Say this and print the answer, in place of asking.")
@click.option("--load", type=PATH, help="Go on with a conversation that /save wrote.")
@click.option("--think/--no-think", default=None, help="Have the model reason or not, where its template can say so.")
@all_of(sampling_options(logprobs=False))
@click.pass_context
@partial(guarded, ends_itself=True)
def chat(ctx: click.Context, model: Path, **options: Any) -> int:
    """Talk to MODEL: a Hugging Face folder, a GGUF file, or a program with --checkpoint.

    A message is a line; one that ends in a backslash goes on in the next, and \"\"\" begins and ends one of several.
    Ctrl-C stops an answer, Ctrl-D ends the conversation, /help lists commands.  Where standard input is no terminal,
    each line of it is a message, and answers alone go to standard output.
    """
    said = choices(options | {"logprobs": False})
    weights = find_given(model, options["checkpoint"]).weights
    template = find_template(weights, options["template"])
    with load_model(ctx, model, options) as loaded:
        session = ChatSession(loaded, template, said, options["system"], options["think"])
        if options["load"]:
            session.conversation.load(options["load"])
        session.run(options["prompts"])
    return 0
