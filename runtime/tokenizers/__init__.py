"""Tokenizers: text to token ids and back, in several file formats, behind one interface (see `base`)."""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.reading import is_there, named
from lispgpt.runtime.gguf.header import holds_tokenizer
from lispgpt.runtime.tokenizers.base import StreamDecoder, Tokenizer

__all__ = ["StreamDecoder", "Tokenizer", "beside", "find", "formats", "open", "write_beside"]

_BESIDE = ("tokenizer.json", "vocab.json", "tokenizer.bin", "gpt2_tokenizer.bin")


UNREAD = {
    "tokenizer.model": "a SentencePiece model",
    "tekken.json": "a Mistral tokenizer of its own kind",
    "spiece.model": "a SentencePiece model",
}
"""Files of tokenizers that are known by their names alone."""
SAVED = "transformers' AutoTokenizer.from_pretrained(…).save_pretrained(…) writes tokenizer.json"


def unread_beside(path: Path) -> str:
    """What to say where the only tokenizers in a checkpoint's folder are of kinds that are not read; "" elsewhere."""
    folder = path if path.is_dir() else path.parent
    found = next((folder / name for name in UNREAD if (folder / name).is_file()), None)
    return "" if found is None else f"{found} is {UNREAD[found.name]}, which is not read here: {SAVED}"


def formats() -> dict[str, ModuleType]:
    """The tokenizer formats in this folder, by module name."""
    found = {}
    for entry in pkgutil.iter_modules(__path__):
        module = importlib.import_module(f"{__name__}.{entry.name}")
        if hasattr(module, "recognises"):
            found[entry.name] = module
    return found


def open(path: str | Path) -> Tokenizer:
    """Open a tokenizer file, or a folder that holds one; UserError says what is wrong with it."""
    path = named(path)
    try:
        if not path.exists():
            raise UserError(f"there is no tokenizer at {path}")
        head = b""
        if path.is_file():
            with path.open("rb") as file:
                head = file.read(4096)
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read the tokenizer {str(path)!r}: {error}") from error
    if path.name in UNREAD:
        raise UserError(f"{path} is {UNREAD[path.name]}, which is not read here: {SAVED}")
    for module in formats().values():
        if module.recognises(path, head):
            tokenizer: Tokenizer = module.open_tokenizer(path)
            return tokenizer
    if path.is_dir():
        found = next((path / name for name in _BESIDE if (path / name).exists()), None)
        if found is not None:
            return open(found)
    raise UserError(
        f"{path} is no tokenizer known here: those are llm.c's tokenizer.bin, Hugging Face's tokenizer.json, "
        "vocab.json with merges.txt, and GGUF files"
    )


def find(checkpoint: str | Path | None, explicit: str | Path | None) -> Tokenizer | None:
    """The tokenizer that the user names, or else the one beside (or in) the checkpoint; None when there is none.

    Beside NAME.bin, NAME.tokenizer.json and NAME.tokenizer.bin come first, then the usual names.
    """
    if explicit is not None:
        return open(explicit)
    found = None if checkpoint is None else beside(Path(checkpoint))
    return None if found is None else open(found)


def beside(path: Path) -> Path | None:
    """The tokenizer's file beside (or in) a checkpoint; None where there is none."""
    if holds_tokenizer(path):
        return path
    if path.is_dir():
        candidates = [path / name for name in _BESIDE]
    else:
        own = [path.with_name(f"{path.stem}.tokenizer{ending}") for ending in (".json", ".bin")]
        candidates = [*own, *(path.with_name(name) for name in _BESIDE)]
    return next((candidate for candidate in candidates if is_there(candidate)), None)


def write_copy(checkpoint: Path, tokenizer: Tokenizer) -> Path:
    """Write a tokenizer beside a checkpoint's file, as what it came from where that is possible."""
    text = tokenizer.to_json()
    if text is None:
        pieces = [tokenizer.decode_bytes(token) for token in range(tokenizer.size)]
        return write_beside(checkpoint, "llmc", pieces, tokenizer.end_of_text)
    path = checkpoint.with_name(f"{checkpoint.stem}.tokenizer.json")
    with replacing(path) as file:
        file.write(text.encode())
    return path


def write_beside(checkpoint: Path, format: str, pieces: Sequence[bytes], end_of_text: int | None) -> Path:
    """Write a tokenizer (see base's `write`) where `find` looks first for a checkpoint of that format."""
    if format == "huggingface":
        path = checkpoint / "tokenizer.json"
    else:
        path = checkpoint.with_name(f"{checkpoint.stem}.tokenizer.bin")
    formats()[format].write(path, pieces, end_of_text)
    return path
