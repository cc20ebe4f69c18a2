"""NVIDIA GPUs through cuda-bindings: the driver compiles the artifact's PTX, an entry runs as one CUDA graph."""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import Pieces
from lispgpt.runtime.devices.driver import FAILED_BEFORE, Api, Driver, installed
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice
from lispgpt.runtime.devices.growing import Vendor
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch
from lispgpt.runtime.plan.tensor_maps import TensorMap

RANK = 1
LOG_BYTES = 8192
STATIC_SHARED_BYTES = 48 * 1024
MAP_TYPES = {"f32": "FLOAT32", "bf16": "BFLOAT16"}
API = Api(
    vendor="NVIDIA",
    module="cuda.bindings.driver",
    package="cuda-bindings",
    wanted="'lispgpt[cuda]'",
    status="CUresult",
    libraries=["libcuda.so.1"],
    missing="install NVIDIA's driver",
    functions={
        "Init": "cuInit(0)",
        "DeviceGetCount": "cuDeviceGetCount()",
        "DeviceGet": "cuDeviceGet(_)",
        "DeviceGetName": "cuDeviceGetName(256, _)",
        "DeviceGetMajor": "cuDeviceGetAttribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR, _)",
        "DeviceGetMinor": "cuDeviceGetAttribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR, _)",
        "DevicePrimaryCtxRetain": "cuDevicePrimaryCtxRetain(_)",
        "DevicePrimaryCtxRelease": "cuDevicePrimaryCtxRelease(_)",
        "CtxSetCurrent": "cuCtxSetCurrent(_)",
        "StreamCreate": "cuStreamCreate(1)",  # which does not wait for the stream that nobody uses
        "StreamDestroy": "cuStreamDestroy(_)",
        "StreamSynchronize": "cuStreamSynchronize(_)",
        "StreamWaitEvent": "cuStreamWaitEvent(_, _, 0)",
        "StreamBeginCapture": "cuStreamBeginCapture(_, CUstreamCaptureMode.CU_STREAM_CAPTURE_MODE_THREAD_LOCAL)",
        "StreamEndCapture": "cuStreamEndCapture(_)",
        "EventCreate": "cuEventCreate(2)",  # without times
        "EventDestroy": "cuEventDestroy(_)",
        "EventSynchronize": "cuEventSynchronize(_)",
        "EventRecord": "cuEventRecord(_, _)",
        "EventQuery": "cuEventQuery(_)",
        "MemAlloc": "cuMemAlloc(_)",
        "MemAllocManaged": "cuMemAllocManaged(_, 1)",
        "MemFree": "cuMemFree(_)",
        "MemGranularity": "cuMemGetAllocationGranularity(_, "
        "CUmemAllocationGranularity_flags.CU_MEM_ALLOC_GRANULARITY_MINIMUM)",
        "MemAddressReserve": "cuMemAddressReserve(_, 0, 0, 0)",
        "MemAddressFree": "cuMemAddressFree(_, _)",
        "MemCreate": "cuMemCreate(_, _, 0)",
        "MemRelease": "cuMemRelease(_)",
        "MemMap": "cuMemMap(_, _, 0, _, 0)",
        "MemUnmap": "cuMemUnmap(_, _)",
        "MemSetAccess": "cuMemSetAccess(_, _, _, 1)",
        "MemAllocHost": "cuMemAllocHost(_)",
        "MemFreeHost": "cuMemFreeHost(_)",
        "MemHostRegister": "cuMemHostRegister(_, _, 0)",
        "MemHostUnregister": "cuMemHostUnregister(_)",
        "MemsetD8Async": "cuMemsetD8Async(_, _, _, _)",
        "MemsetD16Async": "cuMemsetD16Async(_, _, _, _)",
        "MemsetD32Async": "cuMemsetD32Async(_, _, _, _)",
        "MemcpyHtoDAsync": "cuMemcpyHtoDAsync(_, _, _, _)",
        "MemcpyDtoHAsync": "cuMemcpyDtoHAsync(_, _, _, _)",
        "MemcpyDtoDAsync": "cuMemcpyDtoDAsync(_, _, _, _)",
        "Memcpy2DAsync": "cuMemcpy2DAsync(_, _)",
        "MemcpyAsync": "cuMemcpyAsync(_, _, _, _)",  # whichever way the addresses say
        "ModuleLoadData": "cuModuleLoadData(_)",
        "ModuleLoadDataEx": "cuModuleLoadDataEx(_, _, _, _)",
        "ModuleGetFunction": "cuModuleGetFunction(_, _)",
        "ModuleUnload": "cuModuleUnload(_)",
        "DeviceGetCores": "cuDeviceGetAttribute(CUdevice_attribute.CU_DEVICE_ATTRIBUTE_MULTIPROCESSOR_COUNT, _)",
        "OccupancyBlocks": "cuOccupancyMaxActiveBlocksPerMultiprocessor(_, _, _)",
        "OccupancyClusters": "cuOccupancyMaxActiveClusters(_, _)",
        "SetDynamicSharedBytes": "cuFuncSetAttribute(_, "
        "CUfunction_attribute.CU_FUNC_ATTRIBUTE_MAX_DYNAMIC_SHARED_SIZE_BYTES, _)",
        "EncodeTensorMap": "cuTensorMapEncodeTiled(_, _, _, _, _, _, _, "
        "CUtensorMapInterleave.CU_TENSOR_MAP_INTERLEAVE_NONE, "
        "CUtensorMapSwizzle.CU_TENSOR_MAP_SWIZZLE_128B, CUtensorMapL2promotion.CU_TENSOR_MAP_L2_PROMOTION_L2_256B, "
        "CUtensorMapFloatOOBfill.CU_TENSOR_MAP_FLOAT_OOB_FILL_NONE)",
        "LaunchKernel": "cuLaunchKernel(_, _, _, _, _, _, _, _, _, _, _)",
        "LaunchKernelEx": "cuLaunchKernelEx(_, _, _, 0)",
        "GraphInstantiate": "cuGraphInstantiate(_, _)",
        "GraphUpload": "cuGraphUpload(_, _)",
        "GraphLaunch": "cuGraphLaunch(_, _)",
        "GraphExecDestroy": "cuGraphExecDestroy(_)",
        "GraphDestroy": "cuGraphDestroy(_)",
    },
)


