"""Which artifacts a user has made here: an artifact is machine code, which runs with the rights of whoever runs it.

A file in the user's cache folder has a line for each, the SHA-256 of its manifest and its code.
"""

from __future__ import annotations

import hashlib
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.artifact import contents_of

LIST = "made-here"


def remember(folder: Path, artifact: Path) -> None:
    """Note that an artifact was made here; where that cannot be written down, running it will want --trust."""
    try:
        folder.mkdir(parents=True, exist_ok=True)
        with (folder / LIST).open("a", encoding="ascii") as file:
            file.write(f"{_hash(artifact)}\n")
    except OSError:
        return


def check_made_here(folder: Path, artifact: Path) -> None:
    """UserError for an artifact that is not known to have been made by this user here."""
    try:
        known = (folder / LIST).read_text(encoding="ascii").split()
    except (OSError, ValueError):
        known = []
    if _hash(artifact) not in known:
        raise UserError(
            f"{artifact} was not made here, or was changed since: it is machine code, and would run with your rights; "
            "if you trust whoever made it, add --trust, or compile its program here"
        )


def _hash(artifact: Path) -> str:
    digest = hashlib.sha256()
    for content in contents_of(artifact):
        digest.update(hashlib.sha256(content).digest())
    return digest.hexdigest()
