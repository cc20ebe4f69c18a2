"""Runs the stand-in HIP library's launches on an instruction emulator, in the process that imports this.

Start the process with LD_LIBRARY_PATH at the folder of the built shim, PYTHONPATH at the folder that has
`emulate_amdgpu.py`, and TINYGRAD_DIR at a checkout of tinygrad.
"""

from __future__ import annotations

import ctypes
import struct
import traceback
from typing import Any

ELF_HEADER_BYTES = 64


def code_object(chip: str) -> type:
    """The emulator's CodeObject for a chip, with what the project's kernels need beside it."""
    import accumulators
    import bounded_shared
    import emulate_amdgpu
    import swizzled

    emu = emulate_amdgpu._load_emulator()
    swizzled.extend(emu)
    bounded_shared.extend(emu)

    class CodeObject(emulate_amdgpu.CodeObject):
        """The emulator's code object, with the instructions that are done here."""

        @classmethod
        def _special(cls, emu: Any, op: str) -> Any:
            if op == swizzled.Swizzled.op.name:
                return lambda emu, state, instruction: swizzled.execute(emu, arch, state, instruction)
            if op == "V_NOP_E32":
                return cls._no_effect
            if accumulators.is_product(op):
                return lambda emu, state, _: accumulators.execute(emu, arch, state)
            return super()._special(emu, op)

    arch = emulate_amdgpu.EMULATOR_ARCH[chip[:5]]
    return CodeObject


def install(chip: str) -> ctypes.CDLL:
    """Register the emulator for a chip; the library, which counts broken guards."""
    import bounded_shared

    from lispgpt.runtime.devices.rocm import CHIP_OFFSET

    image_type = code_object(chip)
    library = ctypes.CDLL("libamdhip64.so")
    modules: list[Any] = []

    def load(image: int) -> int:
        modules.append(image_type(ctypes.string_at(image, _elf_size(image)), chip))
        return len(modules) - 1

    def launch(module: int, kernel: bytes, shape: Any, _shared: int, arguments: int, size: int) -> int:
        values = list(struct.unpack(f"<{size // 8}Q", ctypes.string_at(arguments, size)))
        try:
            modules[module].launch(kernel.decode(), tuple(shape[0:3]), tuple(shape[3:6]), values, bounded_shared.BYTES)
        except Exception:  # a callback cannot raise into C; the status makes the launch fail
            traceback.print_exc()
            return 1
        return 0

    integer, pointer = ctypes.c_int, ctypes.c_void_p
    on_load = ctypes.CFUNCTYPE(integer, pointer)(load)
    shape = ctypes.POINTER(ctypes.c_uint)
    launch_type = ctypes.CFUNCTYPE(integer, integer, ctypes.c_char_p, shape, ctypes.c_uint, pointer, ctypes.c_size_t)
    on_launch = launch_type(launch)
    library.shim_register(on_load, on_launch, chip.encode(), ctypes.c_size_t(CHIP_OFFSET))
    library.callbacks = (on_load, on_launch)
    return library


def _elf_size(image: int) -> int:
    """Bytes of an ELF file: its section table comes last."""
    header = ctypes.string_at(image, ELF_HEADER_BYTES)
    (section_offset,) = struct.unpack_from("<Q", header, 0x28)
    entry_bytes, count = struct.unpack_from("<HH", header, 0x3A)
    return section_offset + entry_bytes * count
