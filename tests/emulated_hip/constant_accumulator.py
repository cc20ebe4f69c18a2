"""One matrix product with an accumulator of ones, as a constant and in registers: constant_accumulator.py CHIP

Prints, as a JSON list, how far the constant's result is from the registers': by the emulator alone, and by
`accumulators`.  Operands are random; v128 to v135 hold a thousand, and the emulator alone mistakes 1.0 for others.
"""

from __future__ import annotations

import ctypes
import json
import struct
import sys
from typing import Any

import accumulators
import emulate_amdgpu
import numpy as np
import rewritten
import seeded

# v_wmma_f32_16x16x16_bf16 v[0:7], v[8:…], v[16:…], and no third source yet; the same on RDNA 3 and 4
PRODUCT = (0xCC414000, 0x18022108)
ACCUMULATOR, ONE = 24, 242  # the first of eight registers; the encoding of the constant 1.0
LANES, REGISTERS = 32, 256


def run(emu: Any, arch: str, registers: np.ndarray, source: int, amended: bool) -> np.ndarray:
    """The product's eight result registers, with registers as given before it and the third source as encoded."""
    state = emu._init_wave(0, 0, LANES, LANES, 1, 1, 0, 0, 0, arch, 0, 0, 0, None, LANES)
    memory = np.frombuffer(state._vgpr_mv, np.uint32)
    memory[:] = registers.reshape(-1)
    words = (PRODUCT[0], PRODUCT[1] | source << accumulators.SOURCE_SHIFT)
    if amended:
        code = ctypes.create_string_buffer(struct.pack("<2I", *words), 16)
        state.pc = ctypes.addressof(code)
        accumulators.execute(emu, arch, state)
    else:
        rewritten.execute(emu, arch, state, words, accumulators.BYTES)
    return memory.reshape(REGISTERS, LANES)[:8].view(np.float32).copy()


def main(chip: str) -> None:
    arch, emu = emulate_amdgpu.EMULATOR_ARCH[chip[:5]], emulate_amdgpu._load_emulator()
    values = np.full((REGISTERS, LANES), 1000, np.float32)
    values[ACCUMULATOR : ACCUMULATOR + 8] = 1
    registers = values.view(np.uint32)
    halves = seeded.rng().standard_normal((16, LANES, 2)).astype(np.float32).view(np.uint32) >> 16
    registers[8:24] = halves[..., 1] << 16 | halves[..., 0]
    right = run(emu, arch, registers, accumulators.FIRST_VECTOR_REGISTER + ACCUMULATOR, amended=False)
    found = [run(emu, arch, registers, ONE, amended) for amended in (False, True)]
    print(json.dumps([float(np.abs(result - right).max()) for result in found]))


if __name__ == "__main__":
    main(sys.argv[1])
