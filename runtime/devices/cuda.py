"""NVIDIA GPUs through cuda-bindings: the driver compiles the artifact's PTX, an entry runs as one CUDA graph."""

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

NO_PACKAGE = "the Python package cuda-bindings is missing: pip install cuda-bindings"
NO_DRIVER = "no NVIDIA driver is installed here: libcuda.so does not load"
LOG_BYTES, SLOT_BYTES = 8192, 4096
STATIC_SHARED_BYTES = 48 * 1024


def probe() -> str | None:
    """Why no NVIDIA GPU can be used here and what would help, in one line; None if one can."""
    try:
        call = _calls()
        call("cuInit", 0, hint="the NVIDIA kernel driver finds no GPU")
        (count,) = call("cuDeviceGetCount")
    except UserError as error:
        return error.message
    return None if count else "the NVIDIA driver finds no GPU"


def installed_target() -> str | None:
    """The target of the first NVIDIA GPU here, such as "cuda:sm_90"; None where there is none."""
    if probe() is not None:
        return None
    call = _calls()
    (device,) = call("cuDeviceGet", 0)
    return f"cuda:{_chip(call, device)}"


def _calls() -> Calls:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise UserError(NO_PACKAGE)
    from cuda.bindings import driver

    return Calls(driver, driver.CUresult.CUDA_SUCCESS, NO_DRIVER)


def _chip(call: Calls, device: Any) -> str:
    """A GPU's architecture by LLVM's name."""
    attribute = call.api.CUdevice_attribute
    (major,) = call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    (minor,) = call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return f"sm_{major}{minor}"


