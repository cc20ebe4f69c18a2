"""Which program a Hugging Face folder or a GGUF file is for, and what a program calls the things in it.

Imports no MLIR.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from difflib import get_close_matches
from functools import cache
from pathlib import Path
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.base.folder_map import FolderMap
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import is_there
from lispgpt.compiler.own_config import replaced
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints import Checkpoint, gguf_file, hub, huggingface
from lispgpt.runtime.checkpoints.adapter import CONFIG as ADAPTER
from lispgpt.runtime.checkpoints.adapter import Adapter
from lispgpt.runtime.checkpoints.base import MappedCheckpoint
from lispgpt.runtime.checkpoints.named import program_of
from lispgpt.runtime.checkpoints.sealed import LATEST, RUN, run_without_steps
from lispgpt.runtime.checkpoints.several_adapters import open_beside
from lispgpt.runtime.gguf.header import is_gguf, read_header
from lispgpt.runtime.given_weights import Several
from lispgpt.runtime.plan.artifact import MANIFEST, Artifact, load_artifact

PROGRAMS = Path(__file__).resolve().parent.parent / "examples"


@cache
def programs(form: str = "hugging-face") -> dict[str, Path]:
    """The programs that come with the package, by the model_type that their folders say, or, by their `gguf` forms, the
    architecture that such files say."""
    found: dict[str, Path] = {}
    for path in sorted(PROGRAMS.glob("*.lisp")):
        for types in re.findall(rf"^\({form} \[([^\]]*)\]", path.read_text(encoding="utf-8"), re.MULTILINE):
            found |= dict.fromkeys(re.findall(r'"([^"]+)"', types), path)
    return found


@dataclass(frozen=True)
class Kind:
    """What a folder or a GGUF file says its model is.

    name: under which programs name it.  known: the package's programs by such names.  said_as: what says it.
    """

    name: str
    known: Mapping[str, Path]
    said_as: str

    @staticmethod
    def of(path: str | Path) -> Kind:
        if not is_gguf(path):
            return Kind(huggingface.model_type(Path(path)), programs(), "model_type")
        header, known = read_header(Path(path)), programs("gguf")
        fitting = sorted(filter(header.is_of, known), key=len)
        return Kind(fitting[-1] if fitting else header.architecture, known, "general.architecture")

    def is_for(self, names: FolderMap) -> bool:
        """Whether a program's names are for such a model."""
        return self.name in (names.types if self.said_as == "model_type" else names.gguf.types)


def is_model(path: str | Path) -> bool:
    """Whether a path is a Hugging Face folder or a GGUF file: a model by itself, for which there may be a program."""
    return is_folder(path) or is_gguf(path)


def is_folder(path: str | Path) -> bool:
    """Whether a path is a Hugging Face folder."""
    return is_there(Path(path) / huggingface.CONFIG)


def program_for(model: str | Path) -> Path:
    """The program that comes with the package for a folder or GGUF file; UserError where there is none."""
    kind = Kind.of(model)
    if kind.name not in kind.known:
        near = get_close_matches(kind.name, kind.known, n=4, cutoff=0.5)
        said = f", of which {', '.join(near)} {'are' if len(near) > 1 else 'is'} called most like it" if near else ""
        raise UserError(
            f"{model}: no program is known for {kind.said_as} {kind.name!r}; there are programs for "
            f"{len(kind.known)} kinds{said} (lispgpt examples --kinds lists them)"
        )
    return kind.known[kind.name]


def names_in(program: Path) -> FolderMap | None:
    """What a program says of folders; None where it says nothing."""
    from lispgpt.language.model.folders import find_map

    return find_map(program)


@dataclass(frozen=True)
class Given:
    """What is to be run or compiled.

    program: its file.  artifact: what is in it, where that is one.  weights: where its checkpoint lies, if it has one.
    more: forms that are added to the program.  overruled: whether the program is the user's own, whose config a
    checkpoint of lispgpt's overrules without his being told by a folder's config.json.
    """

    program: Path
    artifact: Artifact | None
    weights: Path | None
    checkpoint: Checkpoint | None
    more: str = ""
    overruled: bool = False

    def notices(self, settings: Iterable[str] = ()) -> list[str]:
        """What is to be said of the weights, and of the program's config beside theirs.  settings: names of the config
        that are given beside both."""
        found = [self.checkpoint.notice] if self.checkpoint is not None else []
        found += [replaced(self.program, self.config, settings)] if self.overruled else []
        return [notice for notice in found if notice]

    @property
    def config(self) -> dict[str, Any]:
        """What the checkpoint says of the program's config."""
        return {} if self.checkpoint is None else dict(self.checkpoint.config)


