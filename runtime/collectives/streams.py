"""Collectives on GPUs, by libraries with NCCL's functions: NVIDIA's own, and AMD's, which has the same under its name.

They run on a stream beside the device's, which takes turns with it by events: kernels go on meanwhile.
"""

from __future__ import annotations

import ctypes
import sys
import time
from collections import deque
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.host import waiting_loop
from lispgpt.runtime.collectives.peers import Peers
from lispgpt.runtime.devices.gpu import GpuDevice
from lispgpt.runtime.plan.steps import (
    ALL_GATHER,
    ALL_REDUCE,
    ALL_REDUCE_MAX,
    ALL_REDUCE_MIN,
    ALL_SLICE,
    BROADCAST,
    REDUCE_SCATTER,
    Collective,
)

load_library: Callable[[str], Any] = ctypes.CDLL

DTYPES = {"i32": 2, "f32": 7, "bf16": 9}
SUM, MAX, MIN, ROOT = 0, 2, 3, 0
"""Members of ncclDataType_t and ncclRedOp_t, and the rank that broadcasts.  Source: nccl.h, rccl.h."""

FUNCTIONS = {
    ALL_REDUCE: ("ncclAllReduce", (SUM,)),
    ALL_REDUCE_MAX: ("ncclAllReduce", (MAX,)),
    ALL_REDUCE_MIN: ("ncclAllReduce", (MIN,)),
    BROADCAST: ("ncclBroadcast", (ROOT,)),
    ALL_GATHER: ("ncclAllGather", ()),
    REDUCE_SCATTER: ("ncclReduceScatter", (SUM,)),
}
"""What does an operation, and what it takes between the elements' type and the communicator."""


class UniqueId(ctypes.Structure):
    """ncclUniqueId: by what the ranks of a communicator find each other."""

    _fields_ = [("internal", ctypes.c_char * 128)]


@dataclass(frozen=True)
class Library:
    """name: as people say it.  files: under which the loader may find it.  missing: what helps where it does not."""

    name: str
    files: Sequence[str]
    missing: str

    def load(self) -> Any:
        for file in self.files:
            try:
                return load_library(file)
            except OSError:
                continue
        raise UserError(f"no devices can work together here: {self.files[-1]} is missing ({self.missing})")


@dataclass(frozen=True)
class _Prepared:
    """calls: functions and what they take before the communicator.  copies: of this rank's memory alone: from where, to
    where, bytes."""

    step: Collective
    calls: list[tuple[str, list[Any]]]
    copies: list[tuple[int, int, int]]


@dataclass(frozen=True)
class _Begun:
    """number: of all steps that have begun.  done: an event that comes behind it, which others get once it is waited
    for: a step may begin again before."""

    step: Collective
    number: int
    done: Any


