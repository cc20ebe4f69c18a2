"""The places in programs that MLIR's locations stand for, numbered, so that lines of every stage can be joined by them.

A location is of one op or, fused, of several; each of these is a chain of places, from the innermost form, which may be
the library's, out to the model's last call.  Places that come from what a pass has parsed ("-") are none.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import dataclass, field

Place = tuple[str, int, int]
Chain = tuple[int, ...]
NAMED = re.compile(r"(.+):(\d+):(\d+)")
TOKEN = re.compile(
    r'"(?P<text>(?:[^"\\]|\\.)*)"(?::(?P<line>\d+):(?P<column>\d+))?|(?P<alias>#loc\d*)|(?P<word>callsite|fused|unknown|at)'
    r"|(?P<mark>[()\[\],])|(?P<metadata><[^\[]*>)"
)
PARSED = "-"
"""What MLIR calls the file of a text that a pass has parsed."""
MOST_CHAINS = 400
"""Of a location: one of a launch that does all of a model's layers has thousands, most of them again and again."""


@dataclass
class Places:
    """places: each a file, a 1-based line and column.  chains: each the numbers of places, innermost first.  locations:
    each the numbers of its chains; location 0 has none."""

    places: dict[Place, int] = field(default_factory=dict)
    chains: dict[Chain, int] = field(default_factory=dict)
    locations: dict[tuple[int, ...], int] = field(default_factory=lambda: {(): 0})

    def of_text(self, text: str, aliases: Aliases) -> int:
        """The number of a location as MLIR prints it, without its `loc( )`."""
        chains = dict.fromkeys(_Parser(text, self, aliases).chains())
        numbers = [self.chains.setdefault(chain, len(self.chains)) for chain in list(chains)[:MOST_CHAINS]]
        return self.locations.setdefault(tuple(numbers), len(self.locations))

    def of_place(self, place: Place) -> int:
        """The number of a location that is one place, such as an instruction's in a line table."""
        chain = (self.number(place),)
        return self.locations.setdefault((self.chains.setdefault(chain, len(self.chains)),), len(self.locations))

    def number(self, place: Place) -> int:
        """The number of a place."""
        return self.places.setdefault(place, len(self.places))


class Aliases:
    """The locations that a printed module names, such as `#loc5`, each read when it is first asked for."""

    def __init__(self, texts: dict[str, str], places: Places) -> None:
        self._texts, self._places = texts, places
        self._known: dict[str, list[Chain]] = {}
        self._numbers: dict[str, int] = {}

    def chains(self, name: str) -> list[Chain]:
        """What an alias stands for."""
        if name not in self._known:
            self._known[name] = []  # of itself, as no location is
            self._known[name] = _Parser(self._texts.get(name, "unknown"), self._places, self).chains()
        return self._known[name]

    def number(self, text: str) -> int:
        """The number of the location that stands between the brackets of `loc( )`."""
        if text not in self._numbers:
            self._numbers[text] = self._places.of_text(text, self)
        return self._numbers[text]


class _Parser:
    """Reads one location."""

    def __init__(self, text: str, places: Places, aliases: Aliases) -> None:
        self._tokens = list(TOKEN.finditer(text))
        self._at, self._places, self._aliases = 0, places, aliases

    def chains(self) -> list[Chain]:
        """The chains of the location that begins here."""
        token = self._next()
        if token is None or token["word"] == "unknown":
            return []
        if token["alias"]:
            return self._aliases.chains(token["alias"])
        if token["word"] == "callsite":
            self._next()
            inner = self.chains()
            self._next()
            outer = self.chains()
            self._next()
            return _joined(inner, outer)
        if token["word"] == "fused":
            return self._fused()
        return self._text(token)

    def _fused(self) -> list[Chain]:
        if self._peek("metadata"):
            self._next()
        found: list[Chain] = []
        while (mark := self._next()) is not None and mark["mark"] != "]":
            found += self.chains()
        return found

    def _text(self, token: re.Match[str]) -> list[Chain]:
        file = unescaped(token["text"] or "")
        if token["line"]:
            return [] if file == PARSED else [(self._number(file, token["line"], token["column"]),)]
        named = NAMED.fullmatch(file)
        inner: list[Chain] = [(self._number(*named.groups()),)] if named else []
        if not self._peek("mark", "("):
            return inner
        self._next()
        outer = self.chains()
        self._next()
        return _joined(inner, outer)

    def _number(self, file: str, line: str, column: str) -> int:
        return self._places.number((file, int(line), int(column)))

    def _next(self) -> re.Match[str] | None:
        self._at += 1
        return self._tokens[self._at - 1] if self._at <= len(self._tokens) else None

    def _peek(self, kind: str, text: str = "") -> bool:
        found = self._tokens[self._at][kind] if self._at < len(self._tokens) else None
        return bool(found) and (not text or found == text)


def _joined(inner: Sequence[Chain], outer: Sequence[Chain]) -> list[Chain]:
    """Each of the inner chains within each of the outer ones."""
    if not inner or not outer:
        return list(inner or outer)
    return [a + b for a in inner for b in outer][:MOST_CHAINS]


def unescaped(text: str) -> str:
    """A string as it is, of the form in which MLIR prints it."""
    data = re.sub(rb"\\(\\|[0-9A-F]{2})", _byte, text.encode())
    return data.decode(errors="backslashreplace")


def _byte(escaped: re.Match[bytes]) -> bytes:
    return b"\\" if escaped[1] == b"\\" else bytes.fromhex(escaped[1].decode())
