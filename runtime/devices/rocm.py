"""AMD GPUs through hip-python: the artifact's code objects are loaded as they are, an entry runs as one HIP graph."""

from __future__ import annotations

import ctypes
from collections.abc import Sequence
from typing import Any

from lispgpt.base.elf import elf_files
from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import Pieces
from lispgpt.runtime.devices.driver import FAILED_BEFORE, Api, Driver, installed
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice
from lispgpt.runtime.devices.growing import Vendor
from lispgpt.runtime.plan.steps import Launch

RANK = 2
API = Api(
    vendor="AMD",
    module="hip.hip",
    package="hip-python",
    wanted="hip-python",
    status="hipError_t",
    libraries=["libamdhip64.so", "libamdhip64.so.7", "libamdhip64.so.6", "/opt/rocm/lib/libamdhip64.so"],
    missing="install ROCm's HIP runtime",
    functions={
        "Init": "hipInit(0)",
        "DeviceGetCount": "hipGetDeviceCount()",
        "DeviceSet": "hipSetDevice(_)",
        "DeviceGetProperties": "hipGetDeviceProperties(_)",
        "DeviceGetCores": "hipDeviceGetAttribute(hipDeviceAttribute_t.hipDeviceAttributeMultiprocessorCount, _)",
        "OccupancyBlocks": "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor(_, _, _)",
        "StreamCreate": "hipStreamCreate()",
        "StreamDestroy": "hipStreamDestroy(_)",
        "StreamSynchronize": "hipStreamSynchronize(_)",
        "StreamWaitEvent": "hipStreamWaitEvent(_, _, 0)",
        "StreamBeginCapture": "hipStreamBeginCapture(_, hipStreamCaptureMode.hipStreamCaptureModeThreadLocal)",
        "StreamEndCapture": "hipStreamEndCapture(_)",
        "EventCreate": "hipEventCreate()",
        "EventDestroy": "hipEventDestroy(_)",
        "EventSynchronize": "hipEventSynchronize(_)",
        "EventRecord": "hipEventRecord(_, _)",
        "EventQuery": "hipEventQuery(_)",
        "MemAlloc": "hipMalloc(_)",
        "MemFree": "hipFree(_)",
        "MemGranularity": "hipMemGetAllocationGranularity(_, "
        "hipMemAllocationGranularity_flags.hipMemAllocationGranularityMinimum)",
        "MemAddressReserve": "hipMemAddressReserve(_, 0, 0, 0)",
        "MemAddressFree": "hipMemAddressFree(_, _)",
        "MemCreate": "hipMemCreate(_, _, 0)",
        "MemRelease": "hipMemRelease(_)",
        "MemMap": "hipMemMap(_, _, 0, _, 0)",
        "MemUnmap": "hipMemUnmap(_, _)",
        "MemSetAccess": "hipMemSetAccess(_, _, _, 1)",
        "MemAllocHost": "hipHostMalloc(_, 0)",
        "MemFreeHost": "hipHostFree(_)",
        "MemHostRegister": "hipHostRegister(_, _, 0)",
        "MemHostUnregister": "hipHostUnregister(_)",
        "MemHostGetDevicePointer": "hipHostGetDevicePointer(_, 0)",
        "MemsetD8Async": "hipMemsetAsync(_, _, _, _)",
        "MemsetD16Async": "hipMemsetD16Async(_, _, _, _)",
        "MemsetD32Async": "hipMemsetD32Async(_, _, _, _)",
        "MemcpyHtoDAsync": "hipMemcpyAsync(_, _, _, hipMemcpyKind.hipMemcpyHostToDevice, _)",
        "MemcpyDtoHAsync": "hipMemcpyAsync(_, _, _, hipMemcpyKind.hipMemcpyDeviceToHost, _)",
        "MemcpyDtoDAsync": "hipMemcpyAsync(_, _, _, hipMemcpyKind.hipMemcpyDeviceToDevice, _)",
        "Memcpy2DAsync": "hipMemcpy2DAsync(_, _, _, _, _, _, hipMemcpyKind.hipMemcpyDeviceToDevice, _)",
        "MemcpyAsync": "hipMemcpyAsync(_, _, _, hipMemcpyKind.hipMemcpyDefault, _)",  # as the addresses say
        "ModuleLoadData": "hipModuleLoadData(_)",
        "ModuleGetFunction": "hipModuleGetFunction(_, _)",
        "ModuleUnload": "hipModuleUnload(_)",
        "LaunchKernel": "hipModuleLaunchKernel(_, _, _, _, _, _, _, _, _, _, _)",
        "GraphInstantiate": "hipGraphInstantiateWithFlags(_, _)",
        "GraphLaunch": "hipGraphLaunch(_, _)",
        "GraphExecDestroy": "hipGraphExecDestroy(_)",
        "GraphDestroy": "hipGraphDestroy(_)",
    },
)


