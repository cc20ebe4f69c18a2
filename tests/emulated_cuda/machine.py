"""Global memory between guards, and launches of PTX kernels on it."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from math import prod
from typing import Any
from weakref import WeakValueDictionary

import numpy as np
from emulated_cuda.bulk_ops import MappedTensor
from emulated_cuda.harmless import run_watched
from emulated_cuda.memory_ops import GLOBAL_BASE
from emulated_cuda.ptx import Constant, Kernel, parse
from emulated_cuda.threads import MOST_THREADS, MOST_WATCHED, Threads

from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.tensor_maps import TensorMap

_launched: WeakValueDictionary[int, Kernel] = WeakValueDictionary()


class Memory:
    """Global memory: arrays one after the other, each between guards; all that is not an array's is 0xA5."""

    def __init__(self, arrays: Sequence[np.ndarray], guard: int = 256) -> None:
        self.addresses, end = [], GLOBAL_BASE + guard
        self.symbols: dict[str, int] = {}
        self.before: np.ndarray | None = None
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

    def place(self, constants: Sequence[Constant]) -> dict[str, int]:
        """The addresses of a module's constants by name, each aligned as it says and not better; what is there then is
        as long as loads of any width want."""
        for constant in constants:
            if constant.name not in self.symbols:
                at = -(-self.bytes.size // (2 * constant.align)) * 2 * constant.align + constant.align
                end = -(-(at + len(constant.data)) // 256) * 256 + 256
                more = np.full(end - self.bytes.size, 0xA5, np.uint8)
                data = np.frombuffer(constant.data, np.uint8)
                more[at - self.bytes.size :][: data.size] = data
                free = np.ones(more.size, bool)
                free[at - self.bytes.size :][: data.size] = False
                self.bytes, self.free = np.concatenate([self.bytes, more]), np.concatenate([self.free, free])
                if self.before is not None:
                    self.before = np.concatenate([self.before, more])
                self.symbols[constant.name] = GLOBAL_BASE + at
        return self.symbols

    def begin(self) -> None:
        """Launches begin that need not wait for each other: what is there now is what those may find that do not."""
        self.before = self.bytes.copy()

    def broken(self) -> int:
        return int((self.bytes[self.free] != 0xA5).sum())


def launch(
    kernel: Kernel, memory: Memory, arguments: Sequence[int | MappedTensor], grid: Sequence[int],
    dynamic_bytes: int = 0, seed: int = 0, watched: bool | None = None, early: bool = False,
) -> None:  # fmt: skip
    """Run every block, as many side by side as there is room for; all where they wait for each other.

    watched: look for races, in an order of warps by the seed; AssertionError where there are some.  Unless something
    else is said, the first blocks of a kernel's first launch are watched,
    but for kernels whose blocks wait for each other.  early: whether it starts before what memory.begin began is done.
    """
    size, waits = kernel.threads * kernel.cluster, any(i.op.startswith("ld.relaxed") for i in kernel.body)
    first = watched is None and seed == 0 and _is_first(kernel)
    most = MOST_WATCHED // size if watched or first else 0
    if first and waits:
        most = 0
    start, symbols = 0, memory.place(kernel.constants)
    while start < prod(grid):
        watch = bool(watched) or (most > 0 and start == 0)
        together = max(1, most if watch else MOST_THREADS // size) * kernel.cluster
        blocks = range(start, prod(grid) if waits else min(start + together, prod(grid)))

        def threads(blocks: range = blocks, watch: bool = watch) -> Threads:
            return Threads(kernel, memory.bytes, arguments, grid, blocks, dynamic_bytes, seed, watch, symbols,
                           before=memory.before if early else None)  # fmt: skip

        run_watched(threads, memory.bytes) if watch else threads().run()
        start = blocks.stop


def _is_first(kernel: Kernel) -> bool:
    first = _launched.get(id(kernel)) is not kernel
    _launched[id(kernel)] = kernel
    return first


def launch_step(
    text: str, step: Launch, facts: Mapping[str, Any], memory: Memory, addresses: Mapping[str, int], seed: int = 0,
    watched: bool | None = None,
) -> None:  # fmt: skip
    """Run one step of a plan.  text: the artifact's PTX.  facts: of its kernel.  addresses: of buffers, by name."""
    starts = [addresses[a.buffer] + a.offset for a in step.arguments]
    maps = [MappedTensor(map_, starts[map_.argument] + map_.offset) for map_ in TensorMap.of(facts)]
    early = bool(facts.get("early_launch")) and not facts.get("persistent")
    launch(parse(text, step.kernel), memory, [*starts, *maps], step.grid, step.shared_bytes, seed, watched, early)
    assert memory.broken() == 0, f"{step.kernel} writes outside its arguments"
