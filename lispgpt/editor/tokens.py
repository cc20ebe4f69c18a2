"""A program as the tokens that its layout is made of."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.base.source import Source
from lispgpt.language.reader.forms import Form, List, Sequence, Symbol
from lispgpt.language.reader.reader import read

PREFIXES = {"quote": "'", "quasiquote": "`", "unquote": "~", "splice": "~@"}


@dataclass(frozen=True)
class Token:
    """A bracket, a quote mark or an atom.  form: with an opening bracket the sequence, with an atom the atom; None with
    others.  begins_pair: whether it stands for a key behind an earlier pair of the sequence around it."""

    text: str
    start: int
    end: int
    form: Form | None = None
    parts: bool = False

    @property
    def opens(self) -> bool:
        return isinstance(self.form, Sequence)

    @property
    def closes(self) -> bool:
        return self.form is None and self.text in (")", "]", "}")

    @property
    def quotes(self) -> bool:
        return self.form is None and not self.closes


def tokens_of(source: Source) -> Iterator[Token]:
    """Every token in order; UserError where the text does not read."""
    yield from _tokens(source.text, read(source))


PAIRS = ("config", "cond")
DECLARATIONS = ("weights", "state", "per", "some", "when")


def _tokens(text: str, forms: tuple[Form, ...], parting: range | None = None) -> Iterator[Token]:
    """parting: the places in a sequence before which its groups part; None at the top of a file, where all may."""
    for number, form in enumerate(forms):
        start, end = form.span.start, form.span.end
        parts = parting is None or number in parting
        if (prefix := _prefix(text, form)) and isinstance(form, List):
            yield Token(prefix, start, start + len(prefix), None, parts)
            yield from _tokens(text, form.items[1:], range(0))
        elif isinstance(form, Sequence):
            yield Token(text[start], start, start + 1, form, parts)
            yield from _tokens(text, form.items, _groups(text, form))
            yield Token(text[end - 1], end - 1, end)
        else:
            yield Token(text[start:end], start, end, form, parts)


def _groups(text: str, form: Sequence) -> range:
    """The places of a sequence that begin a pair, or a declaration."""
    head = form.items[0] if form.items else None
    if text[form.span.start] != "(":
        return range(2, len(form.items), 2)
    name = head.name if isinstance(head, Symbol) else ""
    return range(3, len(form.items), 2) if name in PAIRS else range(2, len(form.items) * (name in DECLARATIONS))


def _prefix(text: str, form: Form) -> str:
    """The quote mark that a form was written with, or nothing."""
    if not isinstance(form, List) or text[form.span.start] not in "'`~":
        return ""
    head = form.items[0]
    return PREFIXES[head.name] if isinstance(head, Symbol) else ""
