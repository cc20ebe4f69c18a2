"""A device without kernels: it checks that a plan's addresses stay inside buffers, that nothing is read before it is
written and no two live values share memory (`careful`), and counts what is launched.

Every buffer stands between two guards of 4 KiB; `check_guards` says whether anything wrote on them.  Results stay zero.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.host_memory import HostMemory
from lispgpt.runtime.plan.plan import Entry

GUARD_BYTES, GUARD_VALUE = 4096, 0xA5


RANK = 0


def missing() -> str | None:
    return None


def installed_target() -> str | None:
    """Nothing is compiled for it: it takes any artifact."""
    return None


def open_device(threads: int | None = None, index: int = 0) -> NullDevice:
    return NullDevice()


class NullDevice(HostMemory):
    """Runs nothing; `launched` counts launches by kernel."""

    careful = True

    def __init__(self) -> None:
        self.name = "null (runs nothing)"
        self.launched: Counter[str] = Counter()
        self.kernels: set[str] = set()
        self._guarded: list[np.ndarray] = []

    def alloc(self, nbytes: int) -> np.ndarray:
        whole = np.full(nbytes + 2 * GUARD_BYTES, GUARD_VALUE, np.uint8)
        self._guarded.append(whole)
        buffer = whole[GUARD_BYTES : GUARD_BYTES + nbytes]
        buffer[:] = 0
        return buffer

    def adopt(self, array: np.ndarray) -> np.ndarray:
        buffer = self.alloc(array.nbytes)
        self.copy_in(buffer, array)
        return buffer

    def load(
        self,
        code: bytes,
        kernels: Mapping[str, Mapping[str, Any]],
        suffix: str = "",
        objects: Sequence[bytes] = (),
    ) -> None:
        self.kernels |= {name + suffix for name in kernels}

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> Entry:
        for step in entry.steps:
            for argument in step.arguments:
                if argument.end > buffers[argument.buffer].size:
                    raise UserError(f"{step.label} reaches past the end of buffer {argument.buffer!r}")
        return entry

    def launch(self, executable: Entry) -> None:
        self.launched.update(launch.kernel for launch in executable.launches)

    def launch_reading(self, executable: Entry, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.launch(executable)
        return self.read_later(buffer, array)

    def read_later(self, buffer: np.ndarray, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.copy_out(buffer, array)
        return lambda: array

    def sync(self) -> None:
        """Nothing is ever under way."""

    def check_guards(self) -> bool:
        """Whether the bytes before and after every buffer are as they were."""
        edges = [part for whole in self._guarded for part in (whole[:GUARD_BYTES], whole[-GUARD_BYTES:])]
        return all((edge == GUARD_VALUE).all() for edge in edges)

    def close(self) -> None:
        self._guarded.clear()
