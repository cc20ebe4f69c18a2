"""A kernel's code as blocks of steps: straight pieces that waves enter at the top and leave at the bottom."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lispgpt.runtime.devices.amd_emulator import alu, control, matrix, transfers
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import Waves

SCALAR, MEMORY = ("SOP1", "SOP2", "SOPC", "SOPK"), ("GLOBAL", "FLAT", "SCRATCH", "VGLOBAL", "VFLAT", "VSCRATCH")
STORED_BYTES = {"B8": 1, "B16": 2}


@dataclass
class Block:
    """touched: for each step, the registers that it reads, writes or loads.  last: what the final step does instead of
    its run function, None where the next block just follows.  executed: by how many waves."""

    steps: list[Step]
    touched: list[frozenset[int]]
    last: Callable[[Waves], None] | None
    after: int
    executed: int = 0


class Program:
    """A kernel's blocks by address, made when they are first reached."""

    def __init__(self, code: CodeObject, kernel: str, machine: Any) -> None:
        self.code, self.machine = code, machine
        start, size = code.size_of(kernel)
        self.instructions: dict[int, Instruction] = {}
        at = start
        while at < start + size:
            found = code.instruction(at)
            self.instructions[at] = found
            at += found.size
        targets = {control.target(i) for i in self.instructions.values()} - {None}
        self.leaders = targets | {i.address + i.size for i in self.instructions.values() if i.name in control.ENDS}
        self.blocks: dict[int, Block] = {}

    def smallest_shared_store(self) -> int:
        """Bytes of the narrowest store to shared memory, at most 4."""
        stores = [
            i.name.split("_")[-1] for i in self.instructions.values() if i.name.startswith(("DS_STORE", "DS_WRITE"))
        ]
        return min([STORED_BYTES.get(name, 4) for name in stores], default=4)

    def block(self, address: int) -> Block:
        found = self.blocks.get(address)
        if found is None:
            found = self.blocks[address] = self._make(address)
        return found

    def _make(self, address: int) -> Block:
        steps: list[Step] = []
        at, last = address, None
        while True:
            instruction = self.code.instruction(at)
            step = Step(instruction)
            steps.append(step)
            at += instruction.size
            if instruction.name in control.ENDS:
                last = control.ending(step, self.machine)
                break
            self.fill(step)
            if at in self.leaders:
                break
        touched = [frozenset(s.reads | s.writes | set(s.loaded)) for s in steps]
        return Block(steps, touched, last, at)

    def fill(self, step: Step) -> None:
        """Set a step's run function and registers."""
        machine, family, what = self.machine, self.code.family, step.instruction.format
        lanes = machine.lanes
        if control.quiet(step, family, machine) or control.address_of_code(step):
            return
        if what in SCALAR:
            alu.scalar(step, family, lanes)
        elif what == "SMEM":
            transfers.scalar_memory(step, family, machine)
        elif what == "DS":
            transfers.shared_memory(step, family, machine)
        elif what in MEMORY:
            transfers.vector_memory(step, family, machine)
        elif what == "VOPD":
            alu.dual(step, family)
        elif "MFMA" in step.instruction.name or "WMMA" in step.instruction.name:
            matrix.product(step, family, lanes)
        elif "ACCVGPR" in step.instruction.name:
            matrix.copy_accumulator(step)
        elif what.startswith("VOP"):
            alu.vector(step, family, lanes)
        else:
            raise NotModelled(f"{step.instruction.name} ({what})")
