"""GPU drivers made here, for both vendors' devices: device memory is this process's, and kernels write nothing.

A stand-in takes the place of the library that ctypes would load, so that what is tested goes down to the C calls.
"""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any

from lispgpt.runtime.devices import cuda, rocm
from lispgpt.runtime.devices.driver import Api

PARAMETERS = {
    "DeviceGet": "ordinal", "DevicePrimaryCtxRetain": "device", "DevicePrimaryCtxRelease": "device",
    "DeviceSet": "ordinal", "DeviceGetProperties": "to ordinal", "CtxSetCurrent": "context",
    "DeviceGetName": "to length device", "DeviceGetAttribute": "attribute device", "MemAlloc": "size",
    "MemFree": "pointer", "MemsetD8Async": "to value size stream", "MemcpyHtoDAsync": "to source size stream",
    "MemcpyDtoHAsync": "to source size stream", "MemcpyDtoDAsync": "to source size stream", "MemAllocHost": "size",
    "MemFreeHost": "pointer", "ModuleLoadData": "code", "ModuleLoadDataEx": "code count options values",
    "ModuleGetFunction": "module name", "ModuleUnload": "module", "FuncSetAttribute": "function attribute value",
    "LaunchKernel": "function gx gy gz bx by bz shared stream parameters extra",
    "LaunchKernelEx": "config function parameters extra", "StreamBeginCapture": "stream", "StreamEndCapture": "stream",
    "StreamSynchronize": "stream", "StreamDestroy": "stream", "GraphInstantiate": "graph flags",
    "GraphUpload": "executable stream", "GraphLaunch": "executable stream", "GraphExecDestroy": "executable",
    "GraphDestroy": "graph", "EventRecord": "event stream", "EventSynchronize": "event", "EventDestroy": "event",
}  # fmt: skip
"""What a call is given beside the constants and the addresses of its results."""

FAILS = 999
REFUSED_WHILE_CAPTURING = ("MemFree", "ModuleUnload", "StreamSynchronize", "StreamBeginCapture")
REFUSED, NOT_FOUND = 900, 500


