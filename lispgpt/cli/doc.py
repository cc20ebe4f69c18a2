"""`lispgpt doc`: what a name means, and the whole reference as pages."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import cache
from importlib import import_module
from pathlib import Path

import click

from lispgpt.base.errors import UserError
from lispgpt.cli.command_examples import example_of
from lispgpt.cli.completing import Named
from lispgpt.cli.main import COMMANDS
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo
from lispgpt.language.core.elsewhere import advice
from lispgpt.reference import language, tiles
from lispgpt.reference.entry import KINDS, Entry, apropos, find
from lispgpt.reference.guide_words import said_of

MOST_LINES = 24
"""That `--about` shows."""

Kind = Callable[[str | None], Iterator[Entry]]
"""Makes the entries of a kind, or of a kind's one name."""


@cache
def entries(examples: bool = True) -> tuple[Entry, ...]:
    """All that there is.  examples: whether those that nobody wrote are looked for in programs, which takes long."""
    of_language = (*language.forms(), *language.library(examples=examples))
    return (*of_language, *(entry for kind in (*_tiles(), *_behind()) for entry in kind(None)), *commands())


def _language() -> tuple[Kind, ...]:
    return language.forms, language.library


def _tiles() -> tuple[Kind, ...]:
    return tiles.words, tiles.ops


def _behind() -> tuple[Kind, ...]:
    """What stands behind the language, whose modules take long to load."""
    from lispgpt.reference import machinery

    return machinery.passes, machinery.targets, machinery.devices


def named(name: str) -> list[Entry]:
    """The entries of a name, as `find` finds them among all; those that are there without making all others.  No name
    of the language is one of a tile program's or of what stands behind."""
    if not name.startswith(("lispgpt ", "-")):
        for kinds in (_language, _tiles, _behind):
            if found := [entry for kind in kinds() for entry in kind(name)]:
                return find(found, name)
        if ops := list(tiles.ops(f"op {name}")):
            return ops
    found = [entry for entry in _of_several_words() if name in (entry.name, entry.name.rpartition(" ")[2])]
    return find(found or entries(examples=False), name)


def _of_several_words() -> Iterator[Entry]:
    from lispgpt.reference import machinery

    yield from (*tiles.ops(), *machinery.devices(), *commands())


def commands() -> Iterator[Entry]:
    """One for each command, and for each of its flags."""
    for name, (module, attribute, summary) in COMMANDS.items():
        command: click.Command = getattr(import_module(module), attribute)
        inner = command.commands.values() if isinstance(command, click.Group) else ()
        yield from (_of_command(f"lispgpt {name}", command, summary), *_flags(f"lispgpt {name}", command))
        for each in inner:
            whole = f"lispgpt {name} {each.name}"
            yield from (_of_command(whole, each, ""), *_flags(whole, each))


def _arguments(command: click.Command) -> list[str]:
    return [p.make_metavar(click.Context(command)) for p in command.params if isinstance(p, click.Argument)]


def _of_command(name: str, command: click.Command, summary: str) -> Entry:
    text = "\n\n".join(part for part in (summary, " ".join((command.help or "").split())) if part)
    flags = tuple(f"{name} {max(p.opts, key=len)}" for p in command.params if isinstance(p, click.Option))
    return Entry(
        name, "command", " ".join([name, *_arguments(command), "[OPTIONS]"]), text, example_of(name), related=flags
    )


def _flags(name: str, command: click.Command) -> Iterator[Entry]:
    for option in command.params:
        if not isinstance(option, click.Option):
            continue
        flag = max(option.opts, key=len)
        value = "" if option.is_flag or option.count else f" {option.make_metavar(click.Context(command))}"
        text = " ".join((option.help or "").split())
        signature = f"{' or '.join(option.opts)}{value}"
        example = example_of(name, flag, not value)
        yield Entry(f"{name} {flag}", "flag", signature, text, example, "", (name,))


@click.command(context_settings={"ignore_unknown_options": True})  # which are flags to be explained
@click.argument(
    "names", nargs=-1, metavar="[NAME]...", type=Named(lambda ctx: [entry.name for entry in entries(examples=False)])
)
@click.option("--site", type=PATH, help="Write the reference and the guide as pages into this folder.")
@click.option("--about", is_flag=True, help="List what has all these words in its name or text.")
def doc(names: tuple[str, ...], site: Path | None, about: bool) -> None:
    """Say what NAME is: a form, a function of the library, a pass, a target, a command or a flag.

    Without one, say how many there are of each kind.
    """
    if site is not None:
        from lispgpt.reference.site import write_site

        echo(f"{write_site(site, entries())}: open this page")
    elif not names:
        for kind in KINDS:
            own = [entry.name for entry in entries(examples=False) if entry.kind == kind]
            echo(f"{kind:8} {len(own):4}  {', '.join(own[:6])}, …")
        echo("lispgpt doc NAME says what one is; --about WORD finds them by words; --site DIR writes pages.")
    else:
        echo(shown(names, about))


def shown(names: tuple[str, ...], about: bool = False) -> str:
    """Entries in full by their names, or a line for each that has all words."""
    if about:
        said = next((f"{name}: {said}" for name in names if (said := advice(name))), None)
        return "\n".join([*([said] if said else []), *_lines(apropos(entries(examples=False), names), names)])
    name = " ".join(names)
    said = said_of(name)
    try:
        found = [entry.render() for entry in named(name)]
    except UserError:
        if said is None:
            raise
        found = []
    return "\n\n".join([*([f"{name}: {said}"] if said else []), *found])


def _lines(found: list[Entry], words: tuple[str, ...]) -> list[str]:
    """A line for each of the first entries; names of which the same is said share one."""
    together: dict[str, list[str]] = {}
    for entry in found:
        together.setdefault(entry.summary, []).append(entry.name)
    lines = [f"{', '.join(names[:3]) + (', …' if names[3:] else ''):28} {said}" for said, names in together.items()]
    left = len(lines) - MOST_LINES
    more = (
        [f"… and {left} more, less about it: `lispgpt doc --site DIR` writes pages that find all"] if left > 0 else []
    )
    return [*lines[:MOST_LINES], *more] or [f"nothing has {' '.join(words)!r}"]
