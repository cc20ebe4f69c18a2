"""The walk through a file's forms that finds each name's meaning."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping

from lispgpt.base.source import Span
from lispgpt.editor.scopes import Definition, Index, Scope, Use, parts, pattern_names
from lispgpt.language.reader.forms import Form, List, Sequence, Symbol, Vector, head_name

Binder = Callable[["Walk", List, Scope], None]


class Walk:
    """Goes through forms, and notes in an index what names mean.

    binders: by their heads, what is done with forms that bind names.  macros: those of other files, by their names.
    """

    def __init__(self, index: Index, binders: Mapping[str, Binder], macros: Mapping[str, Definition]) -> None:
        self.index, self.binders, self.macros = index, binders, macros

    def name(self, symbol: Symbol, scope: Scope) -> None:
        """Note the use of a name, and of the module or struct that it begins with; `@f` names the function f."""
        name, start, end = symbol.name, symbol.span.start, symbol.span.end
        if name.startswith("@") and end - start == len(name):
            name, start = name[1:], start + 1
        owner = name.partition("/")[0]
        if len(owner) < len(name) and (known := scope.find(owner)) is not None and known.kind in ("module", "struct"):
            self.index.uses.append(Use(owner, start, start + len(owner), known, scope))
        self.index.uses.append(Use(name, start, end, scope.find(name), scope))

    def defines(self, symbol: Symbol, definition: Definition, scope: Scope) -> None:
        """Note where a name is defined."""
        self.index.uses.append(Use(symbol.name, symbol.span.start, symbol.span.end, definition, scope, defines=True))

    def bind(self, pattern: Form, kind: str, form: Form, scope: Scope, written: Form | None = None) -> None:
        """Bind the names of a pattern, and look at the types in it and at what a template puts there."""
        for symbol in pattern_names(pattern):
            self.defines(symbol, scope.define(symbol, kind, form, written=written), scope)
        for item in [pattern, *parts(pattern)] if isinstance(pattern, Vector) else [pattern]:
            if isinstance(item, List):
                typed = head_name(item) == ":"
                self.forms(item.items[2:] if typed else (item,), scope)
                self._bound_by_macro(item.items[1] if typed and len(item.items) > 1 else item, scope)

    def _bound_by_macro(self, form: Form, scope: Scope) -> None:
        """Note that a macro's template binds the name that it is given, `~x`."""
        given = parts(form)[1] if head_name(form) == "unquote" and len(parts(form)) == 2 else None
        if isinstance(given, Symbol) and (known := scope.find(given.name)) is not None:
            known.binds = True
            self.index.uses.append(Use(given.name, given.span.start, given.span.end, known, scope))

    def forms(self, forms: Iterable[Form], scope: Scope) -> None:
        for form in forms:
            self.form(form, scope)

    def form(self, form: Form, scope: Scope) -> None:
        """Any form where it is evaluated."""
        if isinstance(form, Symbol):
            self.name(form, scope)
        elif isinstance(form, List) and form.items:
            self._list(form, scope)
        elif isinstance(form, Sequence):
            self.forms(form.items, scope)

    def _list(self, form: List, scope: Scope) -> None:
        head = head_name(form)
        binder = self.binders.get(head or "")
        known = scope.find(head) or self.macros.get(head) if head else None
        if known is not None and known.kind == "macro" and known.parameters is not None:
            self._call_of_macro(form, known, scope)
        elif binder is None or (known is not None and known.kind in ("function", "local", "parameter")):
            self.forms(form.items, scope)
        else:
            self.form(form.items[0], scope)
            binder(self, form, scope)

    def _call_of_macro(self, form: List, macro: Definition, scope: Scope) -> None:
        """Bind the names that a macro of this file binds, for all of its call."""
        assert macro.parameters is not None
        inner = scope.open(form.span.start, form.span.end)
        for symbol in _given(macro.parameters, Vector(form.span, form.items[1:]), macro):
            inner.define(symbol, "local", form)
            inner.names[symbol.name].spans.clear()
        for item in form.items:
            self.form(item, inner)
        for definition in inner.names.values():
            first = next((use for use in self.index.uses if use.definition is definition), None)
            if first is not None:
                definition.spans.append(Span(form.span.source, first.start, first.end))


def _given(pattern: Form, argument: Form, macro: Definition) -> Iterator[Symbol]:
    """The names in a macro's arguments that its template binds."""
    if isinstance(pattern, Symbol):
        parameter = macro.inner.get(pattern.name)
        if parameter is not None and parameter.binds and isinstance(argument, Symbol):
            yield argument
    elif isinstance(pattern, Vector):
        for inner, given in zip(pattern.items, parts(argument), strict=False):
            if isinstance(inner, Symbol) and inner.name == "&":
                break
            yield from _given(inner, given, macro)
