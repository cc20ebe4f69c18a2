"""Histories of functions, and machine code, in few bytes: numbers of one to five bytes in streams of one kind each.

texts: the texts of lines, once each, the most frequent first.  Each function has its part of every stream.

    runs        the count of steps; of each: the pass's number * 2 + (1 where the function is no more), the count of
                runs, and of each count * 4 + what
    lines       of each written line, the number of its text
    values      of each hole that uses a value: 2 * d, where it is the d-th definition before this place, for those
                that are near; else it is the n-th definition of all, and this is 2 * f + 1, where f is the folded
                difference of n to that of the same hole in the line before that has this text
    locations   of each written line, its location's difference to the line before, folded: 0, -1, 1, -2, …

Machine code has streams of its own: in `machine-texts` whole numbers are holes, and `numbers` has for each of them the
difference to the one before in a hole that stands behind the same letters, folded.  Of each function: the count of
lines, their texts' numbers, their locations.

`page/unpack.js` reads it.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence

from lispgpt.explore.history import Step, Written
from lispgpt.explore.machine_code import Instruction
from lispgpt.explore.numbers import folded, varint, varints
from lispgpt.explore.printed import END, HOLE

NEAR = 64
STREAMS = ("runs", "lines", "values", "locations")


class Packed:
    """texts: of lines.  functions: the names, and where each one's part of each stream begins.  streams: their
    bytes."""

    def __init__(self, histories: Mapping[str, Sequence[Step]]) -> None:
        counts = Counter(line.text for steps in histories.values() for step in steps for line in step.written)
        self.texts = [text for text, _ in counts.most_common()]
        self._numbers = {text: number for number, text in enumerate(self.texts)}
        self.functions: dict[str, list[int]] = {}
        self.streams = {name: bytearray() for name in STREAMS}
        for name, steps in histories.items():
            self.functions[name] = [len(stream) for stream in self.streams.values()]
            self._add(steps)

    def _add(self, steps: Sequence[Step]) -> None:
        runs, location, last = [len(steps)], 0, dict[tuple[str, int], int]()
        for step in steps:
            runs += [2 * step.number + step.gone, len(step.runs), *(4 * count + what for what, count in step.runs)]
            for line in step.written:
                self.streams["lines"] += varint(self._numbers[line.text])
                self.streams["locations"] += varint(folded(line.location - location))
                location = line.location
                self.streams["values"] += varints(_uses(line, last))
        self.streams["runs"] += varints(runs)


def _uses(line: Written, last: dict[tuple[str, int], int]) -> Iterator[int]:
    """How the values that a line uses are written down.  last: those of its text's holes."""
    defines = [END in mark for mark in line.text.split(HOLE)[1:]]
    for hole, (value, new) in enumerate(zip(line.values, defines, strict=True)):
        if not new:
            distance = line.known - value
            far = 2 * folded(value - last.get((line.text, hole), 0)) + 1
            last[line.text, hole] = value
            yield 2 * distance if 0 < distance <= NEAR else far


NUMBER = re.compile(r"0[xfd][0-9A-Fa-f]+|([A-Za-z%$.+\-:\[_]*)(0|[1-9][0-9]{0,8})(?![0-9A-Za-z_.])")


class PackedMachine:
    """The same of instructions."""

    def __init__(self, functions: Mapping[str, Sequence[Instruction]]) -> None:
        holed = {name: [_without_numbers(line.text) for line in lines] for name, lines in functions.items()}
        counts = Counter(text for lines in holed.values() for text, _ in lines)
        self.texts = [text for text, _ in counts.most_common()]
        ids = {text: number for number, text in enumerate(self.texts)}
        self.functions: dict[str, list[int]] = {}
        self.streams = {name: bytearray() for name in ("lines", "numbers", "locations")}
        for name, lines in functions.items():
            self.functions[name] = [len(lines), *map(len, self.streams.values())]
            location, last = 0, dict[str, int]()
            for line, (text, numbers) in zip(lines, holed[name], strict=True):
                self.streams["lines"] += varint(ids[text])
                self.streams["locations"] += varint(folded(line.location - location))
                location = line.location
                for letters, number in numbers:
                    self.streams["numbers"] += varint(folded(number - last.get(letters, 0)))
                    last[letters] = number


def _without_numbers(text: str) -> tuple[str, list[tuple[str, int]]]:
    """A text with holes, and for each of them the letters ahead of it and its number."""
    numbers: list[tuple[str, int]] = []

    def hole(found: re.Match[str]) -> str:
        if found[2] is None:
            return found[0]
        numbers.append((found[1], int(found[2])))
        return f"{found[1]}{HOLE}"

    return NUMBER.sub(hole, text), numbers
