"""Spaces inside a line: one between two forms, unless the author's line something up.

More than one stay before what stands in one column with something in the same brackets in a line near by, before a
number of a vector whose last digit does, and before a comment.  Two may stand between pairs of a `config`, a `cond`, a
vector or a map, between declarations of weights and states, and between forms of the file, to show what goes together.
Brackets touch what is in them.
"""

from __future__ import annotations

import itertools
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.base.source import Source
from lispgpt.editor.tokens import Token, tokens_of
from lispgpt.language.reader.forms import Literal

NEAR = 2
"""Lines above and below in which something may stand in the same column."""


@dataclass(frozen=True)
class _Placed:
    """A token with the line and column of its start and its end.  brackets: those that are open before it."""

    token: Token
    line: int
    column: int
    last_line: int
    end_column: int
    first: bool
    brackets: tuple[str, ...]

    @property
    def number(self) -> bool:
        """Whether it is a number of a vector: others begin lines where the layout puts them."""
        value = self.token.form.value if isinstance(self.token.form, Literal) else None
        return self.brackets[-1:] == ("[",) and isinstance(value, int | float) and not isinstance(value, bool)


_Columns = dict[int, set[tuple[tuple[str, ...], int]]]


def closed_up(source: Source) -> str:
    """The source's text without spaces that line nothing up; UserError where it does not read."""
    placed = list(_places(source))
    starts, ends = _columns(placed)
    pieces, done = [], 0
    for before, after in itertools.pairwise(placed):
        gap = source.text[before.token.end : after.token.start]
        if before.last_line == after.line and not gap.strip(" "):
            wanted = _gap(before, after, len(gap), starts, ends)
            pieces += [source.text[done : before.token.end], " " * wanted]
            done = after.token.start
    return "".join([*pieces, source.text[done:]])


def _places(source: Source) -> Iterator[_Placed]:
    last: int = 0
    brackets: list[str] = []
    for token in tokens_of(source):
        line, column = source.line_column(token.start)
        end_line, end_column = source.line_column(token.end)
        yield _Placed(token, line, column, end_line, end_column, line != last, tuple(brackets))
        last = end_line
        if token.opens:
            brackets.append(token.text)
        elif token.closes:
            brackets.pop()


def _columns(placed: list[_Placed]) -> tuple[_Columns, _Columns]:
    """By line, where tokens start that are not the first in it, and where numbers end, with the brackets around."""
    starts: _Columns = defaultdict(set)
    ends: _Columns = defaultdict(set)
    for each in placed:
        if not each.first and not each.token.closes:
            starts[each.line].add((each.brackets, each.column))
        if each.number:
            ends[each.line].add((each.brackets, each.end_column))
    return starts, ends


def _gap(before: _Placed, after: _Placed, written: int, starts: _Columns, ends: _Columns) -> int:
    """How many spaces belong between two tokens of a line."""
    near = [after.line + distance for distance in range(-NEAR, NEAR + 1) if distance]
    lined_up = after.number and any((after.brackets, after.end_column) in ends[line] for line in near)
    if after.token.closes or before.token.quotes:
        return 0
    if before.token.opens:
        return written if lined_up and before.token.text == "[" else 0
    if written < 2:
        return 1 if written or not before.token.opens else 0
    if lined_up or any((after.brackets, after.column) in starts[line] for line in near):
        return written
    return 2 if after.token.parts else 1
