"""Reading whole files that users name: ordinary ones of a sensible size, since pipes and devices may never end."""

from __future__ import annotations

import errno
import hashlib
import os
import stat
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from lispgpt.base.errors import UserError

LARGEST = 1 << 28
"""Bytes of a program, a pipeline or a JSON file."""


def read_ordinary(path: Path, largest: int = LARGEST) -> bytes:
    """A file's bytes; UserError where it is a pipe or a device, too large, or cannot be read."""
    try:
        file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)  # opening a pipe does not wait for its writer
        status = os.fstat(file)
        if not stat.S_ISREG(status.st_mode):
            os.close(file)
            what = "a folder" if stat.S_ISDIR(status.st_mode) else "a pipe or a device"
            raise UserError(f"cannot read {path}: it is {what}, and no ordinary file")
        with os.fdopen(file, "rb") as stream:
            if status.st_size > largest:
                raise UserError(f"{path} is larger than any sensible file of its kind ({status.st_size:,} bytes)")
            return stream.read(largest + 1)
    except OSError as error:
        raise UserError(f"cannot read {path!s:.200}: {error.strerror or error}") from error
    except ValueError as error:  # of names that no file has
        raise UserError(f"cannot read {str(path)!r:.200}: {error}") from error


def named(path: str | Path) -> Path:
    """A path that a caller gives; UserError where nothing can have such a name."""
    try:
        os.lstat(path)
    except OSError as error:
        if error.errno == errno.ENAMETOOLONG:
            raise UserError(f"cannot use {os.fspath(path)!s:.200}: {error.strerror}") from error
    except ValueError as error:
        raise UserError(f"cannot use {os.fspath(path)!r:.200}: no path is so written ({error})") from error
    return Path(path)


def check_ordinary(path: Path) -> None:
    """UserError for a pipe or a device, which may never end; what is not there is for the reader to say."""
    if os.path.exists(path) and not (os.path.isfile(path) or os.path.isdir(path)):
        raise UserError(f"cannot read {path}: it is a pipe or a device, and no ordinary file")


def is_there(path: Path) -> bool:
    """Whether a file is there; UserError where a pipe or a device is in its place, or that cannot be found out."""
    check_ordinary(path)
    try:
        return path.is_file()
    except OSError as error:
        raise UserError(f"cannot read {path!s:.200}: {error.strerror or error}") from error


_noted: dict[Path, str] | None = None


@contextmanager
def noting() -> Iterator[dict[Path, str]]:
    """The SHA-256 of each file whose text is read within, by its path, as it was read: it may be another by now.

    A file that was read twice, and was another in between, has an empty one, which is nothing's.
    """
    global _noted
    before, _noted = _noted, {}
    try:
        yield _noted
    finally:
        _noted = before


def read_text(path: Path) -> str:
    """An ordinary file's text; UserError where it is not UTF-8, too."""
    data = read_ordinary(path)
    if _noted is not None:
        found = hashlib.sha256(data).hexdigest()
        _noted[path] = found if _noted.get(path, found) == found else ""
    try:
        return data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise UserError(f"{path} is not UTF-8 text (byte {error.start})") from error
