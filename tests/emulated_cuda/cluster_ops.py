"""Words that threads send to other blocks of their cluster: st.async, a part of the PTX interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from emulated_cuda.bulk_ops import Copy, Progress
from emulated_cuda.clocks import View
from emulated_cuda.races import THREADS, Races
from emulated_cuda.registers import names


class ClusterOps(ABC):
    """Instructions of Threads."""

    shared: np.ndarray
    shared_bytes: int
    block: np.ndarray
    progress: Progress
    races: Races | None

    @abstractmethod
    def value(self, operand: str, kind: str) -> np.ndarray: ...

    @abstractmethod
    def settle(self, key: tuple[int, int]) -> None: ...

    @abstractmethod
    def remote_place(self, address: int, block: int) -> tuple[int, int]: ...

    def send(self, operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """st.async: words to blocks of the cluster, whose barriers count their bytes; a warp's land together."""
        addresses, barriers = (self.value(operands[i].strip("[]"), "u32") for i in (0, 2))
        words = np.stack([self.value(name, "u32") for name in names(operands[1])], axis=1)
        threads = np.flatnonzero(lanes)
        for warp in np.unique(threads // 32):
            view = self.races.begin(int(warp)) if self.races else None
            mine = threads[threads // 32 == warp]
            to = [self.remote_place(int(addresses[t]), int(self.block[t])) for t in mine]
            at = [self.remote_place(int(barriers[t]), int(self.block[t])) for t in mine]
            for each in range(len(mine)) if self.races else [slice(None)]:
                part = slice(each, each + 1) if isinstance(each, int) else each
                self.progress.copies.append(Copy(-1, self._sending(to[part], at[part], words[mine][part], view)))

    def _sending(
        self, places: list[tuple[int, int]], barriers: list[tuple[int, int]], words: np.ndarray,
        view: tuple[View, int] | None,
    ) -> Callable[[], None]:  # fmt: skip
        def run() -> None:
            memory = self.shared.view(np.uint32)
            for (block, address), barrier, values in zip(places, barriers, words, strict=True):
                assert address % (4 * len(values)) == 0 and address + 4 * len(values) <= self.shared_bytes
                first = (block * self.shared_bytes + address) // 4
                memory[first : first + len(values)] = values
                if self.races and view:
                    self.races.counted(barrier, first + np.arange(len(values)), *view, THREADS)
                self.progress.barriers[barrier].expected -= 4 * len(values)
                self.settle(barrier)

        return run
