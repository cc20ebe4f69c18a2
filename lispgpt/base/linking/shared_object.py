"""Writes shared objects in ELF for 64-bit machines, laid out as LLD lays them out, to the byte for AMD's code objects.

Sources: "Executable and Linking Format", its gABI, and "User Guide for AMDGPU Backend" for what AMD's loader reads.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, field

from lispgpt.base.elf import HEADER_BYTES
from lispgpt.base.linking.names import Names, gnu_hash, system_v_hash

PROGBITS, SYMTAB, STRTAB, RELA, HASH, DYNAMIC, NOTE, NOBITS, DYNSYM, GNU_HASH = 1, 2, 3, 4, 5, 6, 7, 8, 11, 0x6FFFFFF6
WRITE, ALLOC, EXECUTE, MERGE, STRINGS = 1, 2, 4, 0x10, 0x20
LOCAL, GLOBAL, WEAK = 0, 1, 2
OBJECT, FUNCTION = 1, 2
X86_64, AMDGPU = 62, 224
UNDEFINED, ABSOLUTE = 0, 0xFFF1
PAGE = 4096
SYMBOL_BYTES, RELOCATION_BYTES, SEGMENT_BYTES, SECTION_BYTES = 24, 24, 56, 64
HIDDEN = 2


@dataclass(eq=False)
class Section:
    """A part of the file.  kind and flags: ELF's sh_type and sh_flags.  read_only_later: whether it is written once,
    while it is loaded.  address and offset: where it is put.  size: bytes in memory, those of data unless said."""

    name: str
    kind: int = PROGBITS
    flags: int = ALLOC
    align: int = 1
    data: bytearray = field(default_factory=bytearray)
    read_only_later: bool = False
    entry_bytes: int = 0
    link: Section | None = None
    info: int = 0
    empty_bytes: int = 0
    address: int = 0
    offset: int = 0

    @property
    def size(self) -> int:
        return self.empty_bytes if self.kind == NOBITS else len(self.data)

    @property
    def rank(self) -> int:
        """Of the segment that it is in: read, executed, written while loading, written, none."""
        if not self.flags & ALLOC:
            return 4
        if not self.flags & WRITE:
            return 1 if self.flags & EXECUTE else 0
        return 2 if self.read_only_later else 3


@dataclass(eq=False)
class Symbol:
    """A name.  section: where it is, or UNDEFINED, or ABSOLUTE.  offset: from that section's start.  kind: ELF's, such
    as 2 for a function.  other: its visibility."""

    name: str
    section: Section | int
    offset: int = 0
    size: int = 0
    kind: int = 0
    binding: int = GLOBAL
    other: int = 0

    @property
    def address(self) -> int:
        return self.offset + (self.section.address if isinstance(self.section, Section) else 0)

    @property
    def is_defined(self) -> bool:
        return self.section is not UNDEFINED


@dataclass(frozen=True)
class Machine:
    """What a file's header says of the machine: ELF's e_machine and e_flags, and bytes 7 and 8 of e_ident."""

    number: int
    flags: int = 0
    system: int = 0
    version: int = 0


class SharedObject:
    """What is to be written.  Sections are laid out by `lay_out`, after which addresses are known and `relocations`
    (the loader's: place, its section, type, symbol or None, addend) and the sections' data may be filled in."""

    def __init__(
        self,
        machine: Machine,
        sections: Sequence[Section],
        symbols: Sequence[Symbol],
        relocation_count: int = 0,
        soname: str = "",
        comment: bytes = b"",
    ) -> None:
        """symbols: local ones first.  relocation_count: how many the loader has to do.  comment: what made the file."""
        self.machine, self.inputs, self.symbols, self.soname = machine, list(sections), list(symbols), soname
        self.relocations: list[tuple[int, int, Symbol | None, int]] = []
        self._relocation_count = relocation_count
        self._names, self._dynamic_names = Names(), Names()
        visible = [s for s in self.symbols if s.binding != LOCAL and s.other & 3 not in (1, HIDDEN)]
        self._dynamic_symbols = self._sorted_by_hash(visible)
        self._soname_at = self._dynamic_names.add(soname)
        self._make_sections(comment)

    def _sorted_by_hash(self, symbols: list[Symbol]) -> list[Symbol]:
        """Those that others look for last, in the order of their buckets."""
        for symbol in symbols:
            self._dynamic_names.add(symbol.name)
        defined = [symbol for symbol in symbols if symbol.is_defined]
        self._buckets = max(len(defined) // 4, 1)
        self._first_hashed = 1 + len(symbols) - len(defined)
        bucket: Callable[[Symbol], int] = lambda symbol: gnu_hash(symbol.name) % self._buckets  # noqa: E731
        return [symbol for symbol in symbols if not symbol.is_defined] + sorted(defined, key=bucket)

    def _make_sections(self, comment: bytes) -> None:
        count = len(self._dynamic_symbols) + 1
        words = 1 << (12 * (count - self._first_hashed) // 64).bit_length()
        hashed = 16 + 8 * words + 4 * self._buckets + 4 * (count - self._first_hashed)
        self.dynstr = Section(".dynstr", STRTAB, data=self._dynamic_names.data)
        self.dynsym = _filled(".dynsym", DYNSYM, SYMBOL_BYTES * count, 8, self.dynstr, SYMBOL_BYTES, info=1)
        self.gnu_hash = _filled(".gnu.hash", GNU_HASH, hashed, 8, self.dynsym)
        self.hash = _filled(".hash", HASH, 4 * (2 + 2 * count), 4, self.dynsym, 4)
        size = RELOCATION_BYTES * self._relocation_count
        self.rela = _filled(".rela.dyn", RELA, size, 8, self.dynsym, RELOCATION_BYTES)
        self.dynamic = _filled(".dynamic", DYNAMIC, 16 * len(self._tags()), 8, self.dynstr, 16)
        self.dynamic.flags, self.dynamic.read_only_later = ALLOC | WRITE, True
        self.padding = Section(".relro_padding", NOBITS, ALLOC | WRITE, read_only_later=True)
        own = [self.dynsym, self.gnu_hash, self.hash, self.dynstr, *([self.rela] if size else [])]
        given = sorted(self.inputs, key=lambda section: (section.rank, section.kind == NOBITS))
        notes = [section for section in given if section.kind == NOTE and section.rank == 0]
        ranked = [[s for s in given if s.rank == rank and s not in notes] for rank in range(5)]
        at_load = [self.dynamic, *ranked[2], self.padding]
        self.sections = [*notes, *own, *ranked[0], *ranked[1], *at_load, *ranked[3], *ranked[4]]
        self.symtab = _filled(".symtab", SYMTAB, 0, 8, None, SYMBOL_BYTES)
        self.strtab = Section(".strtab", STRTAB, 0)
        self.symtab.flags, self.symtab.link = 0, self.strtab
        self._section_names = Names()
        self.shstrtab = Section(".shstrtab", STRTAB, 0, data=self._section_names.data)
        said = [Section(".comment", PROGBITS, MERGE | STRINGS, 1, bytearray(comment), entry_bytes=1)] if comment else []
        self.sections += [*said, self.symtab, self.shstrtab, self.strtab]

    def _tags(self) -> list[tuple[int, int]]:
        """What `.dynamic` says."""
        tags = [(14, self._soname_at)] if self.soname else []
        if self._relocation_count:
            tags += [(7, self.rela.address), (8, self.rela.size), (9, RELOCATION_BYTES)]
        tags += [(6, self.dynsym.address), (11, SYMBOL_BYTES), (5, self.dynstr.address), (10, self.dynstr.size)]
        return [*tags, (0x6FFFFEF5, self.gnu_hash.address), (4, self.hash.address), (0, 0)]

    def lay_out(self) -> None:
        """Give the sections that are loaded their addresses, and places in the file."""
        loaded = [section for section in self.sections if section.flags & ALLOC]
        self._loads = [group for rank in range(4) if (group := [s for s in loaded if s.rank == rank])]
        self._notes = [section for section in loaded if section.kind == NOTE]
        address = offset = HEADER_BYTES + SEGMENT_BYTES * (len(self._loads) + 4 + bool(self._notes))
        for number, group in enumerate(self._loads):
            if number:
                address = _up(address, PAGE) + address % PAGE
            first = _up(address, group[0].align)
            offset += (first - offset) % PAGE
            start = offset - first
            for section in group:
                section.address = address = _up(address, section.align)
                section.offset = start + address
                if section is self.padding:
                    section.empty_bytes = -address % PAGE
                address += section.size
                offset = offset if section.kind == NOBITS else start + address
        self._loaded_end = offset

    def to_bytes(self) -> bytes:
        """The file."""
        self._write_symbols()
        self._write_hashes()
        self.dynamic.data[:] = b"".join(struct.pack("<2Q", *tag) for tag in self._tags())
        numbers = {symbol: number for number, symbol in enumerate(self._dynamic_symbols, 1)}
        rows = [
            struct.pack("<3Q", place, (numbers[symbol] if symbol else 0) << 32 | kind, addend % 2**64)
            for place, kind, symbol, addend in self.relocations
        ]
        self.rela.data[:] = b"".join(rows)
        headers = self._section_headers()
        out = bytearray(self._file_header(headers[0]))
        for section in self.sections:
            if section.kind != NOBITS:
                out += bytes(section.offset - len(out))
                out += section.data
        return bytes(out + bytes(headers[0] - len(out)) + headers[1])

    def _number(self, section: Section | int) -> int:
        return section if isinstance(section, int) else self.sections.index(section) + 1

    def _write_symbols(self) -> None:
        marks = [Symbol("_DYNAMIC", self.dynamic, binding=LOCAL, other=HIDDEN)]
        local = [s for s in self.symbols if s.binding == LOCAL] + marks
        every = local + [s for s in self.symbols if s.binding != LOCAL]
        self.symtab.info = len(local) + 1
        for symbol in self.symbols:  # whose names come first
            self._names.add(symbol.name)
        self.symtab.data[:] = self._packed(every, self._names)
        self.strtab.data = self._names.data
        self.dynsym.data[:] = self._packed(self._dynamic_symbols, self._dynamic_names)

    def _packed(self, symbols: Iterable[Symbol], names: Names) -> bytes:
        rows = [bytes(SYMBOL_BYTES)]
        for s in symbols:
            information = s.binding << 4 | s.kind
            row = (names.add(s.name), information, s.other, self._number(s.section), s.address, s.size)
            rows.append(struct.pack("<I2BH2Q", *row))
        return b"".join(rows)

    def _write_hashes(self) -> None:
        count = len(self._dynamic_symbols) + 1
        buckets, chains = [0] * count, [0] * count
        for number, symbol in enumerate(self._dynamic_symbols, 1):
            bucket = system_v_hash(symbol.name) % count
            chains[number], buckets[bucket] = buckets[bucket], number
        self.hash.data[:] = struct.pack(f"<{2 + 2 * count}I", count, count, *buckets, *chains)
        hashes = [gnu_hash(symbol.name) for symbol in self._dynamic_symbols[self._first_hashed - 1 :]]
        words = 1 << (12 * len(hashes) // 64).bit_length()
        bloom, firsts, values = [0] * words, [0] * self._buckets, []
        for number, value in enumerate(hashes):
            bloom[value // 64 % words] |= 1 << value % 64 | 1 << (value >> 26) % 64
            bucket = value % self._buckets
            firsts[bucket] = firsts[bucket] or self._first_hashed + number
            last = number + 1 == len(hashes) or hashes[number + 1] % self._buckets != bucket
            values.append(value | 1 if last else value & ~1)
        head = (self._buckets, self._first_hashed, words, 26)
        packed = struct.pack(f"<4I{words}Q{self._buckets + len(values)}I", *head, *bloom, *firsts, *values)
        self.gnu_hash.data[:] = packed

    def _section_headers(self) -> tuple[int, bytes]:
        """Where the table of sections is, and the table."""
        names = [self._section_names.add(section.name) for section in self.sections]
        end, rows = self._loaded_end, [bytes(SECTION_BYTES)]
        for name, section in zip(names, self.sections, strict=True):
            if not section.flags & ALLOC:
                section.offset = _up(end, section.align)
                end = section.offset + section.size
            link = 0 if section.link is None else self._number(section.link)
            where = (section.address, section.offset, section.size)
            row = (name, section.kind, section.flags, *where, link, section.info, section.align, section.entry_bytes)
            rows.append(struct.pack("<2I4Q2I2Q", *row))
        return _up(end, 8), b"".join(rows)

    def _file_header(self, sections_at: int) -> bytes:
        segments = self._segments()
        m = self.machine
        ident = b"\x7fELF\x02\x01\x01" + bytes([m.system, m.version]) + bytes(7)
        numbers = (3, m.number, 1, 0, HEADER_BYTES, sections_at, m.flags, HEADER_BYTES, SEGMENT_BYTES)
        counts = (len(segments), SECTION_BYTES, len(self.sections) + 1, self._number(self.shstrtab))
        return ident + struct.pack("<2HI3QI6H", *numbers, *counts) + b"".join(segments)

    def _segments(self) -> list[bytes]:
        size = SEGMENT_BYTES * (len(self._loads) + 4 + bool(self._notes))
        found = [struct.pack("<2I6Q", 6, 4, 64, 64, 64, size, size, 8)]
        for number, group in enumerate(self._loads):
            flags = (4, 5, 6, 6)[group[0].rank]
            start = (0, 0) if number == 0 else (group[0].offset, group[0].address)
            found.append(_segment(1, flags, start, group, max(PAGE, *(s.align for s in group))))
        at_load = [section for section in self.sections if section.rank == 2]
        start = (at_load[0].offset, at_load[0].address)
        place = (self.dynamic.offset, self.dynamic.address)
        found.append(_segment(2, 6, place, [self.dynamic], 8))
        found.append(_segment(0x6474E552, 4, start, at_load, 1))
        found.append(struct.pack("<2I6Q", 0x6474E551, 6, 0, 0, 0, 0, 0, 0))
        if self._notes:
            start = (self._notes[0].offset, self._notes[0].address)
            found.append(_segment(4, 4, start, self._notes, max(note.align for note in self._notes)))
        return found


def _segment(kind: int, flags: int, start: tuple[int, int], sections: Sequence[Section], align: int) -> bytes:
    offset, address = start
    in_file = [section.offset + section.size for section in sections if section.kind != NOBITS]
    file_bytes = max(in_file, default=offset) - offset
    memory_bytes = max(section.address + section.size for section in sections) - address
    return struct.pack("<2I6Q", kind, flags, offset, address, address, file_bytes, memory_bytes, align)


def _filled(
    name: str, kind: int, size: int, align: int, link: Section | None, entry_bytes: int = 0, info: int = 0
) -> Section:
    return Section(name, kind, ALLOC, align, bytearray(size), entry_bytes=entry_bytes, link=link, info=info)


def _up(number: int, multiple: int) -> int:
    return -(-number // max(multiple, 1)) * max(multiple, 1)
