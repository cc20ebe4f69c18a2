"""An AMD device that is not there: a session's launches on the instruction emulator, with no driver between."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.code_object import CodeObject
from lispgpt.runtime.devices.amd_emulator.machine import Machine
from lispgpt.runtime.devices.amd_emulator.memory import Memory
from lispgpt.runtime.devices.host_memory import HostMemory
from lispgpt.runtime.plan import Entry


class EmulatedAmd(HostMemory):
    """Buffers are arrays of the host, which kernels can reach, and nothing between them."""

    careful = False

    def __init__(self, chip: str) -> None:
        self.name, self.chip = f"emulated {chip}", chip
        self.memory = Memory()
        self.kernels: dict[str, tuple[Machine, str]] = {}

    def alloc(self, nbytes: int) -> np.ndarray:
        data = np.zeros(nbytes + 16, np.uint8)[:nbytes]
        self.memory.add(data, f"a buffer of {nbytes} bytes")
        return data

    def adopt(self, array: np.ndarray) -> np.ndarray:
        buffer = self.alloc(array.nbytes)
        buffer[:] = np.ascontiguousarray(array).reshape(-1).view(np.uint8)
        return buffer

    def load(self, code: bytes, kernels: Mapping[str, Mapping[str, Any]], suffix: str = "") -> None:
        machine = Machine(CodeObject(code, self.chip), self.memory)
        self.kernels |= {name + suffix: (machine, name) for name in kernels}

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> tuple[Entry, Mapping[str, np.ndarray]]:
        return entry, buffers

    def launch(self, executable: tuple[Entry, Mapping[str, np.ndarray]]) -> None:
        entry, buffers = executable
        for step in entry.launches:
            addresses = [buffers[a.buffer].ctypes.data + a.offset for a in step.arguments]
            arguments = np.array(addresses, np.uint64).tobytes()
            machine, kernel = self.kernels[step.kernel]
            machine.launch(kernel, step.grid, step.block, arguments, step.shared_bytes)

    def launch_reading(self, executable: Any, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.launch(executable)
        self.copy_out(buffer, array)
        return lambda: array

    def sync(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """The host's memory frees itself."""
