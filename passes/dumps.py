"""The folder of a pipeline's dumps.  A list in it says which files are dumps: those of the last time go away, and what
else lies there stays."""

from __future__ import annotations

from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.files import open_own, write_text
from lispgpt.base.reading import read_text

LIST = ".lispgpt-dumps"


def make_folder(path: Path) -> None:
    """Make a folder, without the dumps that an earlier compilation has left there; UserError where that is refused, and
    where a file that is none of these has the first dump's name."""
    try:
        path.mkdir(parents=True, exist_ok=True)
        known = read_text(path / LIST).splitlines() if (path / LIST).is_file() else []
        for name in known:
            if name == Path(name).name and name.endswith(".mlir"):
                (path / name).unlink(missing_ok=True)
        if (path / "00-input.mlir").exists():
            raise UserError(f"{path} has a file 00-input.mlir that is no dump of lispgpt's: give a folder of its own")
        with open_own(path / LIST) as file:
            file.truncate()
    except OSError as error:
        raise UserError(f"cannot write dumps to {path}: {error.strerror or error}") from error


def write_dump(folder: Path, name: str, text: str) -> None:
    """Write one, and note that it is one."""
    try:
        with open_own(folder / LIST, append=True) as file:
            file.write(f"{name}\n".encode())
    except OSError as error:
        raise UserError(f"cannot write dumps to {folder}: {error.strerror or error}") from error
    write_text(folder / name, text)
