"""Reads relocatable objects in ELF, as LLVM makes them of kernels.  Source: "Executable and Linking Format"."""

from __future__ import annotations

import struct
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.base.errors import UserError
from lispgpt.base.linking.shared_object import (
    ABSOLUTE,
    ALLOC,
    NOBITS,
    NOTE,
    PAGE,
    PROGBITS,
    RELA,
    SYMTAB,
    UNDEFINED,
    Machine,
    Section,
    Symbol,
)

EXCLUDED, LARGE, INFO_LINK, THREAD_LOCAL = 0x80000000, 0x10000000, 0x40, 0x400
UNWIND, COMMON = 0x70000001, 0xFFF2
KEPT_KINDS = (PROGBITS, NOBITS, NOTE, UNWIND)
DROPPED = (".note.GNU-stack", ".llvm_addrsig")


class Unlinkable(UserError):
    """An object has what this linker does not know."""


@dataclass(frozen=True)
class Relocation:
    section: Section
    place: int
    kind: int
    symbol: Symbol
    addend: int


class RelocatableObject:
    """A relocatable object's sections and symbols; the former are not yet merged with those of others."""

    def __init__(self, data: bytes) -> None:
        """Unlinkable for bytes that are none, or have what is not known here."""
        try:
            self._read(data)
        except (struct.error, IndexError, ValueError) as error:
            raise Unlinkable("the object is damaged") from error

    def _read(self, data: bytes) -> None:
        if data[:6] != b"\x7fELF\x02\x01" or len(data) < 64 or data[16:18] != b"\x01\0":
            raise Unlinkable("this is no relocatable object of a 64-bit machine")
        number, flags, at = *struct.unpack_from("<18xH", data), *struct.unpack_from("<48xI", data), data[40:48]
        self.machine = Machine(number, flags, data[7], data[8])
        (start,), (size, count, names) = struct.unpack("<Q", at), struct.unpack_from("<3H", data, 58)
        self._data = data
        self._rows = [struct.unpack_from("<2I4Q2I2Q", data, start + size * n) for n in range(count)]
        self._names = self._content(names)
        self.sections = {n: section for n in range(count) if (section := self._section(n)) is not None}
        self.symbols = self._read_symbols()
        self.relocations = list(self._read_relocations())

    def _content(self, number: int) -> bytes:
        row = self._rows[number]
        return b"" if row[1] == NOBITS else self._data[row[4] : row[4] + row[5]]

    def _section(self, number: int) -> Section | None:
        name, kind, flags, _, _, size, _, _, align, entry_bytes = self._rows[number]
        title = _text(self._names, name)
        if flags & EXCLUDED or title in DROPPED or (kind not in KEPT_KINDS and not flags & ALLOC):
            return None
        if kind not in KEPT_KINDS:
            raise Unlinkable(f"sections like {title} are not linked here")
        if flags & THREAD_LOCAL:
            raise Unlinkable("thread-local variables are not linked here")
        if align > PAGE or align & (align - 1):
            raise Unlinkable(f"section {title} cannot be aligned to {align} bytes here")
        kept = flags & ~(LARGE | INFO_LINK)
        content = bytearray(self._content(number))
        kind = PROGBITS if kind == UNWIND else kind
        found = Section(title, kind, kept, max(align, 1), content, title.startswith(".data.rel.ro"), entry_bytes)
        found.empty_bytes = size if kind == NOBITS else 0
        return found

    def _read_symbols(self) -> list[Symbol]:
        found = []
        for row in self._rows:
            if row[1] != SYMTAB:
                continue
            table, names = self._data[row[4] : row[4] + row[5]], self._content(row[6])
            for name, information, other, number, value, size in struct.iter_unpack("<I2BH2Q", table):
                if number == COMMON:
                    raise Unlinkable("common symbols are not linked here")
                where = number if number in (UNDEFINED, ABSOLUTE) else self.sections.get(number, ABSOLUTE)
                kind, binding = information & 15, information >> 4
                found.append(Symbol(_text(names, name), where, value, size, kind, binding, other))
        return found

    def _read_relocations(self) -> Iterator[Relocation]:
        """Those of the sections that are kept."""
        for row in self._rows:
            if row[1] == RELA and row[7] in self.sections:
                for place, what, addend in struct.iter_unpack("<2Qq", self._data[row[4] : row[4] + row[5]]):
                    yield Relocation(self.sections[row[7]], place, what & 0xFFFFFFFF, self.symbols[what >> 32], addend)


def _text(table: bytes, start: int) -> str:
    return table[start : table.index(b"\0", start)].decode()
