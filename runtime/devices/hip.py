"""AMD GPUs through hip-python: the artifact's code object is loaded as it is, an entry runs as one HIP graph."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.devices.base import READS_AHEAD
from lispgpt.runtime.devices.calls import Calls
from lispgpt.runtime.plan import Entry, Launch

SLOT_BYTES = 4096
NO_PACKAGE = "the Python package hip-python is missing: pip install hip-python"
NO_DRIVER = "no AMD GPU runtime is installed here: libamdhip64.so of ROCm does not load"


def probe() -> str | None:
    """Why no AMD GPU can be used here and what would help, in one line; None if one can."""
    try:
        (count,) = _calls()("hipGetDeviceCount", hint="the AMD kernel driver (amdgpu) finds no GPU")
    except UserError as error:
        return error.message
    return None if count else "the AMD driver finds no GPU"


def installed_target() -> str | None:
    """The target of the first AMD GPU here, such as "rocm:gfx1151"; None where there is none."""
    if probe() is not None:
        return None
    return f"rocm:{_chip(_calls(), 0)[1]}"


def _calls() -> Calls:
    if importlib.util.find_spec("hip") is None:
        raise UserError(NO_PACKAGE)
    from hip import hip

    return Calls(hip, hip.hipError_t.hipSuccess, NO_DRIVER)


def _chip(call: Calls, index: int) -> tuple[str, str]:
    """(product, LLVM's name of the chip) of a GPU."""
    (properties,) = call("hipGetDeviceProperties", index)
    return _text(properties.name), _text(properties.gcnArchName).split(":")[0]


def _text(raw: Any) -> str:
    return raw.split(b"\0")[0].decode(errors="replace") if isinstance(raw, bytes) else str(raw)


class HipDevice:
    """One AMD GPU."""

    def __init__(self, index: int = 0) -> None:
        self._call = _calls()
        (count,) = self._call("hipGetDeviceCount", hint="is the amdgpu driver loaded, and may this user open /dev/kfd?")
        if index >= count:
            raise UserError(f"there is no AMD GPU number {index}: the driver finds {count}")
        self._call("hipSetDevice", index)
        product, self.chip = _chip(self._call, index)
        self.name = f"{product} ({self.chip})"
        (self._stream,) = self._call("hipStreamCreate")
        self._buffers: dict[int, Any] = {}
        self._graphs: list[tuple[Any, Any]] = []
        self._slots: list[tuple[Any, Any]] = []
        self._reads = 0
        self._module: Any = None
        self._functions: dict[str, Any] = {}

    def alloc(self, nbytes: int) -> int:
        address = self._reserve(nbytes)
        self._call("hipMemset", address, 0, max(nbytes, 1))
        return address

    def _reserve(self, nbytes: int) -> int:
        hint = "the GPU is short of memory"
        (pointer,) = self._call("hipMalloc", max(nbytes, 1), about=f"{nbytes:,} bytes", hint=hint)
        self._buffers[int(pointer)] = pointer
        return int(pointer)

    def copy_in(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        kind = self._call.api.hipMemcpyKind.hipMemcpyHostToDevice
        self._call("hipMemcpy", buffer + offset, np.ascontiguousarray(array).ctypes.data, array.nbytes, kind)

    def copy_out(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        kind = self._call.api.hipMemcpyKind.hipMemcpyDeviceToHost
        self._call("hipMemcpy", array.ctypes.data, buffer + offset, array.nbytes, kind)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        kind = self._call.api.hipMemcpyKind.hipMemcpyDeviceToDevice
        self._call("hipMemcpyAsync", target, source, nbytes, kind, self._stream)

    def adopt(self, array: np.ndarray) -> int:
        address = self._reserve(array.nbytes)
        self.copy_in(address, array)
        return address

    def load(self, code: bytes, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """code: an hsaco for this GPU's chip."""
        hint = f"the GPU is a {self.chip}: was the artifact compiled for another chip?"
        (self._module,) = self._call("hipModuleLoadData", code, about=f"{len(code):,} bytes of kernels", hint=hint)
        for name in kernels:
            (self._functions[name],) = self._call(
                "hipModuleGetFunction",
                self._module,
                name.encode(),
                about=f"kernel {name}",
                hint="the artifact is damaged",
            )

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        mode = self._call.api.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal
        self._call("hipStreamBeginCapture", self._stream, mode)
        for launch in entry.launches:
            self._launch_kernel(launch, buffers)
        (graph,) = self._call("hipStreamEndCapture", self._stream, about=f"entry {entry.name}")
        (executable,) = self._call("hipGraphInstantiateWithFlags", graph, 0, about=f"entry {entry.name}")
        self._graphs.append((graph, executable))
        return executable

    def _launch_kernel(self, launch: Launch, buffers: Mapping[str, int]) -> None:
        arguments = tuple(ctypes.c_void_p(buffers[a.buffer] + a.offset) for a in launch.arguments)
        function, shape = self._functions[launch.kernel], (*launch.grid, *launch.block)
        hint = "does the GPU allow this many threads and this much shared memory?"
        self._call(
            "hipModuleLaunchKernel", function, *shape, launch.shared_bytes, self._stream, None, arguments,
            about=f"kernel {launch.kernel}", hint=hint,
        )  # fmt: skip

    def launch(self, executable: Any) -> None:
        self._call("hipGraphLaunch", executable, self._stream)

    def launch_reading(self, executable: Any, buffer: int, array: np.ndarray) -> Callable[[], np.ndarray]:
        if not self._slots:
            self._make_slots()
        host, event = self._slots[self._reads % len(self._slots)]
        self._reads += 1
        if array.nbytes > SLOT_BYTES:
            raise UserError(f"a result of {array.nbytes:,} bytes is too large to be read while the next step runs")
        self.launch(executable)
        kind = self._call.api.hipMemcpyKind.hipMemcpyDeviceToHost
        self._call("hipMemcpyAsync", int(host), buffer, array.nbytes, kind, self._stream)
        self._call("hipEventRecord", event, self._stream)

        def wait() -> np.ndarray:
            self._call("hipEventSynchronize", event, hint="a kernel launched before it may have failed")
            ctypes.memmove(array.ctypes.data, int(host), array.nbytes)
            return array

        return wait

    def _make_slots(self) -> None:
        for _ in range(READS_AHEAD):
            (host,) = self._call("hipHostMalloc", SLOT_BYTES, 0, about="pinned memory")
            (event,) = self._call("hipEventCreate")
            self._slots.append((host, event))

    def sync(self) -> None:
        self._call("hipStreamSynchronize", self._stream, hint="a kernel launched before it may have failed")

    def close(self) -> None:
        for graph, executable in self._graphs:
            self._call("hipGraphExecDestroy", executable)
            self._call("hipGraphDestroy", graph)
        for host, event in self._slots:
            self._call("hipEventDestroy", event)
            self._call("hipHostFree", host)
        for pointer in self._buffers.values():
            self._call("hipFree", pointer)
        if self._module is not None:
            self._call("hipModuleUnload", self._module)
        self._call("hipStreamDestroy", self._stream)
        self._buffers, self._graphs, self._slots, self._module = {}, [], [], None
