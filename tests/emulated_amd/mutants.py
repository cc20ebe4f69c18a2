"""Kernels of compiled artifacts with one mistake each: a barrier or a wait less, a store elsewhere, a wrong lane."""

from __future__ import annotations

import io
from collections.abc import Callable
from dataclasses import dataclass

from elftools.elf.elffile import ELFFile

from lispgpt.base.elf import elf_files
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.plan.artifact import Artifact

NOP = 0xBF800000
OWN_QUAD, OWN_SWIZZLE, HALF_A_WAVE_BYTES = 0b11_10_01_00, 0x001F, 128
"""Patterns by which each lane reads itself: DPP16's within four lanes, ds_swizzle_b32's, and how much further
ds_bpermute_b32 reads in order to come back from the other half of a wave."""
PERMLANE16_BIT = 1
"""In which v_permlane16_b32's and v_permlanex16_b32's operation codes differ: the own row of 16 lanes or the other."""


@dataclass(frozen=True)
class Site:
    """A place that a mistake can be made at: its address in a code object.  file: which of the artifact's.  words: what
    stands there instead."""

    kernel: str
    file: int
    address: int
    instruction: Instruction
    words: tuple[int, ...]


def dropped_barrier(i: Instruction) -> tuple[int, ...] | None:
    return (NOP,) if i.name in ("S_BARRIER", "S_BARRIER_WAIT") else None


def missing_wait(i: Instruction) -> tuple[int, ...] | None:
    names = ("S_WAITCNT", "S_WAIT_LOADCNT", "S_WAIT_DSCNT", "S_WAIT_KMCNT")
    return (NOP,) if i.name in names else None


def moved_store(i: Instruction) -> tuple[int, ...] | None:
    """A store to global memory one element of 4 bytes further."""
    if not i.name.startswith("GLOBAL_STORE"):
        return None
    words = list(i.words)
    word, low, bits = (2, 8, 24) if "ioffset" in i.fields else (0, 0, 13)
    mask = (1 << bits) - 1
    words[word] = words[word] & ~(mask << low) | ((words[word] >> low & mask) + 4 & mask) << low
    return tuple(words)


def wrong_lane(i: Instruction) -> tuple[int, ...] | None:
    """A shuffle in which a lane reads itself rather than another; a sum over lanes then has terms twice."""
    words = list(i.words)
    if i.format.endswith("DPP16"):
        words[-1] = words[-1] & ~(0x1FF << 8) | OWN_QUAD << 8
    elif i.name == "V_PERMLANEX16_B32":
        words[0] ^= PERMLANE16_BIT << 16
    elif i.name == "DS_SWIZZLE_B32":
        words[0] = words[0] & ~0xFFFF | OWN_SWIZZLE
    elif i.name == "DS_BPERMUTE_B32":
        words[0] ^= HALF_A_WAVE_BYTES
    elif i.name.startswith("V_PERMLANE") and i.name.endswith("_SWAP_B32"):
        words = [NOP]
    else:
        return None
    return tuple(words)


MISTAKES: dict[str, Callable[[Instruction], tuple[int, ...] | None]] = {
    "dropped barrier": dropped_barrier, "missing wait": missing_wait, "store one further": moved_store,
    "wrong lane": wrong_lane,
}  # fmt: skip


def sites(artifact: Artifact, kernel: str, mistake: str) -> list[Site]:
    """Every place in a kernel where the mistake can be made, but for barriers that no use of shared memory precedes,
    and waits for loads that one ahead waits for as well: those count for who has skipped a branch, with the first in it
    or, where stores count as loads do, with a store in it."""
    chip = artifact.target.partition(":")[2]
    codes = [CodeObject(piece, chip) for piece in elf_files(artifact.code)]
    file = next(number for number, code in enumerate(codes) if kernel in code.symbols)
    found, shared, waited = [], False, set[tuple[int, ...]]()
    stores, loaded = 0, False
    for at, instruction in codes[file].instructions_of(kernel):
        words = MISTAKES[mistake](instruction)
        shared = shared or instruction.format == "DS"
        if "LOAD" in instruction.name and not instruction.name.startswith("S_WAIT"):
            waited.clear()
            stores, loaded = 0, False
        stores += "_STORE" in instruction.name
        repeated = instruction.words in waited
        if missing_wait(instruction) is not None:
            left = _left_of_memory(instruction) if chip.startswith("gfx9") else None
            repeated = repeated or (loaded and left is not None)
            loaded = loaded or (left is not None and left <= stores)
            waited.add(instruction.words)
        if words is not None and not repeated and (shared or mistake != "dropped barrier"):
            found.append(Site(kernel, file, at - codes[file].base, instruction, words))
    return found


def _left_of_memory(wait: Instruction) -> int | None:
    """Of gfx9's s_waitcnt: how many loads and stores may be under way behind it; None: it waits for others, too."""
    bits = wait.words[0] & 0xFFFF
    others = 0x0F70
    return (bits & 0xF) | (bits >> 14) << 4 if bits & others == others else None


def mutated(artifact: Artifact, site: Site) -> bytes:
    """The artifact's machine code with the mistake in it."""
    files = elf_files(artifact.code)
    text = ELFFile(io.BytesIO(files[site.file])).get_section_by_name(".text")
    at = sum(map(len, files[: site.file])) + site.address - text["sh_addr"] + text["sh_offset"]
    replaced = b"".join(word.to_bytes(4, "little") for word in site.words)
    assert artifact.code[at : at + 4] == site.instruction.words[0].to_bytes(4, "little")
    return artifact.code[:at] + replaced + artifact.code[at + len(replaced) :]