class StreamEngine:
    """A communicator of the ranks of a run, one device each."""

    asynchronous = True

    def __init__(self, device: GpuDevice, peers: Peers, library: Library) -> None:
        self._library, self._name, self._peers = library.load(), library.name, peers
        self._library.ncclGetErrorString.restype = ctypes.c_char_p
        version = ctypes.c_int()
        self._call("ncclGetVersion", ctypes.byref(version))
        self.name, self.rank = f"{library.name} {_spelled(version.value)}", peers.place.rank
        own = UniqueId()
        if peers.place.rank == 0:
            self._call("ncclGetUniqueId", ctypes.byref(own))
        (first, *_) = peers.gather("unique id", bytes(own).hex())
        self._communicator = ctypes.c_void_p()
        unique, size, rank = UniqueId.from_buffer_copy(bytes.fromhex(first)), peers.place.size, peers.place.rank
        self._call("ncclCommInitRank", ctypes.byref(self._communicator), ctypes.c_int(size), unique, ctypes.c_int(rank))
        self._side = device.side_stream()
        self._under_way: deque[_Begun] = deque()
        self._events: list[Any] = []
        self._count = 0

    def prepare(self, step: Collective, buffers: Mapping[str, Any]) -> _Prepared:
        if step.operation == ALL_SLICE:
            return _Prepared(step, [], self._copies(step, buffers))
        function, more = FUNCTIONS[step.operation]
        calls = []
        for source, target, dtype in step.pairs:
            count = min(source.nbytes, target.nbytes) // find_dtype(dtype).item_bytes
            places = [ctypes.c_void_p(buffers[a.buffer] + a.offset) for a in (source, target)]
            numbers = [ctypes.c_int(DTYPES[dtype]), *map(ctypes.c_int, more)]
            calls.append((function, [*places, ctypes.c_size_t(count), *numbers]))
        return _Prepared(step, calls, [])

    def _copies(self, step: Collective, buffers: Mapping[str, Any]) -> list[tuple[int, int, int]]:
        """From where to where this rank's parts are copied, and how many bytes."""
        rank, found = self._peers.place.rank, []
        for source, target, _ in step.pairs:
            first = buffers[source.buffer] + source.offset + rank * target.nbytes
            found.append((first, buffers[target.buffer] + target.offset, target.nbytes))
        return found

    def start(self, prepared: _Prepared) -> _Begun:
        self._count = self._peers.arrived()
        begun = _Begun(prepared.step, self._count, self._events.pop() if self._events else self._side.event())
        self._side.follow()
        stream = ctypes.c_void_p(self._side.handle)
        for source, target, nbytes in prepared.copies:
            self._side.copy(source, target, nbytes)
        if prepared.calls:
            self._call("ncclGroupStart")
            for function, arguments in prepared.calls:
                self._call(function, *arguments, self._communicator, stream)
            self._call("ncclGroupEnd")
        self._side.record(begun.done)
        self._under_way.append(begun)
        return begun

    def wait(self, begun: _Begun) -> None:
        self._side.lead(begun.done)

    def mark(self) -> int:
        return self._count

    def settle(self, count: int | None = None) -> None:
        while self._under_way and (count is None or self._under_way[0].number <= count):
            begun = self._under_way[0]
            try:
                done = partial(self._is_done, begun)
                waiting_loop(self._peers, done, begun.step.label, time.sleep, time.monotonic, begun.number)
            except BaseException:
                self._abort()
                raise
            self._events.append(self._under_way.popleft().done)

    def close(self) -> None:
        if self._communicator:
            if sys.exc_info()[0] is not None:
                self._abort()
                return
            communicator, self._communicator = self._communicator, ctypes.c_void_p()
            self._call("ncclCommDestroy", communicator)

    def _is_done(self, begun: _Begun) -> bool:
        error = ctypes.c_int()
        self._call("ncclCommGetAsyncError", self._communicator, ctypes.byref(error))
        if error.value:
            raise UserError(f"{begun.step.label} failed with {self._error(error.value)}")
        return self._side.is_done(begun.done)

    def _abort(self) -> None:
        """Have the kernels of this communicator end, which else wait for ranks that are gone."""
        if self._communicator:
            communicator, self._communicator = self._communicator, ctypes.c_void_p()
            self._library.ncclCommAbort(communicator)
        self._under_way.clear()

    def _call(self, function: str, *arguments: Any) -> None:
        status = int(getattr(self._library, function)(*arguments))
        if status:
            raise UserError(f"{function} failed with {self._error(status)}")

    def _error(self, status: int) -> str:
        said = self._library.ncclGetErrorString(ctypes.c_int(status))
        return f"{said.decode(errors='replace')} ({status}); NCCL_DEBUG=INFO says more"


def _spelled(version: int) -> str:
    """NCCL's number of a version: 22705 is 2.27.5, and 2804 was 2.8.4."""
    thousand = 10000 if version >= 10000 else 1000
    return f"{version // thousand}.{version % thousand // 100}.{version % 100}"
