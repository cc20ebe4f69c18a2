"""A grid on the emulator: its workgroups' waves run side by side, those at one place of the code as one.

Of the waves that can go on, those that are furthest behind do, up to the next branch, barrier or place that a branch
leads to; so waves that parted meet again.  Every so often it is the turn of those that have waited longest instead, so
that a wave which waits in a loop for memory does not keep the others from writing it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Sequence
from itertools import product

import numpy as np

from lispgpt.runtime.devices.amd_emulator import control
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject, Descriptor
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.devices.amd_emulator.hazards import Hazards
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.amd_emulator.program import Block, Program
from lispgpt.runtime.devices.amd_emulator.shared_memory import SharedMemory
from lispgpt.runtime.devices.amd_emulator.trace import Tracer
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_ACCUMULATOR, FIRST_VECTOR, NULL, Waves, constant

MOST_WAVES, TURN, PATIENCE = 2048, 64, 1_000_000
"""Waves that run side by side; blocks between two turns of those that waited longest; blocks before a launch is given
up as one that does not end."""
RUNNING, WAITING, ENDED = 0, 1, 2
PACKET, ARGUMENTS, PRIVATE_BYTES = 1, 3, 6
PROPERTIES = ((0, 4), (PACKET, 2), (2, 2), (ARGUMENTS, 2), (4, 2), (5, 2), (PRIVATE_BYTES, 1))
"""Bits of a descriptor's properties, and how many scalar registers each sets: private segment, dispatch packet, queue,
arguments, dispatch number, scratch, private bytes."""
GROUP_X, GROUP_YZ = 117, 115
"""Scalar registers that have RDNA 4's workgroup numbers."""