def missing() -> str | None:
    """Why no AMD GPU can be used here and what would help, in one line; None if one can."""
    found = installed(API, lambda driver: _count(driver, "the AMD kernel driver (amdgpu) finds no GPU"))
    return found if isinstance(found, str) else None


def installed_target() -> str | None:
    """The target of the first AMD GPU here, such as "rocm:gfx1151"; None where there is none."""
    found = installed(API, lambda driver: _count(driver, ""))
    return None if isinstance(found, str) else f"rocm:{_chip(found, 0)[1]}"


def open_device(threads: int | None = None, index: int = 0) -> HipDevice:
    return HipDevice(index)


def start(driver: Driver) -> None:
    """Make the first GPU the one that this process's calls are about."""
    driver("Init", hint="is the amdgpu driver loaded, and may this user open /dev/kfd?")


def _count(driver: Driver, hint: str) -> int:
    """How many GPUs there are; hint: what to say where the driver cannot tell."""
    return int(driver("DeviceGetCount", hint=hint)[0])


def _chip(driver: Driver, index: int) -> tuple[str, str]:
    """(product, LLVM's name of the chip) of a GPU."""
    (properties,) = driver("DeviceGetProperties", index)
    return _text(properties.name), _text(properties.gcnArchName).split(":")[0]


def _text(raw: Any) -> str:
    return raw.split(b"\0")[0].decode(errors="replace") if isinstance(raw, bytes) else str(raw)


class HipDevice(GpuDevice):
    """One AMD GPU."""

    def __init__(self, index: int = 0, driver: Driver | None = None) -> None:
        driver = driver or Driver(API)
        count = _count(driver, "is the amdgpu driver loaded, and may this user open /dev/kfd?")
        if index >= count:
            raise UserError(f"there is no AMD GPU number {index}: the driver finds {count}")
        self._index = index
        driver("DeviceSet", index)
        product, self.chip = _chip(driver, index)
        self.name = f"{product} ({self.chip})"
        (stream,) = driver("StreamCreate")
        super().__init__(driver, index, stream)

    def enter(self) -> None:
        super().enter()
        self._driver("DeviceSet", self._index)

    def _copy_apart(self, source: int, target: int, pieces: Pieces) -> None:
        places = target, pieces.target_step, source, pieces.source_step
        self._driver("Memcpy2DAsync", *places, pieces.nbytes, pieces.count, self._stream, hint=FAILED_BEFORE)

    def _vendor(self) -> Vendor:
        module = self._driver.module
        properties, access = module.hipMemAllocationProp(), module.hipMemAccessFlags
        properties.type = module.hipMemAllocationType.hipMemAllocationTypePinned

        def place(described: Any) -> Any:
            described.location.type = module.hipMemLocationType.hipMemLocationTypeDevice
            described.location.id = self._index
            return described

        def may(write: bool) -> Any:
            found = place(module.hipMemAccessDesc())
            found.flags = access.hipMemAccessFlagsProtReadWrite if write else access.hipMemAccessFlagsProtRead
            return found

        return Vendor(place(properties), may)

    def _load_modules(self, code: bytes, objects: Sequence[bytes]) -> list[Any]:
        """code: code objects (hsaco) for this GPU's chip, one after another."""
        hint = f"the GPU is a {self.chip}: was the artifact compiled for another chip?"
        about = f"{len(code):,} bytes of kernels"
        return [self._driver("ModuleLoadData", piece, about=about, hint=hint)[0] for piece in elf_files(code)]

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        arguments = tuple(map(ctypes.c_void_p, addresses))
        function, shape = self._functions[launch.kernel], (*launch.grid, *launch.block)
        self._driver(
            "LaunchKernel", function, *shape, launch.shared_bytes, self._stream, None, arguments,
            about=f"kernel {launch.label}", hint=DOES_IT_FIT,
        )  # fmt: skip
