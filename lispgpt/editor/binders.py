"""The forms that bind names, each with what the walk does with it."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from lispgpt.editor.declared import FILE_KINDS, declare, kind_of
from lispgpt.editor.scopes import Definition, Index, Required, Scope, parts, pattern_names
from lispgpt.editor.walk import Binder, Walk
from lispgpt.language.reader.forms import Form, Keyword, List, Literal, Map, Symbol, Vector, head_name


def _def(walk: Walk, form: List, scope: Scope) -> None:
    if len(form.items) > 1:
        walk.forms(form.items[2:], scope)
        written = form.items[2] if len(form.items) > 2 else None
        walk.bind(form.items[1], kind_of("def", form), form, scope, written)


def _defn(walk: Walk, form: List, scope: Scope) -> None:
    """`(defn name [x y] body…)`, and what is written like it; without a name `fn`; with a subject `defgradient`."""
    head, items = head_name(form) or "", form.items[1:]
    if head == "defgradient":
        walk.forms(items[:1], scope)
        items = items[1:]
    elif head != "fn" and items and isinstance(items[0], Symbol):
        walk.bind(items[0], FILE_KINDS.get(head, "function"), form, scope)
        items = items[1:]
    inner = scope.open(form.span.start, form.span.end)
    vector = next((number for number, item in enumerate(items) if isinstance(item, Vector)), None)
    if vector is None:
        walk.forms(items, inner)
        return
    walk.forms(items[:vector], scope)
    for pattern in _parameters_of(items[vector]):
        walk.bind(pattern, "parameter", form, inner)
    if head == "defmacro" and isinstance(form.items[1], Symbol) and (macro := scope.find(form.items[1].name)):
        macro.inner = dict(inner.names)
    walk.forms(items[vector + 1 :], inner)


def _parameters_of(vector: Form) -> Iterable[Form]:
    return (item for item in parts(vector) if not (isinstance(item, Symbol) and item.name == "->"))


def _let(walk: Walk, form: List, scope: Scope) -> None:
    """Bindings in turn, each seen from behind its value on."""
    vector = next((item for item in form.items[1:] if isinstance(item, Vector)), None)
    if vector is None:
        walk.forms(form.items[1:], scope)
        return
    walk.forms(form.items[1 : form.items.index(vector)], scope)
    kind = "index" if head_name(form) == "tensor" else "local"
    for pattern, value in zip(vector.items[::2], [*vector.items[1::2], None], strict=False):
        if value is not None:
            walk.form(value, scope)
        scope = scope.open(pattern.span.end if value is None else value.span.end, form.span.end)
        walk.bind(pattern, kind, form, scope, value)
    walk.forms(form.items[form.items.index(vector) + 1 :], scope)


def _entry(walk: Walk, form: List, scope: Scope) -> None:
    """Inputs, and the dimensions in them that are names of nothing else."""
    items = form.items[1:]
    if items and isinstance(items[0], Symbol):
        walk.bind(items[0], "entry", form, scope)
    inner = scope.open(form.span.start, form.span.end)
    for given in parts(items[1]) if len(items) > 1 else ():
        name = given if isinstance(given, Symbol) else next(iter(parts(given)), None)
        for size in _names_in(parts(parts(given)[1]) if len(parts(given)) > 1 else ()):
            if inner.find(size.name) is None:
                walk.bind(size, "dimension", form, inner)
            else:
                walk.name(size, inner)
        if isinstance(name, Symbol):
            walk.bind(name, "parameter", form, inner)
        walk.forms(parts(given)[2:], inner)
    walk.forms(items[2:], inner)


def _names_in(forms: Iterable[Form]) -> Iterable[Symbol]:
    for form in forms:
        if isinstance(form, Symbol):
            yield form
        elif isinstance(form, List):
            yield from _names_in(form.items[1:])


def _config(walk: Walk, form: List, scope: Scope) -> None:
    for name, value in zip(form.items[1::2], [*form.items[2::2], None], strict=False):
        if value is not None:
            walk.form(value, scope)
        if isinstance(name, Symbol):
            walk.bind(name, "config", form, scope, value)


def _tensors(walk: Walk, form: List, scope: Scope) -> None:
    for item in form.items[1:]:
        _tensor(walk, item, "weight" if head_name(form) == "weights" else "state", scope)


def _tensor(walk: Walk, item: Form, kind: str, scope: Scope) -> None:
    if head_name(item) in ("per", "when"):
        declared = [i for i in parts(item)[2:] if isinstance(i, List) and not _is_condition(item, i)]
        walk.forms([each for each in parts(item) if each not in declared], scope)
        for inner in declared:
            _tensor(walk, inner, kind, scope)
    elif isinstance(item, List) and item.items and isinstance(item.items[0], Symbol):
        walk.defines(item.items[0], scope.define(item.items[0], kind, item), scope)
        walk.forms(item.items[1:], scope)
    else:
        walk.form(item, scope)


def _is_condition(around: Form, item: Form) -> bool:
    """Whether a form stands behind `:where`."""
    before = parts(around)[parts(around).index(item) - 1]
    return isinstance(before, Keyword)


def _contract(walk: Walk, form: List, scope: Scope) -> None:
    """Indices are names of the form's own."""
    inner = scope.open(form.span.start, form.span.end)
    for item in form.items[1:]:
        if not isinstance(item, Vector):
            walk.form(item, scope)
            continue
        for symbol in pattern_names(item):
            walk.bind(symbol, "index", form, inner)


