"""From the paths that a user names to token shards, and the tokenizer that made them."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.child import Reporter, run_in_child
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import Fields, Kind, is_number, is_text, is_whole, read_json
from lispgpt.base.reading import named
from lispgpt.runtime import tokenizers
from lispgpt.runtime.data.batches import Stream
from lispgpt.runtime.data.shards import Shard, is_shard, read_shard, write_shard
from lispgpt.runtime.data.texts import encoded, pieces, text_files

SHARD_TOKENS = 100_000_000
"""Of a shard that is made here, as llm.c's have them."""

VALIDATION_MARK = "val"
"""What the names of shards hold that are for validation, as llm.c's do."""


def _is_listed(value: Any) -> bool:
    return isinstance(value, list) and len(value) == 2 and is_text(value[0]) and is_whole(value[1], 0, 1 << 62)


_FILES = Kind("a list of files and their sizes", lambda v: isinstance(v, list) and all(map(_is_listed, v)))
SHARE = Kind("a number from 0 to below 1", lambda value: is_number(value) and 0 <= value < 1)
LISTS = Fields({"training": _FILES, "validation": _FILES, "fraction": SHARE})
"""What a run keeps of its shards."""


@dataclass(frozen=True)
class Shards:
    """Token shards to train on and to validate with.

    fraction: where there are none of the second kind, the share of the first's tokens, at their end, that is held back.
    """

    training: tuple[Path, ...]
    validation: tuple[Path, ...]
    fraction: float

    def streams(self, length: int) -> tuple[Stream, Stream | None]:
        """The tokens to train on, and to validate with: None where that would be less than a window."""
        stream = Stream([read_shard(path) for path in self.training])
        if self.validation:
            return stream, Stream([read_shard(path) for path in self.validation])
        held = int(stream.count * self.fraction)
        if held < length + 1 or stream.count - held < length + 1:
            return stream, None
        cut = stream.count - held
        return stream.part(0, cut), stream.part(cut, stream.count)

    def check(self, vocab: int) -> None:
        """UserError where a token is none of a model's vocabulary, or there is nothing to train on."""
        for path in (*self.training, *self.validation):
            largest = read_shard(path).largest()
            if largest >= vocab:
                raise UserError(f"{path} has the token {largest}, and the model's vocabulary has {vocab}")
        if not self.training and not self.validation:
            raise UserError("there is no text in the data")
        if not self.training:
            raise UserError("all of the data is for validation, by its names; there is nothing to train on")

    def to_json(self, folder: Path) -> dict[str, Any]:
        """Paths and sizes; those in the run's folder from there on, so that it can be moved."""

        def listed(paths: Sequence[Path]) -> list[list[Any]]:
            own = [path.relative_to(folder) if path.is_relative_to(folder) else path for path in paths]
            return [[str(name), path.stat().st_size] for name, path in zip(own, paths, strict=True)]

        return {
            "training": listed(self.training),
            "validation": listed(self.validation),
            "fraction": self.fraction,
        }

    @staticmethod
    def from_json(data: Any, folder: Path) -> Shards:
        """UserError where shards are no longer what they were."""
        LISTS.check(f"{folder}'s list of shards", data)
        listed = [[(folder / path, size) for path, size in data[kind]] for kind in ("training", "validation")]
        for path, size in itertools.chain(*listed):
            if not path.is_file() or path.stat().st_size != size:
                raise UserError(f"{path}, which the run is trained on, is gone or has changed")
        training, validation = (tuple(path for path, _ in files) for files in listed)
        return Shards(training, validation, data["fraction"])


def paths_of(given: str | Path | Sequence[str | Path], what: str = "data") -> list[Path]:
    """The paths that a caller names: one, or several; UserError for what is neither."""
    if not isinstance(given, (str, Path, Sequence)):
        raise UserError(f"{what} is a path or a list of paths, not {given!r}")
    return [named(path) for path in ([given] if isinstance(given, (str, Path)) else given)]


def sort_paths(paths: Sequence[Path]) -> tuple[list[Path], list[Path]]:
    """The token shards and the texts among files and folders; a folder that has shards gives those."""
    shards, texts = [], []
    for path in paths:
        inside = sorted(path.glob("*.bin")) if path.is_dir() else []
        if inside:
            shards += inside
        elif path.is_file() and is_shard(path):
            shards.append(path)
        else:
            texts += text_files([path])
    if shards and texts:
        raise UserError(f"{texts[0]} is text and {shards[0]} holds tokens: give one kind or the other")
    return shards, texts


def train_tokenizer(texts: Sequence[Path], vocab: int, path: Path) -> int:
    """Write a tokenizer of a vocabulary that is made of texts; its size.

    In a process of its own: the library's threads would not live through a fork.
    """

    def work(reporter: Reporter) -> int:
        from lispgpt.runtime.tokenizers.training import train_tokenizer

        reporter.give(train_tokenizer((piece for piece, _ in pieces(texts)), vocab, path))
        return 0

    return int(_in_child(work))


def write_shards(texts: Sequence[Path], tokenizer: Path, folder: Path, stem: str) -> list[Path]:
    """Encode texts to the shards STEM-000.bin, …; their paths."""

    def work(reporter: Reporter) -> int:
        opened = tokenizers.open(tokenizer)
        parts = encoded(texts, opened)
        made: list[Path] = []
        first = next(parts, None)
        while first is not None:
            path = folder / f"{stem}-{len(made):03}.bin"
            write_shard(path, itertools.chain([first], _up_to(parts, SHARD_TOKENS - len(first))), opened.size)
            made.append(path)
            first = next(parts, None)
        reporter.give(made)
        return 0

    found: list[Path] = _in_child(work)
    return found


def vocabulary(path: Path) -> int:
    """How many tokens a tokenizer has; of a tokenizer.json without the library that reads it."""
    data = read_json(path) if path.suffix == ".json" else {}
    model = data.get("model")
    table = model.get("vocab") if isinstance(model, dict) else None
    if not isinstance(table, dict):
        return tokenizers.open(path).size
    added = [entry.get("id", -1) for entry in data.get("added_tokens") or () if isinstance(entry, dict)]
    return 1 + max((token for token in (*table.values(), *added) if type(token) is int), default=-1)


def copied(source: Path, target: Path) -> None:
    """Copy a file so that it is whole or not there."""
    with replacing(target) as file:
        file.write(source.read_bytes())


def in_memory(paths: Sequence[Path], tokenizer: tokenizers.Tokenizer | None) -> Stream:
    """The tokens of texts, encoded here, or of shards."""
    shards, texts = sort_paths(paths)
    if shards:
        return Stream([read_shard(path) for path in shards])
    if tokenizer is None:
        raise UserError("no tokenizer was found beside the checkpoint: give --tokenizer FILE, or token shards")
    return Stream([Shard(paths[0], np.concatenate([np.empty(0, np.int32), *encoded(texts, tokenizer)]))])


def is_validation(path: Path) -> bool:
    """Whether a shard is for validation, by its name."""
    return VALIDATION_MARK in path.stem.lower().replace("-", "_").split("_")


def _up_to(parts: Iterator[np.ndarray], count: int) -> Iterator[np.ndarray]:
    """Arrays until they hold so many tokens, or there are no more."""
    while count > 0 and (part := next(parts, None)) is not None:
        count -= len(part)
        yield part


def _in_child(work: Any) -> Any:
    outcome = run_in_child(work)
    if outcome.signal_number:
        raise UserError(f"the process that encodes the texts was ended by {outcome.reason}")
    return outcome.value
