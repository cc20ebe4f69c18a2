"""Copies that threads start and wait for by groups (9.7.9.25, cp.async): a part of the PTX interpreter."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from emulated_cuda.clocks import COPIES
from emulated_cuda.races import THREADS


@dataclass
class Copy:
    """Bytes for some threads.  group: how many groups each had closed before."""

    threads: np.ndarray
    group: np.ndarray
    shared: np.ndarray
    places: np.ndarray
    found: np.ndarray


class AsyncCopies:
    """Instructions of Threads.  What is copied is there when its group has been waited for, and not before."""

    def begin_copies(self) -> None:
        self.copies: list[Copy] = []
        self.groups = np.zeros(self.count, np.int64)

    def op_cp(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """Past as many bytes as the last operand says it writes zeros."""
        if "prefetch" in suffixes:
            tensor = operands[0].strip("[]{} ").split(",")[0]
            assert all(int(handle) in self.tensors for handle in self.value(tensor, "u64")[lanes]), "no tensor map"
        elif "bulk" in suffixes:
            brings = self.bulk_bytes if "mbarrier::complete_tx::bytes" in suffixes else self.bulk_group
            brings = self.bulk_remote if "shared::cta" in suffixes else brings
            (self.bulk_tensor if "tensor" in suffixes else brings)(suffixes, operands, lanes)
        elif suffixes[-1] == "commit_group":
            self.groups[lanes] += 1
        elif suffixes[-1] in ("wait_group", "wait_all"):
            newest = int(operands[0]) if suffixes[-1] == "wait_group" else -1
            self._land(lanes, self.groups - newest)
        else:
            self._start(operands, lanes)

    def _start(self, operands: tuple[str, ...], lanes: np.ndarray) -> None:
        size = int(operands[2])
        counts = self.value(operands[3], "u32")[lanes] if len(operands) > 3 else np.full(lanes.sum(), size)
        shared, to = self.places(operands[0], size, lanes)
        memory, source = self.places(operands[1], size, lanes)
        every = np.arange(size)
        unknown = self.watch_copies(shared, to, size, memory, source, counts, lanes)
        found = self.spoil(self.loaded(memory, np.uint8, source[:, None] + every, self.block[lanes]), unknown)
        found = np.where(every < counts[:, None], found, 0)
        self.copies.append(Copy(np.flatnonzero(lanes), self.groups[lanes], shared, to[:, None] + every, found))

    def watch_copies(
        self, shared: np.ndarray, to: np.ndarray, size: int, memory: np.ndarray, source: np.ndarray,
        counts: np.ndarray, lanes: np.ndarray,
    ) -> np.ndarray | None:  # fmt: skip
        """They have read and written when their thread has waited for the group.  Of what is read [threads words],
        which is garbage."""
        if not self.races:
            return None
        warps, each = np.flatnonzero(lanes) // 32, np.arange(max(1, size // 4))
        unknown, read = np.zeros((warps.size, each.size), bool), 4 * each < counts[:, None]
        for warp in map(int, np.unique(warps)):
            mine = warps == warp
            moment = int(self.groups[lanes][mine].max()) + 1
            view, line = self.races.begin(warp)
            agent = COPIES * self.races.clocks.count + warp
            words, read_here = source[mine][:, None] // 4 + each, read & mine[:, None]
            spoiled = self.races.by_copy(memory is shared, words[read[mine]], agent, moment, view, False, line, THREADS)
            if spoiled is not None:
                unknown[read_here] = spoiled
            self.races.by_copy(True, to[mine][:, None] // 4 + each, agent, moment, view, True, line, THREADS)
        return unknown

    def _land(self, lanes: np.ndarray, before: np.ndarray) -> None:
        """Write what these threads have copied in groups below their numbers."""
        if self.races:
            for warp in np.unique(np.flatnonzero(lanes) // 32):
                mine = before[32 * warp : 32 * warp + 32][lanes[32 * warp : 32 * warp + 32]]
                self.races.clocks.over(int(warp), COPIES, int(mine.min()))
        for copy in self.copies:
            done = lanes[copy.threads] & (copy.group < before[copy.threads])
            copy.shared[copy.places[done]] = copy.found[done]
            copy.threads, copy.group, copy.places, copy.found = (
                field[~done] for field in (copy.threads, copy.group, copy.places, copy.found)
            )
        self.copies = [copy for copy in self.copies if copy.threads.size]
