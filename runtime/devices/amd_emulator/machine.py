"""A grid on the emulator: its workgroups' waves run side by side, those at one place of the code as one.

Of the waves that can go on, those that are furthest behind do, up to the next branch, barrier or place that a branch
leads to; so waves that parted meet again.  Every so often it is the turn of those that have waited longest instead, so
that a wave which waits in a loop for memory does not keep the others from writing it.
"""

from __future__ import annotations

import struct
from collections import Counter
from collections.abc import Callable, Sequence
from itertools import product

import numpy as np

from lispgpt.runtime.devices.amd_emulator import control
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject, Descriptor
from lispgpt.runtime.devices.amd_emulator.decode import Instruction
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument, GlobalMemory, Held
from lispgpt.runtime.devices.amd_emulator.hazards import Hazards
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.amd_emulator.program import Block, Program
from lispgpt.runtime.devices.amd_emulator.races import Order
from lispgpt.runtime.devices.amd_emulator.shared_memory import SharedMemory
from lispgpt.runtime.devices.amd_emulator.trace import Tracer
from lispgpt.runtime.devices.amd_emulator.waves import EXEC, FIRST_ACCUMULATOR, FIRST_VECTOR, NULL, Waves, constant

MOST_WAVES, TURN, PATIENCE = 2048, 64, 1_000_000
"""Waves that run side by side; blocks between two turns of those that waited longest; blocks before a launch is given
up as one that does not end."""
GARBAGE = 0xFFFFFFFF, 0x7F7F7F7F, 0xFF7F7F7F
"""NaN, and large numbers, in f32, bf16 and f16; no place in memory."""
RUNNING, WAITING, ENDED = 0, 1, 2
PACKET, ARGUMENTS, PRIVATE_BYTES = 1, 3, 6
PROPERTIES = ((0, 4), (PACKET, 2), (2, 2), (ARGUMENTS, 2), (4, 2), (5, 2), (PRIVATE_BYTES, 1))
"""Bits of a descriptor's properties, and how many scalar registers each sets: private segment, dispatch packet, queue,
arguments, dispatch number, scratch, private bytes."""
GROUP_X, GROUP_YZ = 117, 115
"""Scalar registers that have RDNA 4's workgroup numbers."""


