"""A printed module as its functions, and each of their lines as a text with holes for values.

In a line's text every value is HOLE, and one that the line defines HOLE, the hint in its name and END: `%c4_0` is
defined as `c4`, `%17` as nothing.  `names` has the values' own names in the same order.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.explore.places import Aliases, Places
from lispgpt.passes.value_names import ALIAS_LINE, STRING, functions_in

HOLE, END = "\x01", "\x02"
_INNER = rf'(?:[^()"]|{STRING})*'
_NESTED = rf"{_INNER}(?:\({_INNER}(?:\({_INNER}(?:\({_INNER}\){_INNER})*\){_INNER})*\){_INNER})*"
LOCATION = re.compile(rf" loc\(({_NESTED})\)")
MARK = " loc("
TOKEN = re.compile(rf"({STRING}|%[\w$.-]+)")
PREDECESSORS = re.compile(r"\s*// (?:\d+ preds?|no predecessors).*$")
USED = re.compile(rf"{STRING}|#(?:map|set)\d*\b")
HINT = re.compile(r"[A-Za-z_$.-][\w$.-]*?(?=(?:_\d+)?$)")


@dataclass(frozen=True, slots=True)
class Line:
    """text: with holes.  names: of the values in them.  location: its number."""

    text: str
    names: tuple[str, ...]
    location: int


class Printed:
    """Reads a module's text after each pass.  Functions that a pass leaves as they are, which are most, are known
    from the text before: their lines then are the very same tuple."""

    def __init__(self, places: Places) -> None:
        self._places = places
        self._known: dict[str, tuple[list[str], list[int], tuple[Line, ...]]] = {}

    def functions(self, text: str) -> dict[str, tuple[Line, ...]]:
        """The lines of each function and kernel of a module that was printed with its locations, by their names."""
        lines = text.split("\n")
        named = {found[1]: found[2] for line in lines if line.startswith("#") and (found := ALIAS_LINE.match(line))}
        aliases = Aliases({name: said[4:-1] for name, said in named.items() if name.startswith("#loc")}, self._places)
        maps = {name: said for name, said in named.items() if not name.startswith(("#loc", "#di"))}
        known, self._known = self._known, {}
        for symbol, first, last in functions_in(lines):
            name = symbol.strip('"')
            texts, locations = _parts(lines[first:last], aliases, maps)
            before = known.get(name)
            if before is None or before[0] != texts or before[1] != locations:
                before = texts, locations, tuple(map(_line, _with_holes(texts), locations))
            self._known[name] = before
        return {name: lines for name, (_, _, lines) in self._known.items()}


def _parts(block: list[str], aliases: Aliases, maps: dict[str, str]) -> tuple[list[str], list[int]]:
    """A function's lines without its indentation and locations, and the numbers of these: what has a body has the one
    that is printed behind its end."""
    texts, places = [], [0] * len(block)
    indent = len(block[0]) - len(block[0].lstrip())
    opened: list[int] = []
    for number, line in enumerate(block):
        text, location = _without_locations(line[indent:])
        texts.append(USED.sub(lambda m: maps.get(m[0], m[0]), text) if "#" in text else text)
        closes, opens = text.lstrip(" ").startswith("}"), text.endswith("{")
        if location and not opens:
            places[number] = aliases.number(location)
        if closes and not opens and opened:
            places[opened.pop()] = places[number]
        elif opens and not closes:
            opened.append(number)
    return texts, places


def _without_locations(line: str) -> tuple[str, str]:
    """A line without its locations, and the one that it ends in, if it does."""
    start = line.find(MARK)
    if start < 0:
        return (PREDECESSORS.sub("", line) if "//" in line else line), ""
    if line.startswith("#loc", start + len(MARK)) and line.find(")", start) == len(line) - 1:
        text, location = line[:start], line[start + len(MARK) : -1]
    else:
        found = [match[1] for match in LOCATION.finditer(line)]
        text, location = LOCATION.sub("", line), found[-1] if found and line.endswith(")") else ""
    return (PREDECESSORS.sub("", text) if "//" in text else text), location


def _line(holed: tuple[str, tuple[str, ...]], location: int) -> Line:
    return Line(*holed, location)


def _with_holes(texts: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    known: set[str] = set()
    for text in texts:
        if "%" not in text:
            yield text, ()
            continue
        parts, names = TOKEN.split(text), []
        for i in range(1, len(parts), 2):
            name = parts[i]
            if name[0] == "%":
                names.append(name)
                parts[i] = HOLE if name in known else f"{HOLE}{_hint(name)}{END}"
                known.add(name)
        yield "".join(parts), tuple(names)


def _hint(name: str) -> str:
    found = HINT.match(name, 1)
    return found[0] if found else ""
