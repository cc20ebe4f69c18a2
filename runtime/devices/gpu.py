"""A GPU through its vendor's driver: what CUDA's driver API and HIP do alike.

Calls are named as CUDA names them, without `cu`; a vendor's class says which of its own differ by more than the prefix,
opens the device, loads machine code and launches a kernel.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.devices.calls import Calls
from lispgpt.runtime.plan import Entry, Launch

SLOT_BYTES = 4096
FAILED_BEFORE = "a kernel launched before it may have failed"
DOES_IT_FIT = "does the GPU allow this many threads and this much shared memory?"


def missing(count: Callable[[], int], vendor: str) -> str | None:
    """Why a vendor's GPU cannot be used here and what would help, in one line; None if one can."""
    try:
        return None if count() else f"the {vendor} driver finds no GPU"
    except UserError as error:
        return error.message


class GpuDevice:
    """One GPU whose entries run as graphs on one stream; buffers are addresses.

    prefix: of the driver's calls.  others: those with another name than CUDA's, or with arguments behind the common
    ones (but ahead of a stream that comes last): name → (its name, arguments…).
    """

    name: str

    def __init__(self, call: Calls, prefix: str, others: Mapping[str, tuple[Any, ...]], stream: Any) -> None:
        self._call, self._prefix, self._others, self._stream = call, prefix, others, stream
        self._buffers: list[Any] = []
        self._graphs: list[tuple[Any, Any]] = []
        self._slots: list[tuple[Any, Any]] = []
        self._reads = 0
        self._module: Any = None
        self._functions: dict[str, Any] = {}

    def _driver(
        self, name: str, *arguments: Any, on: tuple[Any, ...] = (), about: str = "", hint: str = ""
    ) -> tuple[Any, ...]:
        """A call's results.  on: the stream, where it comes last."""
        own, *more = self._others.get(name, (name,))
        return self._call(self._prefix + own, *arguments, *more, *on, about=about, hint=hint)

    def _load_module(self, code: bytes) -> Any:
        """The driver's module of an artifact's machine code."""
        raise NotImplementedError

    def _configure(self, kernel: str, facts: Mapping[str, Any]) -> None:
        """Do what a kernel of `_functions` needs before its first launch."""

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        """Launch a kernel on the stream.  first: whether none of its entry is ahead of it."""
        raise NotImplementedError

    def alloc(self, nbytes: int) -> int:
        address = self._reserve(nbytes)
        self._driver("MemsetD8", address, 0, max(nbytes, 1))
        return address

    def _reserve(self, nbytes: int) -> int:
        hint = "the GPU is short of memory"
        (pointer,) = self._driver("MemAlloc", max(nbytes, 1), about=f"{nbytes:,} bytes", hint=hint)
        self._buffers.append(pointer)
        return int(pointer)

    def copy_in(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        source = np.ascontiguousarray(array)
        self._driver("MemcpyHtoD", buffer + offset, source.ctypes.data, source.nbytes)

    def copy_out(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        self._driver("MemcpyDtoH", array.ctypes.data, buffer + offset, array.nbytes)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        self._driver("MemcpyDtoDAsync", target, source, nbytes, on=(self._stream,))

    def adopt(self, array: np.ndarray) -> int:
        address = self._reserve(array.nbytes)
        self.copy_in(address, array)
        return address

    def load(self, code: bytes, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        self._module = self._load_module(code)
        for name, facts in kernels.items():
            about, hint = f"kernel {name}", "the artifact is damaged"
            found = self._driver("ModuleGetFunction", self._module, name.encode(), about=about, hint=hint)
            (self._functions[name],) = found
            self._configure(name, facts)

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        self._driver("StreamBeginCapture", self._stream)
        for number, launch in enumerate(entry.launches):
            self._launch_kernel(launch, [buffers[a.buffer] + a.offset for a in launch.arguments], number == 0)
        (graph,) = self._driver("StreamEndCapture", self._stream, about=f"entry {entry.name}")
        (executable,) = self._driver("GraphInstantiate", graph, 0, about=f"entry {entry.name}")
        self._graphs.append((graph, executable))
        return executable

    def launch(self, executable: Any) -> None:
        self._driver("GraphLaunch", executable, self._stream)

    def launch_reading(self, executable: Any, buffer: int, array: np.ndarray) -> Callable[[], np.ndarray]:
        if array.nbytes > SLOT_BYTES:
            raise UserError(f"a result of {array.nbytes:,} bytes is too large to be read while the next step runs")
        if not self._slots:
            self._make_slots()
        host, event = self._slots[self._reads % len(self._slots)]
        self._reads += 1
        self.launch(executable)
        self._driver("MemcpyDtoHAsync", int(host), buffer, array.nbytes, on=(self._stream,))
        self._driver("EventRecord", event, self._stream)

        def wait() -> np.ndarray:
            self._driver("EventSynchronize", event, hint=FAILED_BEFORE)
            ctypes.memmove(array.ctypes.data, int(host), array.nbytes)
            return array

        return wait

    def _make_slots(self) -> None:
        for _ in range(READS_AHEAD):
            (host,) = self._driver("MemAllocHost", SLOT_BYTES, about="pinned memory")
            (event,) = self._driver("EventCreate")
            self._slots.append((host, event))

    def sync(self) -> None:
        self._driver("StreamSynchronize", self._stream, hint=FAILED_BEFORE)

    def close(self) -> None:
        for graph, executable in self._graphs:
            self._driver("GraphExecDestroy", executable)
            self._driver("GraphDestroy", graph)
        for host, event in self._slots:
            self._driver("EventDestroy", event)
            self._driver("MemFreeHost", host)
        for pointer in self._buffers:
            self._driver("MemFree", pointer)
        if self._module is not None:
            self._driver("ModuleUnload", self._module)
        self._driver("StreamDestroy", self._stream)
        self._buffers, self._graphs, self._slots, self._module = [], [], [], None
