"""Loads, stores and additions of threads, in shared and in global memory: a part of the PTX interpreter."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

import numpy as np
from emulated_cuda.early_launches import EarlyLaunches
from emulated_cuda.ptx import Kernel
from emulated_cuda.races import THREADS, WORD, Races
from emulated_cuda.registers import SIGNED, UNSIGNED, names

GLOBAL_BASE = 1 << 20
"""Where global memory starts; what is below it is shared."""


class MemoryOps(EarlyLaunches, ABC):
    """Instructions of Threads.  races: who watches them, where somebody does."""

    kernel: Kernel
    count: int
    block: np.ndarray
    shared: np.ndarray
    memory: np.ndarray
    shared_bytes: int
    arguments: dict[str, int]
    unfenced: np.ndarray
    races: Races | None
    send: Callable[[tuple[str, ...], np.ndarray], None]
    halves: Callable[[str], str]

    @abstractmethod
    def value(self, operand: str, kind: str, lanes: np.ndarray | None = None) -> np.ndarray: ...

    @abstractmethod
    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None: ...

    def watch(
        self, memory: np.ndarray, places: np.ndarray, nbytes: int, lanes: np.ndarray, writes: bool, who: int = THREADS
    ) -> np.ndarray | None:
        """These threads access so many bytes each.  Of a load [threads words], which find garbage, if any do."""
        if not self.races or not places.size:
            return None
        return self.races.by_threads(memory is self.shared, places, nbytes, np.flatnonzero(lanes), writes, who)

    def spoil(self, found: np.ndarray, unknown: np.ndarray | None) -> np.ndarray:
        """What threads have loaded, with garbage for some words.  unknown: which, [threads words]."""
        if not self.races or unknown is None or not unknown.any():
            return found
        raw = np.ascontiguousarray(found).view(np.uint8).copy()
        garbage = np.resize(np.array([self.races.garbage], np.uint32).view(np.uint8), raw.shape)
        return np.where(unknown.repeat(raw.shape[1] // unknown.shape[1], axis=1), garbage, raw).view(found.dtype)

    def _watch_store(
        self, memory: np.ndarray, places: np.ndarray, size: int, lanes: np.ndarray, suffixes: list[str],
        registers: list[str],
    ) -> None:  # fmt: skip
        """Whoever stores what is there already harms no other store."""
        if not self.races or not places.size:
            return
        kind = UNSIGNED[size * 8]
        values = np.stack([self.value(register, f"u{size * 8}", lanes) for register in registers], axis=1)
        there = memory.view(kind)[places[:, None] // size + np.arange(len(registers))]
        nbytes, who = size * len(registers), self._exchanged(suffixes)
        stored, found = (np.ascontiguousarray(a).view(np.uint8).reshape(len(places), nbytes) for a in (values, there))
        self.races.by_threads(memory is self.shared, places, nbytes, np.flatnonzero(lanes), True, who, stored, found)

    @staticmethod
    def _exchanged(suffixes: list[str]) -> int:
        return WORD if {"relaxed", "acquire", "release"} & set(suffixes) else THREADS

    def _words(
        self, suffixes: list[str], places: np.ndarray, nbytes: int, lanes: np.ndarray, *what: str, adds: bool = False
    ) -> None:
        """Words that threads of a launch exchange: what follows from them.  adds: to what others have stored there."""
        if not self.races or not (adds or self._exchanged(suffixes) == WORD):
            return
        clocks, warps = self.races.clocks, np.flatnonzero(lanes) // 32
        words = places[:, None] // 4 + np.arange(max(1, nbytes // 4))
        acquires, releases = ({kind, "acq_rel"} & set(suffixes) != set() for kind in ("acquire", "release"))
        for warp in map(int, np.unique(warps)):
            mine = np.unique(words[warps == warp]).tolist()
            if "load" in what:
                for word in mine:
                    clocks.load_word(warp, word, acquires)
            if "store" in what:
                clocks.store_words(warp, mine, releases, adds)

    def places(self, operand: str, size: int, lanes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        """The memory that an address operand lies in, and the bytes' places of the threads in `lanes`."""
        base, _, offset = operand.strip("[]").partition("+")
        addresses = self.value(base, "s64", lanes) + int(offset or 0)
        assert (addresses % size == 0).all(), "a misaligned access"
        remote = addresses >> 32
        blocks = self.block[lanes]
        if remote.any():
            blocks = blocks // self.kernel.cluster * self.kernel.cluster + remote - 1
            addresses = addresses & 0xFFFFFFFF
        if (addresses >= GLOBAL_BASE).all():
            memory, found = self.memory, addresses - GLOBAL_BASE
        else:
            assert (addresses >= 0).all() and (addresses + size <= self.shared_bytes).all(), "outside shared memory"
            memory, found = self.shared, addresses + blocks * self.shared_bytes
        assert found.min() >= 0 and found.max() + size <= memory.size, "an access outside memory"
        return memory, found

    def op_ld(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if "param" in suffixes:
            self.write(operands[0], np.full(self.count, self.arguments[operands[1].strip("[]")], np.uint64), lanes)
            return
        if suffixes[-1] == "b128":
            operands, suffixes = (self.halves(operands[0]), operands[1]), [*suffixes[:-1], "b64"]
        registers, size = names(operands[0]), int(suffixes[-1][1:]) // 8
        memory, places = self.places(operands[1], size * len(registers), lanes)
        unknown = self.watch(memory, places, size * len(registers), lanes, False, self._exchanged(suffixes))
        self._words(suffixes, places, size * len(registers), lanes, "load")
        index = places[:, None] // size + np.arange(len(registers))
        found = self.spoil(self.loaded(memory, UNSIGNED[size * 8], index, self.block[lanes]), unknown)
        for i, register in enumerate(registers):
            values = np.ascontiguousarray(found[:, i])
            signed = suffixes[-1].startswith("s")
            self.write(register, values.view(SIGNED[size * 8]).astype(np.int64) if signed else values, lanes)

    def op_st(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        if "async" in suffixes:
            self.send(operands, lanes)
            return
        if suffixes[-1] == "b128":
            operands, suffixes = (operands[0], self.halves(operands[1])), [*suffixes[:-1], "b64"]
        registers, size = names(operands[1]), int(suffixes[-1][1:]) // 8
        memory, places = self.places(operands[0], size * len(registers), lanes)
        self._watch_store(memory, places, size, lanes, suffixes, registers)
        self._words(suffixes, places, size * len(registers), lanes, "store")
        self.check_stores(memory, lanes)
        words = memory.view(UNSIGNED[size * 8])
        if memory is self.shared:
            self.unfenced[places // 4] = np.flatnonzero(lanes) + 1
        for i, register in enumerate(registers):
            words[places // size + i] = self.value(register, f"u{size * 8}", lanes)

    def op_atom(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.13.5, additions: one thread after the other."""
        assert suffixes[-2:] == ["add", "u32"], suffixes
        memory, places = self.places(operands[1], 4, lanes)
        self.watch(memory, places, 4, lanes, True, WORD)
        self._words(suffixes, places, 4, lanes, "load", "store", adds=True)
        words, amounts, before = memory.view(np.uint32), self.value(operands[2], "u32"), np.zeros(self.count, np.uint32)
        for thread, place in zip(np.flatnonzero(lanes), places // 4, strict=True):
            before[thread] = words[place]
            words[place] += amounts[thread]
        self.write(operands[0], before, lanes)

    def op_red(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """9.7.13.7, additions, of which a thread learns nothing."""
        assert suffixes[-2:] == ["add", "u64"], suffixes
        memory, places = self.places(operands[0], 8, lanes)
        self.watch(memory, places, 8, lanes, True, WORD)
        self._words(suffixes, places, 8, lanes, "store", adds=True)
        np.add.at(memory.view(np.uint64), places // 8, self.value(operands[1], "u64", lanes))
