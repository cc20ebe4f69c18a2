"""AMD GPUs: the artifact's code object is loaded as it is, an entry runs as one HIP graph.

Calls are declared in ROCm's `hip/hip_runtime_api.h`, version 6 and later.
"""

from __future__ import annotations

import ctypes
from typing import Any

from lispgpt.errors import UserError
from lispgpt.runtime.devices.driver import Api, Driver, installed
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice
from lispgpt.runtime.steps import Launch

RANK = 2
PROPERTIES_BYTES, CHIP_OFFSET, NAME_BYTES = 4096, 1160, 256
"""Of hipDeviceProp_tR0600, which takes 1472 bytes: its first member is the product's name, gcnArchName is behind."""

BUFFER_IS, SIZE_IS, END_OF_PARAMETERS = 1, 2, 3
"""What the words of a launch's parameters in one piece say of those behind them."""


def _error_name(library: Any, status: int) -> str:
    function = library.hipGetErrorName
    function.restype = ctypes.c_char_p
    return (function(status) or b"error").decode()


API = Api(
    vendor="AMD",
    libraries=["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"],
    missing="install ROCm's HIP runtime",
    functions={
        "Init": "hipInit(=0u)",
        "DeviceGetCount": "hipGetDeviceCount(*i)",
        "DeviceSet": "hipSetDevice(i)",
        "DeviceGetProperties": "hipGetDevicePropertiesR0600(p, i)",
        "StreamCreate": "hipStreamCreate(*p)",
        "StreamDestroy": "hipStreamDestroy(p)",
        "StreamSynchronize": "hipStreamSynchronize(p)",
        "StreamWaitEvent": "hipStreamWaitEvent(p, p, =0u)",
        "StreamBeginCapture": "hipStreamBeginCapture(p, =1)",  # of what this thread does
        "StreamEndCapture": "hipStreamEndCapture(p, *p)",
        "EventCreate": "hipEventCreate(*p)",
        "EventDestroy": "hipEventDestroy(p)",
        "EventSynchronize": "hipEventSynchronize(p)",
        "EventRecord": "hipEventRecord(p, p)",
        "MemAlloc": "hipMalloc(*p, z)",
        "MemFree": "hipFree(p)",
        "MemAllocHost": "hipHostMalloc(*p, z, =0u)",
        "MemFreeHost": "hipHostFree(p)",
        "MemHostRegister": "hipHostRegister(p, z, =0u)",
        "MemHostUnregister": "hipHostUnregister(p)",
        "MemsetD8Async": "hipMemsetAsync(p, i, z, p)",
        "MemsetD16Async": "hipMemsetD16Async(p, u, z, p)",
        "MemsetD32Async": "hipMemsetD32Async(p, u, z, p)",
        "MemcpyHtoDAsync": "hipMemcpyAsync(p, p, z, =1, p)",
        "MemcpyDtoHAsync": "hipMemcpyAsync(p, p, z, =2, p)",
        "MemcpyDtoDAsync": "hipMemcpyAsync(p, p, z, =3, p)",
        "MemcpyAsync": "hipMemcpyAsync(p, p, z, =4, p)",  # whichever way the addresses say
        "ModuleLoadData": "hipModuleLoadData(*p, p)",
        "ModuleGetFunction": "hipModuleGetFunction(*p, p, s)",
        "ModuleUnload": "hipModuleUnload(p)",
        "LaunchKernel": "hipModuleLaunchKernel(p, u, u, u, u, u, u, u, p, p, p)",
        "GraphInstantiate": "hipGraphInstantiateWithFlags(*p, p, z)",
        "GraphLaunch": "hipGraphLaunch(p, p)",
        "GraphExecDestroy": "hipGraphExecDestroy(p)",
        "GraphDestroy": "hipGraphDestroy(p)",
    },
    error_name=_error_name,
)


def missing() -> str | None:
    """Why no AMD GPU can be used here and what would help, in one line; None if one can."""
    found = installed(API, lambda driver: _count(driver, "the AMD kernel driver (amdgpu) finds no GPU"))
    return found if isinstance(found, str) else None


def installed_target() -> str | None:
    """The target of the first AMD GPU here, such as "rocm:gfx1151"; None where there is none."""
    found = installed(API, lambda driver: _count(driver, ""))
    return None if isinstance(found, str) else f"rocm:{_chip(found, 0)[1]}"


def open_device(threads: int | None = None) -> HipDevice:
    return HipDevice()


def start(driver: Driver) -> None:
    """Make the first GPU the one that this process's calls are about."""
    driver("Init", hint="is the amdgpu driver loaded, and may this user open /dev/kfd?")


def _count(driver: Driver, hint: str) -> int:
    """How many GPUs there are; hint: what to say where the driver cannot tell."""
    return int(driver("DeviceGetCount", hint=hint)[0])


def _chip(driver: Driver, index: int) -> tuple[str, str]:
    """(product, LLVM's name of the chip) of a GPU."""
    properties = ctypes.create_string_buffer(PROPERTIES_BYTES)
    driver("DeviceGetProperties", ctypes.addressof(properties), index)
    product, chip = (properties.raw[at : at + NAME_BYTES].split(b"\0")[0].decode() for at in (0, CHIP_OFFSET))
    return product, chip.split(":")[0]


class HipDevice(GpuDevice):
    """One AMD GPU."""

    def __init__(self, index: int = 0) -> None:
        driver = Driver(API)
        count = _count(driver, "is the amdgpu driver loaded, and may this user open /dev/kfd?")
        if index >= count:
            raise UserError(f"there is no AMD GPU number {index}: the driver finds {count}")
        driver("DeviceSet", index)
        product, self.chip = _chip(driver, index)
        self.name = f"{product} ({self.chip})"
        (stream,) = driver("StreamCreate")
        super().__init__(driver, stream)

    def _load_modules(self, code: bytes) -> list[int]:
        """code: an hsaco for this GPU's chip."""
        hint = f"the GPU is a {self.chip}: was the artifact compiled for another chip?"
        data = ctypes.create_string_buffer(code, len(code))
        about = f"{len(code):,} bytes of kernels"
        (module,) = self._driver("ModuleLoadData", ctypes.addressof(data), about=about, hint=hint)
        return [int(module)]

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        values = (ctypes.c_uint64 * len(addresses))(*addresses)
        nbytes = ctypes.c_size_t(ctypes.sizeof(values))
        packed = (ctypes.c_void_p * 5)(
            BUFFER_IS, ctypes.addressof(values), SIZE_IS, ctypes.addressof(nbytes), END_OF_PARAMETERS
        )
        function, shape = self._functions[launch.kernel], (*launch.grid, *launch.block)
        self._driver(
            "LaunchKernel", function, *shape, launch.shared_bytes, self._stream, None, ctypes.addressof(packed),
            about=f"kernel {launch.kernel}", hint=DOES_IT_FIT,
        )  # fmt: skip
