"""A kernel's instructions as they are executed, with the registers of one wave."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import register_name
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_VECTOR, SCC, Waves

SHOWN_LANES = 4
SMALLEST, LARGEST = 1e-12, 1e12
"""Beyond these, bits are hardly meant as a number."""


class Tracer:
    """Writes a line for each instruction of a kernel's first launch: where it is, what it is, and what its registers
    hold after it, of the first workgroup's first wave; of vector registers the first lanes, with their bits as numbers.

        +0x00a4  v_add_f32 vdst=v1, src0=s2, src1=v3   s2=3f800000  v1=40000000 (2) 40400000 (3) …
    """

    def __init__(self, kernel: str, write: Callable[[str], None]) -> None:
        self.kernel, self.write = kernel, write
        self.done = False
        self.exec = -1

    def wants(self, kernel: str) -> bool:
        """Whether a kernel's instructions are to be noted."""
        return kernel == self.kernel and not self.done

    def launched(self, kernel: str) -> None:
        """Note that a launch has ended."""
        self.done = self.done or kernel == self.kernel

    def __call__(self, step: Step, waves: Waves, offset: int) -> None:
        """Note an instruction that waves have executed.  offset: of its first byte in the kernel."""
        if not waves.which.size or waves.which[0] != 0:
            return
        i = step.instruction
        registers = sorted(step.reads | step.writes | set(step.loaded))
        values = [f"{register_name(place)}={self._value(waves, place)}" for place in registers]
        active = int(waves.s[EXEC, 0]) | (int(waves.s[EXEC + 1, 0]) << 32 if waves.lanes == 64 else 0)
        if active != self.exec:
            self.exec = active
            values.append(f"exec={active:x}")
        if i.name.startswith(("S_CMP", "S_CBRANCH_SCC")):
            values.append(f"scc={waves.s[SCC, 0]}")
        self.write(f"+{offset:#06x}  {i.text()}   {'  '.join(values)}")

    @staticmethod
    def _value(waves: Waves, place: int) -> str:
        if place < FIRST_VECTOR:
            return f"{waves.s[place, 0]:08x}"
        row = waves.v[place - FIRST_VECTOR, 0, :SHOWN_LANES]
        numbers = row.view(np.float32)
        likely = (np.abs(numbers) > SMALLEST) & (np.abs(numbers) < LARGEST)
        shown = zip(row, numbers, likely, strict=True)
        return " ".join(f"{word:08x} ({number:.4g})" if good else f"{word:08x}" for word, number, good in shown) + " …"
