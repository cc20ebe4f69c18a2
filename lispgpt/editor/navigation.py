"""Definitions, references and new names, over all files that are known."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.editor.files import File, Files, Meaning, path_of
from lispgpt.editor.scopes import Definition, Use
from lispgpt.editor.view import View
from lispgpt.language.forms.modules import LIBRARY
from lispgpt.language.reader.forms import Symbol
from lispgpt.language.reader.reader import read


@dataclass(frozen=True)
class Place:
    """A part of a file."""

    file: File
    start: int
    end: int


def definition(view: View, offset: int) -> list[Place]:
    """Where what stands at a place is defined: a name, through macros and required files; or a required file."""
    for required in view.file.index.required:
        if required.form.span.start <= offset <= required.form.span.end:
            path = path_of(view.file.path, required)
            found = view.files.get(path) if path is not None else None
            return [Place(found, 0, 0)] if found is not None else []
    use = view.file.index.use_at(offset)
    if use is None:
        return []
    meaning = view.meaning(use)
    if meaning is not None:
        return [Place(meaning.file, span.start, span.end) for span in meaning.definition.spans]
    return list(_expansions(view, use.name))


def _expansions(view: View, name: str) -> Iterator[Place]:
    """The calls of the macro that defines a name."""
    made = view.checked.expansions.get(name) if view.checked is not None else None
    for use in view.file.index.uses if made is not None else ():
        if made is not None and use.name == made[0] and use.scope is view.file.index.top:
            yield Place(view.file, use.start, use.end)


def references(view: View, offset: int, paths: Iterable[Path]) -> list[Place]:
    """Where what stands at a place is named, its definitions among them."""
    use = view.file.index.use_at(offset)
    if use is None:
        return []
    meaning = view.meaning(use)
    if meaning is None:  # a form of the language, or what a macro made
        same = (each for each in view.file.index.uses if each.name == use.name and view.meaning(each) is None)
        return [Place(view.file, each.start, each.end) for each in same]
    return list(uses_of(view.files, meaning, paths))


def uses_of(files: Files, meaning: Meaning, paths: Iterable[Path]) -> Iterator[Place]:
    """Where a definition's name stands; of `m/x`, the part behind the slash."""
    of_file = meaning.file.index.top.names.get(meaning.definition.name) is meaning.definition
    for use in meaning.file.index.uses_of(meaning.definition):
        yield Place(meaning.file, use.start, use.end)
    for file in _others(files, meaning.file, meaning.definition.name, paths) if of_file else ():
        for use in file.index.uses:
            if use.definition is None and use.name.rpartition("/")[2] == meaning.definition.name:
                found = files.meaning(file, use.name, use.scope)
                if found is not None and found.definition is meaning.definition:
                    yield Place(file, use.end - len(meaning.definition.name), use.end)


def _others(files: Files, file: File, name: str, paths: Iterable[Path]) -> Iterator[File]:
    """Those of some files, and of those that are open, that have a name and may require a file, or what requires it."""
    known = {path: found for path in dict.fromkeys([*files.opened, *paths]) if (found := files.get(path)) is not None}
    reached, waiting = {file.path}, [file.path]
    while waiting:
        required = waiting.pop()
        for path, found in known.items():
            if path not in reached and required.stem in found.text and "(require" in found.text:
                reached.add(path)
                waiting.append(path)
    for path in reached - {file.path}:
        if name in known[path].text:
            yield known[path]


def renamable(view: View, offset: int) -> tuple[Use, Meaning]:
    """The name at a place, and what it means; UserError where it is not the user's to change."""
    use = view.file.index.use_at(offset)
    if use is None:
        raise UserError("there is no name here")
    meaning = view.meaning(use)
    if meaning is None:
        raise UserError(f"`{use.name}` is not defined in a file of yours")
    if meaning.file.path.is_relative_to(LIBRARY):
        raise UserError(f"`{use.name}` belongs to the language's library")
    if meaning.definition.kind == "dialect":
        raise UserError(f"`{use.name}` is a dialect's name")
    return use, meaning


def renamed(view: View, offset: int, name: str, paths: Iterable[Path]) -> list[Place]:
    """The places to write another name to; UserError where it is no name, or has another meaning at one of them."""
    _, meaning = renamable(view, offset)
    old = meaning.definition.name
    try:
        forms = read(Source("name", name))
    except UserError:
        forms = ()
    simple = len(forms) == 1 and isinstance(forms[0], Symbol) and forms[0].name == name
    if not simple or "/" in name or (name.startswith("^") != old.startswith("^")):
        raise UserError(f"`{name}` is not a name that could stand for `{old}`")
    places = list(uses_of(view.files, meaning, paths))
    for file in {place.file.path: place.file for place in places}.values():
        _check_free(view.files, file, meaning.definition, name, [p.start for p in places if p.file is file])
    return places


def _check_free(files: Files, file: File, definition: Definition, name: str, starts: list[int]) -> None:
    """UserError where a name has a meaning already where the definition is used, or is used where it is seen."""
    for start in starts:
        found = file.index.top.at(start).find(name)
        if found is not None and found is not definition:
            raise UserError(f"`{name}` means something else in line {file.source.line_column(start)[0]} already")
    home = [scope for span in definition.spans for scope in [file.index.top.at(span.start)]]
    for use in file.index.uses:
        seen = any(scope.start <= use.start <= scope.end for scope in home)
        if use.name == name and seen and use.definition is None and files.meaning(file, name, use.scope) is not None:
            raise UserError(f"`{name}` means something else in line {file.source.line_column(use.start)[0]} already")
