"""A kernel's code as blocks of steps: straight pieces that waves enter at the top and leave at the bottom."""

from __future__ import annotations

import re
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from lispgpt.runtime.devices.amd_emulator import alu, control, lanes, matrix, transfers
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step
from lispgpt.runtime.devices.amd_emulator.waves import Waves

COMPUTES, MATRIX = re.compile("VOP|SOP[12CK]"), re.compile("V_(SMFMAC|MFMA|WMMA|SWMMAC)_")
SHARED_STORE = re.compile(r"DS_(?:STORE|WRITE)\w*_(?:B(8|16|32|64|96|128))(?:_D16_HI)?$")


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
    """A kernel's blocks by address, made when they are first reached.

    shared_grain: bytes of the narrowest store to shared memory, at most 4.
    """

    def __init__(self, code: CodeObject, kernel: str, machine: Any) -> None:
        self.code, self.machine = code, machine
        self.blocks: dict[int, Block] = {}
        self.leaders: set[int | None] = set()
        self.shared_grain = 4
        for i in code.instructions_of(kernel):
            self.leaders |= {control.target(i)} | {i.after} if i.name in control.ENDS else set()
            if match := SHARED_STORE.match(i.name):
                self.shared_grain = min(self.shared_grain, int(match[1]) // 8)

    def block(self, address: int) -> Block:
        found = self.blocks.get(address)
        if found is None:
            found = self.blocks[address] = self._make(address)
        return found

    def _make(self, address: int) -> Block:
        steps: list[Step] = []
        at, last = address, None
        while not steps or (last is None and at not in self.leaders):
            step = Step(self.code.instruction(at), self.machine.lanes)
            steps.append(step)
            at = step.instruction.after
            if step.instruction.name in control.ENDS:
                last = control.ending(step, self.machine)
            else:
                fill(step, self.machine)
        touched = [frozenset(s.reads | s.writes | set(s.loaded)) for s in steps]
        return Block(steps, touched, last, at)


def fill(step: Step, machine: Any) -> None:
    """Set a step's run function and registers."""
    i = step.instruction
    if control.quiet(step, machine):
        return
    if lanes.cross_lane(step):
        if i.format == "DS":  # through shared memory
            transfers.count(step, machine)
    elif i.format == "VOPD":
        alu.dual(step)
    elif MATRIX.match(i.name):
        matrix.product(step)
    elif COMPUTES.match(i.format):
        alu.compute(step)
    elif any(space in i.format for space in transfers.SPACES):
        transfers.transfer(step, machine)
    else:
        raise NotModelled(f"{i.name} ({i.format})")
