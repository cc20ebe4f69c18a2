"""MLIR's `mgpu…` runtime functions on the drivers of AMD and NVIDIA: what a program's compiled GPU launches call.

The two drivers have the same functions under two names; `_Vendor` is the table between them.  Calls go straight through
ctypes because the program hands over C pointers.  On NVIDIA GPUs the program's heap is managed memory, so that
what kernels touch moves to the GPU, and back when the host does.
"""

from __future__ import annotations

import ctypes
import ctypes.util
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn

import numpy as np

from lispgpt.errors import UserError
from lispgpt.programs.externals import memref_view
from lispgpt.programs.managed_memory import ManagedMemory

if TYPE_CHECKING:
    from lispgpt.passes.targets import Target

POINTER, INTEGER, WORD = ctypes.c_void_p, ctypes.c_int64, ctypes.c_int32


@dataclass(frozen=True)
class _Vendor:
    """A driver: its library, what to install for it, and its names for what is done with it."""

    library: str
    advice: str
    names: dict[str, str]
    error_text: str
    already_registered: int


VENDORS = {
    "cuda": _Vendor(
        "libcuda.so.1",
        "install NVIDIA's driver",
        {
            "start": "cuInit",
            "load": "cuModuleLoadData",
            "unload": "cuModuleUnload",
            "function": "cuModuleGetFunction",
            "launch": "cuLaunchKernel",
            "stream": "cuStreamCreate",
            "end_stream": "cuStreamDestroy_v2",
            "sync": "cuStreamSynchronize",
            "wait_event": "cuStreamWaitEvent",
            "event": "cuEventCreate",
            "end_event": "cuEventDestroy_v2",
            "sync_event": "cuEventSynchronize",
            "record": "cuEventRecord",
            "alloc": "cuMemAlloc_v2",
            "managed": "cuMemAllocManaged",
            "free": "cuMemFree_v2",
            "copy": "cuMemcpyAsync",
            "fill32": "cuMemsetD32Async",
            "fill16": "cuMemsetD16Async",
            "register": "cuMemHostRegister_v2",
            "unregister": "cuMemHostUnregister",
        },
        "cuGetErrorName",
        712,
    ),
    "rocm": _Vendor(
        "libamdhip64.so",
        "install ROCm's HIP runtime",
        {
            "start": "hipInit",
            "load": "hipModuleLoadData",
            "unload": "hipModuleUnload",
            "function": "hipModuleGetFunction",
            "launch": "hipModuleLaunchKernel",
            "stream": "hipStreamCreateWithFlags",
            "end_stream": "hipStreamDestroy",
            "sync": "hipStreamSynchronize",
            "wait_event": "hipStreamWaitEvent",
            "event": "hipEventCreateWithFlags",
            "end_event": "hipEventDestroy",
            "sync_event": "hipEventSynchronize",
            "record": "hipEventRecord",
            "alloc": "hipMalloc",
            "free": "hipFree",
            "copy": "hipMemcpyAsync",
            "fill32": "hipMemsetD32Async",
            "fill16": "hipMemsetD16Async",
            "register": "hipHostRegister",
            "unregister": "hipHostUnregister",
        },
        "hipGetErrorName",
        712,
    ),
}
CALLS = ("launch", "sync")
"""What the numbers that gpu_call_failed gets stand for."""

COPY_ANY_WAY = 4
"""hipMemcpyDefault: the driver finds out from the addresses."""


