"""GPUs made here whose kernels are a CPU's, and whose drivers do nothing before somebody waits for it.

What a session gives one comes later than on any GPU, and what it gives two streams in any order that their events
allow: who reads a result too early, or uses memory again that is still to be read, gets other numbers than on a CPU.
"""

from __future__ import annotations

import random
import threading
from collections import Counter, deque
from collections.abc import Callable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest
from gpu_drivers import StandIn
from nccl_library import Nccl

from lispgpt.runtime.devices import cuda
from lispgpt.runtime.devices import driver as driver_calls
from lispgpt.runtime.devices.cpu import ALIGNMENT, CpuDevice, _Executable

POISON = 0xA5
Launched = tuple[int, list[int], int]
"""A kernel's function, the addresses of its arguments, and how many blocks it has."""


class LateDriver(StandIn):
    """cpu: has the kernels; found: their addresses, by functions.  hurry: how much of what is under way is done where
    nobody waits for it, between 0 and 1."""

    def __init__(self, hurry: float, seed: int) -> None:
        self._queues: dict[int, deque[tuple[str, Any]]] = {}
        self._recorded, self._reached = Counter[int](), Counter[int]()
        super().__init__(cuda.API, {})
        self.cpu, self.found = CpuDevice(1), dict[int, int]()
        self.calls = deque(maxlen=64)  # type: ignore[assignment]
        self._hurry, self._rng = hurry, random.Random(seed)
        self._captured: list[Launched] = []
        self._graphs: dict[int, list[Launched]] = {}
        self._stream = 0

    @property
    def under_way(self) -> Any:
        """What is left to do: the event that it records, if it does, and what it is."""
        every = [each for queue in self._queues.values() for each in queue]
        return [(what[0] if kind == "record" else None, what) for kind, what in every]

    @under_way.setter
    def under_way(self, _: Any) -> None:
        """Queues have it."""

    def read_launch(self, given: SimpleNamespace) -> None:
        self.kernels[self.functions[given.function]] = len(given.parameters[0])
        super().read_launch(given)
        assert self.capturing
        self._captured.append((given.function, given.addresses, int(np.prod(given.grid))))

    def results(self, name: str, given: SimpleNamespace) -> tuple[Any, ...]:
        self._stream = int(getattr(given, "stream", 0))
        if name in ("MemAlloc", "MemAllocHost"):
            whole = np.full(given.size + ALIGNMENT, POISON, np.uint8)
            start = -whole.ctypes.data % ALIGNMENT
            self.memory[whole.ctypes.data + start] = whole[start : start + given.size]
            return (whole.ctypes.data + start,)
        if name == "GraphLaunch":
            launched = self._graphs[given.executable]
            self.do(lambda: self._run(launched))
            return ()
        if name == "StreamWaitEvent":
            self._put("wait", (given.event, self._recorded[given.event]))
        elif name == "StreamSynchronize":
            self._finish(self._stream)
            return ()
        elif name == "EventQuery" and self._hurry:
            self._go_on(self._rng.choice([*self._queues]))
        made = super().results(name, given)
        if name == "StreamEndCapture":
            self._graphs[made[0]], self._captured = self._captured, []
        elif name == "GraphInstantiate":
            self._graphs[made[0]] = self._graphs[given.graph]
        return made

    def do(self, work: Callable[[], object], event: int | None = None) -> None:
        if event is None:
            self._put("work", work)
        else:
            self._recorded[event] += 1
            self._put("record", (event, self._recorded[event]))
        while self._rng.random() < self._hurry:
            self._go_on(self._rng.choice([*self._queues]))

    def wait(self, event: int | None = None) -> None:
        assert event is not None
        self._come(event, self._recorded[event])

    def call(self, name: str, arguments: tuple[Any, ...]) -> Any:
        if name == "EventQuery":  # who asks again and again waits
            self._come(int(arguments[0]), self._recorded[int(arguments[0])], 1)
        return super().call(name, arguments)

    def _put(self, kind: str, what: Any) -> None:
        self._queues.setdefault(self._stream, deque()).append((kind, what))

    def _go_on(self, stream: int) -> bool:
        """Do the next of a stream's work; False where there is none, or an event has to come before."""
        queue = self._queues[stream]
        if not queue:
            return False
        kind, what = queue[0]
        if kind == "wait" and self._reached[what[0]] < what[1]:
            return False
        queue.popleft()
        if kind == "work":
            what()
        elif kind == "record":
            self._reached[what[0]] = what[1]
        return True

    def _finish(self, stream: int) -> None:
        while self._queues.get(stream):
            if not self._go_on(stream):
                self._come(*self._queues[stream][0][1])

    def _come(self, event: int, number: int, most: int = 1 << 30) -> None:
        """Go on until an event has come as often as that, and no further."""
        while self._reached[event] < number and most:
            most -= 1
            stream = next(s for s, queue in self._queues.items() if ("record", (event, number)) in queue)
            if not self._go_on(stream):
                self._come(*self._queues[stream][0][1])

    def _run(self, launched: Sequence[Launched]) -> None:
        arguments = [np.array(addresses or [0], np.uint64) for _, addresses, _ in launched]
        rows = [(self.found[f], a.ctypes.data, n) for (f, _, n), a in zip(launched, arguments, strict=True)]
        self.cpu.launch(_Executable(np.array(rows, np.int64), (arguments,)))


class LateGpu(cuda.CudaDevice):
    """CUDA's device on such a driver, for what was compiled for CPUs."""

    weight_rows = CpuDevice.weight_rows

    @property
    def late(self) -> LateDriver:
        driver: LateDriver = self._driver.module
        return driver

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        self.late.cpu.load(code, kernels, suffix)
        super().load(b"code", {name: {} for name in kernels}, suffix)
        self.late.found |= {self._functions[n + suffix]: self.late.cpu._kernels[n + suffix] for n in kernels}

    def close(self) -> None:
        super().close()
        self.late.cpu.close()


class LateNccl(Nccl):
    """NCCL for such devices, one in each of `size` threads: it exchanges when their streams come to it."""

    def __init__(self, size: int) -> None:
        super().__init__(size)
        self._device = threading.local()

    def is_of(self, device: LateGpu) -> None:
        """Have the calling thread's rank be that of a device."""
        self._device.late = device.late

    def _ncclGroupEnd(self) -> None:
        own, late = self._given.pop(self._rank.number), self._device.late
        stream = int(own[0][1]["stream"])

        def exchange() -> None:
            self._given[self._rank.number] = own
            Nccl._ncclGroupEnd(self)

        late._stream = stream
        late.do(exchange)


def late_gpu(patch: pytest.MonkeyPatch, hurry: float, seed: int) -> LateGpu:
    """A device that is opened now."""
    made = LateDriver(hurry, seed)
    patch.setattr(driver_calls, "load_module", lambda _: made)
    patch.setattr(driver_calls, "_users", {})
    return LateGpu()
