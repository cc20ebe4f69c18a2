"""One instruction of a wave executed by the emulator in another encoding than the program's."""

from __future__ import annotations

import ctypes
import struct
from typing import Any


def execute(emu: Any, arch: str, state: Any, words: tuple[int, ...], size: int) -> None:
    """Execute the instruction encoded in `words` (32 bits each), then go on `size` bytes after the wave's place."""
    code = ctypes.create_string_buffer(struct.pack(f"<{len(words)}I", *words), 16)
    (program, runtime), _ = emu._decode_at(ctypes.addressof(code), arch)
    registers = {0: state.sgpr_buf, 1: state.vgpr_buf, 5: state.accvgpr_buf}
    addresses = {number: buffer._buf.va_addr for number, buffer in registers.items()}
    place = state.pc
    state.pc = ctypes.addressof(code)  # where the emulator reads the instruction's fields from
    runtime.fxn(*[ctypes.c_uint64(addresses.get(number, 0)) for number in program.arg.globals])
    state.pc = place + size
