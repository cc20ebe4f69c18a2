"""What a file's forms define for all of it, known ahead since functions are called before and after."""

from __future__ import annotations

from lispgpt.editor.scopes import Scope, parts, pattern_names
from lispgpt.language.reader.forms import Form, List, Symbol, Vector, head_name

FILE_KINDS = {"defn": "function", "defmacro": "macro", "kernel": "kernel", "schedule": "schedule"}


def declare(form: Form, top: Scope) -> None:
    """Make what a form defines known; the walk says where."""
    head, items = head_name(form), parts(form)
    if head in ("module", "do"):
        for item in items[1:]:
            declare(item, top)
    elif head in ("def", "entry", "defstruct", "extern-fn", *FILE_KINDS) and len(items) > 1:
        for symbol in pattern_names(items[1]):
            made = top.define(symbol, kind_of(head, form), form, parameters=parameters_of(form))
            made.spans.clear()
    elif head == "config":
        for named in items[1::2]:
            if isinstance(named, Symbol):
                top.define(named, "config", form).spans.clear()
    elif head in ("weights", "state"):
        for item in items[1:]:
            _declare_tensors(item, "weight" if head == "weights" else "state", top)


def _declare_tensors(item: Form, kind: str, top: Scope) -> None:
    if head_name(item) in ("per", "when"):
        for inner in parts(item)[2:]:
            _declare_tensors(inner, kind, top)
    elif isinstance(item, List) and item.items and isinstance(item.items[0], Symbol):
        top.define(item.items[0], kind, item).spans.clear()


def kind_of(head: str, form: Form) -> str:
    """The kind of what a form defines."""
    written = parts(form)[2] if len(parts(form)) > 2 else None
    if head == "def":
        return "function" if written is not None and head_name(written) == "fn" else "value"
    return {"entry": "entry", "defstruct": "struct", "extern-fn": "function", **FILE_KINDS}[head]


def parameters_of(form: Form) -> Vector | None:
    """The parameters of what a form defines, where it is called."""
    items = parts(form)
    written = items[2] if len(items) > 2 else None
    if written is not None and head_name(written) == "fn" and len(parts(written)) > 1:
        written = parts(written)[1]
    return written if isinstance(written, Vector) and head_name(form) not in ("config",) else None
