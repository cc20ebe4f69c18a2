"""A code object (hsaco) in memory: its segments, its kernels' descriptors, its instructions."""

from __future__ import annotations

import io
import struct
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import Instruction, decode, family
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

RELATIVE64 = 13
PRELOAD_PROLOGUE_BYTES = 256
"""Kernels whose arguments are preloaded begin with code for chips that cannot."""


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


class CodeObject:
    """image: its bytes as loaded; addresses of it are the emulator's.  chip: LLVM's name."""

    def __init__(self, blob: bytes, chip: str) -> None:
        from elftools.elf.elffile import ELFFile

        elf: Any = ELFFile(io.BytesIO(blob))
        self.chip, self.family = chip, family(chip)
        segments = [s for s in elf.iter_segments() if s["p_type"] == "PT_LOAD"]
        size = max(s["p_vaddr"] + s["p_memsz"] for s in segments)
        self.image = np.zeros(size + 4096 + 64, np.uint8)
        start = -self.image.ctypes.data % 4096
        self.image = self.image[start : start + size + 32]
        self.base = int(self.image.ctypes.data)
        for segment in segments:
            data = np.frombuffer(segment.data(), np.uint8)
            self.image[segment["p_vaddr"] : segment["p_vaddr"] + data.size] = data
        for section in elf.iter_sections("SHT_RELA"):
            self._relocate(section)
        symbols = elf.get_section_by_name(".dynsym").iter_symbols()
        self.symbols = {s.name: (int(s["st_value"]), int(s["st_size"])) for s in symbols}
        self.instructions: dict[int, Instruction] = {}

    def _relocate(self, section: Any) -> None:
        for entry in section.iter_relocations():
            if entry["r_info_type"] != RELATIVE64:
                raise NotModelled(f"relocation type {entry['r_info_type']}")
            struct.pack_into("<Q", self.image.data, entry["r_offset"], self.base + entry["r_addend"])

    def kernels(self) -> list[str]:
        return [name.removesuffix(".kd") for name in self.symbols if name.endswith(".kd")]

    def descriptor(self, kernel: str) -> Descriptor:
        at = self.symbols[f"{kernel}.kd"][0]
        raw = self.image[at : at + 64].tobytes()
        shared, private, arguments = struct.unpack_from("<3I", raw)
        (offset,) = struct.unpack_from("<q", raw, 16)
        (resources,) = struct.unpack_from("<I", raw, 52)
        properties, preload = struct.unpack_from("<2H", raw, 56)
        words = preload & 0x7F if self.family == "cdna" else 0
        entry = self.base + at + offset + (PRELOAD_PROLOGUE_BYTES if words else 0)
        groups = (bool(resources >> 7 & 1), bool(resources >> 8 & 1), bool(resources >> 9 & 1))
        lanes = 32 if self.family != "cdna" and properties & 0x400 else 64
        registers = resources >> 1 & 0x1F
        return Descriptor(
            shared, private, arguments, entry, properties, (words, preload >> 7), registers, groups, lanes
        )

    def size_of(self, kernel: str) -> tuple[int, int]:
        """(address, bytes) of a kernel's code."""
        at, size = self.symbols[kernel]
        return self.base + at, size

    def instruction(self, address: int) -> Instruction:
        found = self.instructions.get(address)
        if found is None:
            at = address - self.base
            found = decode(self.image[at : at + 24].tobytes(), 0, address, self.family)
            self.instructions[address] = found
        return found
