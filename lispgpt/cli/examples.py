"""`lispgpt examples`: the programs that come with the package, where they can be changed."""

from __future__ import annotations

import shutil
from pathlib import Path
from textwrap import fill

import click

from lispgpt.base.errors import UserError
from lispgpt.cli.options import PATH
from lispgpt.cli.terminal import echo
from lispgpt.compiler.folders import PROGRAMS, programs


@click.command()
@click.argument("folder", type=PATH, default=Path("examples"))
@click.option("--kinds", is_flag=True, help="List the kinds of models that there are programs for, instead.")
def examples(folder: Path, kinds: bool) -> None:
    """Copy the examples into FOLDER, which must not be there yet: models, a tour of the language, a small model."""
    if kinds:
        _list_kinds()
        return
    try:
        shutil.copytree(PROGRAMS, folder, ignore=shutil.ignore_patterns("__pycache__"))
    except FileExistsError as error:
        raise UserError(f"{folder} is there already: name another folder") from error
    except OSError as error:
        raise UserError(f"cannot write {folder}: {error.strerror or error}") from error
    echo(f"{folder}/README.md lists them; lispgpt run {folder}/models/austen --prompt 'My dear' runs one")


def _list_kinds() -> None:
    """A line for each program, with what folders and GGUF files call its models."""
    by_program: dict[Path, list[str]] = {}
    for name, path in sorted(programs().items()):
        by_program.setdefault(path, []).append(name)
    for path, names in sorted(by_program.items()):
        echo(f"{path.name:22} {', '.join(names)}")
    echo("\nThe programs, and which model_type of config.json each is for.  Of GGUF files, by general.architecture:")
    echo(fill(", ".join(dict.fromkeys(name.partition(" with ")[0] for name in programs("gguf"))), 100))
