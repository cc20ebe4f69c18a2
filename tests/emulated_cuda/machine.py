"""Global memory between guards, and launches of PTX kernels on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any

import numpy as np
from emulated_cuda.bulk_ops import MappedTensor
from emulated_cuda.harmless import run_watched
from emulated_cuda.memory_ops import GLOBAL_BASE
from emulated_cuda.ptx import Kernel, parse
from emulated_cuda.threads import MOST_THREADS, MOST_WATCHED, Threads

from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.tensor_maps import TensorMap


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
    kernel: Kernel, memory: Memory, arguments: Sequence[int | MappedTensor], grid: Sequence[int],
    dynamic_bytes: int = 0, seed: int = 0, watched: bool = False,
) -> None:  # fmt: skip
    """Run every block, as many side by side as there is room for; all where they wait for each other.

    watched: look for races, in an order of warps by the seed; AssertionError where there are some.
    """
    most = MOST_WATCHED if watched else MOST_THREADS
    together = max(1, most // (kernel.threads * kernel.cluster)) * kernel.cluster
    if any(instruction.op.startswith("ld.relaxed") for instruction in kernel.body):
        together = prod(grid)
    for start in range(0, prod(grid), together):
        blocks = range(start, min(start + together, prod(grid)))

        def threads(blocks: range = blocks) -> Threads:
            return Threads(kernel, memory.bytes, arguments, grid, blocks, dynamic_bytes, seed, watched)

        run_watched(threads, memory.bytes) if watched else threads().run()


def launch_step(
    text: str, step: Launch, facts: Mapping[str, Any], memory: Memory, addresses: Mapping[str, int], seed: int = 0,
    watched: bool = False,
) -> None:  # fmt: skip
    """Run one step of a plan.  text: the artifact's PTX.  facts: of its kernel.  addresses: of buffers, by name."""
    starts = [addresses[a.buffer] + a.offset for a in step.arguments]
    maps = [MappedTensor(map_, starts[map_.argument] + map_.offset) for map_ in TensorMap.of(facts)]
    launch(parse(text, step.kernel), memory, [*starts, *maps], step.grid, step.shared_bytes, seed, watched)
    assert memory.broken() == 0, f"{step.kernel} writes outside its arguments"
