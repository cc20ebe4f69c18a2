"""Entries of the language: core forms and built-in functions, and what the library defines in Lisp."""

from __future__ import annotations

import inspect
import re
from collections import Counter
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache, cached_property
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
_DEFINES = re.compile(rf"\((?:{'|'.join(DEFINING)}) ([^\s()\[\]{{}}]+)")
USUAL = "nn"
HELPS = "A helper, which nothing is said of but its section: "
LONGEST = 400
"""Characters of an excerpt."""


def forms(only: str | None = None) -> Iterator[Entry]:
    """One for each name that every program starts with, and for each word that some of those take; or of one alone."""
    said, counts = said_in("forms.md"), _counts()
    yield from (entry for entry in _words_of_declarations() if only in (None, entry.name))
    for name in dict.fromkeys([*(name for name in said if name in LANGUAGE.names), *LANGUAGE.names]):
        if only not in (None, name):
            continue
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


def library(only: str | None = None, examples: bool = True) -> Iterator[Entry]:
    """One for each definition of the files in `lib`; or of one name alone, for which few forms are read.  examples:
    whether those that nobody wrote are looked for in programs, in a second for all."""
    said, counts = said_in("library.md"), _counts()
    for path in sorted((PACKAGE / "lib").rglob("*.lisp")):
        more = "".join(f"; (require {stem}) brings it, too" for stem in _bringing(path.stem))
        wanted = f"(require {path.stem}){more}" if path.stem != "core" else "there without asking"
        wanted = "a schedule of GPU kernels" if path.parent.name == "kernels" else wanted
        for found in _definitions(path):
            if only not in (None, found.name):
                continue
            about = said.get(found.name)
            above = "" if about and found.above.startswith(HELPS) else found.above
            parts = (about.text if about else "", above, f"Library: {wanted}")
            body = "\n\n".join(f"{part.rstrip('.')}." for part in parts if part)
            form = found.part.form
            example = about.example if about else (examples and _use(found.name)) or found.part.written(form)
            place = f"lib/{path.relative_to(PACKAGE / 'lib')}:{found.part.line}"
            signature, used = _written(form, found.name), counts[found.name]
            related = tuple(each for each in _named(body) if each != found.name)
            yield Entry(found.name, "library", signature, body, example, place, related, uses=used)


@cache
def _bringing(stem: str) -> tuple[str, ...]:
    """The file that programs usually require, where it requires a file of the library."""
    required = re.findall(r"^\(require ([^()]*)\)", (PACKAGE / "lib" / f"{USUAL}.lisp").read_text(), re.MULTILINE)
    return (USUAL,) if stem in " ".join(required).split() else ()


def definition(entry: Entry) -> str:
    """The text of what the library defines; empty for other entries."""
    file, _, line = entry.place.rpartition(":")
    if entry.kind != "library":
        return ""
    rest = "".join((PACKAGE / file).read_text(encoding="utf-8").splitlines(keepends=True)[int(line) - 1 :])
    span = read(Source(file, rest))[0].span
    return rest[span.start : span.end]


def _written(form: Form, name: str) -> str:
    """How a definition is called."""
    assert isinstance(form, List)
    vector = next((item for item in form.items[2:] if isinstance(item, Vector)), None)
    return name if vector is None or show(form.items[0]) == "def" else f"({' '.join([name, *map(show, vector.items)])})"


def _named(text: str) -> tuple[str, ...]:
    """What a text says of the language's other names."""
    names = re.findall(r"`([^`\s()]+)`", text)
    return tuple(dict.fromkeys(name for name in names if name in LANGUAGE.names or name in _defined()))


@dataclass(frozen=True)
class Part:
    """A form that begins a line of a file, with what follows up to the next one.  start: of text, where it begins."""

    path: Path
    text: str
    start: int
    end: int

    @property
    def own(self) -> str:
        return self.text[self.start : self.end]

    @property
    def line(self) -> int:
        return self.text.count("\n", 0, self.start) + 1

    @cached_property
    def form(self) -> Form:
        return read(Source(self.path.name, self.own))[0]

    def written(self, form: Form) -> str:
        """The text of a form in it."""
        return self.own[form.span.start : form.span.end]


@dataclass(frozen=True)
class Defined:
    """A definition, and the comment above it; where there is none, the one of its section or its file."""

    name: str
    part: Part
    above: str


@cache
def _parts(path: Path) -> tuple[Part, ...]:
    """The forms of a file, none of them read."""
    text = path.read_text(encoding="utf-8")
    starts = [found.start() for found in re.finditer(r"^(?=\()", text, re.MULTILINE)]
    return tuple(Part(path, text, *bounds) for bounds in zip(starts, [*starts[1:], len(text)], strict=True))


@cache
def _definitions(path: Path) -> tuple[Defined, ...]:
    found, parts = list[Defined](), _parts(path)
    section, end = _comment(parts[0].text, parts[0].start), 0
    for part in parts:
        if marks := re.findall(r"^; -{3,} (.*)$", part.text[end : part.start], re.MULTILINE):
            section = f"{marks[-1]}."
        end = part.start
        if head := _DEFINES.match(part.own):
            found.append(Defined(head[1], part, _comment(part.text, part.start) or f"{HELPS}{section}"))
    return tuple(found)


@cache
def _defined() -> frozenset[str]:
    """All names that the library defines."""
    return frozenset(each.name for path in (PACKAGE / "lib").rglob("*.lisp") for each in _definitions(path))


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


@cache
def _searched() -> tuple[tuple[Part, ...], ...]:
    """The forms of the files in which uses are looked for: examples first, which tests compile."""
    first = [PACKAGE / "examples" / f"{name}.lisp" for name in ("gpt2", "llama_tiny", "gpt2_train", "gpt2_generate")]
    rest = [*sorted((PACKAGE / "examples").rglob("*.lisp")), *sorted((PACKAGE / "lib").rglob("*.lisp"))]
    return tuple(_parts(path) for path in dict.fromkeys([*first, *rest]))


def _use(name: str) -> str | None:
    """The first short form that uses a name."""
    for parts in _searched():
        for part in parts if parts and name in parts[0].text else ():
            if name in part.own and (used := next(_uses(part, name), None)):
                return f"; {_short(part.path)}\n{used}"
    return None


def _uses(part: Part, name: str) -> Iterator[str]:
    """The short lists with a name as one of their items, or as an item of their vectors and maps."""
    whole = part.form
    waiting = [(whole, whole)]
    while waiting:
        form, around = waiting.pop()
        if isinstance(form, Symbol):
            if form.name == name and around.span.end - around.span.start <= LONGEST:
                yield part.written(around)
        elif isinstance(form, Sequence):
            defines = isinstance(form, List) and form.items and show(form.items[0]) in DEFINING
            inner = form.items[:1] + form.items[2:] if defines else form.items
            waiting += [(item, form if isinstance(form, List) else around) for item in reversed(inner)]
