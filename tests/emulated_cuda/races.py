"""Two accesses of the same memory of which at least one writes, and nothing orders them: found whatever the order was.

Shared and global memory are watched by words of 32 bits, or of as few as a kernel loads or stores: who wrote last, who
has read since.  An access by threads and
one by a bulk copy or a warpgroup's matrix instruction also want fence.proxy.async between them, by the thread whose
access it is, as the copy may overtake what the thread has begun: also a load, whose value is still on its way when a
barrier has already been told.  Accesses of one warp count as ordered.

A load beside a store, such as one of a row past the last whose value a select drops, is no race where the launch leaves
the same bits whatever the load finds: it is run again, in the same order, with garbage in place of what was loaded.
"""

from __future__ import annotations

import mmap
from dataclasses import dataclass, field
from functools import cached_property
from math import prod

import numpy as np
from emulated_cuda.clocks import FENCED, KNOWN, PAST, Clocks, View
from emulated_cuda.ptx import Kernel
from emulated_cuda.spans import Spans

THREADS, COPY, WORD = 0, 1, 2
"""Who accesses: threads; a bulk copy or a matrix instruction; threads that exchange words."""
GLOBAL_SLOTS = 16
NORESERVE = 0x4000
"""A flag of mmap."""
MOST_TOLD = 8


GARBAGE = 0xFFFFFFFF, 0x7F7F7F7F, 0xFF7F7F7F
"""NaN, and large numbers, in f32, bf16 and f16; no place in memory."""
Load = tuple[int, int, int, int]
"""(line, agent, moment, word)."""
SPOILED = "ld", "cp.async.ca", "cp.async.cg"
"""How instructions start whose loads can find garbage here: what threads load, or let be copied for them."""
STORE = -1, -1, -1, -1
"""Stands for what garbage cannot excuse: another store, or what bulk copies and matrix instructions read."""


class Shadow:
    """Of each word of a memory the last write, and of each slot the last read since, as `packed`; 0 where nobody was.

    For memory of which nothing is used the system takes none, and sets none aside.
    """

    def __init__(self, words: int, slots: int) -> None:
        self.writes = _untouched(words)
        self.reads = _untouched(words, slots)


def _untouched(*shape: int) -> np.ndarray:
    flags = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | NORESERVE
    return np.frombuffer(mmap.mmap(-1, max(8 * prod(shape), 1), flags=flags), np.int64, prod(shape)).reshape(shape)


