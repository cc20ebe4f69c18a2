"""Barriers in shared memory and bulk copies of tensors' boxes, which go on by themselves until somebody waits.

After "Parallel Thread Execution ISA", sections mbarrier and cp.async.bulk.tensor.  A copy lands at a random moment
between its start and the wait that needs it, so that whoever does not wait finds what was there before.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from emulated_cuda.clocks import STORES, STORES_READ, View
from emulated_cuda.races import Races
from emulated_cuda.registers import names

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.plan.tensor_maps import LINE, TensorMap

REMOTE = 1 << 24
"""An address in another block's shared memory is the address there, and so many times one more than its rank."""


@dataclass(frozen=True)
class MappedTensor:
    """A kernel's argument: a map, and where in global memory its tensor starts."""

    map: TensorMap
    start: int

    def places(self, at: list[int]) -> tuple[np.ndarray, np.ndarray]:
        """For each element of the box at a place, innermost dimension first: its byte in memory, and whether it is."""
        item = find_dtype(self.map.dtype).item_bytes
        inside, found = np.ones(1, bool), np.full(1, self.start, np.int64)
        strides = (item, *self.map.strides)
        for first, extent, stride, size in list(zip(at, self.map.extents, strides, self.map.box, strict=True))[::-1]:
            along = first + np.arange(size)
            inside = (inside[:, None] & (along >= 0) & (along < extent)).reshape(-1)
            found = (found[:, None] + along * stride).reshape(-1)
        return np.where(inside, found, self.start), inside


@dataclass
class Barrier:
    count: int
    pending: int
    expected: int = 0
    phase: int = 0

    def settle(self) -> bool:
        """End the phase where nobody and nothing is missing; whether it has ended."""
        assert self.pending >= 0, "more arrivals at a barrier than it counts"
        ends = self.pending == 0 and self.expected == 0
        if ends:
            self.phase, self.pending = self.phase ^ 1, self.count
        return ends


@dataclass(eq=False)
class Copy:
    """One under way.  owner: the thread that started it, for stores.  run: what it does.  batch: for stores."""

    owner: int
    run: Callable[[], None]
    batch: int = -1


@dataclass
class Reading:
    """Shared memory that a matrix instruction reads until its warpgroup has waited for its batch."""

    block: int
    warpgroup: int
    low: int
    high: int
    batch: int


@dataclass
class Progress:
    """barriers: by block and address.  blocked: by thread the (barrier, parity) that it waits for."""

    barriers: dict[tuple[int, int], Barrier] = field(default_factory=dict)
    copies: list[Copy] = field(default_factory=list)
    readings: list[Reading] = field(default_factory=list)
    batches: dict[int, int] = field(default_factory=dict)


