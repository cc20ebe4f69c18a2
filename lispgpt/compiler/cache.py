"""Compiled artifacts kept between runs, by everything that they depend on.  Imports neither lark nor MLIR.

An entry is a folder: `inputs.json` lists the files that the compilation read with their hashes, `artifact.lgpt` is its
result.  The key covers the program's path, the target, what the command line and the checkpoint set, and this package's
own files.  A changed input makes the entry stale; it is compiled again.
"""

from __future__ import annotations

import functools
import hashlib
import json
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.plan.artifact import Artifact, load_artifact

PACKAGE = Path(__file__).resolve().parents[1]
KEPT = 32
"""Entries; the oldest make room."""


class Cache:
    """A folder of entries; a missing or damaged entry is only a miss."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def find(self, key: str) -> Artifact | None:
        entry = self.folder / key
        try:
            inputs = json.loads((entry / "inputs.json").read_text())
            if any(file_hash(Path(path)) != known for path, known in inputs.items()):
                return None
            return load_artifact(entry / "artifact.lgpt")
        except (OSError, ValueError, AttributeError, UserError):
            return None

    def keep(self, key: str, artifact: Artifact, inputs: Iterable[Path]) -> None:
        """Store an artifact; a full disk or a read-only folder is no error."""
        entry = self.folder / key
        try:
            artifact.save(entry / "artifact.lgpt")
            hashes = {str(path.resolve()): file_hash(path) for path in inputs}
            (entry / "inputs.json").write_text(json.dumps(hashes))
            for old in sorted(self.folder.iterdir(), key=lambda p: p.stat().st_mtime)[:-KEPT]:
                for file in old.iterdir():
                    file.unlink()
                old.rmdir()
        except (OSError, UserError):
            return


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
    return hashlib.sha256(path.read_bytes()).hexdigest()
