"""The folder of a pipeline's dumps.  A list in it says which files are dumps: those of the last time go away, and what
else lies there stays."""

from __future__ import annotations

from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.files import open_own, write_text
from lispgpt.base.reading import read_text

LIST = ".lispgpt-dumps"
KINDS = (".mlir", ".txt")


def make_folder(path: Path) -> None:
    """Make a folder, without the dumps that an earlier compilation has left there; UserError where that is refused, and
    where a file that is none of these has the first dump's name."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        known = read_text(path / LIST).splitlines() if (path / LIST).is_file() else []
        for name in dict.fromkeys(known):
            _remove(path, path / name)
        if (path / "00-input.mlir").exists():
            raise UserError(f"{path} has a file 00-input.mlir that is no dump of lispgpt's: give a folder of its own")
        with open_own(path / LIST) as file:
            file.truncate()
    except OSError as error:
        raise UserError(f"cannot write dumps to {path}: {error.strerror or error}") from error


def _remove(folder: Path, file: Path) -> None:
    """Remove a dump and the folders in this one that it leaves empty; nothing that lies elsewhere."""
    inside = file.parent.resolve()
    if file.suffix not in KINDS or not inside.is_relative_to(folder.resolve()):
        return
    file.unlink(missing_ok=True)
    while inside != folder.resolve() and inside.is_dir() and not any(inside.iterdir()):
        inside.rmdir()
        inside = inside.parent


def write_dump(folder: Path, name: str, text: str) -> None:
    """Write one, and note that it is one.  name: its path in the folder."""
    try:
        with open_own(folder / LIST, append=True) as file:
            file.write(f"{name}\n".encode())
    except OSError as error:
        raise UserError(f"cannot write dumps to {folder}: {error.strerror or error}") from error
    write_text(folder / name, text)
