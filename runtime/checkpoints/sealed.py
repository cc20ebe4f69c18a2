"""Folders whose files are sealed: a list of their sizes and SHA-256 sums says whether they are as they were written.

A folder is written under another name, sealed, and put in its place in one step, so that it is whole or not there.
"""

from __future__ import annotations

import hashlib
import itertools
import json
import os
import shutil
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import parse_json
from lispgpt.base.reading import read_ordinary

SEAL = "checkpoint.json"
UNFINISHED, ASIDE = ".unfinished-", ".damaged"
LATEST = "latest"
"""In a folder of several: a link to the newest."""


RUN, LOCK = "run.json", "lock"
"""In the folder of a run of training: what it was begun with, and what is held while a process trains there."""


def run_without_steps(path: Path) -> str | None:
    """What to say of a folder where training ended before its first checkpoint; None of another."""
    if not (path / LOCK).is_file() or os.path.lexists(path / LATEST):
        return None
    again = f"lispgpt train --run {path} --resume" if (path / RUN).is_file() else f"lispgpt train … --run {path}"
    return f"{path} is the folder of a run that ended before its first checkpoint: `{again}` begins it again"


class Damaged(UserError):
    """What was read is not what was written; what cannot be read is a UserError of another kind."""


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
    """What the seal of a folder says; Damaged where a file of it is missing, or is not as it was written, and another
    UserError where that cannot be found out.

    only: the files to look at, where the seal names them; None for all.
    """
    if not _is_there(path / SEAL):
        raise Damaged(f"{path} is damaged: {SEAL} is missing")
    written = read_ordinary(path / SEAL)
    try:
        seal = parse_json(path / SEAL, written)
    except UserError as error:
        raise Damaged(error.message) from None
    if written != _seal_text({name: value for name, value in seal.items() if name != "sha256"}):
        raise Damaged(f"{path / SEAL} is damaged: it is not what was written")
    files = seal.get("files")
    if not isinstance(files, dict) or not files:
        raise Damaged(f"{path / SEAL} is damaged: it names no files")
    for name, known in files.items():
        if only is not None and name not in only:
            continue
        if Path(name).name != name or not _is_there(path / name):
            raise Damaged(f"{path} is damaged: {name} is missing")
        if not isinstance(known, dict) or not _is_as_written(path / name, known):
            raise Damaged(f"{path} is damaged: {name} is not what was written")
    return seal


def set_aside(path: Path) -> Path:
    """Give what stands at a path, which nobody has found whole, another name in the same folder; that name."""
    for number in itertools.count(1):
        aside = path.with_name(f"{path.name}{ASIDE}{'' if number == 1 else f'-{number}'}")
        if not os.path.lexists(aside):
            try:
                path.rename(aside)
            except OSError as error:
                raise UserError(f"cannot set {path} aside: {error.strerror or error}") from error
            return aside
    raise AssertionError("names do not end")


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


def _is_as_written(path: Path, known: dict[str, Any]) -> bool:
    """Whether a file has its sums, of which the size comes first, whatever a file of another one would take to read;
    UserError where it cannot be read."""
    try:
        return path.stat().st_size == known.get("bytes") and known == _sums(path)
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _is_there(path: Path) -> bool:
    """Whether a path is an ordinary file; UserError where that may not be looked for."""
    try:
        return stat.S_ISREG(path.stat().st_mode)
    except (FileNotFoundError, NotADirectoryError):
        return False
    except OSError as error:
        raise UserError(f"cannot read {path}: {error.strerror or error}") from error


def _to_disk(path: Path) -> None:
    """Wait until a file or folder is on the disk."""
    number = os.open(path, os.O_RDONLY)
    try:
        os.fsync(number)
    finally:
        os.close(number)
