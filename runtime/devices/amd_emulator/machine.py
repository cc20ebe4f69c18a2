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

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject, Descriptor
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.devices.amd_emulator.hazards import Hazards
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.amd_emulator.program import Block, Program
from lispgpt.runtime.devices.amd_emulator.shared_memory import SharedMemory
from lispgpt.runtime.devices.amd_emulator.trace import Tracer
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_ACCUMULATOR, FIRST_VECTOR, Waves, constant

MOST_WAVES, TURN, PATIENCE = 2048, 64, 1_000_000
"""Waves that run side by side; blocks between two turns of those that waited longest; blocks before a launch is given
up as one that does not end."""
RUNNING, WAITING, ENDED = 0, 1, 2
PROPERTIES = ((0, 4), (1, 2), (2, 2), (3, 2), (4, 2), (5, 2), (6, 1))
"""Bits of a descriptor's properties, and how many scalar registers each sets: private segment, dispatch packet, queue,
arguments, dispatch number, scratch, private bytes."""


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
        program = self.programs.get(kernel)
        if program is None:
            program = self.programs[kernel] = Program(self.code, kernel, self)
        groups = list(only) if only is not None else [(x, y, z) for z, y, x in product(*map(range, reversed(grid)))]
        segment = _arguments(arguments, facts, grid, block)
        packet = np.zeros(64, np.uint8)
        packet[:] = np.frombuffer(
            struct.pack("<6H6I", 0, 0, *block, 0, *[g * b for g, b in zip(grid, block, strict=True)], 0, 0, 0).ljust(
                64
            ),
            np.uint8,
        )
        added = [self.memory.add(segment, "the kernel's arguments", True), self.memory.add(packet, "the packet", True)]
        waves = -(-int(np.prod(block)) // facts.lanes)
        step = max(1, self.most_waves // waves)
        try:
            for at in range(0, len(groups), step):
                self._run(kernel, program, facts, groups[at : at + step], block, added, shared_bytes, waves)
        finally:
            for address in added:
                self.memory.remove(address)
        if self.tracer is not None:
            self.tracer.launched(kernel)

    def _run(
        self, kernel: str, program: Program, facts: Descriptor, groups: list[tuple[int, int, int]],
        block: Sequence[int], added: list[int], shared_bytes: int, waves_per_group: int,
    ) -> None:  # fmt: skip
        null = 124 if self.code.family != "cdna" else -1
        self.waves = waves = Waves(len(groups), waves_per_group, facts.lanes, null)
        unset = _set_registers(waves, self.code, facts, groups, block, added)
        self.hazards = Hazards(waves, self.code.family, unset)
        self.shared = SharedMemory(waves, facts.shared_bytes + shared_bytes, program.smallest_shared_store())
        self.private_bytes = facts.private_bytes
        private = np.full(waves.n * waves.lanes * facts.private_bytes + 16, 0xFF, np.uint8)
        self.private = self.memory.add(private, "private memory")
        self.at = np.full(waves.n, facts.entry, np.int64)
        self.state = np.zeros(waves.n, np.int8)
        self.signals, self.last_turn = np.zeros(waves.n, np.int64), np.zeros(waves.n, np.int64)
        try:
            with np.errstate(all="ignore"):
                self._schedule(kernel, program)
        finally:
            self.memory.remove(self.private)

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
        self.go(block.after)
        final = len(block.steps) - 1 if block.last else -1
        tracer = self.tracer if self.tracer is not None and self.tracer.wants(kernel) else None
        for number, step in enumerate(block.steps):
            run = step.run if number != final or block.last is None else block.last
            try:
                if hazards.watched.isdisjoint(block.touched[number]):
                    run(waves)
                else:
                    hazards.check(step, waves.active)
                    run(waves)
            except (KernelFault, NotModelled) as error:
                offset = step.instruction.address - self.code.size_of(kernel)[0]
                raise type(error)(f"{kernel}+{offset:#x}: {step.instruction.text()}: {error}") from error
            if tracer is not None:
                tracer(step, waves, self.code.size_of(kernel)[0])

    def counts(self) -> Counter[str]:
        """How often each instruction ran so far, once for each wave."""
        total: Counter[str] = Counter()
        for program in self.programs.values():
            for block in program.blocks.values():
                for step in block.steps:
                    total[step.instruction.name] += block.executed
        return total

    # what instructions do to the order of things

    def go(self, there: int | np.ndarray) -> None:
        """Let the selected waves go on at an address."""
        self.at[self.waves.at] = there

    def end(self, waves: Waves) -> None:
        self.state[waves.at] = ENDED
        self._open_barriers()

    def signal(self, waves: Waves) -> None:
        """Note that waves have come to a barrier."""
        self.hazards.barrier()
        self.signals[waves.at] += 1

    def wait_for_others(self, waves: Waves) -> None:
        """Stop waves until all of their workgroups have signalled as often as these have come here."""
        self.shared.barriers[waves.at] += 1
        self.state[waves.at] = WAITING
        self._open_barriers()

    def _open_barriers(self) -> None:
        signals = np.where(self.state == ENDED, np.iinfo(np.int64).max, self.signals)
        least = signals.reshape(self.waves.groups, -1).min(axis=1)
        ready = (self.state == WAITING) & (least[self.waves.group] >= self.shared.barriers)
        self.state[ready] = RUNNING

    def private_addresses(self, waves: Waves, offsets: np.ndarray, on: np.ndarray, size: int) -> np.ndarray:
        """Addresses of places in the lanes' own memory."""
        if (offsets < 0).any() or (offsets + size > self.private_bytes).any():
            raise KernelFault(f"private memory outside of a lane's {self.private_bytes} bytes")
        lane = (waves.which[:, None] * waves.lanes + np.arange(waves.lanes)[None])[on]
        return (self.private + lane * self.private_bytes + offsets).astype(np.uint64)


def _arguments(given: bytes, facts: Descriptor, grid: Sequence[int], block: Sequence[int]) -> np.ndarray:
    """The segment of a kernel's arguments, the implicit ones behind those given: counts and sizes of workgroups."""
    explicit = given + b"\0" * (-len(given) % 8)
    whole = explicit + struct.pack("<3I3H", *grid, *block) + b"\0" * 256
    return np.frombuffer(bytearray(whole.ljust(facts.argument_bytes, b"\0")), np.uint8).copy()


def _set_registers(
    waves: Waves, code: CodeObject, facts: Descriptor, groups: list[tuple[int, int, int]], block: Sequence[int],
    added: list[int],
) -> set[int]:  # fmt: skip
    """Set the registers as hardware does before a wave starts; those that nothing has set."""
    for place in range(128, 256):
        waves.s[place] = constant(place) or 0
    arguments, packet = added
    words: list[int] = []
    given = {1: packet, 3: arguments, 6: facts.private_bytes}
    for bit, count in PROPERTIES:
        if facts.properties >> bit & 1:
            words += [given.get(bit, 0) >> 32 * i & 0xFFFFFFFF for i in range(count)]
    length, first = facts.preload
    if length:
        segment = code_words(arguments, first + length)
        words += segment[first:]
    for register, word in enumerate(words):
        waves.s[register] = word
    numbers = np.array(groups, np.uint32)[waves.group].T
    used = set(range(max(len(words), facts.user_registers)))
    if code.family == "rdna4":
        waves.s[117], waves.s[115] = numbers[0], numbers[1] | numbers[2] << np.uint32(16)
        used |= {115, 117}
    else:
        at = facts.user_registers
        for wanted, number in zip(facts.groups, numbers, strict=True):
            if wanted:
                waves.s[at] = number
                used.add(at)
                at += 1
    thread = waves.member[:, None] * waves.lanes + np.arange(waves.lanes)[None]
    x, y, z = block
    waves.v[0] = thread % x | thread // x % y << 10 | thread // (x * y) << 20
    waves.select(np.arange(waves.n))
    waves.set_mask(EXEC, thread < x * y * z)
    vectors = set(range(FIRST_VECTOR + 1, FIRST_VECTOR + 256))
    if code.family == "cdna":
        vectors |= set(range(FIRST_ACCUMULATOR, FIRST_ACCUMULATOR + 256))
    return (set(range(108)) | vectors) - used


def code_words(address: int, count: int) -> list[int]:
    """32-bit words at an address of this process."""
    import ctypes

    return [int(word) for word in (ctypes.c_uint32 * count).from_address(address)]
