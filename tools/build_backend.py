"""How pip and `python -m build` make lispgpt's distributions: setuptools' wheel, and an sdist of the whole checkout.

Both are the same to the byte for the same files: their times are SOURCE_DATE_EPOCH's, or of 1980 where that is not set,
and names are sorted.  The sdist keeps the links `lispgpt/passes`, `runtime` and `examples`, which setuptools would
follow, and has the tests.  Of a checkout both have the commit, in lispgpt/commit.txt, which `lispgpt --version` says.
"""

from __future__ import annotations

import fnmatch
import gzip
import io
import os
import shutil
import subprocess
import tarfile
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

from setuptools import build_meta
from setuptools.build_meta import (  # what a build front end asks a back end for
    get_requires_for_build_editable,
    get_requires_for_build_sdist,
    get_requires_for_build_wheel,
    prepare_metadata_for_build_editable,
    prepare_metadata_for_build_wheel,
)

__all__ = [
    "build_editable",
    "build_sdist",
    "build_wheel",
    "get_requires_for_build_editable",
    "get_requires_for_build_sdist",
    "get_requires_for_build_wheel",
    "prepare_metadata_for_build_editable",
    "prepare_metadata_for_build_wheel",
]

EARLIEST = 315532800
"""1980-01-01, before which zip files know no time."""
IGNORES = Path(".gitignore")
STAMP = Path("lispgpt", "commit.txt")
ALWAYS_IGNORED = [".git"]
os.umask(0o022)  # a wheel has its files' modes, whoever builds it


def build_wheel(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Make the wheel with setuptools; its file's name."""
    shutil.rmtree(Path("build", "lib"), ignore_errors=True)  # an earlier wheel's files would be in this one
    os.environ.setdefault("SOURCE_DATE_EPOCH", str(EARLIEST))
    with _stamped():
        made: str = build_meta.build_wheel(wheel_directory, config_settings, metadata_directory)
    return made


def build_editable(wheel_directory: str, config_settings: Any = None, metadata_directory: str | None = None) -> str:
    """Make a wheel that leads to this folder; its file's name.

    The folder comes onto Python's path.  setuptools' other way is asked after the path, where any folder named lispgpt
    would be taken for the package.
    """
    settings = {**(config_settings or {}), "editable_mode": "compat"}
    made: str = build_meta.build_editable(wheel_directory, settings, metadata_directory)
    return made


def build_sdist(sdist_directory: str, config_settings: Any = None) -> str:
    """Pack every file of this folder that `.gitignore` does not name, and PKG-INFO; the archive's name."""
    with tempfile.TemporaryDirectory() as folder:
        described = Path(folder) / build_meta.prepare_metadata_for_build_wheel(folder) / "METADATA"
        metadata = described.read_bytes()
        name = described.parent.name.removesuffix(".dist-info")
    packed = io.BytesIO()
    with tarfile.open(fileobj=packed, mode="w", format=tarfile.PAX_FORMAT) as archive:
        for path in project_files(Path()):
            _add(archive, f"{name}/{path.as_posix()}", path)
        _add(archive, f"{name}/PKG-INFO", metadata)
        if commit := _commit():
            _add(archive, f"{name}/{STAMP.as_posix()}", f"{commit}\n".encode())
    made = Path(sdist_directory) / f"{name}.tar.gz"
    made.write_bytes(gzip.compress(packed.getvalue(), mtime=_time()))
    return made.name


def project_files(root: Path) -> list[Path]:
    """The files and links under a folder that its `.gitignore` does not name, sorted; they are relative to it."""
    lines = (root / IGNORES).read_text(encoding="utf-8").split()
    ignored = [line.rstrip("/") for line in lines] + ALWAYS_IGNORED
    found: list[Path] = []
    for folder, folders, files in os.walk(root):
        links = [name for name in folders if os.path.islink(os.path.join(folder, name))]
        kept = {n for n in [*folders, *files] if not any(fnmatch.fnmatch(n, pattern) for pattern in ignored)}
        folders[:] = [name for name in folders if name in kept and name not in links]
        found += [Path(folder, name).relative_to(root) for name in [*files, *links] if name in kept]
    return sorted(path for path in found if path != Path("PKG-INFO"))


def _commit() -> str:
    """Of this folder: a checkout's, or what an sdist says; empty where nobody knows."""
    if Path(".git").exists():
        try:
            return _git("rev-parse", "--short=12", "HEAD") + (
                " and changes" if _git("status", "--porcelain", "-uno") else ""
            )
        except (OSError, subprocess.SubprocessError):
            return ""
    return STAMP.read_text(encoding="utf-8").strip() if STAMP.exists() else ""


def _git(*words: str) -> str:
    return subprocess.run(["git", *words], capture_output=True, text=True, check=True).stdout.strip()


@contextmanager
def _stamped() -> Iterator[None]:
    """Have the commit in the package while its files are packed."""
    commit, there = _commit(), STAMP.exists()
    if commit:
        STAMP.write_text(f"{commit}\n", encoding="utf-8")
    try:
        yield
    finally:
        if commit and not there:
            STAMP.unlink()


def _time() -> int:
    return int(os.environ.get("SOURCE_DATE_EPOCH", EARLIEST))


def _add(archive: tarfile.TarFile, name: str, content: Path | bytes) -> None:
    """Add a file, a link or bytes under a name, owned by nobody in particular."""
    entry = tarfile.TarInfo(name)
    entry.mtime, entry.mode = _time(), 0o644
    if isinstance(content, Path) and content.is_symlink():
        entry.type, entry.linkname, entry.mode = tarfile.SYMTYPE, str(content.readlink()), 0o777
        archive.addfile(entry)
        return
    if isinstance(content, Path) and os.access(content, os.X_OK):
        entry.mode = 0o755
    data = content.read_bytes() if isinstance(content, Path) else content
    entry.size = len(data)
    archive.addfile(entry, io.BytesIO(data))
