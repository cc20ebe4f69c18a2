"""Two accesses of the same memory of which at least one writes, and nothing orders them: found whatever the order was.

Shared and global memory are watched by words of 32 bits: who wrote last, who has read since.  An access by threads and
one by a bulk copy or a warpgroup's matrix instruction also want fence.proxy.async between them, by the thread whose
access it is, as the copy may overtake what the thread has begun: also a load, whose value is still on its way when a
barrier has already been told.  Accesses of one warp count as ordered.
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from emulated_cuda.clocks import FENCED, KNOWN, PAST, Clocks, View
from emulated_cuda.ptx import Kernel

THREADS, COPY, WORD = 0, 1, 2
"""Who accesses: threads; a bulk copy or a matrix instruction; threads that exchange words."""
GLOBAL_SLOTS = 16
MOST_TOLD = 8


class Shadow:
    """Of each word of a memory the last write, and of each slot the last read since: (agent, moment, who, line)."""

    def __init__(self, nbytes: int, slots: int) -> None:
        self.writes = np.full((-(-nbytes // 4), 4), -1, np.int32)
        self.reads = np.full((-(-nbytes // 4), slots, 4), -1, np.int32)


@dataclass(frozen=True)
class Race:
    memory: str
    before: str
    after: str
    place: int

    def __str__(self) -> str:
        return f"{self.memory} memory at {self.place}: nothing orders\n    {self.before}\n  before\n    {self.after}"


@dataclass
class Access:
    """Of words of a memory.  agents, moments: who does it when, for each word.  line: the instruction."""

    shadow: Shadow
    words: np.ndarray
    agents: np.ndarray
    moments: np.ndarray
    who: int
    writes: bool
    line: int
    values: list[bytes] | None = None
    changes: np.ndarray | None = None


@dataclass
class Races:
    """warps: of each block.  line: of the instruction that is executed now."""

    kernel: Kernel
    warps: int
    clocks: Clocks
    shared: Shadow
    memory: Shadow
    line: int = 0
    found: dict[tuple[int, int], Race] = field(default_factory=dict)

    @staticmethod
    def of(kernel: Kernel, count: int, shared_bytes: int, global_bytes: int) -> Races:
        warps = kernel.threads // 32
        slots = Shadow(shared_bytes, warps + 2), Shadow(global_bytes, GLOBAL_SLOTS)
        return Races(kernel, warps, Clocks(count), *slots)

    def by_threads(
        self, shared: bool, places: np.ndarray, nbytes: int, threads: np.ndarray, writes: bool, who: int = THREADS,
        stored: np.ndarray | None = None, found: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        """places: where each of these threads accesses so many bytes.  stored, found: [threads nbytes], what it stores
        and what is there."""
        each = np.arange(max(1, nbytes // 4))
        words = (places[:, None] // 4 + each).reshape(-1)
        warps = np.repeat(threads // 32, each.size)
        access = Access(
            self.shared if shared else self.memory, words, warps, self.clocks.now(warps), who, writes, self.line
        )
        if stored is not None and found is not None:
            whole = stored.reshape(len(places), each.size, -1)
            access.values = [row.tobytes() for row in whole.reshape(words.size, -1)]
            access.changes = (whole != found.reshape(whole.shape)).any(2).reshape(-1)
        if writes:
            self._check_each_other(access)
        self._check(access, self.clocks.views, warps)
        self._record(access)

    def by_copy(
        self, shared: bool, words: np.ndarray, agent: int, moment: int, view: View, writes: bool, line: int,
        who: int = COPY,
    ) -> None:  # fmt: skip
        """view: of the warp that began it, as it was then."""
        words = np.unique(words)
        agents, moments = np.full(words.size, agent, np.int32), np.full(words.size, moment, np.int32)
        access = Access(self.shared if shared else self.memory, words, agents, moments, who, writes, line)
        wide = np.zeros((1, 3, self.clocks.views.shape[2]), np.int32)
        wide[0, :, : view.shape[1]] = view
        self._check(access, wide, np.zeros(words.size, np.int64))
        self._record(access)

    def counted(self, barrier: tuple[int, int], words: np.ndarray, view: View, line: int, who: int = COPY) -> None:
        """Words of shared memory that were written on their own, and which a barrier is about to count."""
        clocks = self.clocks
        self.by_copy(True, words, clocks.agent(barrier), clocks.phase(barrier), view, True, line, who)
        clocks.count_bytes(barrier, view)

    def begin(self, warp: int) -> tuple[View, int]:
        """(what a copy that a warp begins now comes after, the line)."""
        return self.clocks.tell(warp), self.line

    def _check_each_other(self, access: Access) -> None:
        """Warps that execute one instruction side by side."""
        order = np.argsort(access.words, kind="stable")
        words, agents = access.words[order], access.agents[order]
        for i in np.flatnonzero((words[1:] == words[:-1]) & (agents[1:] != agents[:-1])):
            same = access.values is not None and access.values[order[i]] == access.values[order[i + 1]]
            if access.who != WORD and not same:
                self._tell(access, access.line, int(agents[i]), int(agents[i + 1]), int(words[i]))

    def _check(self, access: Access, views: np.ndarray, rows: np.ndarray) -> None:
        shadow, words = access.shadow, access.words
        writes = shadow.writes[words]
        if access.changes is not None:
            writes[~access.changes, 0] = -1
        self._compare(access, writes, views, rows, PAST if access.writes else KNOWN)
        if access.writes:
            reads = shadow.reads[words]
            self._compare(access, reads, views, rows[:, None], PAST)

    def _compare(self, access: Access, before: np.ndarray, views: np.ndarray, rows: np.ndarray, sense: int) -> None:
        agents, moments, who, lines = (before[..., i] for i in range(4))
        there, rows = agents >= 0, np.broadcast_to(rows, agents.shape)
        safe = np.where(there, agents, 0)
        bad = there & (views[rows, sense, safe] < moments)
        if access.who == COPY:
            bad |= there & (who == THREADS) & (views[rows, FENCED, safe] < moments)
        if access.who == WORD:
            bad &= who != WORD
        if not bad.any():
            return
        pairs, first = np.unique(lines[bad], return_index=True)
        for line, i in zip(pairs, first, strict=True):
            where = tuple(axis[i] for axis in np.nonzero(bad))
            self._tell(access, int(line), int(agents[where]), int(access.agents[where[0]]), int(access.words[where[0]]))

    def _tell(self, access: Access, line: int, one: int, other: int, word: int) -> None:
        memory = "shared" if access.shadow is self.shared else "global"
        before, after = self._said(line, one), self._said(access.line, other)
        self.found.setdefault((line, access.line), Race(memory, before, after, 4 * word))

    def _said(self, line: int, agent: int) -> str:
        instruction = self.kernel.body[line]
        who = f"warp {agent % self.warps} of block {agent // self.warps}"
        if agent >= self.clocks.count:
            who = "what goes on by itself"
        return f"line {instruction.line}: {instruction.op} {', '.join(instruction.operands)} ({who})"

    def _record(self, access: Access) -> None:
        shadow, words = access.shadow, access.words
        made = np.stack(
            [access.agents, access.moments, np.full(words.size, access.who), np.full(words.size, access.line)], 1
        )
        if access.writes:
            shadow.writes[words] = made
            shadow.reads[words] = -1
            return
        slots = shadow.reads.shape[1]
        own = access.agents % (self.warps if access.shadow is self.shared else slots)
        own = np.where(access.agents < self.clocks.count, own, slots - 1 - access.agents % 2)
        shadow.reads[words, own] = made

    def end(self) -> None:
        """AssertionError with the first races where there are some."""
        told = "\n".join(map(str, list(self.found.values())[:MOST_TOLD]))
        assert not self.found, f"{len(self.found)} races\n{told}"
