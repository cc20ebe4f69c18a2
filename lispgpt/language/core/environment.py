"""Names and what they are bound to."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from difflib import get_close_matches
from typing import Any

from lispgpt.language.reader.forms import Mark, Symbol

_Key = str | tuple[str, Mark]
MISSING = object()


class Dialects:
    """The dialects that one file declares: their names by the names and aliases used there, and the ops found so."""

    __slots__ = ("names", "ops")

    def __init__(self) -> None:
        self.names: dict[str, str] = {"builtin": "builtin"}
        self.ops: dict[str, str | None] = {}

    def declare(self, used: str, name: str) -> None:
        self.names[used] = name
        self.ops.clear()


class Environment:
    """A scope inside another.  A symbol that a macro introduced is a different name from the same letters written by
    the user, until neither its expansion nor an enclosing one binds it: then it means what it means to the macro.

    expands: whether this is the scope of a macro's arguments.  captured: whether a function, a macro or the like looks
    names up from here later, so that what is bound further on in the text must not be bound in this scope.
    """

    __slots__ = ("captured", "dialects", "expands", "names", "outer")

    def __init__(
        self, outer: Environment | None = None, dialects: Dialects | None = None, expands: bool = False
    ) -> None:
        self.outer = outer
        self.expands = expands
        self.captured = False
        self.names: dict[_Key, Any] = {}
        self.dialects: Dialects | None = dialects if dialects is not None or outer is None else outer.dialects

    def define(self, symbol: Symbol, value: Any) -> None:
        """Bind a name in this scope.  At the top of a file, what a macro defines is for everyone to see."""
        top_level = self.outer is None or self.outer.outer is None
        self.names[symbol.name if symbol.mark is None or top_level else (symbol.name, symbol.mark)] = value

    def top(self) -> Environment:
        """The scope of the file's own names that this one is in."""
        scope = self
        while scope.outer is not None and scope.outer.outer is not None:
            scope = scope.outer
        return scope

    def capture(self) -> Environment:
        """This scope, for whoever will look names up from here later."""
        scope: Environment | None = self
        while scope is not None and not scope.captured:
            scope.captured = True
            scope = scope.outer
        return self

    def of_template(self) -> Environment:
        """Where the names of a template mean what they say: around the macro, not among its arguments."""
        scope: Environment | None = self
        while scope is not None and not scope.expands:
            scope = scope.outer
        return scope.outer if scope is not None and scope.outer is not None else self

    def lookup(self, symbol: Symbol) -> Any:
        """The value a name has here, or MISSING."""
        scope: Environment | None = self
        mark = symbol.mark
        while True:
            key: _Key = symbol.name if mark is None else (symbol.name, mark)
            while scope is not None:
                value = scope.names.get(key, MISSING)
                if value is not MISSING:
                    return value
                scope = scope.outer
            if mark is None:
                return MISSING
            scope, mark = mark.environment, mark.outer

    def visible(self) -> Iterator[str]:
        """Every name a user could write here."""
        scope: Environment | None = self
        while scope is not None:
            yield from (key for key in scope.names if isinstance(key, str))
            scope = scope.outer


def did_you_mean(name: str, candidates: Iterable[str], otherwise: str = "") -> str:
    """`; did you mean `x`, `y`?`, or what to say when nothing is near."""
    matches = get_close_matches(name, [c for c in dict.fromkeys(candidates) if c != name], n=3, cutoff=0.7)
    if not matches:
        return otherwise
    return "; did you mean " + " or ".join(f"`{m}`" for m in matches) + "?"
