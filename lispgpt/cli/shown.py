"""Values and forms as text that a reader could write."""

from __future__ import annotations

from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.language.core.values import Builtin, Closure, Function, LaterFunction, Macro, OpResults, Special, describe
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Sequence, Symbol, Value, Vector, show


def show_value(value: Any) -> str:
    """A value as a reader could write it, or the op that makes it; nothing for nil."""
    match value:
        case None | OpResults() if not value:
            return ""
        case ir.Value():
            return str(value.owner) if not isinstance(value.owner, ir.Block) else str(value)
        case OpResults():
            return str(value[0].owner)
        case bool():
            return "true" if value else "false"
        case str():
            return f'"{value}"'
        case tuple():
            return f"[{' '.join(show_value(item) or 'nil' for item in value)}]"
        case Form():
            return spelled(value)
        case Closure() | Macro() | Builtin() | Special() | Function() | LaterFunction():
            return f"; {describe(value)}"
        case int() | float() | ir.Type() | ir.Attribute():
            return str(value)
        case _:
            return f"; {describe(value)}"


def spelled(form: Form) -> str:
    """A form as text: what a macro built has none of its own."""
    if isinstance(form, Sequence):
        brackets = {List: "()", Vector: "[]", Map: "{}"}[type(form)]
        return f"{brackets[0]}{' '.join(map(spelled, form.items))}{brackets[1]}"
    match form:
        case Symbol():
            return form.name
        case Keyword():
            return f":{form.name}"
        case Literal() | Value():
            return show_value(form.value) or "nil"
        case _:
            return show(form)
