"""What is different between two texts of modules, function by function."""

from __future__ import annotations

import difflib
from collections.abc import Iterable, Iterator, Sequence

from lispgpt.passes.value_names import functions_in

CONTEXT, WIDEST = 2, 400
"""Lines around a difference; characters of a line that are shown."""


def changes(before: str, after: str) -> Iterator[str]:
    """Lines of a difference, `-` and `+`, under a heading for each function that is different.

    However far in a line stands is no difference.  Of a function that is in one text only, each line is one.
    """
    old, new = _parts(before), _parts(after)
    for name in dict.fromkeys([*old, *new]):
        a, b = old.get(name, []), new.get(name, [])
        if a != b:
            yield f"@@ {name} @@"
            yield from (_cut(line) for line in _difference(a, b))


def summary(lines: Iterable[str]) -> str:
    """How much of a difference there is: "3 functions, 12 lines less, 7 more"."""
    counts = {"@": 0, "-": 0, "+": 0}
    for line in lines:
        if line[:1] in counts:
            counts[line[0]] += 1
    functions = f"{counts['@']} function{'' if counts['@'] == 1 else 's'}"
    return f"{functions}, {counts['-']:,} lines less, {counts['+']:,} more"


def _parts(text: str) -> dict[str, list[str]]:
    """The lines of each function, and under "module" those around them."""
    lines = text.split("\n")
    found: dict[str, list[str]] = {}
    around, at = [], 0
    for symbol, first, last in functions_in(lines):
        around += lines[at:first]
        found.setdefault(f"@{symbol}", []).extend(line.lstrip() for line in lines[first:last])
        at = last
    rest = [line.lstrip() for line in [*around, *lines[at:]] if line]
    return {"module": rest, **found}


def _difference(before: Sequence[str], after: Sequence[str]) -> Iterator[str]:
    for number, line in enumerate(difflib.unified_diff(before, after, lineterm="", n=CONTEXT)):
        if number > 1:  # behind two lines of files' names
            yield "  …" if line.startswith("@@") else line


def _cut(line: str) -> str:
    return line if len(line) <= WIDEST else f"{line[:WIDEST]}… ({len(line) - WIDEST:,} characters more)"
