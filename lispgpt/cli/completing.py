"""What shells complete by the tab key beside commands, flags and files; click asks these types for it."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from pathlib import Path

import click
from click.shell_completion import CompletionItem

from lispgpt.base.errors import UserError


class Named(click.ParamType):
    """A text that is mostly one of some names.  names: gives them, for the other parameters that are written."""

    name = "text"

    def __init__(self, names: Callable[[click.Context], Iterable[str]]) -> None:
        self.names = names

    def shell_complete(self, ctx: click.Context, param: click.Parameter, incomplete: str) -> list[CompletionItem]:
        """The names that go on as it begins; those behind a colon where a shell has that end a word."""
        return [CompletionItem(name) for name in self.names(ctx) if name.startswith(incomplete)]


def _targets(ctx: click.Context) -> Iterable[str]:
    from lispgpt.passes.targets import CHIPS

    yield "auto"
    for kind, chips in CHIPS.items():
        yield kind
        yield from (name for chip in chips.values() if (name := str(chip)) != kind)
    yield from (f"emulated:{chip}" for chip in CHIPS["rocm"])


def _entries(ctx: click.Context) -> Iterable[str]:
    """The entries of the program that the command line names, and of the files that it requires."""
    written = (*ctx.params.values(), *ctx.args)  # what stands before an option without a value has no parameter yet
    given = next((each for each in written if str(each).endswith(".lisp")), None)
    waiting, found = [Path(str(given))] if given is not None else [], dict[str, None]()
    for path in waiting:
        for head, argument in _first_arguments(path):
            if head == "entry":
                found[argument] = None
            elif (other := path.parent / argument) not in waiting:
                waiting.append(other)
    return found


def _first_arguments(path: Path) -> Iterator[tuple[str, str]]:
    """("entry", name) and ("require", file) of a program's forms; nothing of one that cannot be read."""
    from lispgpt.base.reading import read_text
    from lispgpt.base.source import Source
    from lispgpt.editor.recovery import recover
    from lispgpt.language.reader.forms import List, Literal, Symbol, head_name

    try:
        forms = recover(Source(str(path), read_text(path)), typed=False).forms
    except UserError:
        return
    for form in forms:
        argument = form.items[1] if isinstance(form, List) and len(form.items) > 1 else None
        if head_name(form) == "entry" and isinstance(argument, Symbol):
            yield "entry", argument.name
        elif head_name(form) == "require" and isinstance(argument, Literal) and isinstance(argument.value, str):
            yield "require", argument.value


TARGET, ENTRY = Named(_targets), Named(_entries)