class GpuRuntime:
    """The functions of one vendor's GPU for one program; errors go to `fail`, which does not return."""

    def __init__(self, target: Target, fail: Callable[[UserError], NoReturn]) -> None:
        self._vendor = VENDORS[target.kind]
        self._kind, self._fail = target.kind, fail
        try:
            self._library = ctypes.CDLL(self._vendor.library)
        except OSError as error:
            raise UserError(
                f"no {target.kind} GPU can be used here: {self._vendor.library} is missing ({self._vendor.advice})"
            ) from error
        self._heap = ManagedMemory(
            lambda size: self._new("managed", INTEGER(size), WORD(1)),
            lambda address: self._call("free", POINTER(address)),
        )
        self._call("start", WORD(0))
        if target.kind == "cuda":
            self._retain_context()

    def functions(self) -> dict[str, Any]:
        """The ctypes callbacks by the names that compiled code calls."""
        table: dict[str, tuple[Any, tuple[Any, ...], Callable[..., Any]]] = {
            "mgpuModuleLoad": (POINTER, (POINTER, INTEGER), lambda data, size: self._load(data)),
            "mgpuModuleLoadJIT": (POINTER, (POINTER, WORD, INTEGER), lambda data, level, size: self._load(data)),
            "mgpuModuleUnload": (None, (POINTER,), lambda module: self._call("unload", POINTER(module))),
            "mgpuModuleGetFunction": (POINTER, (POINTER, POINTER), self._function),
            "gpu_stream": (POINTER, (), lambda: self._new("stream", WORD(1))),
            "gpu_call_failed": (None, (WORD, WORD), self._call_failed),
            "mgpuStreamWaitEvent": (None, (POINTER, POINTER), self._wait_event),
            "mgpuEventCreate": (POINTER, (), lambda: self._new("event", WORD(2))),
            "mgpuEventDestroy": (None, (POINTER,), lambda event: self._call("end_event", POINTER(event))),
            "mgpuEventSynchronize": (None, (POINTER,), lambda event: self._call("sync_event", POINTER(event))),
            "mgpuEventRecord": (None, (POINTER, POINTER), lambda e, s: self._call("record", POINTER(e), POINTER(s))),
            "mgpuMemAlloc": (POINTER, (INTEGER, POINTER, ctypes.c_bool), self._alloc),
            "mgpuMemFree": (None, (POINTER, POINTER), lambda address, stream: self._call("free", POINTER(address))),
            "mgpuMemcpy": (None, (POINTER, POINTER, INTEGER, POINTER), self._copy),
            "mgpuMemset32": (None, (POINTER, WORD, INTEGER, POINTER), self._fill("fill32")),
            "mgpuMemset16": (None, (POINTER, ctypes.c_int16, INTEGER, POINTER), self._fill("fill16")),
            "mgpuMemHostRegister": (None, (POINTER, INTEGER), self._register),
            "mgpuMemHostUnregister": (None, (POINTER,), self._unregister),
            "mgpuMemHostRegisterMemRef": (None, (INTEGER, POINTER, INTEGER), self._register_memref),
            "mgpuMemHostUnregisterMemRef": (None, (INTEGER, POINTER, INTEGER), self._unregister_memref),
            "mgpuSetDefaultDevice": (None, (WORD,), lambda index: None),
        }
        if self._kind == "cuda":
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
        return callbacks | {name: getattr(self._library, name) for name in map(self._vendor.names.get, CALLS) if name}

    def code(self) -> str:
        """MLIR text of the functions that a program with launches gets compiled in."""
        text = Path(__file__).with_name("launching.mlir").read_text(encoding="utf-8")
        for call in CALLS:
            text = text.replace("{" + call + "}", self._vendor.names[call])
        return text

    def _call_failed(self, status: int, what: int) -> NoReturn:
        raise UserError(f"{self._vendor.names[CALLS[what]]} failed with {self._error(status)}")

    def _guarded(self, function: Callable[..., Any]) -> Callable[..., Any]:
        """An exception cannot cross the program's own frames: it ends the process."""

        def call(*arguments: Any) -> Any:
            try:
                return function(*arguments)
            except UserError as error:
                self._fail(error)

        return call

    def _call(self, what: str, *arguments: Any, about: str = "") -> None:
        name = self._vendor.names[what]
        status = getattr(self._library, name)(*arguments)
        if status:
            raise UserError(f"{name} failed{about} with {self._error(status)}")

    def _error(self, status: int) -> str:
        function = getattr(self._library, self._vendor.error_text)
        if self._kind == "cuda":
            text = ctypes.c_char_p()
            function(status, ctypes.byref(text))
            return (text.value or b"error").decode() + f" ({status})"
        function.restype = ctypes.c_char_p
        return f"{(function(status) or b'error').decode()} ({status})"

    def _retain_context(self) -> None:
        device, context = WORD(0), POINTER()
        for name, arguments in (
            ("cuDeviceGet", (ctypes.byref(device), 0)),
            ("cuDevicePrimaryCtxRetain", (ctypes.byref(context), device)),
            ("cuCtxSetCurrent", (context,)),
        ):
            status = getattr(self._library, name)(*arguments)
            if status:
                raise UserError(f"{name} failed with {self._error(status)}: no NVIDIA GPU can be used here")

    def _new(self, what: str, *arguments: Any) -> int:
        handle = POINTER()
        self._call(what, ctypes.byref(handle), *arguments)
        return handle.value or 0

    def _load(self, data: int) -> int:
        return self._new("load", POINTER(data))

    def _function(self, module: int, name: int) -> int:
        handle = POINTER()
        text = ctypes.string_at(name).decode(errors="replace")
        self._call("function", ctypes.byref(handle), POINTER(module), POINTER(name), about=f" for kernel {text}")
        return handle.value or 0

    def _wait_event(self, stream: int, event: int) -> None:
        self._call("wait_event", POINTER(stream), POINTER(event), WORD(0))

    def _alloc(self, size: int, stream: int, shared_with_host: bool) -> int:
        if shared_with_host and self._kind == "cuda":
            return self._managed(max(size, 1))
        return self._new("alloc", INTEGER(max(size, 1)))

    def _copy(self, destination: int, source: int, size: int, stream: int) -> None:
        kind = [WORD(COPY_ANY_WAY)] if self._kind == "rocm" else []
        self._call("copy", POINTER(destination), POINTER(source), INTEGER(size), *kind, POINTER(stream))

    def _fill(self, what: str) -> Callable[[int, int, int, int], None]:
        def fill(address: int, value: int, count: int, stream: int) -> None:
            self._call(what, POINTER(address), WORD(value), INTEGER(count), POINTER(stream))

        return fill

    def _register(self, address: int, size: int) -> None:
        if self._heap.holds(address):
            return
        name = self._vendor.names["register"]
        status = getattr(self._library, name)(POINTER(address), INTEGER(size), WORD(0))
        if status not in (0, self._vendor.already_registered):
            raise UserError(f"{name} failed for {size} bytes with {self._error(status)}")

    def _unregister(self, address: int) -> None:
        if self._heap.holds(address):
            return
        getattr(self._library, self._vendor.names["unregister"])(POINTER(address))

    def _register_memref(self, rank: int, descriptor: int, item_bytes: int) -> None:
        view = memref_view(rank, descriptor, np.dtype(f"V{item_bytes}"))
        self._register(view.ctypes.data, view.nbytes)

    def _unregister_memref(self, rank: int, descriptor: int, item_bytes: int) -> None:
        self._unregister(memref_view(rank, descriptor, np.dtype(f"V{item_bytes}")).ctypes.data)

    def _managed(self, size: int) -> int:
        return self._new("managed", INTEGER(size), WORD(1))

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
