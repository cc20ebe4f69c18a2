"""The repl's input line: what the tab key completes, and what was typed before."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from contextlib import suppress
from pathlib import Path
from typing import Any

import click

from lispgpt.base.errors import UserError
from lispgpt.ir.op_list import listed_ops
from lispgpt.language.core.environment import Environment
from lispgpt.language.forms.modules import LIBRARY

COMMANDS = ("about", "doc", "entry", "help", "ir", "names", "quit", "reset", "run", "source")
"""What may follow a comma."""

_WORD = re.compile(r"[^\s()\[\]{}'`~\"]*$")


def completions(
    environment: Environment, line: str, own: Callable[[str], Iterable[str]] = lambda command: ()
) -> list[str]:
    """What the last word of a line may become: commands behind a comma, what a command takes, libraries behind
    `(require`, ops of the session's dialects, names.  own: what a command takes of the session's own."""
    found = _WORD.search(line)
    begun = found.group() if found else ""
    before = line[: len(line) - len(begun)]
    if begun.startswith(",") and not before.strip():
        return [f",{name}" for name in COMMANDS if name.startswith(begun[1:])]
    command = re.match(r"\s*,(\w+)\s", before)
    if command is not None:
        named = _reference() if command[1] in ("doc", "source") else own(command[1])
        return sorted({name for name in named if name.startswith(begun)})
    if re.search(r"\(require\s[^()]*$", before):
        return sorted(path.stem for path in LIBRARY.glob("*.lisp") if path.stem.startswith(begun))
    if not begun:
        return []
    names = {name for name in environment.visible() if name.startswith(begun)}
    if "." in begun:
        names.update(_ops(environment, begun))
    return sorted(names)


def _reference() -> Iterable[str]:
    from lispgpt.cli.doc import entries

    return (entry.name for entry in entries(examples=False))


def _ops(environment: Environment, begun: str) -> Iterable[str]:
    """Ops of the dialects that are declared, under the names that they have here."""
    used, _, op = begun.partition(".")
    dialect = environment.dialects.names.get(used) if environment.dialects is not None else None
    start = f"{dialect}.{op}"
    return (f"{used}.{name.partition('.')[2]}" for name in listed_ops() if dialect and name.startswith(start))


def complete_by_tab(find: Callable[[str], list[str]]) -> None:
    """Have the tab key complete, where Python has readline.  find: what the line up to the cursor may go on with."""
    with suppress(ImportError):
        import readline

        def complete(word: str, number: int) -> str | None:
            found = find(readline.get_line_buffer()[: readline.get_endidx()])
            return found[number] if number < len(found) else None

        readline.set_completer_delims(" \t\n()[]{}'`~\"")
        readline.set_completer(complete)
        readline.parse_and_bind("tab: complete")


def keep_history(ctx: click.Context) -> None:
    """Line editing, and a history that outlives the process, where Python has readline."""
    from lispgpt.base.folders import cache_folder, make_private

    with suppress(ImportError):
        import atexit
        import readline

        path = cache_folder(ctx.obj["environment"]) / "history"
        try:
            make_private(path.parent)
        except (OSError, UserError):  # where others may look or write, nothing is kept
            return
        with suppress(OSError):
            readline.read_history_file(path)
        readline.set_history_length(1000)
        atexit.register(lambda: _write_history(readline, path))


def _write_history(readline: Any, path: Path) -> None:
    with suppress(OSError):
        readline.write_history_file(path)
