"""A kernel's code as blocks of steps: straight pieces that waves enter at the top and leave at the bottom."""

from __future__ import annotations

import re
from dataclasses import dataclass
from functools import cache

from lispgpt.runtime.devices.amd_emulator import alu, control, matrix, transfers
from lispgpt.runtime.devices.amd_emulator import lanes as lane_moves
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step

COMPUTES, MATRIX = re.compile("VOP|SOP[12CK]"), re.compile("V_(SMFMAC|MFMA|WMMA|SWMMAC)_")
GLOBAL_STORE = re.compile(r"(?:GLOBAL|FLAT|BUFFER)_STORE_(?:D16_HI_)?(BYTE|B8|SHORT|B16)")
STORED_BYTES = {"BYTE": 1, "B8": 1, "SHORT": 2, "B16": 2}
SHARED_STORE = re.compile(r"DS_(?:STORE|WRITE)\w*_(?:B(8|16|32|64|96|128))(?:_D16_HI)?$")


@dataclass
class Block:
    """address: of its first step; after: behind its last one.  executed: by how many waves."""

    steps: list[Step]
    address: int
    after: int
    executed: int = 0


class Program:
    """A kernel's blocks by address, made when they are first reached.

    shared_grain, global_grain: bytes of the narrowest store to shared and to global memory, at most 4.
    """

    def __init__(self, code: CodeObject, kernel: str, lanes: int) -> None:
        self.code, self.lanes = code, lanes
        self.blocks: dict[int, Block] = {}
        self.leaders: set[int | None] = set()
        self.shared_grain = self.global_grain = 4
        for at, i in code.instructions_of(kernel):
            after = at + i.nbytes
            self.leaders |= {control.target(i, after), after} if i.name in control.ENDS else set()
            if match := SHARED_STORE.match(i.name):
                self.shared_grain = min(self.shared_grain, int(match[1]) // 8)
            if match := GLOBAL_STORE.match(i.name):
                self.global_grain = min(self.global_grain, STORED_BYTES[match[1]])

    def block(self, address: int) -> Block:
        found = self.blocks.get(address)
        if found is None:
            found = self.blocks[address] = self._make(address)
        return found

    def _make(self, address: int) -> Block:
        steps: list[Step] = []
        at = address
        while not steps or (steps[-1].instruction.name not in control.ENDS and at not in self.leaders):
            steps.append(step_of(self.code.instruction(at), self.lanes))
            at += steps[-1].instruction.nbytes
        return Block(steps, address, at)


@cache
def step_of(i: Instruction, lanes: int) -> Step:
    """What an instruction does to waves of so many lanes."""
    step = Step(i, lanes)
    if control.control(step):
        pass
    elif lane_moves.cross_lane(step):
        if i.format == "DS":  # through shared memory
            transfers.count(step)
    elif i.format == "VOPD":
        alu.dual(step)
    elif MATRIX.match(i.name):
        matrix.product(step)
    elif COMPUTES.match(i.format):
        alu.compute(step)
    elif any(space in i.format for space in transfers.SPACES):
        transfers.transfer(step)
    else:
        raise NotModelled(f"{i.name} ({i.format})")
    step.touched = frozenset(step.reads | step.writes | set(step.loaded))
    return step