def narrowest(kernel: Kernel) -> int:
    """The bytes of a word: 4, or fewer where a load or a store has fewer."""
    accesses = [i.op for i in kernel.body if i.op.startswith(("ld.global", "ld.shared", "st.global", "st.shared"))]
    return min([4, *(int(op.rpartition(".")[2][1:]) // 8 for op in accesses)])


def packed(agents: np.ndarray, moments: np.ndarray, who: int, line: int) -> np.ndarray:
    return (agents.astype(np.int64) + 1) << 45 | moments.astype(np.int64) << 21 | (who << 19 | line)


def unpacked(accesses: np.ndarray) -> tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]:
    """(agents, moments, who, lines)."""
    return (accesses >> 45) - 1, accesses >> 21 & 0xFFFFFF, accesses >> 19 & 3, accesses & 0x7FFFF


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
    values: np.ndarray | None = None
    changes: np.ndarray | None = None


@dataclass
class Races:
    """warps: of each block.  word: of so many bytes.  line: of the instruction that is executed now.

    loads: of a race each, those that may find anything.  unknown: loads that find `garbage`, of which `tried` have.
    spans: what the launch may access of global memory, where that is known; what it only reads there is not watched.
    """

    kernel: Kernel
    warps: int
    clocks: Clocks
    shared: Shadow
    memory: Shadow
    word: int
    spans: Spans | None = None
    line: int = 0
    found: dict[tuple[int, int], Race] = field(default_factory=dict)
    loads: dict[tuple[int, int], set[Load]] = field(default_factory=dict)
    unknown: frozenset[Load] = frozenset()
    garbage: int = 0
    tried: set[Load] = field(default_factory=set)

    @cached_property
    def spoiled_lines(self) -> frozenset[int]:
        return frozenset(load[0] for load in self.unknown)

    @staticmethod
    def of(kernel: Kernel, count: int, shared_bytes: int, global_bytes: int, spans: Spans | None = None) -> Races:
        assert len(kernel.body) < 1 << 19
        warps, word = kernel.threads // 32, narrowest(kernel)
        slots = Shadow(-(-shared_bytes // word), warps + 2), Shadow(-(-global_bytes // word), GLOBAL_SLOTS)
        return Races(kernel, warps, Clocks(count), *slots, word, spans)

    def by_threads(
        self, shared: bool, places: np.ndarray, nbytes: int, threads: np.ndarray, writes: bool, who: int = THREADS,
        stored: np.ndarray | None = None, found: np.ndarray | None = None,
    ) -> np.ndarray | None:  # fmt: skip
        """Of a load [threads words], which find garbage, if any do.

        places: where each of these threads accesses so many bytes.  stored, found: [threads nbytes], what it stores
        and what is there.
        """
        if not shared and self.spans is not None and self.spans.admit(places, nbytes, writes):
            return None
        each = np.arange(max(1, nbytes // self.word))
        words = (places[:, None] // self.word + each).reshape(-1)
        warps = np.repeat(threads // 32, each.size)
        access = Access(
            self.shared if shared else self.memory, words, warps, self.clocks.now(warps), who, writes, self.line
        )
        if stored is not None and found is not None:
            whole = stored.reshape(len(places), each.size, -1)
            access.values = whole.reshape(words.size, -1)
            access.changes = (whole != found.reshape(whole.shape)).any(2).reshape(-1)
        if writes:
            self._check_each_other(access)
        self._check(access, self.clocks.views, warps)
        self._record(access)
        return None if writes else self._spoiled(access, words.reshape(-1, each.size))

    def by_copy(
        self, shared: bool, words: np.ndarray, agent: int, moment: int, view: View, writes: bool, line: int,
        who: int = COPY,
    ) -> np.ndarray | None:  # fmt: skip
        """Of what is read, which words are garbage, if any are.

        words: of 4 bytes.  view: of the warp that began it, as it was then.
        """
        if not shared and self.spans is not None and self.spans.admit(4 * words.reshape(-1), 4, writes):
            return None
        parts = 4 // self.word
        given, words = words, (np.unique(words)[:, None] * parts + np.arange(parts)).reshape(-1)
        agents, moments = np.full(words.size, agent, np.int32), np.full(words.size, moment, np.int32)
        access = Access(self.shared if shared else self.memory, words, agents, moments, who, writes, line)
        wide = np.zeros((1, 3, self.clocks.views.shape[2]), np.int32)
        wide[0, :, : view.shape[1]] = view
        self._check(access, wide, np.zeros(words.size, np.int64))
        self._record(access)
        return None if writes else self._spoiled(access, given, parts)

    def _spoiled(self, access: Access, words: np.ndarray, parts: int = 1) -> np.ndarray | None:
        """Which of some words are garbage, wholly where one of their parts is."""
        if access.line not in self.spoiled_lines:
            return None
        numbers = access.words.tolist()
        loads = zip(access.agents.tolist(), access.moments.tolist(), numbers, strict=True)
        tried = {(access.line, *load) for load in loads} & self.unknown
        self.tried |= tried
        return np.isin(words, [load[3] // parts for load in tried])

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
            same = access.values is not None and (access.values[order[i]] == access.values[order[i + 1]]).all()
            if access.who != WORD and not same:
                self._tell(access, access.line, int(agents[i]), int(agents[i + 1]), int(words[i]), {STORE})

    def _check(self, access: Access, views: np.ndarray, rows: np.ndarray) -> None:
        shadow, words = access.shadow, access.words
        writes = shadow.writes[words]
        if access.changes is not None:
            writes[~access.changes] = 0
        self._compare(access, writes[:, None], views, rows, PAST if access.writes else KNOWN)
        if access.writes:
            self._compare(access, shadow.reads[words], views, rows, PAST, reads=True)

    def _compare(
        self, access: Access, before: np.ndarray, views: np.ndarray, rows: np.ndarray, sense: int, reads: bool = False
    ) -> None:
        """before: [word slot]."""
        which, slot = np.nonzero(before)
        if not which.size:
            return
        agents, moments, who, lines = unpacked(before[which, slot])
        bad = views[rows[which], sense, agents] < moments
        if access.who == COPY:
            bad |= (who == THREADS) & (views[rows[which], FENCED, agents] < moments)
        if access.who == WORD:
            bad &= who != WORD
        which, agents, moments, lines = which[bad], agents[bad], moments[bad], lines[bad]
        for line in np.unique(lines).tolist():
            here = lines == line
            at = which[here]
            words = access.words[at]
            load = zip(agents[here].tolist(), moments[here].tolist(), words.tolist(), strict=True)
            if not reads:
                load = zip(access.agents[at].tolist(), access.moments[at].tolist(), words.tolist(), strict=True)
            loads_at = line if reads else access.line
            loads = {(loads_at, *each) for each in load}
            if (access.writes and not reads) or not self.kernel.body[loads_at].op.startswith(SPOILED):
                loads = {STORE}
            self._tell(access, line, int(agents[here][0]), int(access.agents[at[0]]), int(words[0]), loads)

    def _tell(self, access: Access, line: int, one: int, other: int, word: int, loads: set[Load]) -> None:
        memory = "shared" if access.shadow is self.shared else "global"
        before, after = self._said(line, one), self._said(access.line, other)
        self.found.setdefault((line, access.line), Race(memory, before, after, self.word * word))
        self.loads.setdefault((line, access.line), set()).update(loads)

    def _said(self, line: int, agent: int) -> str:
        instruction = self.kernel.body[line]
        who = f"warp {agent % self.warps} of block {agent // self.warps}"
        if agent >= self.clocks.count:
            who = "what goes on by itself"
        return f"line {instruction.line}{instruction.form}: {instruction.op} {', '.join(instruction.operands)} ({who})"

    def _record(self, access: Access) -> None:
        shadow, words = access.shadow, access.words
        made = packed(access.agents, access.moments, access.who, access.line)
        if access.writes:
            shadow.writes[words] = made
            shadow.reads[words] = 0
            return
        slots = shadow.reads.shape[1]
        if access.shadow is self.shared:
            own = access.agents % self.warps
            own = np.where(access.agents < self.clocks.count, own, slots - 1 - access.agents % 2)
        else:
            own = (access.agents + access.agents // self.clocks.count * 5) % slots
        shadow.reads[words, own] = made

    def end(self) -> None:
        """AssertionError with the first races where there are some."""
        told = "\n".join(map(str, list(self.found.values())[:MOST_TOLD]))
        assert not self.found, f"{len(self.found)} races\n{told}"
