"""NVIDIA GPUs through cuda-bindings: the driver compiles the artifact's PTX, an entry runs as one CUDA graph."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from typing import Any

import numpy as np

from lispgpt.errors import UserError
from lispgpt.runtime.plan import Entry, Launch

LOG_BYTES = 8192
STATIC_SHARED_BYTES = 48 * 1024


def probe() -> str | None:
    """Why no NVIDIA GPU can be used here and what would help, in one line; None if one can."""
    if importlib.util.find_spec("cuda.bindings") is None:
        return "the Python package cuda-bindings is missing: pip install cuda-bindings"
    try:
        _Driver().call("cuInit", 0)
        (count,) = _Driver().call("cuDeviceGetCount")
    except UserError as error:
        return error.message
    return None if count else "the NVIDIA driver finds no GPU"


class _Driver:
    """Calls of the driver API that raise UserError with the call's name."""

    def __init__(self) -> None:
        if importlib.util.find_spec("cuda.bindings") is None:
            raise UserError("running on an NVIDIA GPU needs the Python package cuda-bindings: pip install cuda-bindings")
        from cuda.bindings import driver

        self.api: Any = driver

    def call(self, name: str, *arguments: Any, about: str = "", hint: str = "") -> tuple[Any, ...]:
        """The call's results without its status."""
        try:
            status, *results = getattr(self.api, name)(*arguments)
        except RuntimeError as error:  # the bindings raise it where libcuda.so cannot be loaded
            raise UserError(f"{name}: no NVIDIA driver is installed here ({error})") from error
        if status != self.api.CUresult.CUDA_SUCCESS:
            what = getattr(status, "name", str(status))
            subject = f" for {about}" if about else ""
            raise UserError(f"{name} failed{subject} with {what}" + (f": {hint}" if hint else ""))
        return tuple(results)


class CudaDevice:
    """One NVIDIA GPU.  `kernels` facts that are read: "early_launch", whether a kernel waits for its predecessor itself."""

    def __init__(self, index: int = 0) -> None:
        self._driver = _Driver()
        call = self._driver.call
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
        self._module: Any = None
        self._functions: dict[str, Any] = {}
        self._facts: Mapping[str, Mapping[str, Any]] = {}
        self.name = self._describe()

    def _describe(self) -> str:
        attribute = self._driver.api.CUdevice_attribute
        (raw,) = self._driver.call("cuDeviceGetName", 256, self._device)
        numbers = [
            self._driver.call("cuDeviceGetAttribute", getattr(attribute, f"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_{n}"), self._device)[0]
            for n in ("MAJOR", "MINOR")
        ]
        text = raw.split(b"\0")[0].decode() if isinstance(raw, bytes) else str(raw)
        return f"{text.strip()} (sm_{numbers[0]}{numbers[1]})"

    def alloc(self, nbytes: int) -> int:
        address = self._reserve(nbytes)
        self._driver.call("cuMemsetD8", address, 0, max(nbytes, 1))
        return address

    def _reserve(self, nbytes: int) -> int:
        (pointer,) = self._driver.call("cuMemAlloc", max(nbytes, 1), about=f"{nbytes} bytes", hint="the GPU is short of memory")
        self._buffers.append(int(pointer))
        return int(pointer)

    def copy_in(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        source = np.ascontiguousarray(array)
        self._driver.call("cuMemcpyHtoD", buffer + offset, source.ctypes.data, source.nbytes)

    def copy_out(self, buffer: int, array: np.ndarray, offset: int = 0) -> None:
        self.sync()
        self._driver.call("cuMemcpyDtoH", array.ctypes.data, buffer + offset, array.nbytes)

    def adopt(self, array: np.ndarray) -> int:
        address = self._reserve(array.nbytes)
        self.copy_in(address, array)
        return address

    def load(self, code: bytes, kernels: Mapping[str, Mapping[str, Any]]) -> None:
        """code: PTX text, or a cubin for the GPU's own architecture."""
        option = self._driver.api.CUjit_option
        log = b"\0" * LOG_BYTES  # the bindings let the driver write into it
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            (self._module,) = self._driver.call(
                "cuModuleLoadDataEx", code + b"\0", len(options), options, [log, LOG_BYTES]
            )
        except UserError as error:
            said = log.split(b"\0")[0].decode(errors="replace").strip()
            advice = f"was the artifact compiled for another GPU than {self.name}?"
            raise UserError(f"{error.message}: {said or advice}") from error
        self._facts = kernels
        for name in kernels:
            (self._functions[name],) = self._driver.call(
                "cuModuleGetFunction", self._module, name.encode(), about=f"kernel {name}", hint="the artifact is damaged"
            )
            self._allow_shared(name, int(kernels[name].get("shared_bytes", 0)))

    def _allow_shared(self, name: str, nbytes: int) -> None:
        if nbytes <= STATIC_SHARED_BYTES:
            return
        attribute = self._driver.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
        hint = f"the GPU has less shared memory than the {nbytes} bytes that a block wants"
        self._driver.call("cuFuncSetAttribute", self._functions[name], attribute, nbytes, about=f"kernel {name}", hint=hint)

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        capture = self._driver.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL
        self._driver.call("cuStreamBeginCapture", self._stream, capture)
        for number, launch in enumerate(entry.launches):
            self._launch_kernel(launch, buffers, early=number > 0 and self._is_early(launch.kernel))
        (graph,) = self._driver.call("cuStreamEndCapture", self._stream, about=f"entry {entry.name}")
        (executable,) = self._driver.call("cuGraphInstantiate", graph, 0, about=f"entry {entry.name}")
        self._driver.call("cuGraphUpload", executable, self._stream)
        self._graphs.append((graph, executable))
        return executable

    def _is_early(self, kernel: str) -> bool:
        return bool(self._facts[kernel].get("early_launch", False))

    def _launch_kernel(self, launch: Launch, buffers: Mapping[str, int], early: bool) -> None:
        api = self._driver.api
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
        self._driver.call("cuLaunchKernelEx", config, function, parameters, 0, about=f"kernel {launch.kernel}", hint=hint)

    def launch(self, executable: Any) -> None:
        self._driver.call("cuGraphLaunch", executable, self._stream)

    def sync(self) -> None:
        self._driver.call("cuStreamSynchronize", self._stream, hint="a kernel launched before it may have failed")

    def close(self) -> None:
        for graph, executable in self._graphs:
            self._driver.call("cuGraphExecDestroy", executable)
            self._driver.call("cuGraphDestroy", graph)
        for address in self._buffers:
            self._driver.call("cuMemFree", address)
        if self._module is not None:
            self._driver.call("cuModuleUnload", self._module)
        self._driver.call("cuStreamDestroy", self._stream)
        self._driver.call("cuDevicePrimaryCtxRelease", self._device)
        self._buffers, self._graphs, self._module = [], [], None
