"""A module's text in parts: each function with what it needs of the rest, which is a module by itself."""

from __future__ import annotations

import re
from collections.abc import Iterator

from lispgpt.passes.value_names import ALIAS, ALIAS_LINE, STRING, functions_in

SYMBOL = re.compile(rf"(?<![\w$.\"])@({STRING}|[\w$.-]+)")
DECLARED = re.compile(rf"^ *[\w.]+ (?:[^@\"]*?)@({STRING}|[\w$.-]+).*[^{{]$")
"""A line that declares a symbol, and is all of it."""


class KernelTexts:
    """The functions of a module's text."""

    def __init__(self, text: str) -> None:
        self._lines = text.split("\n")
        self._functions = {symbol: (first, last) for symbol, first, last in functions_in(self._lines)}
        self._aliases: dict[str, tuple[int, str]] = {}
        self._declared: dict[str, int] = {}
        self._frame: list[int] = []
        inside = {number for first, last in self._functions.values() for number in range(first, last)}
        for number, line in enumerate(self._lines):
            if number in inside:
                continue
            if match := ALIAS_LINE.match(line):
                self._aliases[match[1]] = number, match[2]
            elif match := DECLARED.match(line):
                self._declared[match[1]] = number
            elif line:
                self._frame.append(number)

    def bodies(self) -> Iterator[tuple[str, str]]:
        """Each function's symbol and own text."""
        for symbol, (first, last) in self._functions.items():
            yield symbol, "\n".join(self._lines[first:last])

    def whole(self, symbol: str) -> str:
        """A function, what it refers to, and what stands around them."""
        kept, todo = set(self._frame), [symbol]
        for number in self._frame:
            todo += self._mentioned(self._lines[number], kept)
        known: set[str] = set()
        while todo:
            name = todo.pop()
            if name in known:
                continue
            known.add(name)
            if name in self._functions:
                lines = range(*self._functions[name])
            else:
                lines = range(self._declared[name], self._declared[name] + 1)
            kept.update(lines)
            todo += self._mentioned("\n".join(self._lines[number] for number in lines), kept)
        return "\n".join(self._lines[number] for number in sorted(kept)) + "\n"

    def _mentioned(self, text: str, kept: set[int]) -> list[str]:
        """The symbols that a text names; lines of the aliases that it reads are kept."""
        aliases = [text]
        while aliases:
            for match in ALIAS.finditer(aliases.pop()):
                number, content = self._aliases.get(match[0], (-1, ""))
                if number >= 0 and number not in kept:
                    kept.add(number)
                    aliases.append(content)
        unquoted = re.sub(rf"(?<!@){STRING}", '""', text)
        return [name for name in SYMBOL.findall(unquoted) if name in self._functions or name in self._declared]
