"""Barriers of blocks and clusters by their numbers, and fences: a part of the PTX interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from emulated_cuda.ptx import Kernel
from emulated_cuda.races import Races


class BlockBarriers(ABC):
    """waiting: the barrier that each thread waits at, or -1.  wanted: how many have to.  passed: how many have arrived
    at each barrier and gone on.  unfenced: for each word of shared memory one more than the thread that has stored
    there since its last fence."""

    kernel: Kernel
    count: int
    block: np.ndarray
    waiting: np.ndarray
    wanted: np.ndarray
    passed: np.ndarray
    unfenced: np.ndarray
    races: Races | None

    @abstractmethod
    def value(self, operand: str, kind: str, lanes: np.ndarray | None = None) -> np.ndarray: ...

    def fence(self, suffixes: list[str], threads: np.ndarray) -> None:
        if "proxy" in suffixes:
            self.unfenced[np.isin(self.unfenced, threads + 1)] = 0
        for warp in map(int, np.unique(threads // 32)) if self.races else ():
            if "proxy" in suffixes:
                self.races.clocks.fence_copies(warp)
            elif "mbarrier_init" not in suffixes:
                self.races.clocks.fence(warp)

    def wait(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Barriers are known by their number and their block, or their cluster's first block."""
        warps = np.unique(np.flatnonzero(lanes) // 32) if self.races else np.zeros(0, np.int64)
        if "cluster" in suffixes:
            if "arrive" in suffixes and self.races:
                self.races.clocks.hold(warps.tolist(), "relaxed" in suffixes)
            elif "arrive" not in suffixes:
                for warp in warps.tolist():
                    first = int(self.block[32 * warp]) // self.kernel.cluster * self.kernel.cluster
                    self.races.clocks.come(32 * first + 16, [warp])
                number = 32 * (self.block // self.kernel.cluster * self.kernel.cluster) + 16
                self.waiting[lanes], self.wanted[lanes] = number[lanes], self.kernel.cluster * self.kernel.threads
            return
        numbers = self.value(operands[0], "u32").astype(np.int64)
        assert (numbers[lanes] < 16).all()
        counts = self.value(operands[1], "u32") if len(operands) > 1 else np.full(self.count, self.kernel.threads)
        where = (32 * self.block + numbers)[32 * warps]
        for number in np.unique(where).tolist():
            self.races.clocks.arrive(number, warps[where == number].tolist())
        if "arrive" in suffixes:
            np.add.at(self.passed, (32 * self.block + numbers)[lanes], 1)
            return
        self.waiting[lanes] = (32 * self.block + numbers)[lanes]
        self.wanted[lanes] = counts[lanes]

    def open_barriers(self) -> bool:
        """A barrier opens when as many threads wait at it as it counts; whether one did."""
        here = self.waiting >= 0
        arrived = np.bincount(self.waiting[here], minlength=self.passed.size) + self.passed
        together = arrived[np.maximum(self.waiting, 0)]
        assert (together[here] <= self.wanted[here]).all(), "more threads at a barrier than it counts"
        opened = here & (together == self.wanted)
        for number in np.unique(self.waiting[opened]).tolist() if self.races else ():
            warps = np.unique(np.flatnonzero(opened & (self.waiting == number)) // 32)
            self.races.clocks.open(number, warps.tolist())
        self.passed[self.waiting[opened]] = 0
        self.waiting[opened] = -1
        return bool(opened.any())