def missing() -> str | None:
    """Why no NVIDIA GPU can be used here and what would help, in one line; None if one can."""
    found = installed(API, lambda driver: _count(driver, "the NVIDIA kernel driver finds no GPU"))
    return found if isinstance(found, str) else None


def installed_target() -> str | None:
    """The best target for the first NVIDIA GPU here, such as "cuda:sm_90a"; None where there is none.

    The driver compiles PTX for any GPU that is not older than the PTX's own architecture; that with an `a` runs on its
    own alone, with instructions that later ones need not have.
    """
    driver = installed(API, lambda driver: _count(driver, ""))
    if isinstance(driver, str):
        return None
    return target_for(*_capability(driver, driver("DeviceGet", 0)[0]))


def target_for(major: int, minor: int) -> str:
    """The best target for a compute capability."""
    if (major, minor) == (9, 0):
        return "cuda:sm_90a"
    return "cuda:sm_90" if major >= 9 else "cuda:sm_80"


def open_device(threads: int | None = None, index: int = 0) -> CudaDevice:
    return CudaDevice(index)


def start(driver: Driver) -> None:
    """Make the first GPU the one that this process's calls are about."""
    driver("Init", hint="is the NVIDIA driver running (nvidia-smi)?")
    _enter(driver, 0)


def _count(driver: Driver, hint: str) -> int:
    """How many GPUs there are, once the driver has started; hint: what to say where it does not."""
    driver("Init", hint=hint)
    return int(driver("DeviceGetCount")[0])


def _enter(driver: Driver, index: int) -> tuple[Any, Any]:
    """(the GPU of that number, its context), which becomes this thread's."""
    (device,) = driver("DeviceGet", index)
    (context,) = driver("DevicePrimaryCtxRetain", device, hint="another process may hold the GPU")
    driver("CtxSetCurrent", context)
    return device, context


