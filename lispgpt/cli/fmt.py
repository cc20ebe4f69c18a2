"""`lispgpt fmt`: lays files out the one way, or standard input for an editor."""

from __future__ import annotations

import difflib
import sys
from pathlib import Path

import click

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.reading import LARGEST, read_text
from lispgpt.base.source import Source
from lispgpt.cli.terminal import echo
from lispgpt.editor.layout import format_source

PROGRAM = ".lisp"
STANDARD_INPUT = Path("-")


def read_standard_input() -> str:
    """A program from standard input; UserError where it is not UTF-8, or larger than any program."""
    data = sys.stdin.buffer.read(LARGEST + 1)
    if len(data) > LARGEST:
        raise UserError(f"standard input is larger than any sensible program ({LARGEST:,} bytes)")
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"standard input is not UTF-8 text (byte {error.start})") from error


@click.command()
@click.argument(
    "files", nargs=-1, required=True, type=click.Path(exists=True, dir_okay=False, allow_dash=True, path_type=Path)
)
@click.option("--check", is_flag=True, help="Change nothing; show what would change and exit with 1 if anything would.")
def fmt(files: tuple[Path, ...], check: bool) -> None:
    """Lay programs out the one way; of -, standard input, to standard output.

    Lines are indented, and one space stands between forms unless more line them up with the line above or below.
    Line breaks, single blank lines, strings and comments stay.
    """
    changed = False
    for path in files:
        piped = path == STANDARD_INPUT
        name = "standard input" if piped else str(path)
        if not piped and path.suffix != PROGRAM:
            raise UserError(f"{path} is not named {PROGRAM}: programs are laid out, and other texts would be spoilt")
        before = read_standard_input() if piped else read_text(path)
        after = format_source(Source(name, before))
        changed |= after != before
        if check:
            shown = difflib.unified_diff(before.splitlines(), after.splitlines(), name, "formatted", lineterm="")
            echo("".join(f"{line}\n" for line in shown), nl=False)
        elif piped:
            echo(after, nl=False)
        elif after != before:
            with replacing(path) as file:
                file.write(after.encode())
            echo(f"formatted {path}")
    if check and changed:
        raise SystemExit(1)
