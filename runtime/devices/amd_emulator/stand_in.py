"""A stand-in for libamdhip64, so that the device for AMD GPUs loads code objects and launches kernels on the emulator.

Each function of the library jumps to where a table says, and that is Python.  It carries the real one's SONAME: once
this process has loaded it, hip-python's own search for `libamdhip64.so` finds it, with no environment variable.
"""

from __future__ import annotations

import ctypes
import struct
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.elf import HEADER_BYTES, elf_bytes
from lispgpt.base.linking import shared_object as elf
from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.decode import family
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault, NotModelled
from lispgpt.runtime.devices.amd_emulator.global_memory import Argument
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.mapped import MappedMemory
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.amd_emulator.trace import Tracer

SUCCESS, INVALID_VALUE, NOT_FOUND, LAUNCH_FAILURE = 0, 1, 500, 719
POINTER, SIZE, INT, UINT = ctypes.c_void_p, ctypes.c_size_t, ctypes.c_int, ctypes.c_uint
LAUNCH = (POINTER, *[UINT] * 7, POINTER, POINTER, POINTER)
SIGNATURES: dict[str, tuple[Any, ...]] = {
    "hipInit": (UINT,), "hipGetDeviceCount": (POINTER,), "hipSetDevice": (INT,), "hipDeviceSynchronize": (),
    "hipGetDevicePropertiesR0600": (POINTER, INT), "hipMalloc": (POINTER, SIZE), "hipFree": (POINTER,),
    "hipHostMalloc": (POINTER, SIZE, UINT), "hipHostFree": (POINTER,), "hipMemcpy": (POINTER, POINTER, SIZE, INT),
    "hipMemcpyAsync": (POINTER, POINTER, SIZE, INT, POINTER), "hipMemsetAsync": (POINTER, INT, SIZE, POINTER),
    "hipStreamCreate": (POINTER,), "hipStreamDestroy": (POINTER,), "hipStreamSynchronize": (POINTER,),
    "hipStreamBeginCapture": (POINTER, INT), "hipStreamEndCapture": (POINTER, POINTER),
    "hipGraphInstantiateWithFlags": (POINTER, POINTER, SIZE), "hipGraphLaunch": (POINTER, POINTER),
    "hipGraphExecDestroy": (POINTER,), "hipGraphDestroy": (POINTER,), "hipModuleLoadData": (POINTER, POINTER),
    "hipModuleGetFunction": (POINTER, POINTER, ctypes.c_char_p), "hipModuleUnload": (POINTER,),
    "hipModuleLaunchKernel": LAUNCH, "hipEventCreate": (POINTER,), "hipEventDestroy": (POINTER,),
    "hipEventRecord": (POINTER, POINTER), "hipEventSynchronize": (POINTER,),
    "hipEventElapsedTime": (POINTER, POINTER, POINTER), "hipStreamWaitEvent": (POINTER, POINTER, UINT),
    "hipHostRegister": (POINTER, SIZE, UINT), "hipHostUnregister": (POINTER,),
    "hipMemGetAllocationGranularity": (POINTER, POINTER, INT), "hipMemAddressFree": (POINTER, SIZE),
    "hipMemAddressReserve": (POINTER, SIZE, SIZE, POINTER, SIZE), "hipMemCreate": (POINTER, SIZE, POINTER, SIZE),
    "hipMemRelease": (POINTER,), "hipMemMap": (POINTER, SIZE, SIZE, POINTER, SIZE), "hipMemUnmap": (POINTER, SIZE),
    "hipMemSetAccess": (POINTER, SIZE, POINTER, SIZE),
    "hipMemsetD16Async": (POINTER, ctypes.c_ushort, SIZE, POINTER),
    "hipMemsetD32Async": (POINTER, UINT, SIZE, POINTER), "hipDeviceGetAttribute": (POINTER, INT, INT),
    "hipMemcpy2DAsync": (POINTER, SIZE, POINTER, SIZE, SIZE, SIZE, INT, POINTER),
    "hipModuleOccupancyMaxActiveBlocksPerMultiprocessor": (POINTER, POINTER, INT, SIZE),
}  # fmt: skip
JUMP, JUMP_BYTES, EACH = b"\xff\x25", 6, 8
"""An instruction of x86-64: go on where 8 bytes of memory say, whose place is given relative to its end."""
CHIP_OFFSET = 1160
"""Where hipDeviceProp_tR0600 has gcnArchName."""
LOADED: list[ctypes.CDLL] = []
"""This process's library, once it is loaded."""
LATEST: list[StandIn] = []
"""What its calls go to, which is there for as long as the library: for good."""
ARGUMENTS_ARE, SIZE_IS = 1, 2  # what precedes the two pointers of a launch's `extra`


