"""Source text and the places in it that forms, errors and MLIR locations point at."""

from __future__ import annotations

import re
from bisect import bisect_right
from dataclasses import dataclass, field


@dataclass(frozen=True, eq=False)
class Source:
    """One text with the name (usually the path) that messages show for it, bytes that are no UTF-8 by their numbers."""

    name: str
    text: str
    _line_starts: list[int] = field(init=False, repr=False)

    def __post_init__(self) -> None:
        starts = [0, *(found.end() for found in re.finditer("\n", self.text))]
        object.__setattr__(self, "_line_starts", starts)
        object.__setattr__(self, "name", self.name.encode(errors="backslashreplace").decode())

    def line_column(self, offset: int) -> tuple[int, int]:
        """The 1-based line and column of a character offset."""
        line = bisect_right(self._line_starts, offset)
        return line, offset - self._line_starts[line - 1] + 1

    def line_text(self, line: int) -> str:
        """The text of a 1-based line, without its end."""
        start = self._line_starts[line - 1]
        end = self._line_starts[line] - 1 if line < len(self._line_starts) else len(self.text)
        return self.text[start:end].rstrip("\r")

    def offset(self, line: int, column: int) -> int:
        """The character offset of a 1-based line and column."""
        return self._line_starts[line - 1] + column - 1


def form_end(text: str, start: int) -> int:
    """Where a form that starts there ends, as far as its brackets say."""
    depth = 0
    for position in range(start, min(len(text), start + 4000)):
        character = text[position]
        if character in "([{":
            depth += 1
        elif character in ")]}":
            depth -= 1
        if depth <= 0 and (character in ")]}" or character.isspace()):
            return position + 1 if character in ")]}" and depth == 0 else position
    return min(len(text), start + 1) if depth else len(text)


@dataclass(frozen=True, eq=False)
class Span:
    """A half-open range of characters of a source."""

    source: Source
    start: int
    end: int

    def __str__(self) -> str:
        line, column = self.source.line_column(self.start)
        return f"{self.source.name}:{line}:{column}"
