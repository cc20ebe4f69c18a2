"""GPU drivers made here, for both vendors' devices: device memory is this process's, and kernels write nothing.

A stand-in takes the place of the vendor's Python package, hip-python or cuda-bindings.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from functools import partial
from types import SimpleNamespace
from typing import Any

from mapped_memory import Mapped

from lispgpt.runtime.devices import cuda, rocm
from lispgpt.runtime.devices.driver import Api
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Argument, Launch

PARAMETERS = {
    "DeviceGet": "ordinal", "DevicePrimaryCtxRetain": "device", "DevicePrimaryCtxRelease": "device",
    "DeviceSet": "ordinal", "DeviceGetProperties": "ordinal", "CtxSetCurrent": "context",
    "DeviceGetCores": "device", "OccupancyBlocks": "function threads shared", "OccupancyClusters": "function config",
    "DeviceGetName": "device", "DeviceGetMajor": "device", "DeviceGetMinor": "device", "MemAlloc": "size",
    "MemFree": "pointer", "MemsetD8Async": "to value size stream", "MemcpyHtoDAsync": "to source size stream",
    "MemcpyDtoHAsync": "to source size stream", "MemcpyDtoDAsync": "to source size stream", "MemAllocHost": "size",
    "MemGranularity": "properties", "MemAddressReserve": "size", "MemAddressFree": "to size",
    "MemCreate": "size properties", "MemRelease": "handle", "MemMap": "to size handle", "MemUnmap": "to size",
    "MemSetAccess": "to size access",
    "MemFreeHost": "pointer", "ModuleLoadData": "code", "ModuleLoadDataEx": "code count options values",
    "ModuleGetFunction": "module name", "ModuleUnload": "module", "SetDynamicSharedBytes": "function value",
    "LaunchKernel": "function gx gy gz bx by bz shared stream parameters extra",
    "LaunchKernelEx": "config function parameters", "EncodeTensorMap": "dtype rank address extents strides box steps",
    "StreamBeginCapture": "stream", "StreamEndCapture": "stream",
    "StreamSynchronize": "stream", "StreamDestroy": "stream", "GraphInstantiate": "graph flags",
    "GraphUpload": "executable stream", "GraphLaunch": "executable stream", "GraphExecDestroy": "executable",
    "GraphDestroy": "graph", "EventRecord": "event stream", "EventSynchronize": "event", "EventDestroy": "event",
    "EventQuery": "event", "StreamWaitEvent": "stream event",
    "Memcpy2DAsync": "to to_step source step size count stream",
}  # fmt: skip
"""What a call is given beside constants."""

WITHOUT_RESULTS = (
    "MemAddressFree", "MemRelease", "MemMap", "MemUnmap", "MemSetAccess",
    "Init", "DeviceSet", "CtxSetCurrent", "DevicePrimaryCtxRelease", "MemFree", "MemFreeHost", "ModuleUnload",
    "SetDynamicSharedBytes", "LaunchKernel", "LaunchKernelEx", "StreamBeginCapture", "StreamSynchronize",
    "StreamDestroy", "GraphUpload", "GraphLaunch", "GraphExecDestroy", "GraphDestroy", "EventRecord",
    "EventSynchronize", "EventDestroy", "EventQuery", "StreamWaitEvent",
)  # fmt: skip
REFUSED_WHILE_CAPTURING = ("MemFree", "ModuleUnload", "StreamSynchronize", "StreamBeginCapture")


class Status(int):
    """What a call returns first."""

    name = "ERROR_OF_ITS_KIND"


FAILS, REFUSED, NOT_FOUND, NOT_READY = Status(999), Status(900), Status(500), Status(600)


class Members:
    """An enumeration of a package, whose members are their names."""

    def __getattr__(self, name: str) -> str:
        return name


class StandIn:
    """A driver's library whose device memory is this process's: copies are made, launches are kept and write nothing.

    kernels: how many arguments each has.  failing: the call that fails, or "*" for every one.  slow: what is given to a
    stream is done when somebody waits for it, and no sooner; else at once.  A stream that is being captured refuses
    what CUDA refuses then.  There are no copies apart from streams: a device's own stream need not wait for those.
    counts: what is said of a device's size.
    """

    def __init__(self, api: Api, kernels: dict[str, int]) -> None:
        self.api, self.kernels = api, kernels
        self.names = {api.symbol(name): name for name in api.functions}
        self.calls: list[tuple[str, SimpleNamespace]] = []
        self.memory: dict[int, Any] = {}
        self.alive: Counter[str] = Counter()
        self.handles = 4096
        self.functions: dict[int, str] = {}
        self.texts: dict[int, bytes] = {}
        self.failing: str | None = None
        self.slow, self.capturing = False, False
        self.counts = {"DeviceGetCores": 3, "OccupancyBlocks": 2, "OccupancyClusters": 1}
        self.mapped = Mapped()
        self.under_way: list[tuple[int | None, Callable[[], object]]] = []
        self.when_launched: Callable[[], None] = lambda: None

    @property
    def by_cuda(self) -> bool:
        return self.api is cuda.API

    @property
    def launching(self) -> str:
        return "LaunchKernelEx" if self.by_cuda else "LaunchKernel"

    def __getattr__(self, symbol: str) -> Any:
        if symbol == "hipMemcpyAsync":
            return self.copy_by_direction
        if symbol == "cuDeviceGetAttribute":
            kinds = {"MAJOR": "Major", "MINOR": "Minor", "COUNT": "Cores"}
            return lambda which, device: self.call(f"DeviceGet{kinds[which.rpartition('_')[2]]}", (which, device))
        if symbol in self.names:
            return lambda *arguments: self.call(self.names[symbol], arguments)
        if symbol.endswith(("emAllocationProp", "emAccessDesc")):
            return lambda: SimpleNamespace(location=SimpleNamespace())
        if symbol == "CUDA_MEMCPY2D":
            return SimpleNamespace
        if symbol == "CUlaunchConfig":
            return lambda: SimpleNamespace(attrs=[])
        if symbol in ("cuuint64_t", "cuuint32_t"):
            return int
        if symbol == "CUlaunchAttribute":
            return lambda: SimpleNamespace(value=SimpleNamespace())
        return Members()

    def copy_by_direction(self, *arguments: Any) -> Any:
        """HIP has one call for copies, which is told the direction."""
        directions = {"HostToDevice": "HtoD", "DeviceToHost": "DtoH", "DeviceToDevice": "DtoD"}
        return self.call(f"Memcpy{directions[arguments[3].removeprefix('hipMemcpy')]}Async", arguments)

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        words = self.api.words(name)
        assert len(words) == len(arguments), f"{name} takes {words}, not {arguments}"
        values = [a for a, word in zip(arguments, words, strict=True) if word == "_"]
        if name == "Memcpy2DAsync" and self.by_cuda:
            values = self.read_copy(*values)
        given = SimpleNamespace(**dict(zip(PARAMETERS.get(name, "").split(), values, strict=True)))
        if name.startswith("LaunchKernel"):
            self.read_launch(given)
        self.calls.append((name, given))
        if self.failing in ("*", name):
            return FAILS, *[None] * (name not in WITHOUT_RESULTS)
        if self.capturing and name in REFUSED_WHILE_CAPTURING:
            return (REFUSED,)
        if name == "ModuleGetFunction" and self.lacks(given.module, given.name):
            return NOT_FOUND, None
        if name == "Memcpy2DAsync" and not (self.is_one(given.source) and self.is_one(given.to)):
            return (FAILS,)
        if name == "EventQuery" and any(event == given.event for event, _ in self.under_way):
            return (NOT_READY,)
        return (Status(0), *self.results(name, given))

    def is_one(self, address: int) -> bool:
        """Whether an address is in an allocation, and not in what is mapped piece by piece."""
        return any(start <= address < start + len(buffer) for start, buffer in self.memory.items())

    def read_copy(self, what: SimpleNamespace, stream: int) -> list[Any]:
        """What copies pieces, as HIP's call takes it."""
        assert what.srcMemoryType == what.dstMemoryType == "CU_MEMORYTYPE_DEVICE"
        places = [what.dstDevice, what.dstPitch, what.srcDevice, what.srcPitch]
        return [*places, what.WidthInBytes, what.Height, stream]

    def lacks(self, module: int, kernel: bytes) -> bool:
        """Whether a module's code says which kernels it has, and not this one."""
        text = self.texts.get(module, b"")
        return b".entry" in text and b".entry " + kernel not in text

    def read_launch(self, given: SimpleNamespace) -> None:
        """What a launch is made of, told alike for both vendors."""
        if self.by_cuda:
            config = given.config
            given.grid = (config.gridDimX, config.gridDimY, config.gridDimZ)
            given.block = (config.blockDimX, config.blockDimY, config.blockDimZ)
            given.shared, given.stream = config.sharedMemBytes, config.hStream
            given.attributes = [(a.id, a.value.programmaticStreamSerializationAllowed) for a in config.attrs]
            values, types = given.parameters
            maps = types.count(None)
            assert types == (ctypes.c_void_p,) * (len(values) - maps) + (None,) * maps
            given.addresses, given.maps = list(values[: len(values) - maps]), list(values[len(values) - maps :])
        else:
            given.grid, given.block = (given.gx, given.gy, given.gz), (given.bx, given.by, given.bz)
            assert given.parameters is None
            given.addresses = [value.value or 0 for value in given.extra]
        assert len(given.addresses) == self.kernels[self.functions[given.function]]

    def results(self, name: str, given: SimpleNamespace) -> tuple[Any, ...]:
        if name == "DeviceGetCount":
            return (2,)
        if name == "DeviceGet":
            return (given.ordinal,)
        if name == "DeviceGetName":
            return (b"NVIDIA Made\0up",)
        elif name == "DeviceGetProperties":
            return (SimpleNamespace(name=b"AMD Made\0", gcnArchName=b"gfx1151:xnack-\0"),)
        elif name in self.counts:
            return (self.counts[name],)
        elif name in ("DeviceGetMajor", "DeviceGetMinor"):
            return (9 if name == "DeviceGetMajor" else 0,)
        elif name in ("MemAlloc", "MemAllocHost"):
            buffer = ctypes.create_string_buffer(b"\xa5" * given.size, given.size)
            self.memory[ctypes.addressof(buffer)] = buffer
            return (ctypes.addressof(buffer),)
        elif name in ("MemFree", "MemFreeHost"):
            assert not self.under_way, "freed while a stream may use it"
            del self.memory[given.pointer]
        elif name in self.mapped.calls:
            return self.mapped.calls[name](given)
        elif name.startswith("Memset"):
            self.mapped.check_written(given.to, given.size)
            self.do(lambda: ctypes.memset(given.to, given.value, given.size))
        elif name == "Memcpy2DAsync":
            for number in range(given.count):
                to, source = given.to + number * given.to_step, given.source + number * given.step
                self.mapped.check_written(to, given.size)
                self.do(partial(ctypes.memmove, to, source, given.size))
        elif name.startswith("Memcpy"):
            self.mapped.check_written(given.to, given.size)
            self.do(lambda: ctypes.memmove(given.to, given.source, given.size))
        elif name == "GraphLaunch":
            self.do(self.when_launched)
        elif name == "EventRecord":
            self.do(lambda: None, given.event)
        elif name == "StreamSynchronize":
            self.wait()
        elif name == "EventSynchronize":
            self.wait(given.event)
        elif name in ("StreamBeginCapture", "StreamEndCapture"):
            self.capturing = name == "StreamBeginCapture"
        if name in WITHOUT_RESULTS or name.startswith("Mem"):
            return ()
        handle = self.make(name)
        if name == "ModuleGetFunction":
            self.functions[handle] = given.name.decode()
        if name.startswith("ModuleLoadData"):
            self.texts[handle] = given.code.rstrip(b"\0")
        return (handle,)

    def do(self, work: Callable[[], object], event: int | None = None) -> None:
        self.under_way.append((event, work))
        if not self.slow:
            self.wait()

    def wait(self, event: int | None = None) -> None:
        """Do what is under way, up to an event."""
        while self.under_way:
            reached, work = self.under_way.pop(0)
            work()
            if event is not None and reached == event:
                return

    def make(self, name: str) -> int:
        """A handle that no other is like."""
        self.alive[name] += 1
        self.handles += 16
        return self.handles

    def made(self, *names: str) -> list[SimpleNamespace]:
        return [given for name, given in self.calls if name in names]

    def order(self) -> list[str]:
        return [name for name, _ in self.calls]


