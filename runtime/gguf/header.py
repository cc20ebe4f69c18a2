"""What stands before the numbers in a GGUF file: metadata by name, and where each tensor lies.

The format is described at https://github.com/ggml-org/ggml/blob/master/docs/gguf.md.  Every length in a file is held
against the bytes that are left before anything is read or allocated, so that a damaged file is one error at once.  (The
`gguf` package, which knows the types and their blocks, believes a file's counts.)
"""

from __future__ import annotations

import math
import struct
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.reading import check_ordinary
from lispgpt.runtime.gguf.kinds import check_metadata

MAGIC = b"GGUF"
VERSIONS = (2, 3)
_NUMBERS = {
    **{0: "<u1", 1: "<i1", 2: "<u2", 3: "<i2", 4: "<u4", 5: "<i4"},
    **{6: "<f4", 7: "?", 10: "<u8", 11: "<i8", 12: "<f8"},
}
_STRING, _ARRAY = 8, 9
_LEAST_STRING, _LEAST_ENTRY, _LEAST_TENSOR = 8, 13, 24
"""Bytes that one of each takes at least."""
_MOST_DIMENSIONS = 4


@dataclass(frozen=True)
class TensorPlace:
    """A tensor of a GGUF file: kind is the type's name in small letters, and shape has the rows' elements last."""

    name: str
    shape: tuple[int, ...]
    kind: str
    offset: int
    nbytes: int


@dataclass(frozen=True)
class Header:
    """metadata: numbers, booleans, strings and lists of one of these.  tensors: with offsets in the whole file."""

    path: Path
    metadata: Mapping[str, Any]
    tensors: tuple[TensorPlace, ...]

    @property
    def architecture(self) -> str:
        """What the file says the model is."""
        found = self.metadata.get("general.architecture")
        if self.metadata.get("split.no"):
            number, count = self.metadata["split.no"] + 1, self.metadata.get("split.count")
            raise UserError(f"{self.path} is part {number} of {count} of a model: name its first, …-00001-of-….gguf")
        if not isinstance(found, str):
            raise UserError(f"{self.path} does not say its general.architecture")
        return found

    def is_of(self, kind: str) -> bool:
        """Whether the file is of an architecture, such as "llama", or "llama with expert_count" where it also has to
        have that setting, or several with "and" between them."""
        name, _, settings = kind.partition(" with ")
        wanted = settings.split(" and ") if settings else []
        return name == self.architecture and all(self.metadata.get(f"{name}.{setting}") for setting in wanted)


def holds_tokenizer(path: Path) -> bool:
    """Whether a path is a GGUF file with a tokenizer's tokens."""
    return is_gguf(path) and bool(read_header(path).metadata.get("tokenizer.ggml.tokens"))


def is_gguf(path: str | Path) -> bool:
    """Whether a path is a file with the format's magic."""
    try:
        if not Path(path).is_file():
            return False
        with Path(path).open("rb") as file:
            return file.read(4) == MAGIC
    except (OSError, ValueError):
        return False


def read_header(path: Path) -> Header:
    """A file's header, checked; UserError says what is wrong with it."""
    check_ordinary(path)
    try:
        data = np.memmap(path, np.uint8, "r")
    except (OSError, ValueError) as error:
        raise UserError(f"cannot read {path}: {error}") from error
    return _Reader(path, data).header()


