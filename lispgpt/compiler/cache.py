"""Compiled artifacts kept between runs, by everything that they depend on.  Imports neither lark nor MLIR.

An entry is a folder: `inputs.json` says that it is one, lists the files that the compilation read with the hashes of
what it read, and has the hash of the manifest of its result, `artifact.lgpt`.  The key covers the program's path, the
target, what the command line and the checkpoint set, and this package's own files.  A changed input makes the entry
stale; it is compiled again.  What is found is run, so that the folder and the entry have to be this user's alone.
"""

from __future__ import annotations

import functools
import hashlib
import json
import re
import stat
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.folders import check_private, is_own, make_private, own_cache_folder
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import named, read_ordinary
from lispgpt.runtime.plan.artifact import Artifact, load_artifact

PACKAGE = Path(__file__).resolve().parents[1]
KEPT = 32
"""Entries; the oldest make room."""

INPUTS, ARTIFACT = "inputs.json", "artifact.lgpt"
MARK = {"made-by": "lispgpt"}
"""What `inputs.json` says of a folder that may be removed."""

NAME = re.compile("[0-9a-f]{32}")


class Cache:
    """A folder of entries; a missing or damaged entry is only a miss."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Artifact | None:
        """The artifact of a key; None where there is none, or what it was compiled of has changed.

        UserError where others could have put it there.
        """
        check_private(self.folder)
        entry = self.folder / key
        if not (is_own(entry, stat.S_IFDIR) and is_own(entry / INPUTS) and is_own(entry / ARTIFACT)):
            return None
        try:
            said = read_json(entry / INPUTS)
            if any(file_hash(Path(path)) != known for path, known in said["inputs"].items()):
                return None
            found = load_artifact(entry / ARTIFACT)
        except (OSError, ValueError, AttributeError, KeyError, TypeError, UserError):
            return None
        return found if hashlib.sha256(found.stored).hexdigest() == said.get("artifact") else None

    def keep(self, key: str, artifact: Artifact, inputs: Mapping[Path, str]) -> None:
        """Store an artifact; a full disk or a read-only folder is no error.

        inputs: the hashes of the files that it was compiled of, as they were read.
        """
        entry = self.folder / key
        hashes = {str(path.resolve()): known for path, known in inputs.items()}
        manifest = hashlib.sha256(artifact.manifest()).hexdigest()
        try:
            make_private(self.folder)
            with suppress(FileExistsError):
                entry.mkdir(0o700)
            if not is_own(entry, stat.S_IFDIR):
                return
            _write(entry / INPUTS, MARK)
            artifact.save(entry / ARTIFACT)
            _write(entry / INPUTS, {**MARK, "artifact": manifest, "inputs": hashes})
            entries = [(child.lstat().st_mtime, child) for child in self.folder.iterdir() if _is_entry(child)]
            for _, old in sorted(entries)[:-KEPT]:
                _remove(old)
        except (OSError, UserError):
            return


def folder_for(given: str | Path | bool | None) -> Path | None:
    """The folder that a caller wants what was compiled to be kept in: True is for the command's own, and None and False
    for none."""
    if isinstance(given, bool):
        return own_cache_folder() if given else None
    return None if given is None else named(given)


def _write(path: Path, facts: Mapping[str, Any]) -> None:
    with replacing(path) as file:
        file.write(json.dumps(facts).encode())


def _is_entry(path: Path) -> bool:
    """Whether a folder is one that `Cache.keep` has made."""
    if not (NAME.fullmatch(path.name) and is_own(path, stat.S_IFDIR) and is_own(path / INPUTS)):
        return False
    with suppress(UserError):
        return MARK.items() <= read_json(path / INPUTS).items()
    return False


def _remove(entry: Path) -> None:
    """Remove what an entry consists of; it stays where somebody has put more there, or another process removes it."""
    with suppress(OSError):
        for file in (*entry.glob(".*.unfinished"), entry / ARTIFACT, entry / INPUTS):
            file.unlink(missing_ok=True)
        entry.rmdir()


def cache_key(program: Path, target: str, host: str, settings: Mapping[str, Any]) -> str:
    """A name for what one compilation depends on, beside the contents of the files that it reads."""
    parts = [str(program.resolve()), target, host, json.dumps(settings, sort_keys=True, default=str), package_hash()]
    return hashlib.sha256("\0".join(parts).encode(errors="surrogateescape")).hexdigest()[:32]


@functools.cache
def package_hash() -> str:
    """A hash of this package's sizes and times of change, so that a changed compiler compiles again."""
    digest = hashlib.sha256()
    for top in (PACKAGE, PACKAGE / "passes", PACKAGE / "runtime"):  # rglob does not follow the two links
        for path in sorted(top.rglob("*")):
            if path.suffix in (".py", ".lisp", ".lark", ".mlir"):
                stat = path.stat()
                digest.update(f"{path.relative_to(PACKAGE)} {stat.st_size} {stat.st_mtime_ns}\n".encode())
    return digest.hexdigest()


def file_hash(path: Path) -> str:
    return hashlib.sha256(read_ordinary(path)).hexdigest()
