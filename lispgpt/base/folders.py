"""Where a user's own files are kept: what was compiled, and whose artifacts are trusted.

Machine code that lies there is run, so it has to be this user who put it there.
"""

from __future__ import annotations

import os
import stat
from collections.abc import Mapping
from pathlib import Path

from lispgpt.base.errors import UserError

NOWHERE = Path("/nonexistent")
"""The home of a user without one, as in containers."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where compiled artifacts are kept: LISPGPT_CACHE, else the user's cache folder."""
    if environment.get("LISPGPT_CACHE"):
        return Path(environment["LISPGPT_CACHE"])
    return Path(environment.get("XDG_CACHE_HOME") or _home() / ".cache") / "lispgpt"


def trusted_keys(environment: Mapping[str, str]) -> Path:
    """The file that lists the keys whose signatures a user trusts: LISPGPT_TRUSTED_KEYS, else among the settings."""
    if environment.get("LISPGPT_TRUSTED_KEYS"):
        return Path(environment["LISPGPT_TRUSTED_KEYS"])
    return Path(environment.get("XDG_CONFIG_HOME") or _home() / ".config") / "lispgpt" / "trusted-keys"


def make_private(folder: Path) -> None:
    """Make a folder for this user alone where there is none; OSError where that is refused, and UserError as of
    `check_private`."""
    folder.parent.mkdir(parents=True, exist_ok=True)
    try:
        folder.mkdir(0o700)
    except FileExistsError:
        check_private(folder)


def check_private(folder: Path) -> None:
    """UserError for a folder that is another user's, or that others may write to; one that is not there is fine."""
    try:
        found = folder.stat()
    except OSError:
        return
    if found.st_uid != os.getuid():
        raise UserError(
            f"{folder} belongs to another user, and compiled code that lies there would run with your rights: "
            "name a folder of your own (LISPGPT_CACHE)"
        )
    if found.st_mode & 0o022:
        raise UserError(
            f"others may write to {folder}, and compiled code that lies there would run with your rights: "
            f"chmod go-w {folder}, or name another folder (LISPGPT_CACHE)"
        )


def is_own(path: Path, kind: int = stat.S_IFREG) -> bool:
    """Whether a path is an ordinary file (or of another kind) of this user's, and no link, that nobody else may
    change."""
    try:
        found = path.lstat()
    except OSError:
        return False
    return stat.S_IFMT(found.st_mode) == kind and found.st_uid == os.getuid() and not found.st_mode & 0o022


def _home() -> Path:
    try:
        return Path.home()
    except RuntimeError:
        return NOWHERE
