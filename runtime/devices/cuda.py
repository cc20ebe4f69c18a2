"""NVIDIA GPUs: the driver compiles the artifact's PTX, an entry runs as one CUDA graph.

Calls, numbers and structures are those of NVIDIA's `cuda.h`, version 12 and later.
"""

from __future__ import annotations

import ctypes
import os
import re
from collections.abc import Mapping
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise
from typing import Any

from lispgpt.errors import UserError
from lispgpt.runtime.devices.driver import Api, Driver, installed
from lispgpt.runtime.devices.gpu import DOES_IT_FIT, GpuDevice
from lispgpt.runtime.plan import Entry
from lispgpt.runtime.steps import Launch

RANK = 1
LOG_BYTES = 8192
STATIC_SHARED_BYTES = 48 * 1024
CAPABILITY_MAJOR, CAPABILITY_MINOR = 75, 76
"""Device attributes."""
JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BYTES = 5, 6
"""Options of a module's loading."""
MAX_DYNAMIC_SHARED_BYTES = 8
"""A kernel's attribute."""
PROGRAMMATIC_STREAM_SERIALIZATION = 6
"""A launch's attribute."""


def _error_name(library: Any, status: int) -> str:
    text = ctypes.c_char_p()
    library.cuGetErrorName(status, ctypes.byref(text))
    return (text.value or b"error").decode()


API = Api(
    vendor="NVIDIA",
    libraries=["libcuda.so.1"],
    missing="install NVIDIA's driver",
    functions={
        "Init": "cuInit(=0u)",
        "DeviceGetCount": "cuDeviceGetCount(*i)",
        "DeviceGet": "cuDeviceGet(*i, i)",
        "DeviceGetName": "cuDeviceGetName(p, i, i)",
        "DeviceGetAttribute": "cuDeviceGetAttribute(*i, i, i)",
        "DevicePrimaryCtxRetain": "cuDevicePrimaryCtxRetain(*p, i)",
        "DevicePrimaryCtxRelease": "cuDevicePrimaryCtxRelease_v2(i)",
        "CtxSetCurrent": "cuCtxSetCurrent(p)",
        "StreamCreate": "cuStreamCreate(*p, =1u)",  # which does not wait for the stream that nobody uses
        "StreamDestroy": "cuStreamDestroy_v2(p)",
        "StreamSynchronize": "cuStreamSynchronize(p)",
        "StreamWaitEvent": "cuStreamWaitEvent(p, p, =0u)",
        "StreamBeginCapture": "cuStreamBeginCapture_v2(p, =1)",  # of what this thread does
        "StreamEndCapture": "cuStreamEndCapture(p, *p)",
        "EventCreate": "cuEventCreate(*p, =2u)",  # without times
        "EventDestroy": "cuEventDestroy_v2(p)",
        "EventSynchronize": "cuEventSynchronize(p)",
        "EventRecord": "cuEventRecord(p, p)",
        "MemAlloc": "cuMemAlloc_v2(*p, z)",
        "MemAllocManaged": "cuMemAllocManaged(*p, z, =1u)",
        "MemFree": "cuMemFree_v2(p)",
        "MemAllocHost": "cuMemAllocHost_v2(*p, z)",
        "MemFreeHost": "cuMemFreeHost(p)",
        "MemHostRegister": "cuMemHostRegister_v2(p, z, =0u)",
        "MemHostUnregister": "cuMemHostUnregister(p)",
        "MemsetD8Async": "cuMemsetD8Async(p, i, z, p)",
        "MemsetD16Async": "cuMemsetD16Async(p, u, z, p)",
        "MemsetD32Async": "cuMemsetD32Async(p, u, z, p)",
        "MemcpyHtoDAsync": "cuMemcpyHtoDAsync_v2(p, p, z, p)",
        "MemcpyDtoHAsync": "cuMemcpyDtoHAsync_v2(p, p, z, p)",
        "MemcpyDtoDAsync": "cuMemcpyDtoDAsync_v2(p, p, z, p)",
        "MemcpyAsync": "cuMemcpyAsync(p, p, z, p)",  # whichever way the addresses say
        "ModuleLoadData": "cuModuleLoadData(*p, p)",
        "ModuleLoadDataEx": "cuModuleLoadDataEx(*p, p, u, p, p)",
        "ModuleGetFunction": "cuModuleGetFunction(*p, p, s)",
        "ModuleUnload": "cuModuleUnload(p)",
        "FuncSetAttribute": "cuFuncSetAttribute(p, i, i)",
        "LaunchKernel": "cuLaunchKernel(p, u, u, u, u, u, u, u, p, p, p)",
        "LaunchKernelEx": "cuLaunchKernelEx(p, p, p, p)",
        "GraphInstantiate": "cuGraphInstantiateWithFlags(*p, p, z)",
        "GraphUpload": "cuGraphUpload(p, p)",
        "GraphLaunch": "cuGraphLaunch(p, p)",
        "GraphExecDestroy": "cuGraphExecDestroy(p)",
        "GraphDestroy": "cuGraphDestroy(p)",
    },
    error_name=_error_name,
)


class LaunchAttribute(ctypes.Structure):
    """CUlaunchAttribute: a number, then a value of 64 bytes, of which the attribute used here takes an int."""

    _fields_ = [("id", ctypes.c_int), ("padding", ctypes.c_int), ("value", ctypes.c_int), ("rest", ctypes.c_int * 15)]