def opened(driver: StandIn, index: int = 0) -> Any:
    """A device on a driver made here."""
    return cuda.CudaDevice(index) if driver.by_cuda else rocm.HipDevice(index)


def together(cluster: int, blocks: int) -> tuple[dict[str, Any], Entry]:
    """A kernel whose blocks wait for each other, and an entry that launches it behind another."""
    persistent = {"early_launch": True, "shared_bytes": 0, "persistent": cluster}
    launches = (
        Launch("first", (3, 2, 1), (64, 1, 1), 0, (Argument("a", 8, 4, "read"), Argument("b", 0, 4, "write"))),
        Launch("walk", (blocks, 1, 1), (64, 1, 1), 0, (Argument("b", 16, 4, "write"),)),
    )
    return {**FACTS, "walk": persistent}, Entry("logits", {}, {}, {}, launches)


FACTS = {"first": {"early_launch": True, "shared_bytes": 0}, "second": {"early_launch": True, "shared_bytes": 60000}}


def entry() -> Entry:
    """Three launches of two kernels over the buffers a and b."""
    launches = (
        Launch("first", (3, 2, 1), (64, 1, 1), 0, (Argument("a", 8, 4, "read"), Argument("b", 0, 4, "write"))),
        Launch("second", (5, 1, 1), (32, 2, 1), 60000, (Argument("b", 16, 4, "write"),)),
        Launch("first", (3, 2, 1), (64, 1, 1), 0, (Argument("a", 0, 4, "read"), Argument("b", 4, 4, "write"))),
    )
    return Entry("logits", {}, {}, {}, launches)
