"""A folder for temporary files of each process that makes code, which goes with the process however that ends.

LLVM and linkers write to the folder that TMPDIR names, and leave their files there when they fail.  Whoever starts a
child chooses where the child's folder would be, within its own, and removes it when the child has ended; the child
makes it only where it needs one, and for as long as it does.
"""

from __future__ import annotations

import atexit
import itertools
import os
import re
import secrets
import shutil
import tempfile
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path

PREFIX = "lispgpt-"
OF_CHILD = re.compile(f"{PREFIX}[0-9a-f]{{16}}")
TURNS = 100
"""How often to make a folder that others remove in the meantime."""


@dataclass
class _Scratch:
    """chosen: where a child's folder would be.  made: the folder, while there is one.  uses: how many use it now.
    is_new: whether the first of these made it."""

    chosen: Path | None = None
    made: Path | None = None
    uses: int = 0
    is_new: bool = False
    lock: threading.Lock = field(default_factory=threading.Lock)


_own = _Scratch()


def chosen_for_child() -> Path | None:
    """Where a child's folder would be: within this process's own, where it has one, or would have; None where there can
    be none."""
    try:
        return (_own.made or _own.chosen or Path(tempfile.gettempdir())) / f"{PREFIX}{secrets.token_hex(8)}"
    except FileNotFoundError:
        return None


def begin(place: Path | None) -> None:
    """Be the child for which a place was chosen."""
    global _own
    _own = _Scratch(place)


def end(place: Path | None) -> None:
    """Remove what a child has left, once it has ended."""
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)


def leave() -> None:
    """Remove this process's folder, with those of its children in it: nobody else will."""
    end(_own.chosen or _own.made)


def folder() -> Path:
    """This process's folder, which nobody else may look into; OSError where there is no room for one."""
    if _own.made is None:
        if _own.chosen is None:
            _own.made = Path(tempfile.mkdtemp(prefix=PREFIX))
            atexit.unregister(leave)
            atexit.register(leave)
        else:
            _make(_own.chosen)
            _own.made = _own.chosen
    return _own.made


def _make(place: Path) -> None:
    """Make a child's folder, and those of its parents that it would be in, which others of their children may just
    leave."""
    for _ in range(TURNS):
        with suppress(FileNotFoundError, FileExistsError):  # the latter where one is removed while it is looked at
            for each in reversed(_levels(place)):
                each.mkdir(0o700, exist_ok=True)
            return
    place.mkdir(0o700)


def _clear(place: Path) -> None:
    """Remove a folder with this process's own files, and those that it is in, as far as nobody uses them: children that
    are at work keep theirs."""
    for entry in place.iterdir():
        if entry.is_dir() and not entry.is_symlink():
            end(None if entry.name.startswith(PREFIX) else entry)
        else:
            entry.unlink(missing_ok=True)
    for each in _levels(place):
        each.rmdir()


def _levels(place: Path) -> list[Path]:
    """A process's folder, and then those of its parents that it is in."""
    return [place, *itertools.takewhile(lambda each: OF_CHILD.fullmatch(each.name), place.parents)]


@contextmanager
def used() -> Iterator[Path]:
    """This process's folder, which is there for no longer than this where it was not there before."""
    own = _own
    with own.lock:
        if own.uses == 0:
            own.is_new = own.made is None
        own.uses += 1
        try:
            place = folder()
        except OSError:
            own.uses -= 1
            raise
    try:
        yield place
    finally:
        with own.lock:
            own.uses -= 1
            if own.uses == 0 and own.is_new:
                own.made = None
                with suppress(OSError):
                    _clear(place)


@contextmanager
def kept_to(wanted: bool = True) -> Iterator[None]:
    """Within this, if wanted, LLVM, what it starts, and Python's `tempfile` keep to this process's folder (see `used`).

    That is for all threads so, and for one of them to ask for.
    """
    if not wanted:
        yield
        return
    with used() as place:
        before = os.environ.get("TMPDIR"), tempfile.tempdir
        os.environ["TMPDIR"] = tempfile.tempdir = str(place)
        try:
            yield
        finally:
            tempfile.tempdir = before[1]
            if before[0] is None:
                del os.environ["TMPDIR"]
            else:
                os.environ["TMPDIR"] = before[0]
