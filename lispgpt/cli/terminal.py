"""What is printed of texts of files and models: as it is, but to terminals, which take some of it for commands."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import click

from lispgpt.base.errors import visible


def shown(text: str) -> str:
    """A text for standard output."""
    return visible(text) if sys.stdout.isatty() else text


def echo(text: str = "", nl: bool = True) -> None:
    """Print to standard output, with the end of a line."""
    click.echo(shown(text), nl=nl)


def say(text: str = "") -> None:
    """Print a line to standard error."""
    click.echo(visible(text), err=True)


def tell_warnings() -> None:
    """Have Python's warnings told as ours are, without a place in code that no user knows."""

    def tell(message: Warning | str, *_: Any, **__: Any) -> None:
        say(f"warning: {message}")

    warnings.showwarning = tell


def counted(number: int, one: str, several: str = "") -> str:
    """`1 kernel`, `2 kernels`."""
    return f"{number:,} {one if number == 1 else several or f'{one}s'}"
