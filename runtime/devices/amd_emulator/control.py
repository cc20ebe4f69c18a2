"""Branches, waits, barriers and what has no effect here."""

from __future__ import annotations

import re
from collections.abc import Callable

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
ENDS = {*CONDITIONS, "S_BRANCH", "S_ENDPGM", "S_BARRIER", "S_BARRIER_WAIT", "S_SETPC_B64", "S_SWAPPC_B64",
        "S_GETPC_B64"}  # fmt: skip
"""Instructions after which waves may go different ways, or wait, and one that asks for their address."""
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


def target(i: Instruction, after: int) -> int | None:
    """The address that a direct branch may go to.  after: that of the next instruction."""
    return after + 4 * i.offset("simm16", 16) if i.name in CONDITIONS or i.name == "S_BRANCH" else None


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


def control(step: Step) -> bool:
    """Set the run function of an instruction that only waits, signals, branches or has no effect; else False."""
    i = step.instruction
    if i.name in WAITS[i.family]:
        waited = waits(i)

        def run(waves: Waves) -> None:
            for counter, left in waited:
                waves.machine.hazards.wait(counter, left)

        step.run = run
    elif i.name.startswith("S_BARRIER_SIGNAL"):
        step.run = lambda waves: waves.machine.signal(waves)
    elif i.name in COUNTED:
        step.run = lambda waves: waves.machine.hazards.issue(COUNTED[i.name])
    elif i.name in ENDS:
        step.run = _ending(step, i)
    else:
        return WITHOUT_EFFECT.fullmatch(i.name) is not None
    return True


def _ending(step: Step, i: Instruction) -> Callable[[Waves], None]:
    """What the last instruction of a block does: it sets where the selected waves go on, if not behind it."""
    if i.name in CONDITIONS:
        register, wanted = CONDITIONS[i.name]
        if register == VCC_IS_ZERO:
            step.reading(VCC, step.lanes // 32)
        return lambda waves: waves.machine.branch(i, waves.scalar(register) == wanted)
    if i.name == "S_BRANCH":
        return lambda waves: waves.machine.branch(i, True)
    if i.name == "S_ENDPGM":
        return lambda waves: waves.machine.end(waves)
    if i.name in ("S_BARRIER", "S_BARRIER_WAIT"):
        return lambda waves: waves.machine.barrier(waves, signals=i.name == "S_BARRIER")
    get = source(step, i["ssrc0"], 64) if i.name != "S_GETPC_B64" else None
    if get is None:
        step.writing(i["sdst"], 2)

    def run(waves: Waves) -> None:
        to = None if get is None else get(waves)[:, 0].astype(np.int64)
        if i.name != "S_SETPC_B64":
            waves.set_scalar64(i["sdst"], np.uint64(waves.machine.after))
        if to is not None:
            waves.machine.go(to)

    return run
