"""Files: written so that they are either whole or not there, and JSON that is checked as it is read.

Nothing is written through a link that somebody else may have put there: what is new is made under a name that nobody
can guess, and fails where that is taken; what is there already has to be an ordinary file.
"""

from __future__ import annotations

import errno
import json
import os
import secrets
import stat
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_ordinary

NEW = os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
"""How a file is opened that was not there before."""

_MINE = os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC


def open_own(path: Path, append: bool = False) -> BinaryIO:
    """A file of this process's to go on with, which is made where there is none, unbuffered; OSError where there is a
    link, a pipe or anything else that is no ordinary file."""
    number = os.open(path, _MINE | (os.O_APPEND if append else 0), 0o666)
    if not stat.S_ISREG(os.fstat(number).st_mode):
        os.close(number)
        raise OSError(errno.EINVAL, "it is no ordinary file")
    return open(number, "ab" if append else "r+b", buffering=0)  # type: ignore[return-value]


@contextmanager
def replacing(path: Path) -> Iterator[BinaryIO]:
    """A binary file to write, put in path's place when the block ends; on any error, path stays as it was.

    UserError for what the system refuses, and for a path that is a folder or a device.
    """
    unfinished = path.with_name(f".{path.name[:100]}.{secrets.token_hex(8)}.unfinished")
    if "\0" in str(path):
        raise UserError(f"cannot write {str(path)!r}: no path has a zero in it")
    try:
        if path.exists() and not path.is_file():
            raise UserError(f"cannot write {path}: it is there already, and is no ordinary file")
        path.parent.mkdir(parents=True, exist_ok=True)
        try:
            with os.fdopen(os.open(unfinished, NEW, 0o666), "wb") as file:
                yield file
            unfinished.replace(path)
        finally:
            unfinished.unlink(missing_ok=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def write_text(path: Path, text: str) -> None:
    """Write a text whole or not at all (to a device such as /dev/null: as it is); UserError where that is refused."""
    try:
        if path.exists() and not path.is_file() and not path.is_dir():
            path.write_text(text, encoding="utf-8")
            return
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error
    with replacing(path) as file:
        file.write(text.encode())


def read_json(path: Path) -> dict[str, Any]:
    """A JSON file's object; UserError for what is missing, damaged, or has a key twice."""
    return parse_json(path, read_ordinary(path))


def parse_json(path: Path, data: bytes) -> dict[str, Any]:
    """The object in some of a file's bytes."""

    def once(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        found = dict(pairs)
        if len(found) < len(pairs):
            names = [name for name, _ in pairs]
            raise ValueError(f"the key {next(name for name in names if names.count(name) > 1)!r} is there twice")
        return found

    value = json_value(path, data, once)
    if not isinstance(value, dict):
        raise UserError(f"{path} is damaged: it should hold a JSON object")
    return value


def json_value(path: Path, data: bytes, make_object: Callable[[list[tuple[str, Any]]], Any] | None = None) -> Any:
    """What a file's bytes say in JSON; UserError with the line and column where they are damaged.

    make_object: of an object's keys and values in order; ValueError for those that are none.
    """
    try:
        return json.loads(data.decode("utf-8"), object_pairs_hook=make_object)
    except json.JSONDecodeError as error:
        what = f"{path} is damaged at line {error.lineno}, column {error.colno}: {error.msg}"
    except UnicodeDecodeError as error:
        before = data[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        what = f"{path} is damaged at line {line}, column {column}: no UTF-8 text"
    except (ValueError, RecursionError) as error:
        what = f"{path} is damaged: {str(error)[:200]}"
    raise UserError(what)
