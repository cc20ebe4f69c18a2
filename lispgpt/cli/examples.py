"""`lispgpt examples`: the programs that come with the package, where they can be changed."""

from __future__ import annotations

import shutil
from pathlib import Path

import click

from lispgpt.base.errors import UserError
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo
from lispgpt.compiler.folders import PROGRAMS


@click.command()
@click.argument("folder", type=PATH, default=Path("examples"))
def examples(folder: Path) -> None:
    """Copy the examples into FOLDER, which must not be there yet: models, a tour of the language, a small model."""
    try:
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError as error:
        raise UserError(f"{folder} is there already: name another folder") from error
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    echo(f"{folder}/README.md lists them; lispgpt run {folder}/models/austen --prompt 'My dear' runs one")
