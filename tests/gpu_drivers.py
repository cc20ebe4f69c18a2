"""GPU drivers made here, for both vendors' devices: device memory is this process's, and kernels write nothing."""

from __future__ import annotations

import ctypes
from collections import Counter
from collections.abc import Callable
from types import ModuleType, SimpleNamespace
from typing import Any

CUDA = {
    "Init": "flags", "DeviceGetCount": "", "DeviceGet": "ordinal", "DevicePrimaryCtxRetain": "device",
    "CtxSetCurrent": "context", "StreamCreate": "flags", "DeviceGetName": "length device",
    "DeviceGetAttribute": "attribute device", "MemAlloc": "size", "MemFree": "pointer",
    "MemsetD8Async": "to value size stream", "MemcpyHtoDAsync": "to source size stream",
    "MemcpyDtoHAsync": "to source size stream",
    "MemcpyDtoDAsync": "to source size stream", "MemAllocHost": "size", "MemFreeHost": "pointer",
    "ModuleLoadDataEx": "code count options values", "ModuleGetFunction": "module name", "ModuleUnload": "module",
    "FuncSetAttribute": "function attribute value", "LaunchKernelEx": "config function parameters extra",
    "StreamBeginCapture": "stream mode", "StreamEndCapture": "stream", "StreamSynchronize": "stream",
    "StreamDestroy": "stream", "GraphInstantiate": "graph flags", "GraphUpload": "executable stream",
    "GraphLaunch": "executable stream", "GraphExecDestroy": "executable", "GraphDestroy": "graph",
    "EventCreate": "flags", "EventRecord": "event stream", "EventSynchronize": "event", "EventDestroy": "event",
    "DevicePrimaryCtxRelease": "device",
}  # fmt: skip
HIP = {
    "GetDeviceCount": "", "SetDevice": "ordinal", "GetDeviceProperties": "ordinal", "StreamCreate": "",
    "Malloc": "size", "Free": "pointer", "MemsetAsync": "to value size stream",
    "MemcpyAsync": "to source size kind stream", "HostMalloc": "size flags", "HostFree": "pointer",
    "ModuleLoadData": "code", "ModuleGetFunction": "module name", "ModuleUnload": "module",
    "ModuleLaunchKernel": "function gx gy gz bx by bz shared stream parameters extra",
    "StreamBeginCapture": "stream mode", "StreamEndCapture": "stream", "StreamSynchronize": "stream",
    "StreamDestroy": "stream", "GraphInstantiateWithFlags": "graph flags", "GraphLaunch": "executable stream",
    "GraphExecDestroy": "executable", "GraphDestroy": "graph", "EventCreate": "", "EventRecord": "event stream",
    "EventSynchronize": "event", "EventDestroy": "event",
}  # fmt: skip
ATTRIBUTES = {"CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MAJOR": 9, "CU_DEVICE_ATTRIBUTE_COMPUTE_CAPABILITY_MINOR": 0}
REFUSED_WHILE_CAPTURING = ("MemFree", "Free", "ModuleUnload", "StreamSynchronize", "StreamBeginCapture")


class Anything:
    """An enum whose every name is there and is its own value."""

    def __getattr__(self, name: str) -> Any:
        return SimpleNamespace(value=2) if name == "CU_EVENT_DISABLE_TIMING" else name


class Driver(ModuleType):
    """A driver whose device memory is this process's: copies are made, launches are kept and write nothing.

    failing: the call that fails, or "*" for every one.  slow: what is given to a stream is done when somebody waits for
    it, and no sooner; else at once.  A stream that is being captured refuses what CUDA refuses then.  There are no
    copies apart from streams: a device's own stream need not wait for those.
    """

    def __init__(self, prefix: str, signatures: dict[str, str]) -> None:
        super().__init__(prefix)
        self.prefix, self.signatures = prefix, signatures
        self.calls: list[tuple[str, SimpleNamespace]] = []
        self.memory: dict[int, Any] = {}
        self.alive: Counter[str] = Counter()
        self.failing: str | None = None
        self.slow, self.capturing = False, False
        self.under_way: list[tuple[str | None, Callable[[], object]]] = []
        self.when_launched: Callable[[], None] = lambda: None
        enums = "CUresult CUjit_option CUdevice_attribute CUfunction_attribute CUlaunchAttributeID CUstreamCaptureMode"
        for name in f"{enums} CUevent_flags hipError_t hipMemcpyKind hipStreamCaptureMode".split():
            setattr(self, name, Anything())
        self.CUlaunchConfig = SimpleNamespace
        self.CUlaunchAttribute = lambda: SimpleNamespace(value=SimpleNamespace())

    def __getattr__(self, name: str) -> Any:
        short = name.removeprefix(self.prefix)
        if short not in self.signatures:
            raise AttributeError(name)
        names = self.signatures[short].split()

        def call(*arguments: Any) -> Any:
            assert len(arguments) == len(names), f"{name} takes {names}, not {arguments}"
            given = SimpleNamespace(**dict(zip(names, arguments, strict=True)))
            self.calls.append((short, given))
            if self.failing == "*":
                return ("ERROR_OF_ITS_KIND",)
            if self.capturing and short in REFUSED_WHILE_CAPTURING:
                return ("ERROR_STREAM_CAPTURE_UNSUPPORTED",)
            good = "CUDA_SUCCESS" if self.prefix == "cu" else "hipSuccess"
            return (good if short != self.failing else "ERROR_OF_ITS_KIND", *self.results(short, given))

        return call

    def results(self, name: str, given: SimpleNamespace) -> tuple[Any, ...]:
        if name in ("DeviceGetCount", "GetDeviceCount"):
            return (2,)
        if name == "DeviceGet":
            return (given.ordinal,)
        if name == "DeviceGetName":
            return (b"NVIDIA Made\0up",)
        if name == "GetDeviceProperties":
            return (SimpleNamespace(name=b"AMD Made\0", gcnArchName=b"gfx1151:xnack-"),)
        if name == "DeviceGetAttribute":
            return (ATTRIBUTES[given.attribute],)
        if name in ("MemAlloc", "Malloc", "MemAllocHost", "HostMalloc"):
            buffer = ctypes.create_string_buffer(b"\xa5" * given.size, given.size)
            self.memory[ctypes.addressof(buffer)] = buffer
            return (ctypes.addressof(buffer),)
        if name in ("MemFree", "Free", "MemFreeHost", "HostFree"):
            assert not self.under_way, "freed while a stream may use it"
            del self.memory[int(given.pointer)]
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
        elif name == "StreamBeginCapture":
            self.capturing = True
        elif name == "StreamEndCapture":
            self.capturing = False
            return (self.make(name),)
        elif name.startswith(("ModuleLoadData", "ModuleGet", "GraphInst")) or "Create" in name:
            return (self.make(name),)
        elif name == "DevicePrimaryCtxRetain":
            return (self.make("Context"),)
        return ()

    def do(self, work: Callable[[], object], event: str | None = None) -> None:
        self.under_way.append((event, work))
        if not self.slow:
            self.wait()

    def wait(self, event: str | None = None) -> None:
        """Do what is under way, up to an event."""
        while self.under_way:
            reached, work = self.under_way.pop(0)
            work()
            if event is not None and reached == event:
                return

    def make(self, name: str) -> str:
        self.alive[name] += 1
        return f"{name}#{self.alive[name]}"

    def made(self, *names: str) -> list[SimpleNamespace]:
        return [given for name, given in self.calls if name in names]

    def order(self) -> list[str]:
        return [name for name, _ in self.calls]
