"""Where an error is shown: the user's own form first, and the calls and expansions around it."""

from __future__ import annotations

import re
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source, Span, form_end
from lispgpt.language.reader.forms import Form, show

LONGEST_CHAIN = 5
_SAYS_NOTHING = re.compile("see current operation|required by region isolation")

# How MLIR calls kinds of types, and how a beginner would.
_KINDS_OF_TYPES = (
    ("signless-non-zero-bitwidth-integer-like", "an integer (i32, i64, index, …)"),
    ("signless-integer-like", "an integer (i32, i64, index, …)"),
    ("floating-point-like", "a float (f32, f64, …)"),
    (
        "using value defined outside the region",
        "a value made outside this function is used inside it; pass it as an argument, or bind a plain number",
    ),
    ("does not reference a valid function", "is not the name of a function here"),
)


def spans_of(location: str, sources: dict[str, Source]) -> list[Span]:
    """The forms that an MLIR location as text stands for, innermost first."""
    spans = []
    for name, line, column in re.findall(r'"((?:[^"\\]|\\.)*)":(\d+):(\d+)', location):
        source = sources.get(name.replace("\\\\", "\\"))
        if source is not None:
            start = source.offset(int(line), int(column))
            spans.append(Span(source, start, form_end(source.text, start)))
    return spans


def whole_message(diagnostic: Any) -> str:
    """A diagnostic's message with those of its notes that say more."""
    notes = [note.message for note in diagnostic.notes if not _SAYS_NOTHING.search(note.message)]
    name = re.match(r"'([\w.]+)' op ", diagnostic.message)
    said = f"`{name[1]}`: {in_words(diagnostic.message)}" if name else diagnostic.message
    return "; ".join([said, *notes])


def in_words(message: str) -> str:
    """MLIR's message without the op's name, and with its names of kinds of types spelled out."""
    message = re.sub(r"^'[\w.]+' op ", "", message)
    for kind, words in _KINDS_OF_TYPES:
        message = message.replace(kind, words)
    return re.sub(r"operand #(\d+)", lambda m: f"operand {int(m[1]) + 1}", message)


def placed(message: str, span: Span, chain: list[tuple[str, Span]]) -> UserError:
    """Show the user's innermost form first; what happened inside the library follows as a call chain."""
    if len(chain) > LONGEST_CHAIN:
        left_out = len(chain) - LONGEST_CHAIN
        head, tail = chain[: LONGEST_CHAIN - 2], chain[-2:]
        chain = [*head, (f"{left_out} more calls", tail[0][1]), *tail]
    if in_library(span):
        users = next((i for i, (_, s) in enumerate(chain) if not in_library(s)), None)
        if users is not None:
            inner = [(f"`{_text(span)}`", span), *((_quoted(what), s) for what, s in chain[:users])]
            outer = [(_quoted(what), s) for what, s in chain[users + 1 :]]
            return UserError(f"in `{chain[users][0]}`: {message}", chain[users][1], inner + outer)
    return UserError(message, span, [(_quoted(what), s) for what, s in chain])


def _quoted(what: str) -> str:
    return what if " " in what else f"`{what}`"


def _text(span: Span) -> str:
    return show(Form(span), 40)


def in_library(span: Span) -> bool:
    """Whether a form stands in the package's library."""
    return span.source.name.startswith("lib/")