def build(folder: Path) -> Path:
    """Write the library into a folder; its path."""
    path, count = folder / "libamdhip64.so", len(SIGNATURES)
    code = elf.Section(".text", elf.PROGBITS, elf.ALLOC | elf.EXECUTE, 16, bytearray(EACH * count))
    table = elf.Section(".bss", elf.NOBITS, elf.ALLOC | elf.WRITE, EACH, empty_bytes=EACH * count)
    places = {name: EACH * number for number, name in enumerate(SIGNATURES)}
    functions = [elf.Symbol(name, code, at, JUMP_BYTES, elf.FUNCTION) for name, at in places.items()]
    symbols = [elf.Symbol("emulated_calls", table, 0, table.size, elf.OBJECT), *functions]
    library = elf.SharedObject(elf.Machine(elf.X86_64), [code, table], symbols, soname=path.name)
    library.lay_out()
    for at in places.values():
        way = table.address - code.address - JUMP_BYTES
        code.data[at : at + JUMP_BYTES] = JUMP + struct.pack("<i", way)
    path.write_bytes(library.to_bytes())
    return path


class StandIn:
    """One emulated GPU behind HIP's calls.

    folder: where the library is written, once.  fault: what the first failed launch did wrong.  machines: of the
    modules loaded so far.  tracer: notes what kernels do.  touches: what the next launch does to which memory.
    """

    def __init__(self, chip: str, folder: Path, tracer: Tracer | None = None) -> None:
        family(chip)
        self.touches: Sequence[Argument] | None = None
        self.chip, self.tracer = chip, tracer
        self.memory = Memory()
        self.mapped = MappedMemory(self.memory)
        self.machines: list[Machine] = []
        self.fault: Exception | None = None
        self.objects: dict[int, Any] = {}
        self.capturing: list[Callable[[], int]] | None = None
        if not LOADED:
            LOADED.append(ctypes.CDLL(str(build(folder))))
        self.callbacks = [
            ctypes.CFUNCTYPE(ctypes.c_long, *kinds)(self._call(name)) for name, kinds in SIGNATURES.items()
        ]
        table = (POINTER * len(SIGNATURES)).in_dll(LOADED[0], "emulated_calls")
        for number, callback in enumerate(self.callbacks):
            table[number] = ctypes.cast(callback, POINTER).value
        self.gone = False
        LATEST[:] = [self]

    def leave(self) -> None:
        """Let go of what it holds; from then on there is no GPU."""
        self.gone, self.memory, self.machines, self.objects = True, Memory(), [], {}

    def _call(self, name: str) -> Callable[..., int]:
        own = name.removeprefix("hip")
        function = getattr(self if hasattr(self, own) else self.mapped, own)

        def call(*arguments: Any) -> int:
            try:
                return function(*arguments) or SUCCESS
            except Exception as error:  # a callback cannot raise into C
                self.fault = self.fault or error
                return LAUNCH_FAILURE

        return call

    def _new(self, to: int, thing: Any) -> None:
        """Keep an object under a handle, and write the handle to where the caller wants it."""
        handle = 4096 + 16 * len(self.objects)
        self.objects[handle] = thing
        ctypes.c_void_p.from_address(to).value = handle

    def _do(self, work: Callable[[], int]) -> int:
        """Do what a stream is given, now or when its graph is launched."""
        if self.capturing is not None:
            self.capturing.append(work)
            return SUCCESS
        return work()

    # HIP's calls, by their names there; each gives a status, None for success

    def Init(self, flags: int) -> None:
        """There is nothing to begin."""

    def GetDeviceCount(self, count: int) -> None:
        ctypes.c_int.from_address(count).value = 0 if self.gone else 1

    def SetDevice(self, device: int) -> int:
        return INVALID_VALUE if device else SUCCESS

    def DeviceSynchronize(self) -> int:
        return LAUNCH_FAILURE if self.fault else SUCCESS

    def GetDevicePropertiesR0600(self, properties: int, device: int) -> int:
        for at, text in ((0, b"Emulated GPU\0"), (CHIP_OFFSET, self.chip.encode() + b"\0")):
            ctypes.memmove(properties + at, text, len(text))
        return INVALID_VALUE if device else SUCCESS

    def DeviceGetAttribute(self, number: int, attribute: int, device: int) -> None:
        """All that is asked for is how many compute units there are: one, which holds all that run side by side."""
        ctypes.c_int.from_address(number).value = 1

    def ModuleOccupancyMaxActiveBlocksPerMultiprocessor(
        self, number: int, function: int, threads: int, shared_bytes: int
    ) -> None:
        machine, kernel = self.objects[function]
        waves = -(-threads // machine.code.descriptor(kernel).lanes)
        ctypes.c_int.from_address(number).value = machine.most_waves // waves

    def Malloc(self, pointer: int, size: int) -> None:
        data = np.full(size + 256, 0xFF, np.uint8)
        data = data[-data.ctypes.data % 256 :][:size]
        address = self.memory.add(data, f"the buffer of {size:,} bytes allocated as number {len(self.memory.starts)}")
        ctypes.c_void_p.from_address(pointer).value = address

    def Free(self, pointer: int) -> int:
        return SUCCESS if pointer is None or self.memory.remove(pointer) else INVALID_VALUE

    def HostMalloc(self, pointer: int, size: int, flags: int) -> None:
        data = np.zeros(max(size, 1), np.uint8)
        self.objects[data.ctypes.data] = data
        ctypes.c_void_p.from_address(pointer).value = data.ctypes.data

    def HostFree(self, pointer: int) -> int:
        return SUCCESS if self.objects.pop(pointer, None) is not None else INVALID_VALUE

    def Memcpy(self, to: int, source: int, size: int, kind: int) -> int:
        return self.MemcpyAsync(to, source, size, kind, 0)

    def MemcpyAsync(self, to: int, source: int, size: int, kind: int, stream: int) -> int:
        return self._do(lambda: ctypes.memmove(to, source, size) and SUCCESS)

    def Memcpy2DAsync(self, to: int, far: int, source: int, apart: int, size: int, count: int, *_: int) -> int:
        every = [(to + far * n, source + apart * n, size) for n in range(count)]
        return self._do(lambda: SUCCESS if all(ctypes.memmove(*each) for each in every) else INVALID_VALUE)

    def MemsetAsync(self, to: int, value: int, size: int, stream: int) -> int:
        return self._do(lambda: ctypes.memset(to, value, size) and SUCCESS)

    def MemsetD16Async(self, to: int, value: int, count: int, stream: int) -> int:
        return self._fill(to, np.uint16(value), count)

    def MemsetD32Async(self, to: int, value: int, count: int, stream: int) -> int:
        return self._fill(to, np.uint32(value), count)

    def _fill(self, to: int, value: np.generic, count: int) -> int:
        data = np.full(count, value).tobytes()
        return self._do(lambda: ctypes.memmove(to, data, len(data)) and SUCCESS)

    def HostRegister(self, pointer: int, size: int, flags: int) -> None:
        """Every page is pinned here."""

    def HostUnregister(self, pointer: int) -> None:
        """Every page is pinned here."""

    def StreamCreate(self, stream: int) -> None:
        self._new(stream, "stream")

    def StreamDestroy(self, stream: int) -> None:
        """Streams hold nothing."""

    def StreamSynchronize(self, stream: int) -> int:
        return LAUNCH_FAILURE if self.fault else SUCCESS

    def StreamBeginCapture(self, stream: int, mode: int) -> None:
        self.capturing = []

    def StreamEndCapture(self, stream: int, graph: int) -> int:
        if self.capturing is None:
            return INVALID_VALUE
        self._new(graph, self.capturing)
        self.capturing = None
        return SUCCESS

    def GraphInstantiateWithFlags(self, executable: int, graph: int, flags: int) -> None:
        self._new(executable, self.objects[graph])

    def GraphLaunch(self, executable: int, stream: int) -> int:
        return next((status for work in self.objects[executable] if (status := work())), SUCCESS)

    def GraphExecDestroy(self, executable: int) -> None:
        self.objects[executable] = None

    def GraphDestroy(self, graph: int) -> None:
        self.objects[graph] = None

    def ModuleLoadData(self, module: int, image: int) -> None:
        size = elf_bytes(ctypes.string_at(image, HEADER_BYTES))
        machine = Machine(CodeObject(ctypes.string_at(image, size), self.chip), self.memory)
        machine.tracer = self.tracer
        self.machines.append(machine)
        self._new(module, machine)

    def ModuleUnload(self, module: int) -> None:
        self.memory.remove(self.objects[module].code.base)

    def ModuleGetFunction(self, function: int, module: int, name: bytes) -> int:
        machine, kernel = self.objects[module], name.decode()
        if f"{kernel}.kd" not in machine.code.symbols:
            return NOT_FOUND
        self._new(function, (machine, kernel))
        return SUCCESS

    def ModuleLaunchKernel(self, function: int, *rest: Any) -> int:
        *shape, shared, _, parameters, extra = rest
        if parameters or not extra:
            return INVALID_VALUE
        marks = (ctypes.c_size_t * 4).from_address(extra)
        if (marks[0], marks[2]) != (ARGUMENTS_ARE, SIZE_IS):
            return INVALID_VALUE
        arguments = ctypes.string_at(marks[1], ctypes.c_size_t.from_address(marks[3]).value)
        (machine, kernel), touches, self.touches = self.objects[function], self.touches, None

        def work() -> int:
            if self.fault is None:
                try:
                    machine.launch(kernel, shape[:3], shape[3:], arguments, shared, touches=touches)
                except (KernelFault, NotModelled) as error:
                    self.fault = error
            return LAUNCH_FAILURE if self.fault else SUCCESS

        return self._do(work)

    def EventCreate(self, event: int) -> None:
        self._new(event, "event")

    def EventDestroy(self, event: int) -> None:
        """Events hold nothing."""

    def EventRecord(self, event: int, stream: int) -> None:
        """Whatever was given to a stream before is done."""

    def StreamWaitEvent(self, stream: int, event: int, flags: int) -> None:
        """Whatever an event marks is done."""

    def EventSynchronize(self, event: int) -> int:
        return LAUNCH_FAILURE if self.fault else SUCCESS

    def EventElapsedTime(self, milliseconds: int, start: int, stop: int) -> None:
        ctypes.c_float.from_address(milliseconds).value = 0.0
