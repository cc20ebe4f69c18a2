"""Faults planted in the machine code of one kernel: an instruction that does another sum than it should."""

from __future__ import annotations

import re
from dataclasses import dataclass, replace

import numpy as np

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.plan.artifact import Artifact

MAXIMUM = ("V_MAX_F32_E32", "V_MAX_NUM_F32_E32")
INSTEAD = dict.fromkeys(("V_ADD_F32", "V_SUB_F32", "V_MUL_F32", "V_FMAC_F32"), MAXIMUM) | {
    "V_PK_ADD_F32": ("V_PK_MUL_F32",), "V_PK_MUL_F32": ("V_PK_ADD_F32",),
}  # fmt: skip
"""What stands in place of an instruction: one of those names, whichever its chip has."""
OPCODES = {("VOP2", 4): (25, 6), ("VOP3P", 8): (16, 7)}
"""First bit and bits of the opcode, by an encoding and its bytes."""
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
    place = (places := _places(artifact, kernel))[int(rng.integers(len(places)))]
    code = bytearray(artifact.code)
    code[place.start : place.end] = place.instead
    return Fault(kernel, place.what, replace(artifact, code=bytes(code), objects=()))


@dataclass(frozen=True)
class _Place:
    """An instruction of an artifact's code that may be changed: its first byte, the byte behind it, its text, and what
    it becomes."""

    start: int
    end: int
    what: str
    instead: bytes


def _places(artifact: Artifact, kernel: str) -> list[_Place]:
    return (_in_ptx if artifact.target.startswith("cuda") else _in_object)(artifact, kernel)


def _in_ptx(artifact: Artifact, kernel: str) -> list[_Place]:
    """Each of them with a product of its result by 1.25 behind it."""
    text = artifact.code.decode()
    found = re.search(rf"\.entry {re.escape(kernel)}\(.*?^\}}", text, re.DOTALL | re.MULTILINE)
    if found is None:
        return []
    lines, at, places = found[0].split("\n"), found.start(), []
    for line in lines:
        if (match := FLOATS.fullmatch(line)) and "@" not in line:
            first = len(text[:at].encode())
            changed = f"{line}\n\tmul.rn.f32 {match[1]}, {match[1]}, 0f3FA00000;"
            places.append(_Place(first, first + len(line.encode()), line.strip(), changed.encode()))
        at += len(line) + 1
    return places


def _in_object(artifact: Artifact, kernel: str) -> list[_Place]:
    """Each of them with another opcode of the same encoding."""
    made = CodeObject(artifact.code, artifact.target.partition(":")[2])
    begin, size = made.size_of(kernel)
    own = made.image[begin - made.base :][:size].tobytes()
    first = artifact.code.find(own) - begin
    assert first >= -begin
    return [
        _Place(first + at, first + at + instruction.nbytes, instruction.text(), changed)
        for at, instruction in made.instructions_of(kernel)
        if (changed := _with_another_opcode(instruction))
    ]


def _with_another_opcode(instruction: Instruction) -> bytes:
    """Its words; none where it is of another kind."""
    field = OPCODES.get((instruction.format, instruction.nbytes))
    if field is None or instruction.name not in INSTEAD:
        return b""
    known = type(instruction.op).__members__
    (opcode,) = (known[name].value for name in INSTEAD[instruction.name] if name in known)
    start, bits = field
    words = list(instruction.words)
    words[0] = words[0] & ~((1 << bits) - 1 << start) | opcode << start
    return b"".join(word.to_bytes(4, "little") for word in words)
