"""Global memory between guards, and launches of PTX kernels on it."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from emulated_cuda.ptx import Kernel
from emulated_cuda.warp import GLOBAL_BASE, Warp


class Memory:
    """Global memory: arrays one after the other, each between guards; all that is not an array's is 0xA5."""

    def __init__(self, arrays: Sequence[np.ndarray], guard: int = 256) -> None:
        self.addresses, end = [], GLOBAL_BASE + guard
        for array in arrays:
            self.addresses.append(end)
            end += -(-array.nbytes // 256) * 256 + guard
        self.bytes = np.full(end - GLOBAL_BASE, 0xA5, np.uint8)
        self.free = np.ones(self.bytes.size, bool)
        for array, address in zip(arrays, self.addresses, strict=True):
            at = address - GLOBAL_BASE
            self.bytes[at : at + array.nbytes] = array.reshape(-1).view(np.uint8)
            self.free[at : at + array.nbytes] = False

    def read(self, number: int, like: np.ndarray) -> np.ndarray:
        at = self.addresses[number] - GLOBAL_BASE
        return self.bytes[at : at + like.nbytes].view(like.dtype).reshape(like.shape)

    def broken(self) -> int:
        return int((self.bytes[self.free] != 0xA5).sum())


def launch(
    kernel: Kernel, memory: Memory, arguments: Sequence[int], grid: Sequence[int], dynamic_bytes: int = 0
) -> None:
    """Run every block, one after the other."""
    for z, y, x in np.ndindex(*reversed(tuple(grid))):
        shared = np.full(max(kernel.shared_bytes + dynamic_bytes, 1), 0xFF, np.uint8)
        block = {"%ctaid.x": x, "%ctaid.y": y, "%ctaid.z": z}
        warps = [Warp(kernel, memory.bytes, shared, arguments, block, n) for n in range(kernel.threads // 32)]
        run_block(warps)


def run_block(warps: list[Warp]) -> None:
    """Warps run to their next barrier in turn; a barrier opens when as many threads wait at it as it counts."""
    running = {warp: warp.run() for warp in warps}
    waiting: dict[Warp, tuple[int, int]] = {}
    while running:
        for warp, steps in list(running.items()):
            if warp not in waiting:
                barrier = next(steps, None)
                if barrier is None:
                    del running[warp]
                else:
                    waiting[warp] = barrier
        for barrier in set(waiting.values()):
            here = [warp for warp, other in waiting.items() if other == barrier]
            if len(here) * 32 == barrier[1]:
                for warp in here:
                    del waiting[warp]
        assert len(waiting) < len(running) or not running, f"deadlock at barriers {set(waiting.values())}"
