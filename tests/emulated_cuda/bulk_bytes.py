"""Bulk copies of bytes that lie together, from global to shared memory and from there to another block's: like those of
boxes, without a map."""

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

    def bulk_remote(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """cp.async.bulk from shared memory to another block's of the cluster, whose barrier counts the bytes."""
        remote, source, barriers = (self.value(operands[i].strip("[]"), "u32") for i in (0, 1, 3))
        nbytes = int(operands[2])
        for thread in map(int, np.flatnonzero(lanes)):
            block = int(self.block[thread])
            to, start = self.remote_place(int(remote[thread]), block)
            barrier = self.remote_place(int(barriers[thread]), block)
            assert barrier[0] == to != block, "a copy to a block whose barrier does not count it"
            own = block * self.shared_bytes + int(source[thread])
            assert start % 16 == own % 16 == nbytes % 16 == 0, "a misaligned copy"
            assert max(start, int(source[thread])) + nbytes <= self.shared_bytes, "outside shared memory"
            assert not self.unfenced[own // 4 : (own + nbytes) // 4].any(), "a copy may miss what was stored"
            view = self.races.begin(thread // 32) if self.races else None
            self.progress.copies.append(Copy(-1, self._sending_bytes(own, nbytes, to, start, barrier, view)))

    def _sending_bytes(
        self, own: int, nbytes: int, to: int, start: int, barrier: tuple[int, int], view: tuple[View, int] | None
    ) -> Callable[[], None]:
        at = to * self.shared_bytes + start
        if self.races:  # from now on nobody knows what is there
            self.shared[at : at + nbytes] = 0xFF

        def run() -> None:
            for reading in self.progress.readings:
                meets = reading.block == to and reading.low < start + nbytes and start < reading.high
                assert not meets, "a copy lands where a matrix instruction still reads"
            self.shared[at : at + nbytes] = self.shared[own : own + nbytes]
            if self.races and view:
                self.races.counted(barrier, np.arange(at // 4, (at + nbytes) // 4), *view)
            self.progress.barriers[barrier].expected -= nbytes
            self.settle(barrier)

        return run

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