def find_given(
    program: str | Path,
    checkpoint: str | Path | Sequence[str | Path] | None,
    adapter: str | Path | None = None,
    adapters: Sequence[str | Path] = (),
) -> Given:
    """A program, an artifact, a Hugging Face folder or GGUF file alone, and a checkpoint to run it with, or several, of
    which the last that has a weight gives it; UserError where they do not fit each other.

    A model of the hub may stand for a folder (see `hub`).  adapter: the folder of a LoRA that is added to a folder's
    weights; adapters: of such as are loaded beside them, for each sequence to have its own."""
    if checkpoint is not None and not isinstance(checkpoint, (str, Path)):
        given = find_given(program, checkpoint[0] if checkpoint else None, adapter, adapters)
        return replace(given, checkpoint=with_more(given.checkpoint, checkpoint[1:], given.program))
    path, weights = hub.local(program), None if checkpoint is None else hub.local(checkpoint)
    newest = checkpoints.settled(path)
    if path != newest and is_model(newest):
        path = newest
    if is_model(path) and not (path / MANIFEST).exists():
        path, weights = program_for(path), weights or path
    if not os.path.exists(path):
        raise UserError(f"there is no file {path}")
    if weights is None and (own := _by_name(program_of(path))) is not None:
        path, weights = own, path
    if weights is None and (path / LATEST).is_dir() and not is_there(newest / ADAPTER):
        path, weights = program_of_run(path), path
    _check_runs(path)
    artifact = load_artifact(path) if path.suffix == ".lgpt" or path.is_dir() else None
    if weights is None:
        if adapter is not None or adapters:
            raise UserError("an adapter is added to a model's weights, and none are given")
        return Given(path, artifact, None, None)
    names = artifact.folder if artifact else names_in(path) if is_model(weights) else None
    added = None if adapter is None else Adapter(checkpoints.settled(adapter))
    found, more = open_for(weights, path, names, added), ""
    if adapters:
        if artifact is not None:
            raise UserError(f"{path} was compiled without adapters: give the model's folder")
        found, more = _beside(found, weights, path, names, [Adapter(checkpoints.settled(each)) for each in adapters])
    overruled = artifact is None and Path(program) == path and path.parent.resolve() != PROGRAMS.resolve()
    return Given(path, artifact, weights, found, more, overruled and not is_model(checkpoints.settled(weights)))


def _beside(
    base: Checkpoint, folder: Path, program: Path, names: FolderMap | None, adapters: Sequence[Adapter]
) -> tuple[Checkpoint, str]:
    """A folder's weights with adapters beside them, and what its program is told of that."""
    if not is_folder(folder) or not isinstance(base, MappedCheckpoint):
        raise UserError(f"{folder} is no Hugging Face folder, and {adapters[0].path} is an adapter of such")
    if names is None:
        raise UserError(f"{program} does not say what it calls a folder's weights, to which adapters are added")
    return open_beside(base, folder, names, adapters)


def _by_name(name: str | None) -> Path | None:
    """The package's program for models that is called so."""
    known = [*programs().values(), *programs("gguf").values()]
    return next((path for path in known if path.name == name), None)


def program_of_run(folder: Path) -> Path:
    """The program that a run of training in a folder was begun with; UserError where it is not there any more."""
    said = read_json(folder / RUN).get("program") if is_there(folder / RUN) else None
    if not isinstance(said, str) or not os.path.isfile(said):
        gone = f", which was {said}" if isinstance(said, str) else ""
        raise UserError(
            f"{folder} is the folder of a run: give the program that was trained{gone}, and --checkpoint {folder}"
        )
    return Path(said)


def _check_runs(path: Path) -> None:
    """UserError for what is neither a program nor an artifact, nor a model by itself."""
    if is_there(checkpoints.settled(path) / ADAPTER) and not is_folder(checkpoints.settled(path)):
        raise UserError(f"{path} is an adapter, which changes another model: give that, and --adapter {path}")
    if (path / LATEST).is_dir():
        raise UserError(f"{path} is the folder of a run: give the program that was trained, and --checkpoint {path}")
    if said := run_without_steps(path):
        raise UserError(said)
    if path.is_dir() and not (path / MANIFEST).exists():
        raise UserError(f"{path} is a folder without config.json, as models have, and manifest.json, as artifacts have")
    if path.suffix == ".gguf":
        raise UserError(f"{path} is no GGUF file: it does not begin as those do")
    if path.suffix not in (".lisp", ".lgpt") and checkpoints.is_checkpoint(path):
        of = program_of(path)
        said = "the program" if of is None else f"{of}, which it was made for"
        raise UserError(f"{path} is a checkpoint, which a program runs: give {said}, and --checkpoint {path}")


def open_for(path: str | Path, program: Path, names: FolderMap | None, adapter: Adapter | None = None) -> Checkpoint:
    """A checkpoint to run a program with; names: what the program (or artifact) says of folders.

    A model that the program says nothing of is read as the package's own program for it reads it.  adapter: added to
    the weights of a folder.
    """
    path = checkpoints.settled(path)
    if adapter is not None and not is_folder(path):
        raise UserError(f"{path} is no Hugging Face folder, and {adapter.path} is an adapter of such")
    if not is_gguf(path) and not (is_folder(path) and huggingface.recognises(Path(path), b"")):
        return checkpoints.open(path)
    kind = Kind.of(path)
    if names is not None and not kind.is_for(names):
        right = kind.known.get(kind.name)
        advice = f"; {right.name} is the program for it: lispgpt run {path}" if right else ""
        meant = " and ".join(names.types)
        raise UserError(f"{path} holds a model of type {kind.name!r}, and {program} is for {meant}{advice}")
    if names is None and kind.name in kind.known:
        names = names_in(kind.known[kind.name])
    if is_gguf(path):
        return gguf_file.open_checkpoint(Path(path), names)
    if names is None and adapter is not None:
        raise UserError(f"{program} does not say what it calls a folder's weights, to which an adapter is added")
    return checkpoints.open(path) if names is None else huggingface.open_checkpoint(Path(path), names, adapter)


def with_more(
    first: Checkpoint | None, paths: Sequence[str | Path], program: str | Path | None = None
) -> Checkpoint | None:
    """A checkpoint and more, of which the last that has a weight gives it."""
    if first is None or not paths:
        return first
    return Several([first, *(open_weights(path, program) for path in paths)])


def open_weights(path: str | Path, program: str | Path | None = None) -> Checkpoint:
    """A checkpoint by the names of a program's file, or of the package's program for its model."""
    path, own = hub.local(path), Path("" if program is None else program)
    return open_for(path, own, names_in(own) if program is not None and is_model(path) else None)
