"""AMD GPUs through hip-python: the artifact's code object is loaded as it is, an entry runs as one HIP graph."""

from __future__ import annotations

import ctypes
import importlib.util
from typing import Any

from lispgpt.errors import UserError
from lispgpt.runtime.devices.calls import Calls
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice, missing
from lispgpt.runtime.steps import Launch

NO_PACKAGE = "the Python package hip-python is missing: pip install hip-python"
NO_DRIVER = "no AMD GPU runtime is installed here: libamdhip64.so of ROCm does not load"


def probe() -> str | None:
    """Why no AMD GPU can be used here and what would help, in one line; None if one can."""
    return missing(lambda: _count(_calls(), "the AMD kernel driver (amdgpu) finds no GPU"), "AMD")


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


def _count(call: Calls, hint: str) -> int:
    """How many GPUs there are; hint: what to say where the driver cannot tell."""
    return int(call("hipGetDeviceCount", hint=hint)[0])


def _chip(call: Calls, index: int) -> tuple[str, str]:
    """(product, LLVM's name of the chip) of a GPU."""
    (properties,) = call("hipGetDeviceProperties", index)
    return _text(properties.name), _text(properties.gcnArchName).split(":")[0]


def _text(raw: Any) -> str:
    return raw.split(b"\0")[0].decode(errors="replace") if isinstance(raw, bytes) else str(raw)


class HipDevice(GpuDevice):
    """One AMD GPU."""

    def __init__(self, index: int = 0) -> None:
        call = _calls()
        count = _count(call, "is the amdgpu driver loaded, and may this user open /dev/kfd?")
        if index >= count:
            raise UserError(f"there is no AMD GPU number {index}: the driver finds {count}")
        call("hipSetDevice", index)
        product, self.chip = _chip(call, index)
        self.name = f"{product} ({self.chip})"
        (stream,) = call("hipStreamCreate")
        super().__init__(call, "hip", _others(call), stream)

    def _load_module(self, code: bytes) -> Any:
        """code: an hsaco for this GPU's chip."""
        hint = f"the GPU is a {self.chip}: was the artifact compiled for another chip?"
        return self._call("hipModuleLoadData", code, about=f"{len(code):,} bytes of kernels", hint=hint)[0]

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        arguments = tuple(map(ctypes.c_void_p, addresses))
        function, shape = self._functions[launch.kernel], (*launch.grid, *launch.block)
        self._call(
            "hipModuleLaunchKernel", function, *shape, launch.shared_bytes, self._stream, None, arguments,
            about=f"kernel {launch.kernel}", hint=DOES_IT_FIT,
        )  # fmt: skip


def _others(call: Calls) -> dict[str, tuple[Any, ...]]:
    kind = call.api.hipMemcpyKind
    return {
        "MemAlloc": ("Malloc",),
        "MemFree": ("Free",),
        "MemAllocHost": ("HostMalloc", 0),
        "MemFreeHost": ("HostFree",),
        "MemsetD8Async": ("MemsetAsync",),
        "MemcpyHtoDAsync": ("MemcpyAsync", kind.hipMemcpyHostToDevice),
        "MemcpyDtoHAsync": ("MemcpyAsync", kind.hipMemcpyDeviceToHost),
        "MemcpyDtoDAsync": ("MemcpyAsync", kind.hipMemcpyDeviceToDevice),
        "StreamBeginCapture": ("StreamBeginCapture", call.api.hipStreamCaptureMode.hipStreamCaptureModeThreadLocal),
        "GraphInstantiate": ("GraphInstantiateWithFlags",),
    }