def _capability(driver: Driver, device: int) -> tuple[int, int]:
    """A GPU's architecture: (9, 0) for Hopper."""
    return int(driver("DeviceGetMajor", device)[0]), int(driver("DeviceGetMinor", device)[0])


class CudaDevice(GpuDevice):
    """One NVIDIA GPU.  It reads the kernel fact "early_launch": the kernel waits for its predecessor by itself."""

    def __init__(self, index: int = 0) -> None:
        driver = Driver(API)
        count = _count(driver, "is the NVIDIA driver running (nvidia-smi)?")
        if index >= count:
            raise UserError(f"there is no NVIDIA GPU number {index}: the driver finds {count}")
        device, self._context = _enter(driver, index)
        (stream,) = driver("StreamCreate")
        super().__init__(driver, device, stream)
        self._owned.insert(0, ("DevicePrimaryCtxRelease", device))
        self._early: set[str] = set()
        self._maps: dict[str, tuple[TensorMap, ...]] = {}
        self._described: dict[TensorMap, list[Any]] = {}
        (product,) = driver("DeviceGetName", device)
        major, minor = _capability(driver, device)
        self.chip = f"sm_{major}{minor}"
        self.name = f"{product.split(bytes(1))[0].decode().strip()} ({self.chip})"

    def enter(self) -> None:
        super().enter()
        self._driver("CtxSetCurrent", self._context)

    def _vendor(self) -> Vendor:
        module = self._driver.module
        properties, access = module.CUmemAllocationProp(), module.CUmemAccess_flags
        properties.type = module.CUmemAllocationType.CU_MEM_ALLOCATION_TYPE_PINNED
        properties.location.type = module.CUmemLocationType.CU_MEM_LOCATION_TYPE_DEVICE
        properties.location.id = int(self._device)

        def may(write: bool) -> Any:
            found = module.CUmemAccessDesc()
            found.location = properties.location
            found.flags = access.CU_MEM_ACCESS_FLAGS_PROT_READWRITE if write else access.CU_MEM_ACCESS_FLAGS_PROT_READ
            return [found]

        return Vendor(properties, may)

    def _copy_apart(self, source: int, target: int, pieces: Pieces) -> None:
        what, place = self._driver.module.CUDA_MEMCPY2D(), self._driver.module.CUmemorytype.CU_MEMORYTYPE_DEVICE
        what.srcMemoryType = what.dstMemoryType = place
        what.srcDevice, what.srcPitch = source, pieces.source_step
        what.dstDevice, what.dstPitch = target, pieces.target_step
        what.WidthInBytes, what.Height = pieces.nbytes, pieces.count
        self._driver("Memcpy2DAsync", what, self._stream, hint=FAILED_BEFORE)

    def _load_modules(self, code: bytes, objects: Sequence[bytes]) -> list[Any]:
        """code: PTX modules one after another, which the driver compiles at once, or a cubin for this very GPU.

        objects: cubins of that PTX, which another GPU or an older driver does not take.
        """
        modules: list[Any] = []
        for cubin in objects:
            status, loaded = self._driver.status("ModuleLoadData", cubin)
            if status:
                break
            modules += loaded
        if objects and len(modules) == len(objects):
            return modules
        for module in modules:
            self._driver("ModuleUnload", module)
        starts = [found.start() for found in re.finditer(rb"^\.version\b", code, re.MULTILINE)]
        if len(starts) < 2:
            return [self._load_module(code)]
        pieces = [code[a:b] for a, b in pairwise([*starts, len(code)])]

        def load(piece: bytes) -> Any:
            self._driver("CtxSetCurrent", self._context)
            return self._load_module(piece)

        with ThreadPoolExecutor(min(len(pieces), len(os.sched_getaffinity(0)))) as pool:
            return list(pool.map(load, pieces))

    def _load_module(self, code: bytes) -> Any:
        """code: a module's PTX text, or a cubin."""
        option = self._driver.module.CUjit_option
        log = b"\0" * LOG_BYTES  # the package lets the driver write into it
        options = [option.CU_JIT_ERROR_LOG_BUFFER, option.CU_JIT_ERROR_LOG_BUFFER_SIZE_BYTES]
        try:
            (module,) = self._driver("ModuleLoadDataEx", code + b"\0", len(options), options, [log, LOG_BYTES])
        except UserError as error:
            said = log.split(b"\0")[0].decode(errors="replace").strip()
            advice = f"was the artifact compiled for another GPU than {self.name}?"
            raise UserError(f"{error.message}: {said or advice}") from error
        return module

    def _configure(self, kernel: str, facts: Mapping[str, Any]) -> None:
        if facts.get("early_launch", False) and kernel not in self._together:
            self._early.add(kernel)
        self._maps[kernel] = TensorMap.of(facts)
        nbytes = int(facts.get("shared_bytes", 0))
        if nbytes > STATIC_SHARED_BYTES:
            hint = f"the GPU has less shared memory than the {nbytes} bytes that a block wants"
            function, about = self._functions[kernel], f"kernel {kernel}"
            self._driver("SetDynamicSharedBytes", function, nbytes, about=about, hint=hint)

    def _resident(self, launch: Launch, cluster: int) -> int:
        if cluster == 1:
            return super()._resident(launch, cluster)
        function, about = self._functions[launch.kernel], f"kernel {launch.label}"
        return cluster * int(self._driver("OccupancyClusters", function, self._config(launch), about=about)[0])

    def _config(self, launch: Launch) -> Any:
        config = self._driver.module.CUlaunchConfig()
        config.gridDimX, config.gridDimY, config.gridDimZ = launch.grid
        config.blockDimX, config.blockDimY, config.blockDimZ = launch.block
        config.sharedMemBytes, config.hStream = launch.shared_bytes, self._stream
        return config

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        module, config = self._driver.module, self._config(launch)
        if not first and launch.kernel in self._early:
            attribute = module.CUlaunchAttribute()
            attribute.id = module.CUlaunchAttributeID.CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION
            attribute.value.programmaticStreamSerializationAllowed = 1
            config.attrs, config.numAttrs = [attribute], 1
        maps = [self._encoded(map_, addresses) for map_ in self._maps.get(launch.kernel, ())]
        kinds = [*(ctypes.c_void_p for _ in addresses), *(None for _ in maps)]
        parameters = ((*addresses, *maps), tuple(kinds))
        function, about = self._functions[launch.kernel], f"kernel {launch.label}"
        self._driver("LaunchKernelEx", config, function, parameters, about=about, hint=DOES_IT_FIT)

    def _encoded(self, map_: TensorMap, addresses: Sequence[int]) -> Any:
        """A tensor map as copies on the GPU take it."""
        if map_ not in self._described:
            self._described[map_] = self._description(map_)
        kind, *numbers = self._described[map_]
        address = addresses[map_.argument] + map_.offset
        about = f"a tensor of {map_.dtype} {'x'.join(map(str, reversed(map_.extents)))}"
        return self._driver("EncodeTensorMap", kind, len(map_.box), address, *numbers, about=about)[0]

    def _description(self, map_: TensorMap) -> list[Any]:
        """What the driver takes beside an address: the element type, extents, strides, box and its steps."""
        module = self._driver.module
        kind = getattr(module.CUtensorMapDataType, f"CU_TENSOR_MAP_DATA_TYPE_{MAP_TYPES[map_.dtype]}")
        steps = [1] * len(map_.box)
        long, short = (map_.extents, map_.strides), (map_.box, steps)
        numbers = [[module.cuuint64_t(n) for n in group] for group in long]
        return [kind, *numbers, *([module.cuuint32_t(n) for n in group] for group in short)]

    def prepare_runs(self, entries: Sequence[Entry], buffers: Mapping[str, int]) -> Any:
        executable = super().prepare_runs(entries, buffers)
        self._driver("GraphUpload", executable, self._stream)
        return executable
