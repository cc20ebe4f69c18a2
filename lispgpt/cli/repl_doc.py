"""What the repl says of names: the reference's entries, and the text of definitions."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.cli.doc import named, shown
from lispgpt.language.core.environment import MISSING, Environment
from lispgpt.language.core.values import Closure, Macro, describe
from lispgpt.language.reader.forms import Form, List, Literal, Symbol, head_name
from lispgpt.reference.language import definition


def explain(environment: Environment, name: str) -> str:
    """`,doc NAME` and `(doc name)`: the reference's entry, or what the session has of that name."""
    value = _value(environment, name)
    try:
        return shown((name,))
    except UserError:
        if value is MISSING:
            raise
        return f"{name}: {describe(value)}\n{_text_of(value)}".rstrip()


def source(environment: Environment, name: str) -> str:
    """`,source NAME`: the definition's text, or where it is in Python."""
    if text := _text_of(_value(environment, name)):
        return text
    found = [(definition(entry), entry) for entry in named(name)]
    return "\n".join(text or f"{entry.name} is in {entry.place or 'the command line'}" for text, entry in found)


def asked_in(form: Form, environment: Environment) -> str | None:
    """What `(doc name)`, `(source name)` and `(apropos word …)` ask for; None for other forms, and where the program
    has these names itself."""
    head = head_name(form)
    if head not in ("doc", "source", "apropos") or not isinstance(form, List):
        return None
    if environment.lookup(form.items[0]) is not MISSING or not form.items[1:]:  # type: ignore[arg-type]
        return None
    words = [str(item.value) if isinstance(item, Literal) else _name(item) for item in form.items[1:]]
    if head == "apropos":
        return shown(tuple(words), about=True)
    how: Callable[[Environment, str], str] = explain if head == "doc" else source
    return how(environment, words[0])


def _name(form: Form) -> str:
    return form.name if isinstance(form, Symbol) else form.span.source.text[form.span.start : form.span.end]


def _value(environment: Environment, name: str) -> Any:
    scope: Environment | None = environment
    while scope is not None:
        if name in scope.names:
            return scope.names[name]
        scope = scope.outer
    return MISSING


def _text_of(value: Any) -> str:
    if not isinstance(value, Closure | Macro):
        return ""
    span = value.form.span
    return span.source.text[span.start : span.end]
