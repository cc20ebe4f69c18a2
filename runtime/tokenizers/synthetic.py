"""A made-up byte-level table of any size, for random models: every byte, then word pieces, then end-of-text."""

from __future__ import annotations

from collections import deque

from lispgpt.runtime.tokenizers.base import END_OF_TEXT

_LETTERS = b"etaoinshrdlucmfwypvbgkjqxz"


def synthetic_pieces(size: int) -> list[bytes] | None:
    """Each id's bytes: 256 single bytes in GPT-2's order, merged pieces, end-of-text last; None below 257.

    The pieces, like a space and a growing run of letters, are listed shortest first, so each is one merge of earlier
    ones.
    """
    if size < 257:
        return None
    visible = [*range(0x21, 0x7F), *range(0xA1, 0xAD), *range(0xAE, 0x100)]
    pieces = [bytes([byte]) for byte in [*visible, *(byte for byte in range(256) if byte not in visible)]]
    growing = deque([b" ", *(bytes([letter]) for letter in _LETTERS)])
    while len(pieces) < size - 1:
        start = growing.popleft()
        made = [start + bytes([letter]) for letter in _LETTERS][: size - 1 - len(pieces)]
        pieces += made
        growing += made
    return [*pieces, END_OF_TEXT.encode()]