def _block(walk: Walk, form: List, scope: Scope) -> None:
    inner = scope.open(form.span.start, form.span.end)
    items = form.items[1:]
    if items and isinstance(items[0], Symbol) and items[0].name.startswith("^"):
        walk.bind(items[0], "label", form, scope)
        items = items[1:]
    if items and isinstance(items[0], Vector):
        for pattern in items[0].items:
            walk.bind(pattern, "parameter", form, inner)
        items = items[1:]
    walk.forms(items, inner)


def _region(walk: Walk, form: List, scope: Scope) -> None:
    """Its labels are known in all of its blocks."""
    inner = scope.open(form.span.start, form.span.end)
    for item in form.items[1:]:
        named = parts(item)[1] if head_name(item) == "block" and len(parts(item)) > 1 else None
        if isinstance(named, Symbol) and named.name.startswith("^"):
            inner.define(named, "label", item).spans.clear()
    walk.forms(form.items[1:], inner)


def required_in(form: Form) -> Iterable[Required]:
    """What a `(require …)` requires."""
    for item in parts(form)[1:]:
        named, *alias = parts(item) if isinstance(item, Vector) and item.items else (item,)
        given = alias[1] if len(alias) == 2 and isinstance(alias[1], Symbol) else None
        if isinstance(named, Symbol | Literal):
            yield Required(named, given)


def _require(walk: Walk, form: List, scope: Scope) -> None:
    for required in required_in(form):
        walk.index.required.append(required)
        if required.alias_symbol is not None:
            walk.bind(required.alias_symbol, "module", form, scope)


def _dialects(walk: Walk, form: List, scope: Scope) -> None:
    for item in form.items[1:]:
        for symbol in (part for part in (parts(item) or (item,)) if isinstance(part, Symbol)):
            walk.bind(symbol, "dialect", form, scope)


def _struct(walk: Walk, form: List, scope: Scope) -> None:
    if len(form.items) > 1 and isinstance(form.items[1], Symbol):
        walk.bind(form.items[1], "struct", form, scope)
    for item in form.items[2:]:
        walk.forms(parts(item)[1:], scope)


def _extern(walk: Walk, form: List, scope: Scope) -> None:
    if len(form.items) > 1 and isinstance(form.items[1], Symbol):
        walk.bind(form.items[1], "function", form, scope)
    walk.forms(form.items[2:], scope)


def _generate(walk: Walk, form: List, scope: Scope) -> None:
    walk.forms((item for item in form.items[1:] if not isinstance(item, Map)), scope)
    for item in form.items[1:]:
        if isinstance(item, Map):
            walk.forms(item.items[1::2], scope)


def _folder(walk: Walk, form: List, scope: Scope) -> None:
    """What tensors and numbers of a folder are called: names of weights and of the config beside strings."""
    waiting = list(form.items[1:])
    while waiting:
        item = waiting.pop()
        if isinstance(item, Symbol):
            walk.name(item, scope)
        waiting += parts(item)[1 if isinstance(item, List) else 0 :]


def _nothing(walk: Walk, form: List, scope: Scope) -> None:
    """What is quoted is data."""


BINDERS: dict[str, Binder] = {
    **dict.fromkeys(("defn", "fn", "defmacro", "kernel", "schedule", "defgradient"), _defn),
    **dict.fromkeys(("let", "for", "loop", "tensor"), _let),
    **dict.fromkeys(("weights", "state"), _tensors),
    **dict.fromkeys(("require-dialect", "use-dialect"), _dialects),
    "def": _def,
    "entry": _entry,
    "config": _config,
    "contract": _contract,
    "block": _block,
    "region": _region,
    "require": _require,
    "defstruct": _struct,
    "extern-fn": _extern,
    "generate": _generate,
    "hugging-face": _folder,
    "gguf": _folder,
    "quote": _nothing,
}


def index_of(forms: Iterable[Form], length: int, macros: Mapping[str, Definition] | None = None) -> Index:
    """The names of a file of so many characters.  macros: those of the files that it requires."""
    index = Index(Scope(0, length, None))
    listed = tuple(forms)
    for form in listed:
        declare(form, index.top)
    Walk(index, BINDERS, macros or {}).forms(listed, index.top)
    return index
