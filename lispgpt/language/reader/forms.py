"""What the reader makes of text: immutable forms, each with the span it was read from.

A compile-time list of the evaluator is a Python tuple; these classes are code, and what macros take apart and build.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

from lispgpt.base.source import Span


@dataclass(frozen=True, eq=False)
class Mark:
    """Says that one expansion of a macro introduced a symbol: it sees the macro's definitions, and what it binds is
    seen by the same expansion only.  environment: the scope that the macro's template stands in.  outer: the mark the
    symbol had in the macro's own text."""

    environment: Any
    outer: Mark | None


@dataclass(frozen=True, eq=False, slots=True)
class Form:
    """Any form; span is where it stands in the text."""

    span: Span


@dataclass(frozen=True, eq=False, slots=True)
class Symbol(Form):
    """A name, with angle brackets as written; a block label keeps its `^`."""

    name: str
    mark: Mark | None = None


@dataclass(frozen=True, eq=False, slots=True)
class Keyword(Form):
    """`:name`; name is without the colon."""

    name: str


@dataclass(frozen=True, eq=False, slots=True)
class Literal(Form):
    """A string, number, true, false or nil, as its Python value."""

    value: str | int | float | bool | None


@dataclass(frozen=True, eq=False, slots=True)
class Sequence(Form):
    """Any bracketed form.  weight: the forms in it, itself included, each as often as it stands there: macros put one
    form into several places."""

    items: tuple[Form, ...]
    weight: int = field(init=False, repr=False)

    def __post_init__(self) -> None:
        weight = 1 + sum(item.weight if isinstance(item, Sequence) else 1 for item in self.items)
        object.__setattr__(self, "weight", weight)


class List(Sequence):
    """`( … )`"""

    __slots__ = ()


class Vector(Sequence):
    """`[ … ]`"""

    __slots__ = ()


class Map(Sequence):
    """`{ … }`, as written: keys and values in turn."""

    __slots__ = ()


@dataclass(frozen=True, eq=False, slots=True)
class Value(Form):
    """An evaluated value (a type, an SSA value, a function) that a macro put into its expansion."""

    value: Any


@dataclass(frozen=True, eq=False, slots=True)
class Later(Form):
    """The forms of a body, which are read when they are first evaluated."""

    read: Callable[[], tuple[Form, ...]]


def show(form: Form, limit: int = 60) -> str:
    """The text a form was read from, shortened to one line for messages."""
    if isinstance(form, Literal) and form.span.start == form.span.end:
        return repr(form.value)
    text = " ".join(form.span.source.text[form.span.start : form.span.end].split())
    if not text and isinstance(form, (Symbol, Keyword)):
        text = form.name
    return text if len(text) <= limit else text[: limit - 1] + "…"


def head_name(form: Form) -> str | None:
    """The name that a list starts with, or None."""
    if isinstance(form, List) and form.items and isinstance(form.items[0], Symbol):
        return form.items[0].name
    return None