class Machine:
    """Runs kernels of one code object on one memory.

    tracer: notes the first launch of its kernel.  patience: blocks before a launch counts as one that does not end.
    most_waves: that run side by side.
    """

    def __init__(self, code: CodeObject, memory: Memory) -> None:
        self.code, self.memory = code, memory
        memory.add(code.image, "the code object", constant=True)
        self.programs: dict[str, Program] = {}
        self.tracer: Tracer | None = None
        self.patience, self.most_waves = PATIENCE, MOST_WAVES
        self.lanes = 32

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared_bytes: int = 0,
        only: Sequence[tuple[int, int, int]] | None = None,
    ) -> None:  # fmt: skip
        """Run a grid, or only some of its workgroups.  shared_bytes: dynamic ones, beside the kernel's own."""
        facts = self.code.descriptor(kernel)
        self.lanes = facts.lanes
        if kernel not in self.programs:
            self.programs[kernel] = Program(self.code, kernel, facts.lanes)
        groups = list(only) if only is not None else [(x, y, z) for z, y, x in product(*map(range, reversed(grid)))]
        threads = [g * b for g, b in zip(grid, block, strict=True)]
        # behind the arguments that are given come the implicit ones: counts and sizes of workgroups
        segment = arguments + b"\0" * (-len(arguments) % 8) + struct.pack("<3I3H256x", *grid, *block)
        texts = {
            "the kernel's arguments": segment,
            "the packet": struct.pack("<6H6I28x", 0, 0, *block, 0, *threads, 0, 0, 0),
        }
        added = [self.memory.add(np.frombuffer(bytearray(t), np.uint8), what, True) for what, t in texts.items()]
        waves = -(-int(np.prod(block)) // facts.lanes)
        step = max(1, self.most_waves // waves)
        try:
            for at in range(0, len(groups), step):
                self.waves = Waves(len(groups[at : at + step]), waves, facts.lanes, self.code.family, self)
                unset = _set_registers(
                    self.waves, self.code.family, facts, groups[at : at + step], block, added, segment
                )
                self._run(kernel, facts, unset, facts.shared_bytes + shared_bytes)
        finally:
            for address in added:
                self.memory.remove(address)
        if self.tracer is not None:
            self.tracer.launched(kernel)

    def _run(self, kernel: str, facts: Descriptor, unset: set[int], shared_bytes: int) -> None:
        waves, program = self.waves, self.programs[kernel]
        self.hazards = Hazards(waves, self.code.family, unset)
        self.shared = SharedMemory(self.memory, waves, shared_bytes, program.shared_grain)
        self.private_bytes = facts.private_bytes
        private = np.full(waves.n * waves.lanes * facts.private_bytes + 16, 0xFF, np.uint8)
        self.private = self.memory.add(private, "private memory")
        self.at, self.state = np.full(waves.n, facts.entry, np.int64), np.zeros(waves.n, np.int8)
        self.signals, self.last_turn = np.zeros((2, waves.n), np.int64)
        try:
            with np.errstate(all="ignore"):
                self._schedule(kernel, program)
        finally:
            self.memory.remove(self.private)
            self.memory.remove(self.shared.address)

    def _schedule(self, kernel: str, program: Program) -> None:
        for turn in range(self.patience):
            running = self.state == RUNNING
            if not running.any():
                if (self.state == ENDED).all():
                    return
                raise KernelFault(f"{kernel}: waves wait at a barrier that others never reach")
            if turn % TURN:
                address = int(self.at[running].min())
            else:
                address = int(self.at[np.where(running, self.last_turn, turn + 1).argmin()])
            self.waves.select(np.flatnonzero(running & (self.at == address)))
            self.last_turn[self.waves.at] = turn
            self._block(kernel, program.block(address))
        raise KernelFault(f"{kernel}: does not end; waves are at {sorted({hex(a) for a in self.at})}")

    def _block(self, kernel: str, block: Block) -> None:
        waves, hazards = self.waves, self.hazards
        block.executed += waves.count
        self.after = block.after
        self.go(block.after)
        tracer = self.tracer if self.tracer is not None and self.tracer.wants(kernel) else None
        offset = block.address - self.code.size_of(kernel)[0]
        for step in block.steps:
            try:
                hazards.check(step)
                step.run(waves)
            except (KernelFault, NotModelled) as error:
                raise type(error)(f"{kernel}+{offset:#x}: {step.instruction.text()}: {error}") from error
            if tracer is not None:
                tracer(step, waves, offset)
            offset += step.instruction.nbytes

    def counts(self) -> Counter[str]:
        """How often each instruction ran so far, once for each wave."""
        total: Counter[str] = Counter()
        for block in [block for program in self.programs.values() for block in program.blocks.values()]:
            for step in block.steps:
                total[step.instruction.name] += block.executed
        return total

    # what instructions do to the order of things

    def go(self, there: int | np.ndarray) -> None:
        """Let the selected waves go on at an address."""
        self.at[self.waves.at] = there

    def branch(self, i: Instruction, taken: np.ndarray | bool) -> None:
        """Let those of the selected waves that take a branch, the block's last instruction, go there."""
        self.go(np.where(taken, control.target(i, self.after) or 0, self.after))

    def end(self, waves: Waves) -> None:
        self.state[waves.at] = ENDED
        self._open_barriers()

    def signal(self, waves: Waves) -> None:
        """Note that waves have come to a barrier."""
        self.hazards.barrier()
        self.signals[waves.at] += 1

    def barrier(self, waves: Waves, signals: bool) -> None:
        """Stop waves until all of their workgroups have signalled as often as these have come here."""
        if signals:
            self.signal(waves)
        self.shared.barriers[waves.at] += 1
        self.state[waves.at] = WAITING
        self._open_barriers()

    def _open_barriers(self) -> None:
        signals = np.where(self.state == ENDED, np.iinfo(np.int64).max, self.signals)
        least = signals.reshape(self.waves.groups, -1).min(axis=1)
        ready = (self.state == WAITING) & (least[self.waves.group] >= self.shared.barriers)
        self.state[ready] = RUNNING


def _set_registers(
    waves: Waves, family: str, facts: Descriptor, groups: list[tuple[int, int, int]], block: Sequence[int],
    added: list[int], segment: bytes,
) -> set[int]:  # fmt: skip
    """Set the registers as hardware does before a wave starts; those that nothing has set."""
    for place in range(128, 256):
        waves.s[place] = constant(place) or 0
    given = {PACKET: added[1], ARGUMENTS: added[0], PRIVATE_BYTES: facts.private_bytes}
    words: list[int] = []
    for bit, count in PROPERTIES:
        if facts.properties >> bit & 1:
            words += [given.get(bit, 0) >> 32 * i & 0xFFFFFFFF for i in range(count)]
    length, first = facts.preload
    words += struct.unpack_from(f"<{length}I", segment, 4 * first)
    waves.s[: len(words)] = np.array(words, np.uint32)[:, None]
    numbers = np.array(groups, np.uint32)[waves.group].T
    used = set(range(max(len(words), facts.user_registers)))
    if family == "rdna4":
        waves.s[GROUP_X], waves.s[GROUP_YZ] = numbers[0], numbers[1] | numbers[2] << np.uint32(16)
        used |= {GROUP_X, GROUP_YZ}
    else:
        wanted = [number for number, is_wanted in zip(numbers, facts.groups, strict=True) if is_wanted]
        for place, number in enumerate(wanted, facts.user_registers):
            waves.s[place] = number
            used.add(place)
    thread = waves.member[:, None] * waves.lanes + np.arange(waves.lanes)[None]
    x, y, z = block
    waves.v[0] = thread % x | thread // x % y << 10 | thread // (x * y) << 20
    waves.select(np.arange(waves.n))
    waves.set_mask(EXEC, thread < x * y * z)
    vectors = set(range(FIRST_VECTOR + 1, FIRST_VECTOR + 256))
    if family == "cdna":
        vectors |= set(range(FIRST_ACCUMULATOR, FIRST_ACCUMULATOR + 256))
    return (set(range(NULL - 16)) | vectors) - used
