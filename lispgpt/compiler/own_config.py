"""Which numbers of a program's `config` give way to those of a checkpoint."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from itertools import pairwise
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_text
from lispgpt.base.source import Source

NUMBERS = (int, float)


def replaced(program: Path, config: Mapping[str, Any], settings: Iterable[str] = ()) -> str:
    """A sentence for who has changed a number in a program's file, which the checkpoint's header overrules; empty where
    there is none, as for what settings give.

    Expressions are not looked into: what is computed from a number that gives way gives way with it, and the number is
    named.
    """
    given = set(settings)
    own = {name: value for name, value in _numbers(program, set()) if name not in given}
    other = {name: value for name, value in own.items() if type(config.get(name)) in NUMBERS and config[name] != value}
    each = [f"{name} is {config[name]}, by the checkpoint, and not the program's {own[name]}" for name in other]
    return f"{'; '.join(each)} (--set {next(iter(other))}=… is over both)" if each else ""


def _numbers(program: Path, seen: set[Path]) -> Iterator[tuple[str, int | float]]:
    """The config values of a file that it writes as numbers, and before them those of the files beside it that it
    requires."""
    from lispgpt.language.reader.forms import Literal, Symbol, head_name  # which want lark, as artifacts do not
    from lispgpt.language.reader.reader import read

    if program in seen:
        return
    seen.add(program)
    try:
        forms = read(Source(str(program), read_text(program)))
    except UserError:  # it is said where the program is evaluated
        return
    for form in forms:
        items = getattr(form, "items", ())
        if head_name(form) == "require":
            for item in items[1:]:
                if isinstance(item, Literal) and isinstance(item.value, str):
                    yield from _numbers(program.parent / item.value, seen)
        if head_name(form) == "config":
            for name, value in pairwise(items[1:]):
                number = getattr(value, "value", None)
                if isinstance(name, Symbol) and isinstance(number, int | float) and type(number) is not bool:
                    yield name.name, number
