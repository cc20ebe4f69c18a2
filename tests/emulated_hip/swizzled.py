"""VOP3 instructions with a DPP16 source on RDNA, which the emulator's decoder takes for shorter ones.

Such an instruction has 12 bytes: VOP3's eight with 0xFA for its first source, then the register and the lane pattern.
Here the pattern is applied first, into a register that compiled kernels of this project never reach, and the plain
VOP3 instruction is executed on that.
"""

from __future__ import annotations

import struct
from typing import Any

import rewritten

VOP3_PREFIX, DPP16_SOURCE, SPARE_REGISTER, BYTES = 0x35, 0xFA, 255, 12


class Swizzled:
    """A decoded instruction; `op.name` is how the wave scheduler asks what it is."""

    class op:
        name = "VOP3_DPP16"

    def __init__(self, raw: bytes) -> None:
        self.words = struct.unpack_from("<3I", raw)

    def size(self) -> int:
        return BYTES


def is_swizzled(raw: bytes) -> bool:
    first, second = struct.unpack_from("<2I", raw)
    return first >> 26 == VOP3_PREFIX and second & 0x1FF == DPP16_SOURCE


def extend(emu: Any) -> None:
    """Teach the emulator's decoder these instructions."""
    original = emu.decode_inst
    if not getattr(original, "knows_swizzled", False):

        def decode(raw: bytes, arch: str) -> Any:
            rdna = arch in ("rdna3", "rdna4")
            return Swizzled(raw) if rdna and len(raw) >= BYTES and is_swizzled(raw) else original(raw, arch)

        decode.knows_swizzled = True  # type: ignore[attr-defined]
        emu.decode_inst = decode


def execute(emu: Any, arch: str, state: Any, instruction: Swizzled) -> None:
    first, second, pattern = instruction.words
    register, control = pattern & 0xFF, pattern >> 8 & 0x1FF
    if pattern >> 24 != 0xFF:
        raise NotImplementedError("a DPP instruction with row or bank masks")
    values = [state._read_vgpr(register, lane) for lane in range(state.wave_size)]
    for lane in range(state.wave_size):
        state._write_vgpr(SPARE_REGISTER, lane, values[source_lane(lane, control)])
    plain = (first, second & ~0x1FF | 256 + SPARE_REGISTER)
    rewritten.execute(emu, arch, state, plain, BYTES)


def source_lane(lane: int, control: int) -> int:
    """The lane that a DPP16 control reads for `lane`; only the patterns that stay inside a row of 16."""
    row, inner = lane & ~15, lane & 15
    if control <= 0xFF:
        return lane & ~3 | control >> 2 * (lane & 3) & 3
    kind, amount = control >> 4, control & 15
    if kind == 0x12:
        return row | (inner - amount) & 15
    if control == 0x140:
        return row | 15 - inner
    if control == 0x141:
        return row | inner & 8 | 7 - (inner & 7)
    if kind == 0x15:
        return row | amount
    if kind == 0x16:
        return row | inner ^ amount
    raise NotImplementedError(f"DPP control {control:#x}")
