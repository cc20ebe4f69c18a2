"""Where a user's own files are kept: what was compiled, and whose artifacts are trusted.

Machine code that lies there is run, so it has to be this user who put it there.
"""

from __future__ import annotations

import os
import secrets
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.reading import read_ordinary

NOWHERE = Path("/nonexistent")
"""The home of a user without one, as in containers."""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Where compiled artifacts are kept: LISPGPT_CACHE, else the user's cache folder."""
    if environment.get("LISPGPT_CACHE"):
        return Path(environment["LISPGPT_CACHE"])
    return Path(environment.get("XDG_CACHE_HOME") or _home() / ".cache") / "lispgpt"


def own_cache_folder() -> Path:
    """The folder that the command has for what it compiled, for Python programs, which have no command line to say it:
    of this process's environment."""
    return cache_folder(os.environ)


def trusted_keys(environment: Mapping[str, str]) -> Path:
    """The file that lists the keys whose signatures a user trusts: LISPGPT_TRUSTED_KEYS, else among the settings."""
    if environment.get("LISPGPT_TRUSTED_KEYS"):
        return Path(environment["LISPGPT_TRUSTED_KEYS"])
    return settings_folder(environment) / "trusted-keys"


def settings_folder(environment: Mapping[str, str]) -> Path:
    """Where the user's settings are."""
    return Path(environment.get("XDG_CONFIG_HOME") or _home() / ".config") / "lispgpt"


def user_secret(path: Path) -> bytes:
    """What a file holds that its user alone may read; it is drawn where there is none yet, once for all who ask at the
    same time.  UserError where that cannot be, or others may read it."""
    try:
        if not os.path.lexists(path):
            path.parent.mkdir(0o700, parents=True, exist_ok=True)
            drawn = path.with_name(f".{path.name}.{secrets.token_hex(8)}")
            try:
                with os.fdopen(os.open(drawn, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
                    file.write(secrets.token_hex(32).encode())
                with suppress(FileExistsError):  # another was first
                    os.link(drawn, path)
            finally:
                drawn.unlink(missing_ok=True)
        found = path.lstat()
    except OSError as error:
        raise UserError(
            f"cannot keep a secret in {path}: {error.strerror or error}; set LISPGPT_SECRET to the same for all "
            "processes of the run"
        ) from error
    if not is_own(path) or found.st_mode & 0o077:
        raise UserError(f"{path} is no secret: others may read it (chmod 600 {path}, or remove it)")
    return read_ordinary(path)


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
