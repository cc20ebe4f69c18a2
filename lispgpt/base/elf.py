"""How long ELF files are: a GPU's code may be several, one after another.  Source: "Executable and Linking Format"."""

from __future__ import annotations

import struct

HEADER_BYTES = 64
"""Of a file for 64-bit machines."""


def elf_bytes(header: bytes) -> int:
    """Bytes of the file that begins so: its table of sections comes last, as linkers write it."""
    sections, entry_bytes, entries = struct.unpack_from("<Q10x2H", header, 40)
    return int(sections + entry_bytes * entries)


def elf_files(code: bytes) -> list[bytes]:
    """The files that lie one after another; the code itself where it is none."""
    pieces, start = [], 0
    while code[start : start + 4] == b"\x7fELF" and start + HEADER_BYTES <= len(code):
        end = start + elf_bytes(code[start : start + HEADER_BYTES])
        pieces.append(code[start:end])
        start = end
    return pieces or [code]
