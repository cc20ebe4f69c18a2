"""Faults planted in the machine code of one kernel: an instruction that does another sum than it should."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.plan.artifact import Artifact

SUMS = {"V_ADD_F32": 3, "V_SUB_F32": 4, "V_MUL_F32": 8, "V_FMAC_F32": 0x2B}
"""Opcodes of gfx11's plain encoding of two operands (VOP2), which is 31 bits: from bit 25 on the opcode."""
MAXIMUM = 0x10
FLOATS = re.compile(
    r"\s*(?:@!?%p\d+\s+)?(?:fma\.rn|mul\.rn|add\.rn|mul|add|sub\.rn|sub)(?:\.ftz)?\.f32\s+(%\w+),[^;]*;"
)


@dataclass(frozen=True)
class Fault:
    """kernel: its name.  what: the instruction that was changed.  artifact: with it."""

    kernel: str
    what: str
    artifact: Artifact


def kernels_of(artifact: Artifact) -> list[str]:
    """Those in which a fault can be planted: that have sums of floats."""
    return [name for name in sorted(artifact.kernels) if _places(artifact, name)]


def plant(artifact: Artifact, kernel: str, rng: np.random.Generator) -> Fault:
    """An artifact with another instruction, drawn by `rng`, in one of its kernels."""
    start, end, what = (places := _places(artifact, kernel))[int(rng.integers(len(places)))]
    code = bytearray(artifact.code)
    if artifact.target.startswith("cuda"):
        (register,) = FLOATS.fullmatch(what).groups()  # type: ignore[union-attr]
        code[end:end] = f"\n\tmul.rn.f32 {register}, {register}, 0f3FA00000;".encode()
    else:
        word = int.from_bytes(code[start:end], "little") & ~(0x3F << 25) | MAXIMUM << 25
        code[start:end] = word.to_bytes(4, "little")
    return Fault(kernel, what.strip(), replace(artifact, code=bytes(code), objects=()))


def _places(artifact: Artifact, kernel: str) -> list[tuple[int, int, str]]:
    """(first byte, byte behind it, text) of the instructions of a kernel that may be changed."""
    return (_in_ptx if artifact.target.startswith("cuda") else _in_object)(artifact, kernel)


def _in_ptx(artifact: Artifact, kernel: str) -> list[tuple[int, int, str]]:
    text = artifact.code.decode()
    found = re.search(rf"\.entry {re.escape(kernel)}\(.*?^\}}", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return []
    lines, at, places = found[0].split("\n"), found.start(), []
    for line in lines:
        if FLOATS.fullmatch(line) and "@" not in line:
            first = len(text[:at].encode())
            places.append((first, first + len(line.encode()), line))
        at += len(line) + 1
    return places


def _in_object(artifact: Artifact, kernel: str) -> list[tuple[int, int, str]]:
    made = CodeObject(artifact.code, artifact.target.partition(":")[2])
    begin, size = made.size_of(kernel)
    own = made.image[begin - made.base :][:size].tobytes()
    start = artifact.code.find(own)
    assert start >= 0
    return [
        (start + at - begin, start + at - begin + 4, instruction.text())
        for at, instruction in made.instructions_of(kernel)
        if instruction.format == "VOP2" and instruction.name in SUMS and instruction.nbytes == 4
    ]
