"""Folders whose files are sealed: a list of their sizes and SHA-256 sums says whether they are as they were written.

A folder is written under another name, sealed, and put in its place in one step, so that it is whole or not there.
"""

from __future__ import annotations

import hashlib
import json
import os
import shutil
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import parse_json, replacing
from lispgpt.base.reading import read_ordinary

SEAL = "checkpoint.json"
UNFINISHED = ".unfinished-"
LATEST = "latest"
"""In a folder of several: a link to the newest."""


@contextmanager
def sealing(path: Path, facts: dict[str, Any]) -> Iterator[Path]:
    """A folder to write files in, which takes path's place, sealed, when the block ends; on any error nothing does.

    facts: what the seal says beside the sums.  All of it has reached the disk before it takes its place.
    """
    folder = path.with_name(f"{UNFINISHED}{path.name}")
    try:
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir(parents=True)
        try:
            yield folder
            _seal(folder, facts)
            if path.exists():
                discard(path)
            folder.rename(path)
            _to_disk(path.parent)
        finally:
            shutil.rmtree(folder, ignore_errors=True)
    except OSError as error:
        raise UserError(f"cannot write {path}: {error.strerror or error}") from error


def sealed_facts(path: Path, only: Collection[str] | None = None) -> dict[str, Any]:
    """What the seal of a folder says; UserError where a file of it is missing, or is not as it was written.

    only: the files to look at, where the seal names them; None for all.
    """
    written = read_ordinary(path / SEAL)
    seal = parse_json(path / SEAL, written)
    if written != _seal_text({name: value for name, value in seal.items() if name != "sha256"}):
        raise UserError(f"{path / SEAL} is damaged: it is not what was written")
    files = seal.get("files")
    if not isinstance(files, dict) or not files:
        raise UserError(f"{path / SEAL} is damaged: it names no files")
    for name, known in files.items():
        if only is not None and name not in only:
            continue
        file = path / name
        if Path(name).name != name or not file.is_file():
            raise UserError(f"{path} is damaged: {name} is missing")
        if not isinstance(known, dict) or known != _sums(file):
            raise UserError(f"{path} is damaged: {name} is not what was written")
    return seal


def discard(path: Path) -> None:
    """Remove a folder, which is no longer there under its name from the first."""
    removed = path.with_name(f"{UNFINISHED}removed-{path.name}")
    shutil.rmtree(removed, ignore_errors=True)
    path.rename(removed)
    shutil.rmtree(removed, ignore_errors=True)


def _seal(folder: Path, facts: dict[str, Any]) -> None:
    sums = {file.name: _sums(file) for file in sorted(folder.iterdir())}
    with replacing(folder / SEAL) as file:
        file.write(_seal_text({**facts, "files": sums}))
    for name in [*sums, SEAL]:
        _to_disk(folder / name)
    _to_disk(folder)


def _seal_text(facts: dict[str, Any]) -> bytes:
    """A seal's text, with the sum of all else in it."""
    summed = hashlib.sha256(json.dumps(facts, sort_keys=True).encode()).hexdigest()
    return json.dumps({**facts, "sha256": summed}, indent=1).encode() + b"\n"


def _sums(path: Path) -> dict[str, Any]:
    with path.open("rb") as file:
        return {"bytes": path.stat().st_size, "sha256": hashlib.file_digest(file, "sha256").hexdigest()}


def _to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