class Machine:
    """Runs kernels of one code object on one memory.

    tracer: notes the first launch of its kernel.  harmless: kernels whose loads beside stores change nothing.
    beside: the first instruction of a launch that was one of those.  patience: blocks before a launch counts as one
    that does not end.  most_waves: that run side by side.
    """

    def __init__(self, code: CodeObject, memory: Memory) -> None:
        self.code, self.memory = code, memory
        memory.add(code.image, "the code object", constant=True)
        self.programs: dict[str, Program] = {}
        self.tracer: Tracer | None = None
        self.harmless: set[str] = set()
        self.beside = ""
        self.patience, self.most_waves = PATIENCE, MOST_WAVES
        self.lanes = 32

    def launch(
        self, kernel: str, grid: Sequence[int], block: Sequence[int], arguments: bytes, shared_bytes: int = 0,
        only: Sequence[tuple[int, int, int]] | None = None, touches: Sequence[Argument] | None = None,
    ) -> None:  # fmt: skip
        """Run a grid, or only some of its workgroups.

        shared_bytes: dynamic ones, beside the kernel's own.  touches: what the launch does to which memory, where that
        is known; then it is held to it.
        """
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
        try:
            self._hold(kernel, touches, lambda: self._grid(kernel, facts, groups, block, added, segment, shared_bytes))
            if self.watched is not None and only is None:
                self.watched.finish(kernel)
        finally:
            for address in added:
                self.memory.remove(address)
        if self.tracer is not None:
            self.tracer.launched(kernel)

    def _hold(self, kernel: str, touches: Sequence[Argument] | None, run: Callable[[], None]) -> None:
        """Run a launch, held to what it touches, and where loads are beside stores again with garbage in their place.

        That is looked at until a launch of the kernel has shown that what they find changes nothing.
        """
        watched = self.watched = self._watched(kernel, touches)
        if watched is None or kernel in self.harmless:
            return run()
        watched.undo, self.beside = [], ""
        run()
        if watched.shadow.fault is None or self.order.exchange:
            return
        fault, known = KernelFault(f"{self.beside}: {watched.shadow.fault}"), watched.shadow.excused or {}
        left, tracer, self.tracer = watched.left(), self.tracer, None
        for garbage in GARBAGE:
            watched.take_back()
            watched = self.watched = watched.again(known, garbage)
            try:
                run()
                again = watched.left()
                same = len(left) == len(again) and all(map(Held.same, left, again))
            except KernelFault:  # garbage is no address, and no count of what comes
                same = False
            if not same:
                raise fault
        self.harmless.add(kernel)
        self.tracer = tracer

    def _watched(self, kernel: str, touches: Sequence[Argument] | None) -> GlobalMemory | None:
        if touches is None:
            return None
        return GlobalMemory(self.memory, touches, self.programs[kernel].global_grain)

    def _grid(
        self, kernel: str, facts: Descriptor, groups: list[tuple[int, int, int]], block: Sequence[int],
        added: list[int], segment: bytes, shared_bytes: int,
    ) -> None:  # fmt: skip
        """Run workgroups, as many side by side as there is room for."""
        waves = -(-int(np.prod(block)) // facts.lanes)
        step = max(1, self.most_waves // waves)
        self.order = Order(facts.lanes, waves)
        if self.watched is not None:
            self.watched.start(self.order)
        for at in range(0, len(groups), step):
            self.waves = Waves(len(groups[at : at + step]), waves, facts.lanes, self.code.family, self)
            unset = _set_registers(self.waves, self.code.family, facts, groups[at : at + step], block, added, segment)
            self._run(kernel, facts, unset, facts.shared_bytes + shared_bytes)

    def _run(self, kernel: str, facts: Descriptor, unset: set[int], shared_bytes: int) -> None:
        waves, program = self.waves, self.programs[kernel]
        self.hazards = Hazards(waves, self.code.family, unset)
        self.order.start(waves)
        self.shared = SharedMemory(self.memory, waves, shared_bytes, program.shared_grain, self.order)
        self.begun = waves.active
        self.private_bytes = facts.private_bytes
        private = np.full(waves.n * waves.lanes * facts.private_bytes + 16, 0xFF, np.uint8)
        self.private = self.memory.add(private, "private memory")
        self.at, self.state = np.full(waves.n, facts.entry, np.int64), np.zeros(waves.n, np.int8)
        self.signals, self.waits, self.last_turn = np.zeros((3, waves.n), np.int64)
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
                raise type(error)(f"{self._place(kernel, offset)}: {step.instruction.text()}: {error}") from error
            if not self.beside and self.watched is not None and self.watched.shadow.fault is not None:
                self.beside = f"{self._place(kernel, offset)}: {step.instruction.text()}"
            if tracer is not None:
                tracer(step, waves, offset)
            offset += step.instruction.nbytes

    def _place(self, kernel: str, offset: int) -> str:
        """Where an instruction is, for messages: in the kernel, and in the program."""
        line = self.code.line_of(self.code.size_of(kernel)[0] + offset)
        return f"{kernel}+{offset:#x}{f' ({line})' if line else ''}"

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
        self._check_ends()
        self._open_barriers()

    def _check_ends(self) -> None:
        """KernelFault where a workgroup's waves end behind different numbers of barriers."""
        waves = self.waves
        ended = (self.state == ENDED).reshape(waves.groups, -1).all(axis=1)
        counts = self.signals.reshape(waves.groups, -1)
        uneven = ended & (counts.min(axis=1) != counts.max(axis=1))
        if uneven.any():
            group = int(uneven.argmax())
            least, most = int(counts[group].argmin()), int(counts[group].argmax())
            raise KernelFault(
                f"barriers that not all of a workgroup reach: wave {most} of workgroup {group} has come to "
                f"{counts[group, most]}, and wave {least} to {counts[group, least]}"
            )

    def signal(self, waves: Waves) -> None:
        """Note that waves have come to a barrier."""
        self.hazards.barrier()
        if (missing := self.begun[waves.at] & ~waves.active).any():
            wave, lane = (int(numbers[0]) for numbers in np.nonzero(missing))
            number = int(waves.which[wave])
            raise KernelFault(
                f"a barrier that not all of a workgroup reach: lane {lane} is off (workgroup {waves.group[number]}, "
                f"wave {waves.member[number]})"
            )
        self.signals[waves.at] += 1

    def barrier(self, waves: Waves, signals: bool) -> None:
        """Stop waves until all of their workgroups have signalled as often as these have come here."""
        if signals:
            self.signal(waves)
        self.waits[waves.at] += 1
        self.state[waves.at] = WAITING
        self._open_barriers()

    def _open_barriers(self) -> None:
        signals = np.where(self.state == ENDED, np.iinfo(np.int64).max, self.signals)
        least = signals.reshape(self.waves.groups, -1).min(axis=1)
        ready = (self.state == WAITING) & (least[self.waves.group] >= self.waits)
        if ready.any():
            self.state[ready] = RUNNING
            self.order.passed(ready)


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
