"""Reading a program while it is being typed: what reads, and one error for each form that does not.

Where the text as a whole does not read, it is taken apart where a bracket begins a line, as forms of a file do; a form
that is not whole is closed where it ends, so that the rest of the file keeps its meaning.
"""

from __future__ import annotations

import re
from dataclasses import dataclass, replace
from functools import lru_cache

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source, Span
from lispgpt.language.reader.forms import Form, Sequence
from lispgpt.language.reader.reader import read

MOST_MENDS = 20
"""Of one form; one that needs more is left out."""

FORMS_KEPT = 2000
_BEGINS = re.compile(r"^[(\[{]", re.MULTILINE)
_CLOSERS = {"(": ")", "[": "]", "{": "}"}
_QUIET = re.compile(r';[^\n]*|"(?:[^"\\]|\\.)*"', re.DOTALL)


@dataclass(frozen=True)
class Recovered:
    """forms: of the whole file, those that were mended among them.  errors: of those that do not read.  broken: where
    the mended ones start."""

    forms: tuple[Form, ...]
    errors: tuple[UserError, ...] = ()
    broken: frozenset[int] = frozenset()


def recover(source: Source, typed: bool = True) -> Recovered:
    """The forms of any text.  typed: whether it is one of many versions, of which each is much like the one before."""
    if not typed:
        try:
            return Recovered(read(source))
        except (UserError, RecursionError):
            pass
    pieces = _pieces(source.text)
    found = [(start, _piece(source.text[start:end])) for start, end in pieces]
    if any(error is not None for _, (_, error) in found):
        try:
            return Recovered(read(source))
        except (UserError, RecursionError):
            pass
    forms: list[Form] = []
    errors: list[UserError] = []
    broken: set[int] = set()
    for (start, end), (_, (read_here, error)) in zip(pieces, found, strict=True):
        moved = [_moved(form, source, start, end) for form in read_here]
        forms += moved
        if error is not None:
            errors.append(_error_at(error, source, start, end))
            broken.update(form.span.start for form in moved)
    return Recovered(tuple(forms), tuple(errors), frozenset(broken))


def _pieces(text: str) -> list[tuple[int, int]]:
    """Where the text is taken apart: at every bracket that begins a line, outside of strings that end."""
    quiet = [match.span() for match in _QUIET.finditer(text)]
    starts, number = [0], 0
    for match in _BEGINS.finditer(text):
        while number < len(quiet) and quiet[number][1] <= match.start():
            number += 1
        inside = number < len(quiet) and quiet[number][0] < match.start()
        swallows = inside and "\n(" in text[quiet[number][0] : quiet[number][1]]
        if not inside or swallows:
            starts.append(match.start())
    ends = [*starts[1:], len(text)]
    return [(start, end) for start, end in zip(starts, ends, strict=True) if end > start]


@lru_cache(FORMS_KEPT)
def _piece(text: str) -> tuple[tuple[Form, ...], UserError | None]:
    """The forms of a piece of text, mended where it does not read, and the error that it has."""
    first = None
    mended = text
    for _ in range(MOST_MENDS):
        try:
            return read(Source("piece", mended)), first
        except UserError as error:
            first = first or error
            changed = _mended(mended, error)
            if changed is None:
                break
            mended = changed
        except RecursionError:
            break
    return (), first or UserError("this cannot be read")


def _mended(text: str, error: UserError) -> str | None:
    """The text with one fault less; what stands before it stays where it is."""
    if error.span is None:
        return None
    if error.message.endswith("is never closed") and text[error.span.start] in _CLOSERS:
        return text.rstrip() + _closer_of(text, error.span.start)
    place = error.span.start
    if error.message.endswith("nothing to quote"):
        place = len(text[: place + 1].rstrip(" \t\r\n)]}")) - 1
    if not 0 <= place < len(text) or text[place].isspace():
        return None
    return text[:place] + " " + text[place + 1 :]


def _closer_of(text: str, opened: int) -> str:
    line = text[text.rfind("\n", 0, len(text.rstrip())) + 1 :]
    comment = "\n" if ";" in _QUIET.sub(lambda m: m[0] if m[0].startswith(";") else "", line) else ""
    return comment + _CLOSERS[text[opened]]


def _moved(form: Form, source: Source, by: int, limit: int) -> Form:
    """A form of a piece as one of the whole text."""
    span = Span(source, min(form.span.start + by, limit), min(form.span.end + by, limit))
    if isinstance(form, Sequence):
        return type(form)(span, tuple(_moved(item, source, by, limit) for item in form.items))
    return replace(form, span=span)


def _error_at(error: UserError, source: Source, by: int, limit: int) -> UserError:
    if error.span is None:
        return UserError(error.message, Span(source, by, min(by + 1, limit)))
    start = min(error.span.start + by, limit)
    line = source.line_column(by)[0] - 1
    message = re.sub(r"of line (\d+)", lambda found: f"of line {int(found[1]) + line}", error.message)
    return UserError(message, Span(source, start, max(start, min(error.span.end + by, limit))))