class _Reader:
    """Reads one thing after another."""

    def __init__(self, path: Path, data: np.ndarray) -> None:
        self.path, self.data, self.at = path, memoryview(data.data), 0

    def damaged(self, what: str) -> UserError:
        return UserError(f"{self.path} is damaged: {what}; copy or download it again")

    def header(self) -> Header:
        self.take(4)
        version = self.number("<I")
        if version not in VERSIONS:
            if int.from_bytes(version.to_bytes(4, "little"), "big") in VERSIONS:
                raise UserError(f"{self.path} is a GGUF file for big-endian machines, which are not known here")
            raise UserError(f"{self.path} is a GGUF file of version {version}, and those known here are 2 and 3")
        tensors, entries = self.count("<Q", _LEAST_TENSOR, "tensors"), self.count("<Q", _LEAST_ENTRY, "settings")
        metadata: dict[str, Any] = {}
        for _ in range(entries):
            key = self.string()
            if key in metadata:
                raise self.damaged(f"{key!r} is there twice")
            metadata[key] = self.value(self.number("<I"), key)
        check_metadata(self.path, metadata)
        places = [self.tensor() for _ in range(tensors)]
        return Header(self.path, metadata, tuple(self.placed(places, metadata.get("general.alignment", 32))))

    def take(self, nbytes: int) -> memoryview:
        left = len(self.data) - self.at
        if nbytes > left:
            raise self.damaged(f"it ends at byte {len(self.data):,}, in the middle of its header")
        self.at += nbytes
        return self.data[self.at - nbytes : self.at]

    def number(self, form: str) -> int:
        value: int = struct.unpack(form, self.take(struct.calcsize(form)))[0]
        return value

    def count(self, form: str, least: int, what: str) -> int:
        found, left = self.number(form), len(self.data) - self.at
        if found * least > left:
            raise self.damaged(f"it claims {found:,} {what}, and has {left:,} bytes left")
        return found

    def string(self) -> str:
        try:
            return str(self.take(self.number("<Q")), "utf-8")
        except UnicodeDecodeError as error:
            raise self.damaged(f"a name or text before byte {self.at:,} is not UTF-8") from error

    def value(self, kind: int, key: str) -> Any:
        if kind == _STRING:
            return self.string()
        if kind == _ARRAY:
            return self.array(self.number("<I"), key)
        return self.numbers(kind, 1, key)[0]

    def array(self, kind: int, key: str) -> list[Any]:
        if kind == _STRING:
            return [self.string() for _ in range(self.count("<Q", _LEAST_STRING, f"texts for {key!r}"))]
        return self.numbers(kind, self.count("<Q", 1, f"numbers for {key!r}"), key)

    def numbers(self, kind: int, count: int, key: str) -> list[Any]:
        if kind not in _NUMBERS:
            raise self.damaged(f"{key!r} has a value of the unknown type {kind}")
        dtype = np.dtype(_NUMBERS[kind])
        found: list[Any] = np.frombuffer(self.take(count * dtype.itemsize), dtype).tolist()
        return found

    def tensor(self) -> tuple[str, tuple[int, ...], int, int]:
        """Name, shape, number of the type, and offset behind the header."""
        name, rank = self.string(), self.number("<I")
        if not 0 < rank <= _MOST_DIMENSIONS:
            raise self.damaged(f"tensor {name!r} has {rank} dimensions")
        shape = tuple(self.number("<Q") for _ in range(rank))[::-1]
        return name, shape, self.number("<I"), self.number("<Q")

    def placed(self, places: list[tuple[str, tuple[int, ...], int, int]], alignment: Any) -> list[TensorPlace]:
        from gguf.constants import GGML_QUANT_SIZES, GGMLQuantizationType

        if type(alignment) is not int or not 0 < alignment <= 1 << 16:
            raise self.damaged(f"its general.alignment is {alignment!r}")
        start, found = -(-self.at // alignment) * alignment, {}
        known = {int(kind): kind for kind in GGMLQuantizationType}
        for name, shape, number, offset in places:
            if number not in known:
                raise UserError(f"{self.path}: tensor {name!r} is of type {number}, which is not known here")
            block, nbytes = GGML_QUANT_SIZES[known[number]]
            if min(shape) < 1 or shape[-1] % block:
                raise self.damaged(f"tensor {name!r} has shape {shape}, in blocks of {block}")
            size = math.prod(shape) // block * nbytes
            if start + offset + size > len(self.data):
                raise self.damaged(f"tensor {name!r} ends at byte {start + offset + size:,} of {len(self.data):,}")
            if name in found or offset % alignment:
                raise self.damaged(f"tensor {name!r} is there twice, or not where it may be")
            found[name] = TensorPlace(name, shape, known[number].name.lower(), start + offset, size)
        return list(found.values())
