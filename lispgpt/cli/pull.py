"""`lispgpt pull`: fetch models from the Hugging Face hub."""

from __future__ import annotations

import click

from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.folders import program_for
from lispgpt.runtime.checkpoints import hub


@click.command("pull")
@click.argument("models", nargs=-1, required=True, metavar="ORG/NAME…")
@click.option("--revision", help="A branch, tag or commit (default: the main branch).")
def pull(models: tuple[str, ...], revision: str | None) -> None:
    """Fetch models, or what changed of them, from the Hugging Face hub, and print where they lie.

    Other commands take ORG/NAME, too, and fetch what is not here yet.  A model's folder has what it is run from alone;
    ORG/NAME/FILE.gguf is one file, and ORG/NAME@REVISION another revision.  HF_HOME says where they are kept, HF_TOKEN
    who asks, HF_ENDPOINT which hub; what broke off goes on.
    """
    for name in models:
        path = hub.pull(name, revision)
        echo(str(path))
        say(f"{name} runs by {program_for(path).name}: lispgpt run {name} --prompt …")
