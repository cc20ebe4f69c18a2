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
VALUE = re.compile(rf"{STRING}|%[\w$.-]+")
PREDECESSORS = re.compile(r"\s*// (?:\d+ preds?|no predecessors).*$")
USED = re.compile(rf"{STRING}|#(?:map|set)\d*\b")
HINT = re.compile(r"[A-Za-z_$.-][\w$.-]*?(?=(?:_\d+)?$)")


@dataclass(frozen=True, slots=True)
class Line:
    """text: with holes.  names: of the values in them.  location: its number."""

    text: str
    names: tuple[str, ...]
    location: int


def functions_of(text: str, places: Places) -> dict[str, tuple[Line, ...]]:
    """The lines of each function and kernel of a module that was printed with its locations, by their names."""
    lines = text.split("\n")
    named = {found[1]: found[2] for line in lines if line.startswith("#") and (found := ALIAS_LINE.match(line))}
    aliases = Aliases({name: said[4:-1] for name, said in named.items() if name.startswith("#loc")}, places)
    maps = {name: said for name, said in named.items() if not name.startswith(("#loc", "#di"))}
    return {name: _lines(block, aliases, maps) for name, block in _blocks(lines)}


def _blocks(lines: list[str]) -> Iterator[tuple[str, list[str]]]:
    """(name, lines) of each function, without its indentation."""
    for symbol, first, last in functions_in(lines):
        indent = len(lines[first]) - len(lines[first].lstrip())
        yield symbol.strip('"'), [line[indent:] for line in lines[first:last]]


def _lines(block: list[str], aliases: Aliases, maps: dict[str, str]) -> tuple[Line, ...]:
    """Lines with their own locations: what has a body has the one that is printed behind its end."""
    texts, places = [], [0] * len(block)
    opened: list[int] = []
    for number, line in enumerate(block):
        found = [match[1] for match in LOCATION.finditer(line)]
        text = PREDECESSORS.sub("", LOCATION.sub("", line)) if found or "//" in line else line
        texts.append(USED.sub(lambda m: maps.get(m[0], m[0]), text) if "#" in text else text)
        closes, opens = text.lstrip().startswith("}"), text.endswith("{")
        if line.endswith(")") and found and not opens:
            places[number] = aliases.number(found[-1])
        if closes and not opens and opened:
            places[opened.pop()] = places[number]
        elif opens and not closes:
            opened.append(number)
    return tuple(map(_line, _with_holes(texts), places))


def _line(holed: tuple[str, tuple[str, ...]], location: int) -> Line:
    return Line(*holed, location)


def _with_holes(texts: list[str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    known: set[str] = set()
    names: list[str] = []

    def hole(found: re.Match[str]) -> str:
        name = found[0]
        if name[0] == '"':
            return name
        names.append(name)
        if name in known:
            return HOLE
        known.add(name)
        hint = HINT.match(name, 1)
        return f"{HOLE}{hint[0] if hint else ''}{END}"

    for text in texts:
        names.clear()
        holed = VALUE.sub(hole, text) if "%" in text else text
        yield holed, tuple(names)
