"""NVIDIA GPUs through cuda-bindings: the driver compiles the artifact's PTX, an entry runs as one CUDA graph."""

from __future__ import annotations

import ctypes
import importlib.util
from collections.abc import Mapping
from typing import Any

from lispgpt.errors import UserError
from lispgpt.runtime.devices.calls import Calls
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice, missing
from lispgpt.runtime.plan import Entry
from lispgpt.runtime.steps import Launch

NO_PACKAGE = "the Python package cuda-bindings is missing: pip install cuda-bindings"
NO_DRIVER = "no NVIDIA driver is installed here: libcuda.so does not load"
LOG_BYTES = 8192
STATIC_SHARED_BYTES = 48 * 1024


def probe() -> str | None:
    """Why no NVIDIA GPU can be used here and what would help, in one line; None if one can."""
    return missing(lambda: _count(_calls(), "the NVIDIA kernel driver finds no GPU"), "NVIDIA")


def installed_target() -> str | None:
    """The best target for the first NVIDIA GPU here, such as "cuda:sm_90a"; None where there is none.

    The driver compiles PTX for any GPU that is not older than the PTX's own architecture; that with an `a` runs on its
    own alone, with instructions that later ones need not have.
    """
    if probe() is not None:
        return None
    call = _calls()
    (device,) = call("cuDeviceGet", 0)
    return target_for(*_capability(call, device))


def target_for(major: int, minor: int) -> str:
    """The best target for a compute capability."""
    if (major, minor) == (9, 0):
        return "cuda:sm_90a"
    return "cuda:sm_90" if major >= 9 else "cuda:sm_80"


def _calls() -> Calls:
    if importlib.util.find_spec("cuda") is None or importlib.util.find_spec("cuda.bindings") is None:
        raise UserError(NO_PACKAGE)
    from cuda.bindings import driver

    return Calls(driver, driver.CUresult.CUDA_SUCCESS, NO_DRIVER)


def _count(call: Calls, hint: str) -> int:
    """How many GPUs there are, once the driver has started; hint: what to say where it does not."""
    call("cuInit", 0, hint=hint)
    return int(call("cuDeviceGetCount")[0])


def _capability(call: Calls, device: Any) -> tuple[int, int]:
    """A GPU's architecture: (9, 0) for Hopper."""
    attribute = call.api.CUdevice_attribute
    (major,) = call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, device)
    (minor,) = call("cuDeviceGetAttribute", attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, device)
    return int(major), int(minor)


class CudaDevice(GpuDevice):
    """One NVIDIA GPU.  It reads the kernel fact "early_launch": the kernel waits for its predecessor by itself."""

    def __init__(self, index: int = 0) -> None:
        call = _calls()
        count = _count(call, "is the NVIDIA driver running (nvidia-smi)?")
        if index >= count:
            raise UserError(f"there is no NVIDIA GPU number {index}: the driver finds {count}")
        (self._device,) = call("cuDeviceGet", index)
        (context,) = call("cuDevicePrimaryCtxRetain", self._device, hint="another process may hold the GPU")
        call("cuCtxSetCurrent", context)
        (stream,) = call("cuStreamCreate", 1)
        super().__init__(call, "cu", _others(call), stream)
        self._owned.insert(0, ("DevicePrimaryCtxRelease", self._device))
        self._early: set[str] = set()
        (raw,) = call("cuDeviceGetName", 256, self._device)
        major, minor = _capability(call, self._device)
        self.chip = f"sm_{major}{minor}"
        self.name = f"{raw.split(bytes(1))[0].decode().strip()} ({self.chip})"

    def _load_module(self, code: bytes) -> Any:
        """code: PTX text, or a cubin for the GPU's own architecture."""
        option = self._call.api.CUjit_option
        log = b"\0" * LOG_BYTES  # the bindings let the driver write into it
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            (module,) = self._call("cuModuleLoadDataEx", code + b"\0", len(options), options, [log, LOG_BYTES])
        except UserError as error:
            said = log.split(b"\0")[0].decode(errors="replace").strip()
            advice = f"was the artifact compiled for another GPU than {self.name}?"
            raise UserError(f"{error.message}: {said or advice}") from error
        return module

    def _configure(self, kernel: str, facts: Mapping[str, Any]) -> None:
        if facts.get("early_launch", False):
            self._early.add(kernel)
        nbytes = int(facts.get("shared_bytes", 0))
        if nbytes > STATIC_SHARED_BYTES:
            attribute = self._call.api.CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES
            hint = f"the GPU has less shared memory than the {nbytes} bytes that a block wants"
            function = self._functions[kernel]
            self._call("cuFuncSetAttribute", function, attribute, nbytes, about=f"kernel {kernel}", hint=hint)

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        api = self._call.api
        config = api.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes = launch.shared_bytes
        config.hStream = self._stream
        if not first and launch.kernel in self._early:
            attribute = api.CUlaunchAttribute()
            attribute.id = api.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        parameters = (tuple(addresses), tuple(ctypes.c_void_p for _ in addresses))
        function, about = self._functions[launch.kernel], f"kernel {launch.kernel}"
        self._call("cuLaunchKernelEx", config, function, parameters, 0, about=about, hint=DOES_IT_FIT)

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        executable = super().prepare(entry, buffers)
        self._call("cuGraphUpload", executable, self._stream)
        return executable


def _others(call: Calls) -> dict[str, tuple[Any, ...]]:
    return {
        "EventCreate": ("EventCreate", call.api.CUevent_flags.CU_EVENT_DISABLE_TIMING.value),
        "StreamBeginCapture": (
            "StreamBeginCapture",
            call.api.CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL,
        ),
    }
