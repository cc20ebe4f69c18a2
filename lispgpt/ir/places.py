"""The forms of a program that ops stand for, read from MLIR's locations.

A location is a place in a file, or a chain of them from a library's form out to the user's, or several such chains of
an op that is made of others.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from functools import lru_cache
from pathlib import Path, PurePath

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import everything_in

STRING = r'"(?P<file>(?:[^"\\]|\\.)*)"'
PLACE = re.compile(rf'{STRING}:(?P<line>\d+):(?P<column>\d+)|"(?:[^"\\]|\\.)*"|(?P<between>[\[,])')
"""A place; another string, such as a name; or where the places of another op begin."""
LIBRARY, TEXT = "lib", "-"
"""The library's folder; what MLIR calls the file of what a pass has parsed."""
PACKAGE = Path(__file__).resolve().parents[1]


def together(ops: Iterable[ir.Operation]) -> ir.Location:
    """Where something stands that is made of these ops: their places, each form once, in the ops' order."""
    found: dict[tuple[str, ...], ir.Location] = {}
    for op in ops:
        if forms := forms_of(op.location):
            found.setdefault(forms, op.location)
    if not found:
        return ir.Location.unknown()
    return next(iter(found.values())) if len(found) == 1 else ir.Location.fused(list(found.values()))


def place(op: ir.Operation) -> None:
    """Put an op, and all in it, where line tables say that it stands: at the user's form, with the library's, if it is
    of one, as a name."""
    known: dict[ir.Attribute, ir.Location] = {}
    for each in everything_in(op):
        location = each.location
        found = known.get(location.attr)
        if found is None:
            found = known[location.attr] = _place(str(location), op.context)
        each.location = found


def written_by(op: ir.Operation, kernel: ir.Operation) -> ir.Location:
    """Where what is made of a schedule's op stands: at the kernel's forms, with the schedule's own as a name."""
    chain = next(iter(_chains(str(op.location))), None)
    return kernel.location if chain is None else ir.Location.name(":".join(chain[0]), kernel.location, op.context)


def forms_of(location: ir.Location) -> tuple[str, ...]:
    """The forms that a location stands for, as "gpt2.lisp:28:13"; none of what has no place in a file."""
    return _forms(str(location))


def name_of(location: ir.Location) -> str:
    """The name that a location is; "" for one that is something else."""
    found = re.fullmatch(rf"loc\({STRING}\)", str(location))
    return "" if found is None else _unescaped(found["file"])


@lru_cache(maxsize=4096)
def _forms(text: str) -> tuple[str, ...]:
    return tuple(dict.fromkeys(map(_told, _chains(text))))


@lru_cache(maxsize=4096)
def _chains(text: str) -> list[list[tuple[str, str, str]]]:
    """The places, innermost first, of each op that a location is of."""
    chains: list[list[tuple[str, str, str]]] = [[]]
    for place in PLACE.finditer(text):
        if place["between"]:
            chains.append([])
        elif place["line"] and place["file"] != TEXT:
            chains[-1].append((_unescaped(place["file"]), place["line"], place["column"]))
    return [chain for chain in chains if chain]


def _place(text: str, context: ir.Context) -> ir.Location:
    chain = next(iter(_chains(text)), None)
    if chain is None:
        return ir.Location.unknown(context)
    (file, line, column), inner = _own(chain), chain[0]
    own = ir.Location.file(file, int(line), int(column), context)
    return own if inner == (file, line, column) else ir.Location.name(":".join(inner), own, context)


def _own(chain: Sequence[tuple[str, str, str]]) -> tuple[str, str, str]:
    """The innermost place of a chain that is in a file of the user's; where all are the library's, the innermost."""
    return next((place for place in chain if not _is_librarys(place[0])), chain[0])


def _told(chain: Sequence[tuple[str, str, str]]) -> str:
    file, line, column = _own(chain)
    return f"{file if _is_librarys(file) else PurePath(file).name}:{line}:{column}"


@lru_cache(maxsize=64)
def _is_librarys(file: str) -> bool:
    parts = PurePath(file).parts
    return parts[:1] == (LIBRARY,) and ".." not in parts and (PACKAGE / file).is_file()


def _unescaped(file: str) -> str:
    """A file's name as it is, of the form in which MLIR prints it."""
    data = re.sub(rb"\\(\\|[0-9A-F]{2})", _byte, file.encode())
    return data.decode(errors="backslashreplace")


def _byte(escaped: re.Match[bytes]) -> bytes:
    return b"\\" if escaped[1] == b"\\" else bytes.fromhex(escaped[1].decode())
