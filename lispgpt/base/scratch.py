"""A folder for temporary files of each process that makes code, which goes with the process however that ends.

LLVM and linkers write to the folder that TMPDIR names, and leave their files there when they fail.  Whoever starts a
child chooses where the child's folder would be, and removes it when the child has ended; the child makes it only where
it needs one.
"""

from __future__ import annotations

import atexit
import os
import secrets
import shutil
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

_chosen: Path | None = None
_made: Path | None = None


def chosen_for_child() -> Path | None:
    """Where a child's folder would be: within this process's own, where it has one; None where there can be none."""
    try:
        return (_made or Path(tempfile.gettempdir())) / f"lispgpt-{secrets.token_hex(8)}"
    except FileNotFoundError:
        return None


def begin(place: Path | None) -> None:
    """Be the child for which a place was chosen."""
    global _chosen, _made
    _chosen, _made = place, None


def end(place: Path | None) -> None:
    """Remove what a child has left, once it has ended."""
    if place is not None:
        shutil.rmtree(place, ignore_errors=True)


def folder() -> Path:
    """This process's folder, which nobody else may look into; OSError where there is no room for one."""
    global _made
    if _made is None:
        if _chosen is None:
            _made = Path(tempfile.mkdtemp(prefix="lispgpt-"))
            atexit.register(end, _made)
        else:
            os.makedirs(_chosen, 0o700)
            _made = _chosen
    return _made


@contextmanager
def kept_to(wanted: bool = True) -> Iterator[None]:
    """Within this, if wanted, LLVM, what it starts, and Python's `tempfile` keep to this process's folder."""
    if not wanted:
        yield
        return
    before = os.environ.get("TMPDIR"), tempfile.tempdir
    os.environ["TMPDIR"] = tempfile.tempdir = str(folder())
    try:
        yield
    finally:
        tempfile.tempdir = before[1]
        if before[0] is None:
            del os.environ["TMPDIR"]
        else:
            os.environ["TMPDIR"] = before[0]
