"""Places in the protocol's lines and units, and as characters of a text."""

from __future__ import annotations

from dataclasses import dataclass

from lsprotocol import types

from lispgpt.base.source import Source

_UNITS = {
    types.PositionEncodingKind.Utf8: lambda text: len(text.encode("utf-8", "surrogatepass")),
    types.PositionEncodingKind.Utf16: lambda text: len(text.encode("utf-16-le", "surrogatepass")) // 2,
    types.PositionEncodingKind.Utf32: len,
}


@dataclass(frozen=True)
class Positions:
    """Of one text.  encoding: the units that the client counts columns in."""

    source: Source
    encoding: types.PositionEncodingKind | str = types.PositionEncodingKind.Utf16

    def position(self, offset: int) -> types.Position:
        """A character's line and column, from 0."""
        line, column = self.source.line_column(max(0, min(offset, len(self.source.text))))
        before = self.source.text[self.source.offset(line, 1) : self.source.offset(line, column)]
        return types.Position(line - 1, self._units(before))

    def range(self, start: int, end: int) -> types.Range:
        return types.Range(self.position(start), self.position(end))

    def offset(self, position: types.Position) -> int:
        """The character at a line and column; the end of a line or of the text where there are not so many."""
        lines = self.source.text.count("\n") + 1
        if position.line >= lines:
            return len(self.source.text)
        start = self.source.offset(position.line + 1, 1)
        line = self.source.line_text(position.line + 1)
        if line.isascii():
            return start + min(position.character, len(line))
        units = 0
        for number, character in enumerate(line):
            if units >= position.character:
                return start + number
            units += self._units(character)
        return start + len(line)

    def _units(self, text: str) -> int:
        return len(text) if text.isascii() else _UNITS[types.PositionEncodingKind(self.encoding)](text)
