"""A CUDA device that is not there: a session's launches of PTX kernels, on numpy."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
from emulated_cuda.machine import Memory, launch_step

from lispgpt.runtime.devices.host_memory import HostMemory
from lispgpt.runtime.plan.plan import Entry


class EmulatedCuda(HostMemory):
    """Buffers are arrays of the host; an executable runs on copies of them between guards."""

    careful = False

    def __init__(self, seed: int = 0, watched: bool | None = None) -> None:
        """seed: of the order in which blocks take turns that wait for each other; 0 for all in step.  watched: whether
        races are looked for; see launch."""
        self.name, self.seed, self.watched = "emulated CUDA", seed, watched
        self._kernels: dict[str, tuple[str, str, Mapping[str, Any]]] = {}

    def alloc(self, nbytes: int) -> np.ndarray:
        return np.zeros(nbytes, np.uint8)

    def adopt(self, array: np.ndarray) -> np.ndarray:
        return np.ascontiguousarray(array).reshape(-1).view(np.uint8).copy()

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        text = code.decode()
        self._kernels |= {name + suffix: (text, name, facts) for name, facts in kernels.items()}

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> tuple[Entry, Mapping[str, np.ndarray]]:
        return entry, buffers

    def launch(self, executable: tuple[Entry, Mapping[str, np.ndarray]]) -> None:
        entry, buffers = executable
        used = sorted({a.buffer for step in entry.launches for a in step.arguments})
        memory = Memory([buffers[name] for name in used])
        addresses = dict(zip(used, memory.addresses, strict=True))
        memory.begin()
        for step in entry.launches:
            text, name, facts = self._kernels[step.kernel]
            launch_step(text, replace(step, kernel=name), facts, memory, addresses, self.seed, self.watched)
        for number, name in enumerate(used):
            found = memory.read(number, buffers[name])
            if not np.array_equal(found, buffers[name]):
                buffers[name][:] = found

    def launch_reading(self, executable: Any, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.launch(executable)
        return self.read_later(buffer, array)

    def read_later(self, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.copy_out(buffer, array)
        return lambda: array

    def sync(self) -> None:
        """Nothing is ever under way."""

    def close(self) -> None:
        """The host's memory frees itself."""
