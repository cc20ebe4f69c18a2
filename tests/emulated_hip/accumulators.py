"""Matrix products on RDNA whose accumulator is a constant: the emulator reads a vector register for it.

`v_wmma_f32_16x16x16_bf16 v[0:7], a, b, 0` starts a sum.  Its third source is the inline constant 0, encoded 128; the
emulator takes every number for a vector register's and adds what v128 to v135 hold, which is wrong for any kernel
that has used them.  Here the constant is put into registers that compiled kernels of this project never reach, and the
product is executed on those.
"""

from __future__ import annotations

import struct
from ctypes import string_at
from typing import Any

import rewritten

PREFIX, BYTES = "V_WMMA_F32_", 8
FIRST_VECTOR_REGISTER, SPARE_REGISTERS = 256, range(247, 255)
SOURCE_SHIFT, SOURCE_BITS = 18, 0x1FF  # the third source in a VOP3P instruction's second word


def is_product(op: str) -> bool:
    """Whether the operation has an F32 accumulator of eight registers, one value of its matrix in each lane."""
    return op.startswith(PREFIX)


def execute(emu: Any, arch: str, state: Any) -> None:
    first, second = struct.unpack("<2I", string_at(state.pc, BYTES))
    source = second >> SOURCE_SHIFT & SOURCE_BITS
    if source < FIRST_VECTOR_REGISTER:
        constant = state._read_sgpr(source)  # inline constants lie behind the scalar registers
        for register in SPARE_REGISTERS:
            for lane in range(state.wave_size):
                state._write_vgpr(register, lane, constant)
        spare = FIRST_VECTOR_REGISTER + SPARE_REGISTERS.start
        second = second & ~(SOURCE_BITS << SOURCE_SHIFT) | spare << SOURCE_SHIFT
    rewritten.execute(emu, arch, state, (first, second), BYTES)
