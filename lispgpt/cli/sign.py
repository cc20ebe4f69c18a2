"""`lispgpt sign`: vouch for artifacts, so that those who list your key run them without --trust."""

from __future__ import annotations

from pathlib import Path

import click

from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo, say
from lispgpt.compiler.signatures import make_key, public_line, sign
from lispgpt.runtime.plan.artifact import attach_signature, load_artifact


@click.command("sign")
@click.argument("artifacts", nargs=-1, metavar="FILE.lgpt…", type=PATH)
@click.option("--key", type=PATH, help="The private key to sign with.")
@click.option("--make-key", "new", type=PATH, metavar="FILE", help="Make a private key first, in a file for you alone.")
@click.pass_context
def sign_(ctx: click.Context, artifacts: tuple[Path, ...], key: Path | None, new: Path | None) -> None:
    """Sign artifacts with an ed25519 key, and print its public line.

    Whoever adds that line to their list of trusted keys runs what the key signed: ~/.config/lispgpt/trusted-keys, or
    the file that LISPGPT_TRUSTED_KEYS names.
    """
    if (key is None) == (new is None):
        raise click.UsageError("give --key FILE to sign with, or --make-key FILE to make one")
    if new is not None:
        make_key(new)
    private = new or key
    assert private is not None
    line = public_line(private)
    for path in artifacts:
        attach_signature(path, sign(load_artifact(path).stored, private))
        say(f"{path}: signed with {private}")
    echo(line)
