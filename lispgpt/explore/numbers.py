"""Whole numbers as bytes: small ones in few."""

from __future__ import annotations

from collections.abc import Iterable


def folded(number: int) -> int:
    """A whole number as one that is not negative."""
    return 2 * number if number >= 0 else -2 * number - 1


def varints(numbers: Iterable[int]) -> bytes:
    """Numbers one after another, seven bits to a byte, lowest first; all bytes of one but its last have the eighth."""
    return b"".join(map(varint, numbers))


def varint(number: int) -> bytes:
    """One of them."""
    found = bytearray()
    while number > 127:
        found.append(number & 127 | 128)
        number >>= 7
    found.append(number)
    return bytes(found)
