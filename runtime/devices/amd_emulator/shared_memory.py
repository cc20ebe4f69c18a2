"""The memory that a workgroup's waves share (LDS), and the races that they run in it.

Two waves race when both touch a word, one of them writes it, and no barrier lies between: each wave counts its
barriers, and every word remembers who wrote it and who read it last, at which count.
"""

from __future__ import annotations

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.waves import Waves

MANY, WAVE_BITS = 0x7FF, 11
"""A wave's number that stands for several, and how many bits a wave's number has in a mark."""


class SharedMemory:
    """nbytes: of each workgroup.  grain: bytes that one mark stands for, the smallest that the kernel stores."""

    def __init__(self, waves: Waves, nbytes: int, grain: int) -> None:
        self.waves, self.grain = waves, grain
        self.nbytes = nbytes
        self.stride = -(-nbytes // 16) * 16
        self.data = np.full(max(waves.groups * self.stride, 16), 0xFF, np.uint8)
        marks = self.data.size // grain
        self.written, self.was_read = np.zeros(marks, np.int64), np.zeros(marks, np.int64)
        self.barriers = np.zeros(waves.n, np.int64)
        self.bases = waves.group * self.stride

    def places(self, addresses: np.ndarray, wave: np.ndarray, size: int, writing: bool) -> np.ndarray:
        """Offsets into `data` of addresses in the workgroups of waves, once they were checked; all one-dimensional."""
        wrong = addresses + size > self.nbytes
        if wrong.any():
            at = int(np.flatnonzero(wrong)[0])
            what = "written to" if writing else "read from"
            raise KernelFault(
                f"{size} bytes {what} shared memory at {addresses[at]}, of {self.nbytes} bytes "
                f"(workgroup {self.waves.group[wave[at]]}, wave {self.waves.member[wave[at]]})"
            )
        found = addresses + self.bases[wave]
        if (found % min(size, 4)).any():
            raise KernelFault(f"{size} bytes of shared memory at an address that is no multiple of {min(size, 4)}")
        self._mark(found, wave, size, writing)
        return found

    def _mark(self, places: np.ndarray, wave: np.ndarray, size: int, writing: bool) -> None:
        mine = self.barriers[wave] + 1 << WAVE_BITS | self.waves.member[wave]
        for i in range(max(1, size // self.grain)):
            at = places // self.grain + i
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
                    self.was_read[at[several]] = mine[several] | MANY

    def _compare(self, marks: np.ndarray, mine: np.ndarray, wave: np.ndarray, what: str, writing: bool) -> None:
        raced = _raced(marks, mine)
        if raced.any():
            at = int(np.flatnonzero(raced)[0])
            other = int(marks[at]) & MANY
            others = "several waves" if other == MANY else f"wave {other}"
            raise KernelFault(
                f"a race in shared memory, workgroup {self.waves.group[wave[at]]}: wave {self.waves.member[wave[at]]} "
                f"{'writes' if writing else 'reads'} what {others} has {what} since the last barrier"
            )

    def update_places(self, addresses: np.ndarray, wave: np.ndarray, size: int) -> np.ndarray:
        """As `places`, for atomics: those of several waves do not race with each other."""
        return self.places(addresses, wave, size, writing=False)

    def gather(self, places: np.ndarray, size: int) -> list[np.ndarray]:
        """32-bit words, or for 1 and 2 bytes one number."""
        if size == 1:
            return [self.data[places].astype(np.uint32)]
        if size == 2:
            return [self.data.view(np.uint16)[places >> 1].astype(np.uint32)]
        words = self.data.view(np.uint32)
        return [words[(places >> 2) + i] for i in range(size // 4)]

    def scatter(self, places: np.ndarray, words: list[np.ndarray], size: int) -> None:
        if size == 1:
            self.data[places] = words[0].astype(np.uint8)
        elif size == 2:
            self.data.view(np.uint16)[places >> 1] = words[0].astype(np.uint16)
        else:
            for i, word in enumerate(words):
                self.data.view(np.uint32)[(places >> 2) + i] = word


def _raced(marks: np.ndarray, mine: np.ndarray) -> np.ndarray:
    """Whether a mark is of the same count of barriers and another wave."""
    return (marks >> WAVE_BITS == mine >> WAVE_BITS) & (marks != mine)
