"""A code object (hsaco) in memory: its segments, its kernels' descriptors, its instructions."""

from __future__ import annotations

import io
import struct
from bisect import bisect_right
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cached_property
from pathlib import PurePath
from typing import Any

import numpy as np

from lispgpt.base.elf import elf_files
from lispgpt.runtime.devices.amd_emulator.decode import LONGEST, Instruction, decode, family
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

RELATIVE64, PAGE, BEHIND = 13, 4096, 64
"""A relocation's type; of memory; bytes behind the code that a decoder may look at."""
PRELOAD_PROLOGUE_BYTES = 256
"""Kernels whose arguments are preloaded begin with code for chips that cannot."""
DWARF5 = 5
"""From this version of line tables on, files are counted from 0."""
WAVE32 = 0x400
"""Among a descriptor's properties."""


@dataclass(frozen=True)
class Descriptor:
    """What a kernel's descriptor says.  shared_bytes, private_bytes: of a workgroup, of a lane.  entry: address of its
    first instruction.  properties: bits of the scalar registers that it wants set.  preload: (how many words of its
    arguments are preloaded, from which on).  groups: which of the workgroup's three numbers it wants."""

    shared_bytes: int
    private_bytes: int
    argument_bytes: int
    entry: int
    properties: int
    preload: tuple[int, int]
    user_registers: int
    groups: tuple[bool, bool, bool]
    lanes: int


def _loaded(elf: Any) -> list[Any]:
    return [segment for segment in elf.iter_segments() if segment["p_type"] == "PT_LOAD"]


class CodeObject:
    """Code objects that lie one after another, as one.

    image: their bytes as loaded; addresses of it are the emulator's.  chip: LLVM's name.
    """

    def __init__(self, blob: bytes, chip: str) -> None:
        from elftools.elf.elffile import ELFFile

        files: list[Any] = [ELFFile(io.BytesIO(piece)) for piece in elf_files(blob)]
        self.chip, self.family = chip, family(chip)
        starts = [0]
        for elf in files:
            end = max(s["p_vaddr"] + s["p_memsz"] for s in _loaded(elf)) + BEHIND
            starts.append(starts[-1] + -(-end // PAGE) * PAGE)
        whole = np.zeros(starts[-1] + PAGE, np.uint8)
        self.image = whole[-whole.ctypes.data % PAGE :][: starts[-1]]
        self.base = int(self.image.ctypes.data)
        self.symbols: dict[str, tuple[int, int]] = {}
        self._files = list(zip(files, starts, strict=False))
        for elf, start in zip(files, starts, strict=False):
            self._place(elf, start)

    def _place(self, elf: Any, start: int) -> None:
        """Copy a file's segments, relocated, and note its symbols.  start: where in the image it begins."""
        for segment in _loaded(elf):
            data, at = np.frombuffer(segment.data(), np.uint8), start + segment["p_vaddr"]
            self.image[at : at + data.size] = data
        for entry in [e for section in elf.iter_sections("SHT_RELA") for e in section.iter_relocations()]:
            if entry["r_info_type"] != RELATIVE64:
                raise NotModelled(f"relocation type {entry['r_info_type']}")
            place, value = start + entry["r_offset"], self.base + start + entry["r_addend"]
            struct.pack_into("<Q", self.image.data, place, value)
        for symbol in elf.get_section_by_name(".dynsym").iter_symbols():
            self.symbols[symbol.name] = (start + int(symbol["st_value"]), int(symbol["st_size"]))

    def kernels(self) -> list[str]:
        return [name.removesuffix(".kd") for name in self.symbols if name.endswith(".kd")]

    def descriptor(self, kernel: str) -> Descriptor:
        at = self.symbols[f"{kernel}.kd"][0]
        shared, private, arguments, _, offset, resources, properties, preload = struct.unpack_from(
            "<4Iq28xI2H", self.image[at : at + 64].tobytes()
        )
        words = preload & 0x7F if self.family == "cdna" else 0
        entry = self.base + at + offset + (PRELOAD_PROLOGUE_BYTES if words else 0)
        groups = (bool(resources >> 7 & 1), bool(resources >> 8 & 1), bool(resources >> 9 & 1))
        lanes = 32 if self.family != "cdna" and properties & WAVE32 else 64
        return Descriptor(
            shared, private, arguments, entry, properties, (words, preload >> 7), resources >> 1 & 0x1F, groups, lanes
        )

    def size_of(self, kernel: str) -> tuple[int, int]:
        """(address, bytes) of a kernel's code."""
        at, size = self.symbols[kernel]
        return self.base + at, size

    def line_of(self, address: int) -> str:
        """The line of the program that an instruction is of, as "gpt2.lisp:29"; "" where line tables do not say."""
        row = bisect_right(self._lines, (address - self.base, "~")) - 1
        return self._lines[row][1] if row >= 0 else ""

    @cached_property
    def _lines(self) -> list[tuple[int, str]]:
        """(offset in the image, line) of each row of the line tables, in order."""
        found = []
        for elf, start in self._files:
            units = elf.get_dwarf_info().iter_CUs() if elf.has_dwarf_info() else ()
            for unit in units:
                table = elf.get_dwarf_info().line_program_for_CU(unit)
                names = [entry.name.decode(errors="replace") for entry in table["file_entry"]]
                first = 0 if table["version"] >= DWARF5 else 1
                for row in (entry.state for entry in table.get_entries() if entry.state is not None):
                    known = row.line and not row.end_sequence
                    file = PurePath(names[row.file - first]).name if known else ""
                    found.append((start + row.address, f"{file}:{row.line}" if known else ""))
        return sorted(found)

    def instruction(self, address: int) -> Instruction:
        at = address - self.base
        return decode(self.image[at : at + LONGEST].tobytes(), self.family)

    def instructions_of(self, kernel: str) -> Iterator[tuple[int, Instruction]]:
        """A kernel's instructions with their addresses, in their order."""
        at, size = self.size_of(kernel)
        end = at + size
        while at < end:
            found = self.instruction(at)
            yield at, found
            at += found.nbytes