class BulkOps(ABC):
    """block: each thread's block.  cluster: how many neighbouring blocks are one."""

    shared: np.ndarray
    memory: np.ndarray
    shared_bytes: int
    block: np.ndarray
    lane: np.ndarray
    tensors: dict[int, MappedTensor]
    rng: np.random.Generator
    progress: Progress
    stuck: np.ndarray
    awaited: np.ndarray
    unfenced: np.ndarray
    global_base: int
    races: Races | None

    @property
    @abstractmethod
    def cluster(self) -> int: ...

    @abstractmethod
    def value(self, operand: str, kind: str) -> np.ndarray: ...

    @abstractmethod
    def write(self, register: str, values: np.ndarray, lanes: np.ndarray) -> None: ...

    def op_mbarrier(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        what = suffixes[0]
        if what in ("try_wait", "test_wait"):
            self._try_wait(operands, lanes, self.races is not None or what == "test_wait")
            return
        operands = tuple(o for o in operands if o != "_")
        addresses = self.value(operands[0].strip("[]"), "u32")
        counted = what == "arrive" and "expect_tx" not in suffixes and len(operands) > 1
        numbers = self.value(operands[1], "u32") if len(operands) > 1 else addresses
        for thread in np.flatnonzero(lanes):
            key = self.remote_place(int(addresses[thread]), int(self.block[thread]))
            if what == "init":
                assert key not in self.progress.barriers, "a barrier that is made twice"
                self.progress.barriers[key] = Barrier(int(numbers[thread]), int(numbers[thread]))
                continue
            assert what == "arrive", suffixes
            if self.races:
                self.races.clocks.arrive(key, [int(thread) // 32])
            barrier = self.progress.barriers[key]
            barrier.pending -= int(numbers[thread]) if counted else 1
            if "expect_tx" in suffixes:
                barrier.expected += int(numbers[thread])
            self.settle(key)

    def settle(self, key: tuple[int, int]) -> None:
        """After something has come to a barrier: let those go on that waited for the end of its phase."""
        if self.progress.barriers[key].settle():
            self.stuck[self.awaited == (key[0] << 32 | key[1])] = False
            if self.races:
                self.races.clocks.end_phase(key)

    def remote_place(self, address: int, block: int) -> tuple[int, int]:
        """(block, address) of an address in the cluster's shared memory."""
        if address >= REMOTE:
            block, address = block // self.cluster * self.cluster + address // REMOTE - 1, address % REMOTE
        return block, address

    def _try_wait(self, operands: tuple[str, ...], lanes: np.ndarray, gives_up: bool) -> None:
        """Threads whose phase has not ended stay here until it has, or, where they may give up, until they do."""
        addresses, parities = self.value(operands[1].strip("[]"), "u32"), self.value(operands[2], "u32")
        over = np.zeros(lanes.size, bool)
        wanted = (self.block[lanes].astype(np.int64) << 32) | (addresses[lanes].astype(np.int64) << 1)
        kinds, which = np.unique(wanted | (parities[lanes] != 0), return_inverse=True)
        known = [self.progress.barriers[int(k >> 32), int(k >> 1 & 0x7FFFFFFF)].phase != (k & 1) for k in kinds]
        over[lanes] = np.array(known)[which]
        self.write(operands[0], over, lanes)
        late = lanes & ~over
        if gives_up and self.rng.random() < 0.5:
            late[:] = False
        self.stuck |= late
        self.awaited[late] = (self.block[late].astype(np.int64) << 32) | addresses[late].astype(np.int64)
        for thread in np.flatnonzero(over & lanes) if self.races else ():
            self.races.clocks.pass_phase((int(self.block[thread]), int(addresses[thread])), [int(thread) // 32])

    def bulk_tensor(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """cp.async.bulk.tensor: loads name a barrier, stores a batch of their thread's."""
        loads = "mbarrier::complete_tx::bytes" in suffixes or "complete_tx::bytes" in suffixes
        shared, tensor = operands[0:2] if loads else (operands[1], operands[0])
        tensor, where = _tensor_and_place(tensor)
        handles, addresses = self.value(tensor, "u64"), self.value(shared.strip("[]"), "u32")
        at = [self.value(name, "s32") for name in where]
        for thread in np.flatnonzero(lanes):
            source = self.tensors[int(handles[thread])]
            places, inside = source.places([int(a[thread]) for a in at])
            start = int(addresses[thread])
            assert start % 128 == 0 and source.map.box[0] * find_dtype(source.map.dtype).item_bytes == LINE
            block = int(self.block[thread])
            if loads:
                barrier = int(self.value(operands[2].strip("[]"), "u32")[thread])
                blocks = [block]
                if "multicast::cluster" in suffixes:
                    mask, first = int(self.value(operands[3], "u16")[thread]), block // self.cluster * self.cluster
                    blocks = [first + i for i in range(self.cluster) if mask >> i & 1]
                view = self.races.begin(int(thread) // 32) if self.races else None
                for to in blocks:
                    run = self._landing(source, places, inside, start, to, barrier, view)
                    self.progress.copies.append(Copy(-1, run))
            else:
                batch = self.progress.batches.setdefault(int(thread), 0)
                run = self._storing(source, places, inside, start, int(thread), batch)
                self.progress.copies.append(Copy(int(thread), run, batch))

    def _swizzled(self, start: int, nbytes: int, item: int, block: int) -> np.ndarray:
        places = start + np.arange(0, nbytes, item)
        places ^= (places >> 7 & 7) << 4
        assert start + nbytes <= self.shared_bytes, "outside shared memory"
        return places + block * self.shared_bytes

    def _landing(
        self, source: MappedTensor, places: np.ndarray, inside: np.ndarray, start: int, block: int, barrier: int,
        view: tuple[View, int] | None,
    ) -> Callable[[], None]:  # fmt: skip
        item = find_dtype(source.map.dtype).item_bytes
        kind, nbytes = np.dtype(f"u{item}"), places.size * item
        if self.races:  # from now on nobody knows what is there
            self.shared[block * self.shared_bytes + start :][:nbytes] = 0xFF

        found = self.memory if self.waited[block] or self.before is None else self.before

        def run() -> None:
            for reading in self.progress.readings:
                meets = reading.block == block and reading.low < start + nbytes and start < reading.high
                assert not meets, "a copy lands where a matrix instruction still reads"
            to = self._swizzled(start, nbytes, item, block)
            values = found.view(kind)[(places - self.global_base) // item]
            self.shared.view(kind)[to // item] = np.where(inside, values, 0)
            if self.races and view:
                self.races.counted((block, barrier), to // 4, *view)
            self.progress.barriers[block, barrier].expected -= nbytes
            self.settle((block, barrier))

        return run

    def _storing(
        self, source: MappedTensor, places: np.ndarray, inside: np.ndarray, start: int, thread: int, batch: int
    ) -> Callable[[], None]:
        item, block = find_dtype(source.map.dtype).item_bytes, int(self.block[thread])
        kind, view = np.dtype(f"u{item}"), self.races.begin(thread // 32) if self.races else None

        first = (start + block * self.shared_bytes) // 4
        assert not self.unfenced[first : first + places.size * item // 4].any(), "a copy may miss what was stored"

        def run() -> None:
            source_places = self._swizzled(start, places.size * item, item, block)
            to = (places[inside] - self.global_base) // item
            if self.races and view:
                agents = [kind * self.races.clocks.count + thread // 32 for kind in (STORES_READ, STORES)]
                self.races.by_copy(True, source_places // 4, agents[0], batch + 1, view[0], False, view[1])
                self.races.by_copy(False, to * item // 4, agents[1], batch + 1, view[0], True, view[1])
            self.memory.view(kind)[to] = self.shared.view(kind)[source_places // item][inside]

        return run

    def bulk_group(self, suffixes: list[str], operands: tuple[str, ...], lanes: np.ndarray) -> None:
        """cp.async.bulk.commit_group and wait_group."""
        batches = self.progress.batches
        for thread in map(int, np.flatnonzero(lanes)):
            if "commit_group" in suffixes:
                batches[thread] = batches.get(thread, 0) + 1
                continue
            oldest = batches.get(thread, 0) - int(operands[0])
            for copy in [c for c in self.progress.copies if c.owner == thread and c.batch < oldest]:
                self.land(copy)
            for kind in (STORES_READ, STORES) if self.races else ():
                if kind == STORES_READ or "read" not in suffixes:
                    self.races.clocks.over(thread // 32, kind, oldest)

    def land(self, copy: Copy) -> None:
        self.progress.copies.remove(copy)
        copy.run()

    def land_some(self, chance: float) -> bool:
        """One copy under way, with a chance; whether there was any."""
        copies = self.progress.copies
        found = bool(copies)
        if found and self.rng.random() < chance:
            self.land(copies[int(self.rng.integers(len(copies)))])
        return found

    def check_stored(self, threads: np.ndarray) -> None:
        """Threads end: their block's memory may go."""
        late = [c for c in self.progress.copies if c.owner >= 0 and threads[c.owner]]
        assert not late, "a thread ends while its stores still read shared memory"


def _tensor_and_place(operand: str) -> tuple[str, list[str]]:
    """A tensor operand: "[%rd1, {%r1, %r2}]"."""
    tensor, _, where = operand.strip("[]").partition(",")
    return tensor.strip(), names(where.strip())