class CudaDevice:
    """One NVIDIA GPU.  It reads the kernel fact "early_launch": the kernel waits for its predecessor by itself."""

    def __init__(self, index: int = 0) -> None:
        self._call = call = _calls()
        call("cuInit", 0, hint="is the NVIDIA driver running (nvidia-smi)?")
        (count,) = call("cuDeviceGetCount")
        if index >= count:
            raise UserError(f"there is no NVIDIA GPU number {index}: the driver finds {count}")
        (self._device,) = call("cuDeviceGet", index)
        (self._context,) = call("cuDevicePrimaryCtxRetain", self._device, hint="another process may hold the GPU")
        call("cuCtxSetCurrent", self._context)
        (self._stream,) = call("cuStreamCreate", 1)
        self._buffers: list[int] = []
        self._graphs: list[tuple[Any, Any]] = []
        self._slots: list[tuple[int, Any]] = []
        self._reads = 0
        self._module: Any = None
        self._functions: dict[str, Any] = {}
        self._facts: Mapping[str, Mapping[str, Any]] = {}
        (raw,) = call("cuDeviceGetName", 256, self._device)
        self.chip = _chip(call, self._device)
        self.name = f"{raw.split(bytes(1))[0].decode().strip()} ({self.chip})"

    def alloc(self, nbytes: int) -> int:
        address = self._reserve(nbytes)
        self._call("cuMemsetD8", address, 0, max(nbytes, 1))
        return address

    def _reserve(self, nbytes: int) -> int:
        (pointer,) = self._call(
            "cuMemAlloc", max(nbytes, 1), about=f"{nbytes:,} bytes", hint="the GPU is short of memory"
        )
        self._buffers.append(int(pointer))
        return int(pointer)

    def copy_in(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        source = np.ascontiguousarray(array)
        self._call("cuMemcpyHtoD", buffer + offset, source.ctypes.data, source.nbytes)

    def copy_out(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        self._call("cuMemcpyDtoH", array.ctypes.data, buffer + offset, array.nbytes)

    def copy(self, source: int, target: int, nbytes: int) -> None:
        self._call("cuMemcpyDtoDAsync", target, source, nbytes, self._stream)

    def adopt(self, array: np.ndarray) -> int:
        address = self._reserve(array.nbytes)
        self.copy_in(address, array)
        return address

    def load(self, code: bytes, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """code: PTX text, or a cubin for the GPU's own architecture."""
        option = self._call.api.CUjit_option
        log = b"\0" * LOG_BYTES  # the bindings let the driver write into it
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            (self._module,) = self._call("cuModuleLoadDataEx", code + b"\0", len(options), options, [log, LOG_BYTES])
        except UserError as error:
            said = log.split(b"\0")[0].decode(errors="replace").strip()
            advice = f"was the artifact compiled for another GPU than {self.name}?"
            raise UserError(f"{error.message}: {said or advice}") from error
        self._facts = kernels
        for name in kernels:
            (self._functions[name],) = self._call(
                "cuModuleGetFunction",
                self._module,
                name.encode(),
                about=f"kernel {name}",
                hint="the artifact is damaged",
            )
            self._allow_shared(name, int(kernels[name].get("shared_bytes", 0)))

    def _allow_shared(self, name: str, nbytes: int) -> None:
        if nbytes <= STATIC_SHARED_BYTES:
            return
        attribute = self._call.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        hint = f"the GPU has less shared memory than the {nbytes} bytes that a block wants"
        self._call("cuFuncSetAttribute", self._functions[name], attribute, nbytes, about=f"kernel {name}", hint=hint)

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        capture = self._call.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._call("cuStreamBeginCapture", self._stream, capture)
        for number, launch in enumerate(entry.launches):
            self._launch_kernel(launch, buffers, early=number > 0 and self._is_early(launch.kernel))
        (graph,) = self._call("cuStreamEndCapture", self._stream, about=f"entry {entry.name}")
        (executable,) = self._call("cuGraphInstantiate", graph, 0, about=f"entry {entry.name}")
        self._call("cuGraphUpload", executable, self._stream)
        self._graphs.append((graph, executable))
        return executable

    def _is_early(self, kernel: str) -> bool:
        return bool(self._facts[kernel].get("early_launch", False))

    def _launch_kernel(self, launch: Launch, buffers: Mapping[str, int], early: bool) -> None:
        api = self._call.api
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.hStream = self._stream
        if early:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        values = tuple(buffers[a.buffer] + a.offset for a in launch.arguments)
        parameters = (values, tuple(ctypes.c_void_p for _ in values))
        function = self._functions[launch.kernel]
        hint = "does the GPU allow this many threads and this much shared memory?"
        self._call("cuLaunchKernelEx", config, function, parameters, 0, about=f"kernel {launch.kernel}", hint=hint)

    def launch(self, executable: Any) -> None:
        self._call("cuGraphLaunch", executable, self._stream)

    def launch_reading(self, executable: Any, buffer: int, array: np.ndarray) -> Callable[[], np.ndarray]:
        if not self._slots:
            self._make_slots()
        host, event = self._slots[self._reads % len(self._slots)]
        self._reads += 1
        if array.nbytes > SLOT_BYTES:
            raise UserError(f"a result of {array.nbytes:,} bytes is too large to be read while the next step runs")
        self.launch(executable)
        self._call("cuMemcpyDtoHAsync", host, buffer, array.nbytes, self._stream)
        self._call("cuEventRecord", event, self._stream)

        def wait() -> np.ndarray:
            self._call("cuEventSynchronize", event, hint="a kernel launched before it may have failed")
            ctypes.memmove(array.ctypes.data, host, array.nbytes)
            return array

        return wait

    def _make_slots(self) -> None:
        for _ in range(READS_AHEAD):
            (host,) = self._call("cuMemAllocHost", SLOT_BYTES, about="pinned memory")
            (event,) = self._call("cuEventCreate", 2)
            self._slots.append((int(host), event))

    def sync(self) -> None:
        self._call("cuStreamSynchronize", self._stream, hint="a kernel launched before it may have failed")

    def close(self) -> None:
        for graph, executable in self._graphs:
            self._call("cuGraphExecDestroy", executable)
            self._call("cuGraphDestroy", graph)
        for host, event in self._slots:
            self._call("cuEventDestroy", event)
            self._call("cuMemFreeHost", host)
        for address in self._buffers:
            self._call("cuMemFree", address)
        if self._module is not None:
            self._call("cuModuleUnload", self._module)
        self._call("cuStreamDestroy", self._stream)
        self._call("cuDevicePrimaryCtxRelease", self._device)
        self._buffers, self._graphs, self._slots, self._module = [], [], [], None
