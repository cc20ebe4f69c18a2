"""`lispgpt diff`: what is different between two dumps, two folders of them, or two artifacts."""

from __future__ import annotations

from pathlib import Path

import click

from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo
from lispgpt.compiler import difference


@click.command("diff")
@click.argument("before", type=PATH)
@click.argument("after", type=PATH)
def diff(before: Path, after: Path) -> None:
    """Show what is different from BEFORE to AFTER.

    Of two dumps (.mlir): each function's lines, where values that stand for the same have the same name and depth is no
    difference.  Of two folders of --dump-dir: after which passes the IR differs, and how much.  Of two artifacts:
    kernels, plans and their cost.
    """
    for line in difference.diff(before, after).lines or ("no difference",):
        echo(line)
