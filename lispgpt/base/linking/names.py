"""Names in ELF files: tables of strings, and the hashes by which loaders look them up.

Sources: "Executable and Linking Format", and how GNU's linker and loader hash.
"""

from __future__ import annotations


class Names:
    """A table of strings; each is there once."""

    def __init__(self) -> None:
        self.data, self._places = bytearray(b"\0"), {"": 0}

    def add(self, name: str) -> int:
        """Where a name begins."""
        if name not in self._places:
            self._places[name] = len(self.data)
            self.data += name.encode() + b"\0"
        return self._places[name]


def gnu_hash(name: str) -> int:
    """What `.gnu.hash` finds a name by."""
    value = 5381
    for byte in name.encode():
        value = (value * 33 + byte) % 2**32
    return value


def system_v_hash(name: str) -> int:
    """What `.hash` finds a name by."""
    value = 0
    for byte in name.encode():
        value = (value << 4) + byte
        high = value & 0xF0000000
        value = (value ^ high >> 24) & ~high
    return value
