"""Files: written so that they are either whole or not there.

Nothing is written through a link that somebody else may have put there: what is new is made under a name that nobody
can guess, and fails where that is taken; what is there already has to be an ordinary file.
"""

from __future__ import annotations

import errno
import os
import secrets
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from lispgpt.base.errors import UserError
from lispgpt.base.reading import named

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
    named(path)
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
