"""Which program a Hugging Face folder is for, and what a program calls the things in it.  Imports no MLIR."""

from __future__ import annotations

import os
import re
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints import Checkpoint, huggingface
from lispgpt.runtime.plan.artifact import MANIFEST, Artifact, load_artifact

PROGRAMS = Path(__file__).resolve().parent.parent / "examples"
FORM = re.compile(r"^\(hugging-face \[([^\]]*)\]", re.MULTILINE)


@cache
def programs() -> dict[str, Path]:
    """The programs that come with the package, by the model_type that their folders say."""
    found: dict[str, Path] = {}
    for path in sorted(PROGRAMS.glob("*.lisp")):
        for types in FORM.findall(path.read_text(encoding="utf-8")):
            found |= dict.fromkeys(re.findall(r'"([^"]+)"', types), path)
    return found


def is_folder(path: str | Path) -> bool:
    """Whether a path is a Hugging Face folder."""
    return os.path.isfile(Path(path) / huggingface.CONFIG)


def program_for(folder: str | Path) -> Path:
    """The program that comes with the package for a folder's model; UserError where there is none."""
    kind = huggingface.model_type(Path(folder))
    if kind not in programs():
        known = ", ".join(sorted(programs()))
        raise UserError(f"{folder}: no program is known for model_type {kind!r}; there are programs for {known}")
    return programs()[kind]


def names_in(program: Path) -> FolderMap | None:
    """What a program says of folders; None where it says nothing."""
    from lispgpt.language.model.folders import find_map

    return find_map(program)


@dataclass(frozen=True)
class Given:
    """What is to be run or compiled.

    program: its file.  artifact: what is in it, where that is one.  weights: where its checkpoint lies, if it has one.
    """

    program: Path
    artifact: Artifact | None
    weights: Path | None
    checkpoint: Checkpoint | None

    @property
    def config(self) -> dict[str, Any]:
        """What the checkpoint says of the program's config."""
        return {} if self.checkpoint is None else dict(self.checkpoint.config)


def find_given(program: str | Path, checkpoint: str | Path | None) -> Given:
    """A program, an artifact or a Hugging Face folder alone, and a checkpoint to run it with; UserError where they do
    not fit each other."""
    path, weights = Path(program), None if checkpoint is None else Path(checkpoint)
    if is_folder(path) and not (path / MANIFEST).exists():
        path, weights = program_for(path), weights or path
    if not os.path.exists(path):
        raise UserError(f"there is no file {path}")
    artifact = load_artifact(path) if path.suffix == ".lgpt" or path.is_dir() else None
    if weights is None:
        return Given(path, artifact, None, None)
    names = artifact.folder if artifact else names_in(path) if is_folder(weights) else None
    return Given(path, artifact, weights, open_for(weights, path, names))


def open_for(path: str | Path, program: Path, names: FolderMap | None) -> Checkpoint:
    """A checkpoint to run a program with; names: what the program (or artifact) says of folders.

    A folder of a model that the program says nothing of is read as the package's own program for it reads it.
    """
    path = checkpoints.settled(path)
    if not is_folder(path) or not huggingface.recognises(Path(path), b""):
        return checkpoints.open(path)
    kind = huggingface.model_type(Path(path))
    if names is not None and kind not in names.types:
        right = programs().get(kind)
        advice = f"; {right.name} is the program for it: lispgpt run {path}" if right else ""
        meant = " and ".join(names.types)
        raise UserError(f"{path} holds a model of type {kind!r}, and {program} is for {meant}{advice}")
    if names is None and kind in programs():
        names = names_in(programs()[kind])
    return checkpoints.open(path) if names is None else huggingface.open_checkpoint(Path(path), names)


def open_weights(path: str | Path, program: str | Path | None = None) -> Checkpoint:
    """A checkpoint by the names of a program's file, or of the package's program for its model."""
    own = Path("" if program is None else program)
    return open_for(path, own, names_in(own) if program is not None and is_folder(path) else None)
