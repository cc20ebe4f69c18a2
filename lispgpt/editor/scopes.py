"""Which definition each name of a file means, from the text alone: whole, half-typed, or never evaluated.

A form that binds names says so in `binders`; every other list is a call, whose parts are looked at in turn.  What only
an expansion of a macro binds is not seen here (`checking` says it).
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from functools import cached_property

from lispgpt.base.source import Span
from lispgpt.language.reader.forms import Form, List, Sequence, Symbol, Vector


@dataclass(eq=False)
class Definition:
    """What a name stands for in a scope.  kind: "function", "macro", "entry", "config", "weight", "state", "value",
    "parameter", "local", "index", "dimension", "label", "struct", "schedule", "kernel", "dialect" or "module".
    spans: where it is defined: several times where a file defines it anew.  form: all of the definition.  parameters:
    the vector of them, of what is called.  written: the value's form, where one is bound.  inner: of a macro, its
    parameters.  binds: of those, whether its template binds the name that is given."""

    name: str
    kind: str
    spans: list[Span]
    form: Form
    parameters: Vector | None = None
    written: Form | None = None
    inner: dict[str, Definition] = field(default_factory=dict)
    binds: bool = False


@dataclass(eq=False)
class Scope:
    """The names that are bound from start to end of a file."""

    start: int
    end: int
    outer: Scope | None
    names: dict[str, Definition] = field(default_factory=dict)
    inner: list[Scope] = field(default_factory=list)

    def open(self, start: int, end: int) -> Scope:
        """A scope inside this one."""
        made = Scope(start, end, self)
        self.inner.append(made)
        return made

    def define(self, symbol: Symbol, kind: str, form: Form, **more: object) -> Definition:
        """Bind a name, or bind it anew."""
        known = self.names.get(symbol.name)
        if known is not None:
            known.spans.append(symbol.span)
            return known
        made = self.names[symbol.name] = Definition(symbol.name, kind, [symbol.span], form, **more)  # type: ignore[arg-type]
        return made

    def find(self, name: str) -> Definition | None:
        """What a name means here."""
        scope: Scope | None = self
        while scope is not None:
            if name in scope.names:
                return scope.names[name]
            scope = scope.outer
        return None

    def at(self, offset: int) -> Scope:
        """The innermost scope around a place."""
        for each in self.inner:
            if each.start <= offset <= each.end:
                return each.at(offset)
        return self

    def visible(self) -> Iterator[Definition]:
        """What is bound here and around, inner bindings first."""
        scope: Scope | None = self
        while scope is not None:
            yield from scope.names.values()
            scope = scope.outer


@dataclass(frozen=True, eq=False)
class Use:
    """A name where it is used or defined: of `m/x`, the module's name and the whole are one each; of `@f` it is `f`.
    definition: None where this file has none.  scope: where it stands."""

    name: str
    start: int
    end: int
    definition: Definition | None
    scope: Scope
    defines: bool = False


@dataclass(frozen=True, eq=False)
class Required:
    """A file or library that is required.  form: what names it.  alias_symbol: under which its names are seen."""

    form: Form
    alias_symbol: Symbol | None

    @property
    def alias(self) -> str | None:
        return self.alias_symbol.name if self.alias_symbol is not None else None


@dataclass(eq=False)
class Index:
    """All names of a file."""

    top: Scope
    uses: list[Use] = field(default_factory=list)
    required: list[Required] = field(default_factory=list)

    def use_at(self, offset: int) -> Use | None:
        """The name that a place is in, or right behind."""
        at = [use for use in self.uses if use.start <= offset <= use.end]
        return min(at, key=lambda use: (use.end == offset, use.end - use.start)) if at else None

    def uses_of(self, definition: Definition) -> list[Use]:
        """Where a definition's name stands, its definitions among them."""
        return self._by_definition.get(id(definition), [])

    @cached_property
    def _by_definition(self) -> dict[int, list[Use]]:
        found: dict[int, list[Use]] = {}
        for use in self.uses:
            if use.definition is not None:
                found.setdefault(id(use.definition), []).append(use)
        return found


def parts(form: Form) -> tuple[Form, ...]:
    """The members of a sequence; none of anything else."""
    return form.items if isinstance(form, Sequence) else ()


def pattern_names(pattern: Form) -> Iterator[Symbol]:
    """The names that a pattern binds: `x`, `[a [b c] & rest]`, `(: x T)`."""
    if isinstance(pattern, Symbol):
        if pattern.name != "&":
            yield pattern
    elif isinstance(pattern, Vector):
        for item in pattern.items:
            yield from pattern_names(item)
    elif isinstance(pattern, List) and len(pattern.items) > 1 and _is_colon(pattern.items[0]):
        yield from pattern_names(pattern.items[1])


def _is_colon(form: Form) -> bool:
    return isinstance(form, Symbol) and form.name == ":"