class LaunchConfig(ctypes.Structure):
    """CUlaunchConfig."""

    _fields_ = [
        ("grid", ctypes.c_uint * 3),
        ("block", ctypes.c_uint * 3),
        ("shared_bytes", ctypes.c_uint),
        ("stream", ctypes.c_void_p),
        ("attributes", ctypes.POINTER(LaunchAttribute)),
        ("attribute_count", ctypes.c_uint),
    ]


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


def open_device(threads: int | None = None) -> CudaDevice:
    return CudaDevice()


def start(driver: Driver) -> None:
    """Make the first GPU the one that this process's calls are about."""
    driver("Init", hint="is the NVIDIA driver running (nvidia-smi)?")
    _enter(driver, 0)


def _count(driver: Driver, hint: str) -> int:
    """How many GPUs there are, once the driver has started; hint: what to say where it does not."""
    driver("Init", hint=hint)
    return int(driver("DeviceGetCount")[0])


def _enter(driver: Driver, index: int) -> tuple[int, int]:
    """(the GPU of that number, its context), which becomes this thread's."""
    (device,) = driver("DeviceGet", index)
    (context,) = driver("DevicePrimaryCtxRetain", device, hint="another process may hold the GPU")
    driver("CtxSetCurrent", context)
    return int(device), int(context)


def _capability(driver: Driver, device: int) -> tuple[int, int]:
    """A GPU's architecture: (9, 0) for Hopper."""
    major, minor = (driver("DeviceGetAttribute", a, device)[0] for a in (CAPABILITY_MAJOR, CAPABILITY_MINOR))
    return int(major), int(minor)


class CudaDevice(GpuDevice):
    """One NVIDIA GPU.  It reads the kernel fact "early_launch": the kernel waits for its predecessor by itself."""

    def __init__(self, index: int = 0) -> None:
        driver = Driver(API)
        count = _count(driver, "is the NVIDIA driver running (nvidia-smi)?")
        if index >= count:
            raise UserError(f"there is no NVIDIA GPU number {index}: the driver finds {count}")
        device, self._context = _enter(driver, index)
        (stream,) = driver("StreamCreate")
        super().__init__(driver, stream)
        self._owned.insert(0, ("DevicePrimaryCtxRelease", device))
        self._early: set[str] = set()
        product = ctypes.create_string_buffer(256)
        driver("DeviceGetName", ctypes.addressof(product), len(product), device)
        major, minor = _capability(driver, device)
        self.chip = f"sm_{major}{minor}"
        self.name = f"{product.value.decode().strip()} ({self.chip})"

    def _load_modules(self, code: bytes) -> list[int]:
        """code: PTX modules one after another, which the driver compiles at once, or a cubin for this very GPU."""
        starts = [found.start() for found in re.finditer(rb"^\.version\b", code, re.MULTILINE)]
        if len(starts) < 2:
            return [self._load_module(code)]
        pieces = [code[a:b] for a, b in pairwise([*starts, len(code)])]

        def load(piece: bytes) -> int:
            self._driver("CtxSetCurrent", self._context)
            return self._load_module(piece)

        with ThreadPoolExecutor(min(len(pieces), len(os.sched_getaffinity(0)))) as pool:
            return list(pool.map(load, pieces))

    def _load_module(self, code: bytes) -> int:
        data, log = ctypes.create_string_buffer(code), ctypes.create_string_buffer(LOG_BYTES)
        options = (ctypes.c_int * 2)(JIT_ERROR_LOG_BUFFER, JIT_ERROR_LOG_BYTES)
        values = (ctypes.c_void_p * 2)(ctypes.addressof(log), LOG_BYTES)
        try:
            places = ctypes.addressof(data), 2, ctypes.addressof(options), ctypes.addressof(values)
            (module,) = self._driver("ModuleLoadDataEx", *places)
        except UserError as error:
            said = log.value.decode(errors="replace").strip()
            advice = f"was the artifact compiled for another GPU than {self.name}?"
            raise UserError(f"{error.message}: {said or advice}") from error
        return int(module)

    def _configure(self, kernel: str, facts: Mapping[str, Any]) -> None:
        if facts.get("early_launch", False):
            self._early.add(kernel)
        nbytes = int(facts.get("shared_bytes", 0))
        if nbytes > STATIC_SHARED_BYTES:
            hint = f"the GPU has less shared memory than the {nbytes} bytes that a block wants"
            function, about = self._functions[kernel], f"kernel {kernel}"
            self._driver("FuncSetAttribute", function, MAX_DYNAMIC_SHARED_BYTES, nbytes, about=about, hint=hint)

    def _launch_kernel(self, launch: Launch, addresses: list[int], first: bool) -> None:
        config = LaunchConfig(shared_bytes=launch.shared_bytes, stream=self._stream)
        config.grid[:], config.block[:] = launch.grid, launch.block
        if not first and launch.kernel in self._early:
            attribute = LaunchAttribute(id=PROGRAMMATIC_STREAM_SERIALIZATION, value=1)
            config.attributes, config.attribute_count = ctypes.pointer(attribute), 1
        values = (ctypes.c_uint64 * len(addresses))(*addresses)
        start = ctypes.addressof(values)
        pointers = (ctypes.c_void_p * len(addresses))(*[start + 8 * i for i in range(len(addresses))])
        function, about = self._functions[launch.kernel], f"kernel {launch.kernel}"
        places = ctypes.addressof(config), function, ctypes.addressof(pointers), None
        self._driver("LaunchKernelEx", *places, about=about, hint=DOES_IT_FIT)

    def prepare(self, entry: Entry, buffers: Mapping[str, int]) -> Any:
        executable = super().prepare(entry, buffers)
        self._driver("GraphUpload", executable, self._stream)
        return executable
