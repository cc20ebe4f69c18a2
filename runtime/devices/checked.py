"""The host's CPU, each launch held to what its arguments say: slow, for finding kernels that do something else.

A launch runs twice, on copies of what its arguments reach between guards, and what it says it only writes holds other
bytes the second time, as the guards do.  It has broken its word where

- a guard, or an argument that it only reads, is not as it was: it writes more than it says;
- something that it writes differs between the two runs: it reads bytes that it says it only writes or has no right to,
  or leaves some of what it says it writes as they were.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any

import numpy as np

from lispgpt.base.access import SCRATCH
from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.cpu import ALIGNMENT, CpuDevice
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Launch

GUARD_BYTES = 4096
POISONS = (0xFF, 0x00)
"""What bytes hold that no one may read: NaN and -1, then 0."""


class CheckedCpuDevice(CpuDevice):
    """A CPU whose entries run launch by launch; UserError names the first launch that does not do what it says."""

    careful = True

    def __init__(self, threads: int | None = None) -> None:
        super().__init__(threads)
        self.name += ", each launch checked"
        self.checked = 0

    def prepare(self, entry: Entry, buffers: Mapping[str, np.ndarray]) -> Any:
        return entry, dict(buffers)

    def launch(self, executable: Any) -> None:
        entry, buffers = executable
        for number, step in enumerate(entry.launches):
            self._check(step, f"step {number} of entry {entry.label} ({step.label})", entry, buffers)
            self.checked += 1

    def _check(self, launch: Launch, where: str, entry: Entry, buffers: Mapping[str, np.ndarray]) -> None:
        before = [buffers[a.buffer][a.offset : a.end] for a in launch.arguments]
        runs = []
        for poison in POISONS:
            wholes = [_guarded(a.nbytes, poison) for a in launch.arguments]
            windows = [whole[GUARD_BYTES:][: a.nbytes] for whole, a in zip(wholes, launch.arguments, strict=True)]
            for argument, window, contents in zip(launch.arguments, windows, before, strict=True):
                if argument.reads:
                    window[:] = contents
            self._run(launch, entry, windows)
            for i, (argument, whole, window) in enumerate(zip(launch.arguments, wholes, windows, strict=True)):
                edges = whole[:GUARD_BYTES], whole[GUARD_BYTES + argument.nbytes :]
                if any((edge != poison).any() for edge in edges):
                    raise UserError(
                        f"{where} writes outside its argument {i}, {argument.nbytes} bytes of {argument.buffer!r}"
                    )
                if not argument.writes and not np.array_equal(window, before[i]):
                    raise UserError(
                        f"{where} says it only reads its argument {i}, of {argument.buffer!r}, and writes it"
                    )
            runs.append(windows)
        for i, (argument, first, second) in enumerate(zip(launch.arguments, *runs, strict=True)):
            if not argument.writes or argument.access == SCRATCH:
                continue
            different = np.flatnonzero(first != second)
            if different.size:
                raise UserError(
                    f"{where}: {different.size} of {argument.nbytes} bytes of argument {i}, of {argument.buffer!r}, "
                    f"are not written, or depend on memory that the launch does not say it reads: the first is byte "
                    f"{different[0]} (its access is {argument.access!r})"
                )
            before[i][:] = first

    def _run(self, launch: Launch, entry: Entry, windows: list[np.ndarray]) -> None:
        """The launch on memory of its own."""
        names = [str(i) for i in range(len(windows))]
        arguments = tuple(replace(a, buffer=n, offset=0) for a, n in zip(launch.arguments, names, strict=True))
        alone = replace(entry, steps=(replace(launch, arguments=arguments),))
        super().launch(super().prepare(alone, dict(zip(names, windows, strict=True))))


def _guarded(nbytes: int, value: int) -> np.ndarray:
    """Bytes of that value, with a guard before and after, where the middle is aligned as buffers are."""
    raw = np.full(nbytes + 2 * GUARD_BYTES + ALIGNMENT, value, np.uint8)
    start = -(raw.ctypes.data + GUARD_BYTES) % ALIGNMENT
    return raw[start : start + nbytes + 2 * GUARD_BYTES]
