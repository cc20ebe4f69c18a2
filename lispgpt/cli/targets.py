"""`lispgpt targets`: what can compile and run here, and what would help where something cannot."""

from __future__ import annotations

import click

from lispgpt.errors import UserError
from lispgpt.runtime.devices import cuda, hip


@click.command()
def targets() -> None:
    """Say of every target whether it can compile and run here."""
    from lispgpt.passes.targets import GPU_CHIPS

    click.echo("cpu        compiles and runs here")
    links = _linker_problem()
    found = {"rocm": (hip.probe(), hip.installed_target, links), "cuda": (cuda.probe(), cuda.installed_target, None)}
    for kind, (missing, installed, cannot_compile) in found.items():
        here = f"runs here as {installed()}" if missing is None else f"does not run here: {missing}"
        compiles = "compiles" if cannot_compile is None else f"does not compile: {cannot_compile}"
        click.echo(f"{kind:10} {compiles}; {here}")
        for chip, target in GPU_CHIPS[kind].items():
            click.echo(f"  {kind + ':' + chip:16} {target.describe()}")


def _linker_problem() -> str | None:
    from lispgpt.passes.targets.binary import linker_toolkit

    try:
        linker_toolkit()
    except UserError as error:
        return error.message
    return None
