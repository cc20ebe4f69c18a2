"""Forms as an indented tree with their places, for people who want to see what the reader made of a text."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from lispgpt.language.reader.forms import Form, Sequence, show


def tree(forms: Iterable[Form]) -> str:
    """One line for each form: `line:column`, then its kind and, for an atom, its text."""
    return "\n".join(_lines(forms))


def _lines(forms: Iterable[Form]) -> Iterator[str]:
    waiting = [(form, 0) for form in reversed(tuple(forms))]
    while waiting:
        form, depth = waiting.pop()
        line, column = form.span.source.line_column(form.span.start)
        children = form.items if isinstance(form, Sequence) else ()
        text = type(form).__name__ if isinstance(form, Sequence) else f"{type(form).__name__} {show(form)}"
        yield f"{f'{line}:{column}':<8}{'  ' * depth}{text}"
        waiting += [(child, depth + 1) for child in reversed(children)]
