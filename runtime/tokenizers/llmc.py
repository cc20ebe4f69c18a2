"""llm.c's tokenizer.bin: a header of 256 int32 (magic, version, size, and in version 2 the end-of-text id), then each
token's length in one byte and its bytes.

It holds no merges: the ids of GPT-2's table are its merge ranks, after the text was split by GPT-2's pattern.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from functools import cached_property
from pathlib import Path

from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.reading import read_ordinary
from lispgpt.runtime.tokenizers.base import END_OF_TEXT, UNKNOWN, Tokenizer, byte_alphabet
from lispgpt.runtime.tokenizers.merging import merge, ranks_of

MAGIC = 20240328
HEADER_BYTES = 1024
GPT2_END_OF_TEXT = 50256


def recognises(path: Path, head: bytes) -> bool:
    return head[:4] == MAGIC.to_bytes(4, "little") or (path.suffix == ".bin" and not path.is_dir())


def open_tokenizer(path: Path) -> Tokenizer:
    """Read a table, checking that it is whole and that nothing follows it."""
    data = read_ordinary(path)
    if len(data) < HEADER_BYTES:
        raise UserError(
            f"{path} is cut short: {len(data)} bytes, and an llm.c tokenizer's header alone has {HEADER_BYTES}"
        )
    magic, version, size, end_of_text = struct.unpack_from("<4i", data)
    if magic != MAGIC:
        raise UserError(f"{path} is no llm.c tokenizer: its magic number is {magic}, not {MAGIC}")
    if version not in (1, 2):
        raise UserError(f"{path} is an llm.c tokenizer of version {version}, and only 1 and 2 can be read")
    if size < 1:
        raise UserError(f"{path}: the header is damaged: the table's size is {size}")
    if version == 2 and not 0 <= end_of_text < size:
        raise UserError(f"{path}: the header is damaged: the end-of-text id is {end_of_text}, and the table has {size}")
    pieces = _pieces(path, data, size)
    last = end_of_text if version == 2 else GPT2_END_OF_TEXT
    return LlmcTokenizer(pieces, last if last < size else None)


def write(path: Path, pieces: Sequence[bytes], end_of_text: int | None) -> None:
    """Write a table as version 2, or without an end-of-text id as version 1."""
    for token, piece in enumerate(pieces):
        if len(piece) > 255:
            raise UserError(f"token {token} has {len(piece)} bytes, and llm.c's tokenizer format ends at 255")
    with replacing(path) as file:
        version = (1, len(pieces)) if end_of_text is None else (2, len(pieces), end_of_text)
        header = struct.pack(f"<{1 + len(version)}i", MAGIC, *version)
        file.write(header.ljust(HEADER_BYTES, b"\0"))
        file.write(b"".join(bytes([len(piece)]) + piece for piece in pieces))


class LlmcTokenizer(Tokenizer):
    """A table of byte strings whose ids are merge ranks."""

    parts = True

    def __init__(self, pieces: Sequence[bytes], end_of_text: int | None) -> None:
        self._pieces = pieces
        self.size = len(pieces)
        self.end_of_text = end_of_text
        self.special = () if end_of_text is None else (END_OF_TEXT,)
        self._known: dict[bytes, list[int]] = {}

    def decode_bytes(self, token: int) -> bytes:
        return self._pieces[token] if 0 <= token < self.size else UNKNOWN

    def encode_valid(self, text: str) -> list[int]:
        if self.end_of_text is None:
            return self._encode_plain(text)
        tokens: list[int] = []
        for index, part in enumerate(text.split(END_OF_TEXT)):
            tokens += [self.end_of_text] * (index > 0) + self._encode_plain(part)
        return tokens

    def _encode_plain(self, text: str) -> list[int]:
        tokens = []
        for mapped, _ in self._splitter.pre_tokenize_str(text):
            piece = bytes(self._bytes[character] for character in mapped)
            if piece not in self._known:
                self._known[piece] = [self._id(part) for part in merge(piece, self._ranks)]
            tokens += self._known[piece]
        return tokens

    def _id(self, part: bytes) -> int:
        if part not in self._ranks:
            raise UserError(f"the tokenizer's table of {self.size} tokens has none for the byte 0x{part.hex()}")
        return self._ranks[part]

    @cached_property
    def _ranks(self) -> dict[bytes, int]:
        return ranks_of(self._pieces, self.end_of_text)

    @cached_property
    def _bytes(self) -> dict[str, int]:
        return {character: byte for byte, character in enumerate(byte_alphabet())}

    @cached_property
    def _splitter(self):  # type: ignore[no-untyped-def]
        # The library has GPT-2's pattern, whose Unicode classes Python's re lacks; decoding never loads it.
        from tokenizers.pre_tokenizers import ByteLevel

        return ByteLevel(add_prefix_space=False)


def _pieces(path: Path, data: bytes, size: int) -> list[bytes]:
    pieces, position = [], HEADER_BYTES
    for token in range(size):
        end = position + 1 + data[position] if position < len(data) else len(data) + 1
        if end > len(data):
            raise UserError(f"{path} is cut short: it ends in token {token} of {size}")
        pieces.append(data[position + 1 : end])
        position = end
    if position != len(data):
        raise UserError(f"{path} is too long: {len(data) - position} bytes follow its {size} tokens")
    return pieces
