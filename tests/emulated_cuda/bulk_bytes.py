"""Bulk copies of bytes that lie together, from global to shared memory: like those of boxes, without a map."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from emulated_cuda.bulk_ops import BulkOps, Copy
from emulated_cuda.clocks import View


class BulkBytes(BulkOps):
    def bulk_bytes(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """cp.async.bulk from global to shared memory."""
        shared, source, barriers = (
            self.value(operands[i].strip("[]"), k) for i, k in ((0, "u32"), (1, "u64"), (3, "u32"))
        )
        nbytes = int(operands[2])
        for thread in map(int, np.flatnonzero(lanes)):
            start, first = int(shared[thread]), int(source[thread]) - self.global_base
            assert start % 16 == 0 and first % 16 == 0 and nbytes % 16 == 0, "a misaligned copy"
            assert first >= 0 and first + nbytes <= self.memory.size, "outside global memory"
            assert start + nbytes <= self.shared_bytes, "outside shared memory"
            view = self.races.begin(thread // 32) if self.races else None
            place = (int(self.block[thread]), int(barriers[thread]))
            self.progress.copies.append(Copy(-1, self._bringing(first, nbytes, start, place, view)))

    def _bringing(
        self, first: int, nbytes: int, start: int, barrier: tuple[int, int], view: tuple[View, int] | None
    ) -> Callable[[], None]:
        at = barrier[0] * self.shared_bytes + start
        if self.races:  # from now on nobody knows what is there
            self.shared[at : at + nbytes] = 0xFF

        waited = self.before is None or self.waited[barrier[0]]
        found = self.memory if waited else self.before

        def run() -> None:
            self.shared[at : at + nbytes] = found[first : first + nbytes]
            if self.races and view:
                self.races.counted(barrier, np.arange(at // 4, (at + nbytes) // 4), *view)
            self.progress.barriers[barrier].expected -= nbytes
            self.settle(barrier)

        return run
