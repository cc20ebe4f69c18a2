"""Branches, waits, barriers and what has no effect here."""

from __future__ import annotations

import re
from collections.abc import Callable
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.operands import Step, source
from lispgpt.runtime.devices.amd_emulator.waves import EXEC_IS_ZERO, SCC, VCC, VCC_IS_ZERO, Waves

WITHOUT_EFFECT = re.compile(
    "S_(NOP|DELAY_ALU|CLAUSE|SENDMSG|SLEEP|SETPRIO|SETHALT|WAKEUP|CODE_END|SET_INST_PREFETCH_DISTANCE|INST_PREFETCH|"
    "PREFETCH_.*|WAITCNT_DEPCTR|WAIT_(ALU|EVENT|IDLE|SAMPLECNT|BVHCNT|EXPCNT)|(ICACHE|DCACHE|GL1)_INV)|"
    "V_NOP|BUFFER_(GL0_INV|GL1_INV|INV|WBL2)"
)
COUNTED = {"GLOBAL_INV": "load", "GLOBAL_WB": "store", "GLOBAL_WBINV": "store"}
CONDITIONS = {
    "S_CBRANCH_SCC0": (SCC, 0), "S_CBRANCH_SCC1": (SCC, 1), "S_CBRANCH_VCCZ": (VCC_IS_ZERO, 1),
    "S_CBRANCH_VCCNZ": (VCC_IS_ZERO, 0), "S_CBRANCH_EXECZ": (EXEC_IS_ZERO, 1), "S_CBRANCH_EXECNZ": (EXEC_IS_ZERO, 0),
}  # fmt: skip
ENDS = {*CONDITIONS, "S_BRANCH", "S_ENDPGM", "S_BARRIER", "S_BARRIER_WAIT", "S_SETPC_B64", "S_SWAPPC_B64"}
"""Instructions after which waves may go different ways, or wait."""
WAITS: dict[str, dict[str, tuple[tuple[str, int, int], ...]]] = {
    # counter, lowest bit of how many may be left, bits of it
    "cdna": {"S_WAITCNT": (("lgkmcnt", 8, 4), ("vmcnt", 0, 6))},
    "rdna3": {"S_WAITCNT": (("vmcnt", 10, 6), ("lgkmcnt", 4, 6)), "S_WAITCNT_VSCNT": (("vscnt", 0, 6),),
              "S_WAITCNT_VMCNT": (("vmcnt", 0, 6),), "S_WAITCNT_LGKMCNT": (("lgkmcnt", 0, 6),)},
    "rdna4": {"S_WAIT_LOADCNT": (("loadcnt", 0, 6),), "S_WAIT_STORECNT": (("storecnt", 0, 6),),
              "S_WAIT_DSCNT": (("dscnt", 0, 6),), "S_WAIT_KMCNT": (("kmcnt", 0, 5),),
              "S_WAIT_LOADCNT_DSCNT": (("loadcnt", 8, 6), ("dscnt", 0, 6)),
              "S_WAIT_STORECNT_DSCNT": (("storecnt", 8, 6), ("dscnt", 0, 6))},
}  # fmt: skip


def target(i: Instruction) -> int | None:
    """The address that a direct branch may go to."""
    return i.after + 4 * i.offset("simm16", 16) if i.name in CONDITIONS or i.name == "S_BRANCH" else None


def waits(i: Instruction) -> list[tuple[str, int]]:
    """(counter, how many may be left) of an instruction that waits; all ones is no wait."""
    number, found = i["simm16"], []
    for counter, low, bits in WAITS[i.family][i.name]:
        left = number >> low & (1 << bits) - 1
        if (i.family, counter) == ("cdna", "vmcnt"):  # its upper two bits are apart
            left = number & 15 | number >> 10 & 0x30
        if left != (1 << bits) - 1:
            found.append((counter, left))
    return found


def quiet(step: Step, machine: Any) -> bool:
    """Set the run function of an instruction that only waits, signals or has no effect; False where it is none."""
    i = step.instruction
    if i.name in WAITS[i.family]:
        waited = waits(i)

        def wait(waves: Waves) -> None:
            for counter, left in waited:
                machine.hazards.wait(counter, left)

        step.run = wait
    elif i.name.startswith("S_BARRIER_SIGNAL"):
        step.run = machine.signal
    elif i.name in COUNTED:
        step.run = lambda waves: machine.hazards.issue(COUNTED[i.name])
    elif i.name == "S_GETPC_B64":
        step.writing(i["sdst"], 2)
        step.run = lambda waves: waves.set_scalar64(i["sdst"], np.uint64(i.after))
    else:
        return WITHOUT_EFFECT.fullmatch(i.name) is not None
    return True


def ending(step: Step, machine: Any) -> Callable[[Waves], None]:
    """What the last instruction of a block does: it sets where the selected waves go on."""
    i = step.instruction
    there = target(i) or 0
    if i.name in CONDITIONS:
        register, wanted = CONDITIONS[i.name]
        if register == VCC_IS_ZERO:
            step.reading(VCC, step.lanes // 32)
        return lambda waves: machine.go(np.where(waves.scalar(register) == wanted, there, i.after))
    if i.name in ("S_BRANCH", "S_ENDPGM"):
        return machine.end if i.name == "S_ENDPGM" else lambda waves: machine.go(there)
    if i.name in ("S_BARRIER", "S_BARRIER_WAIT"):

        def barrier(waves: Waves) -> None:
            if i.name == "S_BARRIER":
                machine.signal(waves)
            machine.go(i.after)
            machine.wait_for_others(waves)

        return barrier
    get = source(step, i["ssrc0"], 64)

    def jump(waves: Waves) -> None:
        to = get(waves)[:, 0].astype(np.int64)
        if i.name == "S_SWAPPC_B64":
            waves.set_scalar64(i["sdst"], np.uint64(i.after))
        machine.go(to)

    return jump