class StandIn:
    """A driver's library whose device memory is this process's: copies are made, launches are kept and write nothing.

    kernels: how many arguments each has.  failing: the call that fails, or "*" for every one.  slow: what is given to a
    stream is done when somebody waits for it, and no sooner; else at once.  A stream that is being captured refuses
    what CUDA refuses then.  There are no copies apart from streams: a device's own stream need not wait for those.
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
        self.under_way: list[tuple[int | None, Callable[[], object]]] = []
        self.when_launched: Callable[[], None] = lambda: None

    @property
    def by_cuda(self) -> bool:
        return self.api is cuda.API

    @property
    def launching(self) -> str:
        return "LaunchKernelEx" if self.by_cuda else "LaunchKernel"

    def __getattr__(self, symbol: str) -> Any:
        if symbol == "cuGetErrorName":
            return lambda status, text: setattr(text._obj, "value", b"ERROR_OF_ITS_KIND")
        if symbol == "hipGetErrorName":
            return type("Function", (), {"__call__": lambda self, status: b"ERROR_OF_ITS_KIND"})()
        if symbol.startswith("hipMemcpyAsync"):
            return self.copy_by_direction
        if symbol not in self.names:
            raise AttributeError(symbol)
        return lambda *arguments: self.call(self.names[symbol], arguments)

    def copy_by_direction(self, *arguments: Any) -> int:
        """HIP has one call for copies, which is told the direction."""
        direction = {1: "MemcpyHtoDAsync", 2: "MemcpyDtoHAsync", 3: "MemcpyDtoDAsync"}[arguments[3].value]
        return self.call(direction, arguments)

    def call(self, name: str, arguments: tuple[Any, ...]) -> int:
        words = self.api.words(name)
        assert len(words) == len(arguments), f"{name} takes {words}, not {arguments}"
        values = [a.value for a, word in zip(arguments, words, strict=True) if word[0] not in "=*"]
        places = [a._obj for a, word in zip(arguments, words, strict=True) if word[0] == "*"]
        given = SimpleNamespace(**dict(zip(PARAMETERS.get(name, "").split(), values, strict=True)))
        if name.startswith("LaunchKernel"):
            self.read_launch(given)
        self.calls.append((name, given))
        if self.failing in ("*", name):
            return FAILS
        if self.capturing and name in REFUSED_WHILE_CAPTURING:
            return REFUSED
        if name == "ModuleGetFunction" and self.lacks(given.module, given.name):
            return NOT_FOUND
        for place, result in zip(places, self.results(name, given), strict=True):
            place.value = result
        return 0

    def lacks(self, module: int, kernel: bytes) -> bool:
        """Whether a module's code says which kernels it has, and not this one."""
        text = self.texts.get(module, b"")
        return b".entry" in text and b".entry " + kernel not in text

    def read_launch(self, given: SimpleNamespace) -> None:
        """Read what a launch points at, which need not outlive the call."""
        if self.by_cuda:
            config = cuda.LaunchConfig.from_address(given.config)
            given.grid, given.block, given.shared = tuple(config.grid), tuple(config.block), config.shared_bytes
            given.stream, given.attributes = config.stream, []
            for i in range(config.attribute_count):
                given.attributes.append((config.attributes[i].id, config.attributes[i].value))
        else:
            given.grid, given.block = (given.gx, given.gy, given.gz), (given.bx, given.by, given.bz)
        count = self.kernels[self.functions[given.function]]
        if self.by_cuda:
            pointers = ctypes.cast(given.parameters, ctypes.POINTER(ctypes.POINTER(ctypes.c_uint64)))
            given.addresses = [pointers[i][0] for i in range(count)]
        else:
            words = (ctypes.c_uint64 * 5).from_address(given.extra)
            assert (words[0], words[2], words[4]) == (rocm.BUFFER_IS, rocm.SIZE_IS, rocm.END_OF_PARAMETERS)
            assert ctypes.c_size_t.from_address(words[3]).value == 8 * count
            given.addresses = list((ctypes.c_uint64 * count).from_address(words[1]))

    def results(self, name: str, given: SimpleNamespace) -> tuple[int, ...]:
        if name == "DeviceGetCount":
            return (2,)
        if name == "DeviceGet":
            return (given.ordinal,)
        if name == "DeviceGetName":
            ctypes.memmove(given.to, b"NVIDIA Made\0up", 14)
        elif name == "DeviceGetProperties":
            ctypes.memmove(given.to, b"AMD Made\0", 9)
            ctypes.memmove(given.to + rocm.CHIP_OFFSET, b"gfx1151:xnack-\0", 15)
        elif name == "DeviceGetAttribute":
            return ({cuda.CAPABILITY_MAJOR: 9, cuda.CAPABILITY_MINOR: 0}[given.attribute],)
        elif name in ("MemAlloc", "MemAllocHost"):
            buffer = ctypes.create_string_buffer(b"\xa5" * given.size, given.size)
            self.memory[ctypes.addressof(buffer)] = buffer
            return (ctypes.addressof(buffer),)
        elif name in ("MemFree", "MemFreeHost"):
            assert not self.under_way, "freed while a stream may use it"
            del self.memory[given.pointer]
        elif name.startswith("Memset"):
            self.do(lambda: ctypes.memset(given.to, given.value, given.size))
        elif name.startswith("Memcpy"):
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
        if not any(word[0] == "*" for word in self.api.words(name)):
            return ()
        handle = self.make(name)
        if name == "ModuleGetFunction":
            self.functions[handle] = given.name.decode()
        if name.startswith("ModuleLoadData"):
            self.texts[handle] = ctypes.string_at(given.code)
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
