"""Entries of the language: core forms and built-in functions, and what the library defines in Lisp."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import Any

from lispgpt.base.source import Source
from lispgpt.language.core.values import Builtin, Special
from lispgpt.language.program import LANGUAGE
from lispgpt.language.reader.forms import Form, List, Sequence, Symbol, Vector, show
from lispgpt.language.reader.reader import read
from lispgpt.reference.entry import Entry
from lispgpt.reference.pages import said_in

PACKAGE = Path(__file__).resolve().parent.parent
DEFINING = ("def", "defn", "defmacro", "kernel", "defstruct", "schedule")
LONGEST = 400
"""Characters of an excerpt."""


def forms() -> Iterator[Entry]:
    """One for each name that every program starts with, and for each word that some of those take."""
    said, counts = said_in("forms.md"), _counts()
    yield from _words_of_declarations()
    for name in dict.fromkeys([*(name for name in said if name in LANGUAGE.names), *LANGUAGE.names]):
        value = LANGUAGE.names[name]
        about = said.get(name)
        doc = inspect.cleandoc(value.run.__doc__ or "") if isinstance(value, Builtin | Special) else ""
        written = re.match(r"`(\([^`]*\))`", doc) or re.search(
            rf"`(\({re.escape(name)}[ )][^`]*)`", about.text if about else ""
        )
        text = "\n\n".join(part for part in (doc, about.text if about else "") if part)
        related = tuple(other for other in about.names if other != name) if about else ()
        signature = written.group(1) if written else _counted(name, value)
        example, shared = (about.example, about.text if related else "") if about else ("", "")
        yield Entry(name, "form", signature, text, example, _place_of(value), related, shared, counts[name])


def _words_of_declarations() -> Iterator[Entry]:
    for name, about in said_in("declarations.md").items():
        related = (*(other for other in about.names if other != name), "weights")
        signature = {"per": "(per layers (w [sizes …]) …)", ":init": "{:init value}"}.get(name, f"({name} number)")
        place, used = "language/model/declarations.py", _counts()[name]
        yield Entry(name, "form", signature, about.text, about.example, place, related, about.text, used)


def _counted(name: str, value: Any) -> str:
    if not isinstance(value, Builtin | Special):
        return name
    arguments = list("abcdef"[: value.least]) + (["…"] if value.most != value.least else [])
    return f"({' '.join([name, *arguments])})"


def _place_of(value: Any) -> str:
    if not isinstance(value, Builtin | Special):
        return ""
    code = inspect.unwrap(value.run)
    path = inspect.getsourcefile(code)
    return "" if path is None else f"{_short(Path(path))}:{inspect.getsourcelines(code)[1]}"


def _short(path: Path) -> str:
    resolved = path.resolve()
    return resolved.relative_to(PACKAGE).as_posix() if resolved.is_relative_to(PACKAGE) else path.name


def library(examples: bool = True) -> Iterator[Entry]:
    """One for each definition of the files in `lib`.  examples: whether the rest is searched for those, in seconds."""
    uses, said, counts = _uses() if examples else {}, said_in("library.md"), _counts()
    for path in sorted((PACKAGE / "lib").rglob("*.lisp")):
        text = path.read_text(encoding="utf-8")
        for form, above in _definitions(path, text):
            name = form.items[1]
            assert isinstance(name, Symbol)
            about = said.get(name.name)
            line = text.count("\n", 0, form.span.start) + 1
            wanted = f"(require {path.stem})" if path.stem != "core" else "there without asking"
            wanted = "a schedule of GPU kernels" if path.parent.name == "kernels" else wanted
            above = "" if about and above.startswith("Of: ") else above
            parts = (about.text if about else "", above, f"Library: {wanted}")
            body = "\n\n".join(f"{part.rstrip('.')}." for part in parts if part)
            example = about.example if about else uses.get(name.name) or text[form.span.start : form.span.end]
            place = f"lib/{path.relative_to(PACKAGE / 'lib')}:{line}"
            related, used = _named(body, uses), counts[name.name]
            yield Entry(name.name, "library", _written(form, name.name), body, example, place, related, uses=used)


def definition(entry: Entry) -> str:
    """The text of what the library defines; empty for other entries."""
    file, _, line = entry.place.rpartition(":")
    if entry.kind != "library":
        return ""
    rest = "".join((PACKAGE / file).read_text(encoding="utf-8").splitlines(keepends=True)[int(line) - 1 :])
    span = read(Source(file, rest))[0].span
    return rest[span.start : span.end]


def _written(form: List, name: str) -> str:
    """How a definition is called."""
    vector = next((item for item in form.items[2:] if isinstance(item, Vector)), None)
    return name if vector is None or show(form.items[0]) == "def" else f"({' '.join([name, *map(show, vector.items)])})"


def _named(text: str, uses: dict[str, str]) -> tuple[str, ...]:
    return tuple(dict.fromkeys(name for name in re.findall(r"`([^`\s()]+)`", text) if name in uses))


def _definitions(path: Path, text: str) -> Iterator[tuple[List, str]]:
    """Definitions, and the comment above each; where there is none, the one of its section or its file."""
    heading = _comment(text, text.index("\n(") + 1)
    section, end = heading, 0
    for form in read(Source(path.name, text)):
        between = text[end : form.span.start]
        if marks := re.findall(r"^; -{3,} (.*)$", between, re.MULTILINE):
            section = f"{marks[-1]}."
        end = form.span.end
        defines = isinstance(form, List) and len(form.items) > 2 and show(form.items[0]) in DEFINING
        if isinstance(form, List) and defines and isinstance(form.items[1], Symbol):
            yield form, _comment(text, form.span.start) or f"Of: {section}"


def _comment(text: str, start: int) -> str:
    """The comment right above a place."""
    lines: list[str] = []
    for line in reversed(text[:start].splitlines()):
        if not line.startswith(";") or line.startswith("; ---"):
            break
        lines.insert(0, line.lstrip("; "))
    return "\n".join(lines)


@cache
def _counts() -> Counter[str]:
    """Of each name, how many of the example programs have it."""
    texts = (path.read_text(encoding="utf-8") for path in (PACKAGE / "examples").glob("*.lisp"))
    return Counter(name for text in texts for name in set(re.findall(r"[^\s()\[\]{}]+", text)))


def _uses() -> dict[str, str]:
    """By each name a short form that uses it, from the examples, which tests compile, or from the library."""
    found: dict[str, str] = {}
    first = [PACKAGE / "examples" / f"{name}.lisp" for name in ("gpt2", "llama_tiny", "gpt2_train", "gpt2_generate")]
    rest = [*sorted((PACKAGE / "examples").rglob("*.lisp")), *sorted((PACKAGE / "lib").rglob("*.lisp"))]
    for path in [*first, *rest]:
        text = path.read_text(encoding="utf-8")
        for form in read(Source(path.name, text)):
            _note(form, text, form, f"; {_short(path)}", found)
    return found


def _note(form: Form, text: str, around: Form, place: str, found: dict[str, str]) -> None:
    if isinstance(form, Symbol):
        excerpt = text[around.span.start : around.span.end]
        if len(excerpt) <= LONGEST:
            found.setdefault(form.name, f"{place}\n{excerpt}")
        return
    defines = isinstance(form, List) and form.items and show(form.items[0]) in DEFINING
    for number, item in enumerate(form.items if isinstance(form, Sequence) else ()):
        if not (defines and number == 1):
            _note(item, text, form if isinstance(form, List) else around, place, found)
