"""Which artifacts may run: an artifact is machine code, which runs with the rights of whoever runs it.

One runs where this user made it here, or where a key that the user has listed signed it.  A file in the user's cache
folder has a line for each that was made here, the SHA-256 of its manifest, which has the hash of its code.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Iterable
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.files import open_own
from lispgpt.base.folders import check_private, is_own, make_private
from lispgpt.base.reading import read_text
from lispgpt.compiler.signatures import KIND, listed_keys, signer
from lispgpt.runtime.plan.artifact import Artifact

LIST = "made-here"


def remember(folder: Path, artifact: Artifact) -> None:
    """Note that an artifact was made here; where that cannot be written down, running it will want --trust."""
    try:
        make_private(folder)
        with open_own(folder / LIST, append=True) as file:
            file.write(f"{hashlib.sha256(artifact.manifest()).hexdigest()}\n".encode())
    except (OSError, UserError):
        return


def check_trusted(artifact: Artifact, path: Path, folders: Iterable[Path], keys: Path) -> None:
    """UserError for a loaded artifact that was neither made here by this user nor signed with a key of the list.

    path: where it was loaded from.  folders: have lists of what was made here.  keys: the file of trusted keys.
    """
    if any(hashlib.sha256(artifact.stored).hexdigest() in _made_here(folder) for folder in folders):
        return
    otherwise = "add --trust (in Python: trust=True), or compile its program here"
    if not artifact.signature:
        raise UserError(
            f"{path} was not made here, or was changed since: it is machine code, and would run with your rights; "
            f"if you trust whoever made it, {otherwise}"
        )
    key = signer(path, artifact.stored, artifact.signature)
    if key not in listed_keys(keys):
        raise UserError(
            f"{path} was not made here, and is signed with a key that {keys} does not list: it is machine code, and "
            f"would run with your rights; if you trust whoever holds that key, add the line `{KIND} {key} NAME` to "
            f"that file; otherwise {otherwise}"
        )


def _made_here(folder: Path) -> list[str]:
    if not os.path.exists(folder / LIST):
        return []
    check_private(folder)
    if not is_own(folder / LIST):
        raise UserError(f"{folder / LIST} is not yours alone, and says what code runs with your rights: remove it")
    return read_text(folder / LIST).split()
