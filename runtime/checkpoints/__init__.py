"""Checkpoints: named weights on disk, in several formats, behind one interface (see `base`)."""

from __future__ import annotations

import importlib
import os
import pkgutil
from pathlib import Path
from types import ModuleType

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.base import Checkpoint, TensorInfo
from lispgpt.runtime.checkpoints.sealed import LATEST, SEAL, run_without_steps, sealed_facts

__all__ = ["Checkpoint", "TensorInfo", "format_named", "formats", "open", "settled"]

_READ_OF_FOLDERS = ("config.json", "model.safetensors", "tokenizer.json")
"""Of a sealed folder, what whoever opens it reads; a training run has more there."""

_FOREIGN = {
    b"PK\x03\x04": "a zip file (a PyTorch one?)",
    b"\x80\x02": "a Python pickle",
}


def formats() -> dict[str, ModuleType]:
    """The checkpoint formats in this folder, by module name."""
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "recognises"):
            found[entry.name] = module
    return found


def format_named(name: str) -> ModuleType:
    """A format that can be written; UserError lists them when there is no such one."""
    writable = {known: module for known, module in formats().items() if hasattr(module, "write")}
    if name not in writable:
        raise UserError(f"no checkpoint format {name!r} can be written; there are {', '.join(sorted(writable))}")
    return writable[name]


def open(path: str | Path) -> Checkpoint:
    """Open a checkpoint of any known format, chosen by its content; UserError says what is wrong with it.

    A run's folder stands for its newest checkpoint.  What was sealed is checked to be as it was written.
    """
    path = settled(path)
    head = _head(path)
    for module in formats().values():
        if module.recognises(path, head):
            checkpoint: Checkpoint = module.open_checkpoint(path)
            return checkpoint
    if said := run_without_steps(path):
        raise UserError(said)
    if path.is_dir():
        raise UserError(
            f"{path} is a folder without config.json; a Hugging Face model has config.json and "
            "model.safetensors, and an llm.c checkpoint is a file"
        )
    if path.suffix == ".lgpt":
        raise UserError(
            f"{path} is a compiled program, and no checkpoint: lispgpt run {path} --checkpoint FILE runs it"
        )
    for magic, what in _FOREIGN.items():
        if head.startswith(magic):
            advice = "save the model with save_pretrained, which writes model.safetensors"
            raise UserError(f"{path} is {what}, which is not read here: {advice}")
    raise UserError(
        f"{path} is no checkpoint known here: it begins with {head[:4].hex(' ')}; known are llm.c's model "
        "files (versions 3 and 5), HipGPT's, safetensors, GGUF files and Hugging Face folders"
    )


def is_checkpoint(path: Path) -> bool:
    """Whether a file begins as those of a known format do."""
    try:
        head = _head(path)
    except UserError:
        return False
    return any(module.recognises(path, head) for module in formats().values())


def settled(path: str | Path) -> Path:
    """Where a checkpoint lies: a run's folder stands for its newest one.  UserError where sealed files were changed."""
    path = Path(path)
    if os.path.isdir(path / LATEST):
        path = path / LATEST
    if os.path.isfile(path / SEAL):
        sealed_facts(path, _READ_OF_FOLDERS)
    elif os.path.isfile(path.parent / SEAL):
        sealed_facts(path.parent, (path.name,))
    return path


def _head(path: Path) -> bytes:
    try:
        if path.is_dir():
            return b""
        if not path.exists():
            raise UserError(f"there is no checkpoint at {path}")
        if not path.is_file():
            raise UserError(f"{path} is neither a file nor a folder")
        with path.open("rb") as file:
            head = file.read(1024)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the checkpoint {str(path)!r}: {error}") from error
    if not head:
        raise UserError(f"{path} is empty")
    return head
