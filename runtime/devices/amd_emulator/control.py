"""Branches, waits, barriers and what has no effect here."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.operands import Step, flat_scalar, source
from lispgpt.runtime.devices.amd_emulator.waves import EXEC_IS_ZERO, SCC, VCC_IS_ZERO, Waves

WITHOUT_EFFECT = {
    "S_NOP", "S_DELAY_ALU", "S_CLAUSE", "S_SENDMSG", "S_SLEEP", "S_SETPRIO", "S_SET_INST_PREFETCH_DISTANCE",
    "S_INST_PREFETCH", "S_WAITCNT_DEPCTR", "S_WAIT_ALU", "S_WAIT_EVENT", "S_ICACHE_INV", "V_NOP", "BUFFER_GL0_INV",
    "BUFFER_GL1_INV", "BUFFER_INV", "BUFFER_WBL2", "S_CODE_END", "S_DCACHE_INV", "S_GL1_INV", "S_PREFETCH_INST",
    "S_PREFETCH_INST_PC_REL", "S_WAIT_IDLE", "S_SETHALT", "S_WAKEUP",
}  # fmt: skip
COUNTED = {"GLOBAL_INV": "load", "GLOBAL_WB": "store", "GLOBAL_WBINV": "store"}
CONDITIONS = {
    "S_CBRANCH_SCC0": (SCC, 0), "S_CBRANCH_SCC1": (SCC, 1), "S_CBRANCH_VCCZ": (VCC_IS_ZERO, 1),
    "S_CBRANCH_VCCNZ": (VCC_IS_ZERO, 0), "S_CBRANCH_EXECZ": (EXEC_IS_ZERO, 1), "S_CBRANCH_EXECNZ": (EXEC_IS_ZERO, 0),
}  # fmt: skip
ENDS = {*CONDITIONS, "S_BRANCH", "S_ENDPGM", "S_BARRIER", "S_BARRIER_WAIT", "S_SETPC_B64", "S_SWAPPC_B64"}
"""Instructions after which waves may go different ways, or wait."""
Waits = tuple[tuple[str, int, int], ...]
WAITS: dict[str, dict[str, Waits]] = {
    # counter, lowest bit of how many may be left, bits of it
    "cdna": {"S_WAITCNT": (("lgkmcnt", 8, 4),)},
    "rdna3": {"S_WAITCNT": (("vmcnt", 10, 6), ("lgkmcnt", 4, 6)), "S_WAITCNT_VSCNT": (("vscnt", 0, 6),),
              "S_WAITCNT_VMCNT": (("vmcnt", 0, 6),), "S_WAITCNT_LGKMCNT": (("lgkmcnt", 0, 6),)},
    "rdna4": {"S_WAIT_LOADCNT": (("loadcnt", 0, 6),), "S_WAIT_STORECNT": (("storecnt", 0, 6),),
              "S_WAIT_DSCNT": (("dscnt", 0, 6),), "S_WAIT_KMCNT": (("kmcnt", 0, 5),),
              "S_WAIT_LOADCNT_DSCNT": (("loadcnt", 8, 6), ("dscnt", 0, 6)),
              "S_WAIT_STORECNT_DSCNT": (("storecnt", 8, 6), ("dscnt", 0, 6)),
              "S_WAIT_SAMPLECNT": (), "S_WAIT_BVHCNT": (), "S_WAIT_EXPCNT": ()},
}  # fmt: skip


def target(instruction: Instruction) -> int | None:
    """The address that a direct branch may go to."""
    if instruction.name not in CONDITIONS and instruction.name != "S_BRANCH":
        return None
    offset = instruction["simm16"]
    return instruction.address + 4 + 4 * (offset - (1 << 16) if offset >> 15 else offset)


def quiet(step: Step, family: str, machine: Any) -> bool:
    """Set the run function of an instruction that only waits, signals or has no effect; False where it is none."""
    i = step.instruction
    if i.name in WAITS[family]:
        waits = [(counter, i["simm16"] >> low & (1 << bits) - 1, (1 << bits) - 1)
                 for counter, low, bits in WAITS[family][i.name]]  # fmt: skip
        if (family, i.name) == ("cdna", "S_WAITCNT"):
            waits.append(("vmcnt", i["simm16"] & 15 | i["simm16"] >> 14 << 4 & 0x30, 63))
        waits = [wait for wait in waits if wait[1] < wait[2]]  # all ones is no wait

        def wait(waves: Waves) -> None:
            for counter, left, _ in waits:
                machine.hazards.wait(counter, left)

        step.run = wait
        return True
    if i.name in ("S_BARRIER_SIGNAL", "S_BARRIER_SIGNAL_ISFIRST"):
        step.run = lambda waves: machine.signal(waves)
        return True
    if i.name in COUNTED:
        step.run = lambda waves: machine.hazards.issue(COUNTED[i.name])
        return True
    return i.name in WITHOUT_EFFECT


def ending(step: Step, machine: Any) -> Callable[[Waves], None]:
    """What the last instruction of a block does: it sets where the selected waves go on."""
    i = step.instruction
    after, there = i.address + i.size, target(i) or 0
    if i.name in CONDITIONS:
        register, wanted = CONDITIONS[i.name]
        if register == VCC_IS_ZERO:
            step.reading(106, machine.lanes // 32)
        return lambda waves: machine.go(np.where(waves.scalar(register) == wanted, there, after))
    if i.name == "S_BRANCH":
        return lambda waves: machine.go(there)
    if i.name == "S_ENDPGM":
        return lambda waves: machine.end(waves)
    if i.name in ("S_BARRIER", "S_BARRIER_WAIT"):
        signals = i.name == "S_BARRIER"

        def barrier(waves: Waves) -> None:
            if signals:
                machine.signal(waves)
            machine.go(after)
            machine.wait_for_others(waves)

        return barrier
    if i.name in ("S_SETPC_B64", "S_SWAPPC_B64"):
        get = flat_scalar(source(step, i["ssrc0"], 64))

        def jump(waves: Waves) -> None:
            to = get(waves).astype(np.int64)
            if i.name == "S_SWAPPC_B64":
                waves.set_scalar64(i["sdst"], np.uint64(after))
            machine.go(to)

        return jump
    raise NotModelled(i.name)


def address_of_code(step: Step) -> bool:
    """Set the run function of s_getpc_b64."""
    i = step.instruction
    if i.name != "S_GETPC_B64":
        return False
    step.writing(i["sdst"], 2)
    step.run = lambda waves: waves.set_scalar64(i["sdst"], np.uint64(i.address + i.size))
    return True
