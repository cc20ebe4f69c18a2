"""A library with NCCL's functions, made here: it combines what ranks, which are threads, have in this process's memory.

Every call is kept with what it was given, as C would get it.
"""

from __future__ import annotations

import ctypes
import threading
from typing import Any

import numpy as np

KINDS = {2: np.int32, 7: np.float32}
OPERATIONS = {0: np.add, 2: np.maximum, 3: np.minimum}
TAKES = {
    "ncclAllReduce": "source target count kind op communicator stream",
    "ncclBroadcast": "source target count kind root communicator stream",
    "ncclAllGather": "source target count kind communicator stream",
    "ncclReduceScatter": "source target count kind op communicator stream",
}


class Nccl:
    """size: ranks.  failing: the function that fails.  asynchronous: the error that a communicator says it has had.
    file: how the one file ends that the loader finds."""

    file = ("libnccl.so.2", "/opt/rocm/lib/librccl.so")

    def __init__(self, size: int) -> None:
        self.size = size
        self.failing, self.asynchronous = "", 0
        self.calls: list[tuple[int, str, dict[str, int]]] = []
        self.ids: set[bytes] = set()
        self._ranks: dict[int, int] = {}
        self._given: dict[int, list[tuple[str, dict[str, int]]]] = {}
        self._barrier = threading.Barrier(size)
        self._rank = threading.local()
        self.ncclGetErrorString = lambda status: b"made to fail"

    def __getattr__(self, name: str) -> Any:
        if not name.startswith("nccl"):
            raise AttributeError(name)

        def call(*arguments: Any) -> int:
            known = {}
            if name in TAKES:
                words = TAKES[name].split()
                known = {word: int(a.value or 0) for word, a in zip(words, arguments, strict=True)}
            self.calls.append((getattr(self._rank, "number", -1), name, known))
            if name == self.failing:
                return 3
            if name in TAKES:
                self._given.setdefault(self._rank.number, []).append((name, known))
            elif hasattr(self, f"_{name}"):
                getattr(self, f"_{name}")(*arguments)
            return 0

        return call

    def order(self, rank: int) -> list[str]:
        """The functions that a rank has called."""
        return [name for caller, name, _ in self.calls if caller == rank]

    def _ncclGetVersion(self, version: Any) -> None:
        version._obj.value = 22705

    def _ncclGetUniqueId(self, unique: Any) -> None:
        ctypes.memmove(ctypes.addressof(unique._obj), bytes(range(1, 129)), 128)

    def _ncclCommInitRank(self, communicator: Any, size: Any, unique: Any, rank: Any) -> None:
        assert size.value == self.size and bytes(unique) == bytes(range(1, 129))
        self._rank.number = rank.value
        communicator._obj.value = 0x1000 + rank.value
        self._barrier.wait(20)

    def _ncclCommGetAsyncError(self, communicator: Any, error: Any) -> None:
        error._obj.value = self.asynchronous

    def _ncclGroupEnd(self) -> None:
        self._barrier.wait(20)
        own = self._given[self._rank.number]
        made = [self._exchange(number, name) for number, (name, _) in enumerate(own)]
        self._barrier.wait(20)
        for (_, known), array in zip(own, made, strict=True):
            ctypes.memmove(known["target"], array.ctypes.data, array.nbytes)
        own.clear()
        self._barrier.wait(20)

    def _exchange(self, number: int, name: str) -> np.ndarray:
        """What this rank has after one of a group's calls."""
        given = [self._given[rank][number] for rank in range(self.size)]
        assert {called for called, _ in given} == {name}
        assert len({(known["count"], known["kind"], known.get("op")) for _, known in given}) == 1
        own = given[self._rank.number][1]
        count = own["count"] * (self.size if name == "ncclReduceScatter" else 1)
        kind = np.dtype(KINDS[own["kind"]])
        arrays = [np.frombuffer(ctypes.string_at(known["source"], count * kind.itemsize), kind) for _, known in given]
        if name == "ncclBroadcast":
            return arrays[own["root"]].copy()
        if name == "ncclAllGather":
            return np.concatenate(arrays)
        total = OPERATIONS[own["op"]].reduce(arrays, 0, dtype=kind)
        rank = self._rank.number
        return total if name == "ncclAllReduce" else total[rank * own["count"] :][: own["count"]].copy()
