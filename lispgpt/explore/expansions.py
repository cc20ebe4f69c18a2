"""What the macros that a program calls become, as text that is laid out."""

from __future__ import annotations

from lispgpt.base.source import Span
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.core.values import describe
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Sequence, Symbol, Value, Vector, show

WIDEST, LONGEST = 68, 4000
"""Characters of a line, and of an expansion that is shown."""
BRACKETS = {List: ("(", ")"), Vector: ("[", "]"), Map: ("{", "}")}


def watching(found: dict[Span, str]) -> type[Evaluator]:
    """A kind of evaluator that notes the first expansion of each macro call, by where the call is written."""

    class Watching(Evaluator):
        def expanded(self, form: List, expansion: Form) -> None:
            if form.span not in found:
                found[form.span] = laid_out(expansion)

    return Watching


def laid_out(form: Form) -> str:
    """A form that a macro has made, as a program has it."""
    return _spelled(form, 0)[:LONGEST]


def _spelled(form: Form, column: int) -> str:
    """The form's text where it begins in a column; what is wider than a line goes on below, behind its head."""
    if not isinstance(form, Sequence):
        return _atom(form)
    left, right = BRACKETS[type(form)]
    flat = f"{left}{' '.join(_spelled(item, 0) for item in form.items)}{right}"
    if column + len(flat) <= WIDEST or not form.items:
        return flat
    indent = column + (2 if isinstance(form, List) else 1)
    head, *items = form.items
    first = [_spelled(head, column + 1)]
    if isinstance(form, List) and items:
        first.append(_spelled(items.pop(0), column + len(first[0]) + 2))
    lines = [" ".join(first), *(_spelled(item, indent) for item in items)]
    return left + f"\n{' ' * indent}".join(lines) + right


def _atom(form: Form) -> str:
    match form:
        case Symbol():
            return form.name
        case Keyword():
            return f":{form.name}"
        case Literal():
            return (
                "nil"
                if form.value is None
                else show(form, limit=LONGEST)
                if form.span.end > form.span.start
                else _plain(form.value)
            )
        case Value():
            return f'"{describe(form.value)}"'
    return show(form)


def _plain(value: object) -> str:
    return str(value).lower() if isinstance(value, bool) else f'"{value}"' if isinstance(value, str) else str(value)
