"""Token shards, as llm.c has them: a header of 256 int32 (magic, version, count), then the tokens, little-endian.

Vocabularies of at most 65,536 tokens have uint16 tokens (magic 20240520, version 1), larger ones uint32 (magic
20240801, version 7).
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.runtime.checkpoints.mapped_file import MappedFile

HEADER_BYTES = 1024
SHORT, LONG = (20240520, 1, np.dtype("<u2")), (20240801, 7, np.dtype("<u4"))
"""Magic number, version, and how a token is stored."""

MOST_TOKENS = (1 << 31) - 1
"""Of one shard, whose header counts them in an int32."""

LOOKED_AT = 1 << 22
"""Tokens that are looked at together."""


@dataclass(frozen=True)
class Shard:
    """A mapped file's tokens, read-only."""

    path: Path
    tokens: np.ndarray

    def largest(self) -> int:
        """The largest token."""
        parts = range(0, len(self.tokens), LOOKED_AT)
        return max((int(self.tokens[start : start + LOOKED_AT].max()) for start in parts), default=-1)


def is_shard(path: Path) -> bool:
    """Whether a file begins as a shard does, or is named so."""
    if path.suffix == ".bin":
        return True
    with path.open("rb") as file:
        return int.from_bytes(file.read(4), "little") in (SHORT[0], LONG[0])


def read_shard(path: Path) -> Shard:
    """Map a shard after checking its header and its size."""
    file = MappedFile(path)
    if file.nbytes < HEADER_BYTES:
        raise UserError(f"{path} is cut short: {file.nbytes} bytes, and a token shard's header alone has 1024")
    header = [int(field) for field in file.array(0, (HEADER_BYTES,), "u8").view("<i4")[:3]]
    found = next((kind for kind in (SHORT, LONG) if kind[0] == header[0]), None)
    if found is None:
        raise UserError(f"{path} is no token shard of llm.c's: its magic number is {header[0]}, not {SHORT[0]}")
    if header[1] != found[1]:
        raise UserError(f"{path} is a token shard of version {header[1]}, and only {found[1]} can be read")
    count, size = header[2], found[2].itemsize
    expected = HEADER_BYTES + count * size
    if count < 0 or file.nbytes != expected:
        damage = "cut short" if file.nbytes < expected else "too long"
        raise UserError(
            f"{path} is {damage}: {file.nbytes} bytes, where the {count} tokens in its header need {expected}"
        )
    return Shard(path, file.array(HEADER_BYTES, (count * size,), "u8").view(found[2]))


def write_shard(path: Path, parts: Iterable[np.ndarray], vocab: int) -> int:
    """Write tokens as they come, in arrays; how many they were.

    vocab: every token is below it, and it says how they are stored.
    """
    magic, version, stored = SHORT if vocab <= 1 << 16 else LONG
    count = 0
    with replacing(path) as file:
        file.write(bytes(HEADER_BYTES))
        for part in parts:
            if part.size and not 0 <= int(part.min()) <= int(part.max()) < vocab:
                raise UserError(f"cannot write {path}: the token {int(part.max())} is not below {vocab}")
            file.write(part.astype(stored).tobytes())
            count += part.size
            if count > MOST_TOKENS:
                raise UserError(f"{path} would hold more than {MOST_TOKENS:,} tokens, which is a shard's most")
        file.seek(0)
        file.write(np.array([magic, version, count], "<i4").tobytes())
    return count
