"""The files of the library, and which of them has a name that a program does not have."""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path

__all__ = ["LIBRARY", "library_names", "library_of"]

LIBRARY = Path(__file__).resolve().parents[2] / "lib"
_DEFINITION = re.compile(r"^\((?:def|defn|defmacro) ([^\s()\[\]]+)", re.MULTILINE)


@cache
def _files() -> dict[str, str]:
    """By each name the file that defines it; the first where several do."""
    found: dict[str, str] = {}
    for path in sorted(LIBRARY.glob("*.lisp")):
        for name in _DEFINITION.findall(path.read_text(encoding="utf-8")):
            found.setdefault(name, path.stem)
    return found


def library_of(name: str) -> str | None:
    """The library that has a name, as `require` calls it."""
    return _files().get(name)


def library_names() -> Iterable[str]:
    """All names that the library's files define."""
    return _files()
