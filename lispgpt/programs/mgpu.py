"""MLIR's `mgpu…` runtime functions on the drivers of AMD and NVIDIA: what a program's compiled GPU launches call.

Where a driver has managed memory that kernels and host may touch at any time, the program's heap lies in it: what
kernels touch moves to the GPU, and back when the host does.
"""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.programs.externals import memref_view
from lispgpt.programs.managed_memory import ManagedMemory
from lispgpt.runtime.devices import device_module
from lispgpt.runtime.devices.driver import Driver

POINTER, INTEGER, WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32
CALLS = {"launch": "LaunchKernel", "sync": "StreamSynchronize"}
"""What machine code calls without a way through here; the numbers that gpu_call_failed gets are their order."""

ALREADY_REGISTERED = 712
"""Both drivers' status for memory that is registered twice, which does no harm."""


class GpuRuntime:
    """The functions of one vendor's GPU for one program; errors go to `fail`, which does not return."""

    def __init__(self, kind: str, fail: Callable[[UserError], NoReturn]) -> None:
        device = device_module(kind)
        self._driver, self._fail = Driver(device.API), fail
        self._manages = "MemAllocManaged" in device.API.functions
        self._heap = ManagedMemory(self._managed, self._to("MemFree"))
        device.start(self._driver)

    def functions(self) -> dict[str, Any]:
        """The ctypes callbacks by the names that compiled code calls."""
        table: dict[str, tuple[Any, tuple[Any, ...], Callable[..., Any]]] = {
            "mgpuModuleLoad": (POINTER, (POINTER, INTEGER), lambda data, size: self._load(data)),
            "mgpuModuleLoadJIT": (POINTER, (POINTER, WORD, INTEGER), lambda data, level, size: self._load(data)),
            "mgpuModuleUnload": (None, (POINTER,), self._to("ModuleUnload")),
            "mgpuModuleGetFunction": (POINTER, (POINTER, POINTER), self._function),
            "gpu_stream": (POINTER, (), lambda: self._new("StreamCreate")),
            "gpu_call_failed": (None, (WORD, WORD), self._call_failed),
            "mgpuStreamWaitEvent": (None, (POINTER, POINTER), self._to("StreamWaitEvent")),
            "mgpuEventCreate": (POINTER, (), lambda: self._new("EventCreate")),
            "mgpuEventDestroy": (None, (POINTER,), self._to("EventDestroy")),
            "mgpuEventSynchronize": (None, (POINTER,), self._to("EventSynchronize")),
            "mgpuEventRecord": (None, (POINTER, POINTER), self._to("EventRecord")),
            "mgpuMemAlloc": (POINTER, (INTEGER, POINTER, ctypes.c_bool), self._alloc),
            "mgpuMemFree": (None, (POINTER, POINTER), lambda address, stream: self._driver("MemFree", address)),
            "mgpuMemcpy": (None, (POINTER, POINTER, INTEGER, POINTER), self._to("MemcpyAsync")),
            "mgpuMemset32": (None, (POINTER, ctypes.c_uint32, INTEGER, POINTER), self._to("MemsetD32Async")),
            "mgpuMemset16": (None, (POINTER, ctypes.c_uint16, INTEGER, POINTER), self._to("MemsetD16Async")),
            "gpu_address_of": (POINTER, (POINTER,), self._device_address),
            "mgpuMemHostRegister": (None, (POINTER, INTEGER), self._register),
            "mgpuMemHostUnregister": (None, (POINTER,), self._unregister),
            "mgpuMemHostRegisterMemRef": (None, (INTEGER, POINTER, INTEGER), self._register_memref),
            "mgpuMemHostUnregisterMemRef": (None, (INTEGER, POINTER, INTEGER), self._unregister_memref),
            "mgpuSetDefaultDevice": (None, (WORD,), lambda index: None),
        }
        if self._manages:
            table |= {
                "malloc": (POINTER, (INTEGER,), self._heap.malloc),
                "aligned_alloc": (POINTER, (INTEGER, INTEGER), lambda alignment, size: self._heap.malloc(size)),
                "calloc": (POINTER, (INTEGER, INTEGER), self._calloc),
                "realloc": (POINTER, (POINTER, INTEGER), self._realloc),
                "free": (None, (POINTER,), self._free),
            }
        callbacks: dict[str, Any] = {
            name: ctypes.CFUNCTYPE(result, *arguments)(self._guarded(function))
            for name, (result, arguments, function) in table.items()
        }
        return callbacks | {self._driver.api.symbol(name): self._driver.address(name) for name in CALLS.values()}

    def code(self) -> str:
        """MLIR text of the functions that a program with launches gets compiled in."""
        text = Path(__file__).with_name("launching.mlir").read_text(encoding="utf-8")
        for call, name in CALLS.items():
            text = text.replace("{" + call + "}", self._driver.api.symbol(name))
        return text

    def _call_failed(self, status: int, what: int) -> NoReturn:
        symbol = self._driver.api.symbol(list(CALLS.values())[what])
        raise UserError(f"{symbol} failed with {self._driver.error(status)}")

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An exception cannot cross the program's own frames: it ends the process."""

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except UserError as error:
                self._fail(error)

        return call

    def _to(self, name: str) -> Callable[..., None]:
        """A function that is a call of the driver and returns nothing."""

        def call(*arguments: Any) -> None:
            self._driver(name, *arguments)

        return call

    def _new(self, name: str, *arguments: Any, about: str = "") -> int:
        (handle,) = self._driver(name, *arguments, about=about)
        return int(handle)

    def _load(self, data: int) -> int:
        return self._new("ModuleLoadData", data)

    def _function(self, module: int, name: int) -> int:
        text = ctypes.string_at(name)
        return self._new("ModuleGetFunction", module, text, about=f"kernel {text.decode(errors='replace')}")

    def _alloc(self, size: int, stream: int, shared_with_host: bool) -> int:
        if shared_with_host and self._manages:
            return self._managed(max(size, 1))
        return self._new("MemAlloc", max(size, 1))

    def _register(self, address: int, size: int) -> None:
        if self._heap.holds(address):
            return
        status, _ = self._driver.status("MemHostRegister", address, size)
        if status not in (0, ALREADY_REGISTERED):
            symbol = self._driver.api.symbol("MemHostRegister")
            raise UserError(f"{symbol} failed for {size} bytes with {self._driver.error(status)}")

    def _device_address(self, address: int) -> int:
        """Where the GPU sees registered memory of the host; NVIDIA's managed memory is where it is."""
        return address if self._manages else self._new("MemHostGetDevicePointer", address)

    def _unregister(self, address: int) -> None:
        if not self._heap.holds(address):
            self._driver.status("MemHostUnregister", address)

    def _register_memref(self, rank: int, descriptor: int, item_bytes: int) -> None:
        view = memref_view(rank, descriptor, np.dtype(f"V{item_bytes}"))
        self._register(view.ctypes.data, view.nbytes)

    def _unregister_memref(self, rank: int, descriptor: int, item_bytes: int) -> None:
        self._unregister(memref_view(rank, descriptor, np.dtype(f"V{item_bytes}")).ctypes.data)

    def _managed(self, size: int) -> int:
        return self._new("MemAllocManaged", size)

    def _calloc(self, count: int, size: int) -> int:
        address = self._heap.malloc(count * size)
        ctypes.memset(address, 0, count * size)
        return address

    def _realloc(self, old: int | None, size: int) -> int:
        address = self._heap.malloc(size)
        if old:
            ctypes.memmove(address, old, min(size, self._heap.size(old)))
            self._heap.free(old)
        return address

    def _free(self, address: int) -> None:
        if address and not self._heap.free(address):
            _libc_free(address)  # the C library's own, such as getline's


_libc_free = ctypes.CDLL(None).free
_libc_free.restype, _libc_free.argtypes = None, [ctypes.c_void_p]
