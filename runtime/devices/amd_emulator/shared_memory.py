"""The memory that a workgroup's waves share (LDS), and the races that they run in it.

Two waves race when both touch a word, one of them writes it, and no barrier lies between: each wave counts its
barriers, and every word remembers who wrote it and who read it last, at which count.
"""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.memory import Access, Memory
from lispgpt.runtime.devices.amd_emulator.waves import Waves

MANY, WAVE_BITS = 0x7FF, 11
"""A wave's number that stands for several, and how many bits a wave's number has in a mark."""


class SharedMemory:
    """nbytes: of each workgroup.  grain: bytes that one mark stands for, the smallest that the kernel stores."""

    def __init__(self, memory: Memory, waves: Waves, nbytes: int, grain: int) -> None:
        self.waves, self.nbytes, self.grain, self.memory = waves, nbytes, grain, memory
        self.stride = -(-nbytes // 16) * 16
        data = np.full(max(waves.groups * self.stride, 16), 0xFF, np.uint8)
        self.address = memory.add(data, "shared memory")
        self.written, self.was_read = np.zeros((2, data.size // grain), np.int32)
        self.barriers, self.alone = np.zeros(waves.n, np.int32), waves.n == waves.groups

    def mark(self, places: np.ndarray, wave: np.ndarray, writing: bool) -> None:
        """Note who touches bytes, and find who else did.  places: the first byte of each mark [access, lane]."""
        if self.alone:
            return
        at = places // self.grain
        mine = (self.barriers[wave] + 1 << WAVE_BITS | self.waves.member[wave]).astype(np.int32)
        self._compare(self.written[at], mine, wave, "written", writing)
        if writing:
            self._compare(self.was_read[at], mine, wave, "read", writing)
            self.written[at] = mine
            self._compare(self.written[at], mine, wave, "written", writing)
        else:
            before = self.was_read[at]
            self.was_read[at] = mine
            several = _raced(before, mine) | (self.was_read[at] != mine)
            if several.any():
                self.was_read[at[several]] = np.broadcast_to(mine, at.shape)[several] | MANY

    def _compare(self, marks: np.ndarray, mine: np.ndarray, wave: np.ndarray, what: str, writing: bool) -> None:
        raced = _raced(marks, mine)
        if raced.any():
            access, at = (int(numbers[0]) for numbers in np.nonzero(raced))
            other = int(marks[access, at]) & MANY
            others = "several waves" if other == MANY else f"wave {other}"
            raise KernelFault(
                f"a race in shared memory, workgroup {self.waves.group[wave[at]]}: wave {self.waves.member[wave[at]]} "
                f"{'writes' if writing else 'reads'} what {others} has {what} since the last barrier"
            )


def _raced(marks: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Whether a mark is of the same count of barriers and another wave."""
    return (marks >> WAVE_BITS == mine >> WAVE_BITS) & (marks != mine)


class SharedAccess(Access):
    """Shared memory at the addresses of some lanes [lane], in the workgroups of their waves.

    atomic: whether several waves may update the same word without a race.
    """

    def __init__(self, shared: SharedMemory, addresses: np.ndarray, wave: np.ndarray, atomic: bool) -> None:
        self.shared, self.wave, self.atomic = shared, wave, atomic
        self.asked, self.last = addresses.astype(np.int64), int(addresses.max())
        self.places = self.asked + shared.waves.group[wave] * shared.stride
        self.touched: tuple[list[int], list[int]] = [], []
        super().__init__(shared.memory, (self.places + shared.address).astype(np.uint64))

    def load(self, offset: int, bits: int) -> np.ndarray:
        if bits <= 32:  # wider ones come again in parts
            self._check(offset, bits // 8, writing=False)
        return super().load(offset, bits)

    def store(self, offset: int, bits: int, values: np.ndarray) -> None:
        if not self.atomic and bits <= 32:
            self._check(offset, bits // 8, writing=True)
        super().store(offset, bits, values)

    def done(self) -> None:
        for writing, offsets in enumerate(self.touched):
            if offsets:
                self.shared.mark(self.places + np.array(offsets)[:, None], self.wave, bool(writing))

    def _check(self, offset: int, size: int, writing: bool) -> None:
        shared, wave = self.shared, self.wave
        if self.last + offset + size > shared.nbytes:
            at = int(self.asked.argmax())
            number = wave[at]
            raise KernelFault(
                f"{size} bytes {'written to' if writing else 'read from'} shared memory at {self.asked[at] + offset}, "
                f"of {shared.nbytes} bytes (workgroup {shared.waves.group[number]}, wave {shared.waves.member[number]})"
            )
        if (self.grain | self.low + offset) % min(size, 4):
            raise KernelFault(f"{size} bytes of shared memory at an address that is no multiple of {min(size, 4)}")
        self.touched[writing].extend(range(offset, offset + size, shared.grain))
