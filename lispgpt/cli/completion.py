"""`lispgpt completion`: what a shell reads to complete lispgpt's command lines."""

from __future__ import annotations

import click
from click.shell_completion import get_completion_class

from lispgpt.cli.terminal import echo

VARIABLE = "_LISPGPT_COMPLETE"
SHELLS = {
    "bash": 'eval "$(lispgpt completion bash)" in ~/.bashrc',
    "zsh": 'eval "$(lispgpt completion zsh)" in ~/.zshrc',
    "fish": "lispgpt completion fish > ~/.config/fish/completions/lispgpt.fish",
}
"""By each shell, what makes it last."""


@click.command()
@click.argument("shell", type=click.Choice(list(SHELLS)))
@click.pass_context
def completion(ctx: click.Context, shell: str) -> None:
    """Print what SHELL reads to complete commands, flags, files, targets, entries and names.

    bash: eval "$(lispgpt completion bash)" in ~/.bashrc; zsh: the same with zsh, in ~/.zshrc; fish: lispgpt completion
    fish > ~/.config/fish/completions/lispgpt.fish.
    """
    found = get_completion_class(shell)
    assert found is not None
    echo(found(ctx.find_root().command, {}, "lispgpt", VARIABLE).source())
