"""What a session launches for its entries: each is prepared once, on the buffers that it has then."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.collectives.beside import prepare
from lispgpt.runtime.devices.base import READ_LATER_BYTES, Device
from lispgpt.runtime.plan import flow
from lispgpt.runtime.plan.plan import Buffer, Entry
from lispgpt.runtime.plan.steps import Launch

ROW_ALIGNMENT = 256
LONG_STEP = 1 << 30
"""Bytes of weights: beside reading these the host's part of a step is nothing, and its results come one by one."""


@dataclass(frozen=True)
class Several:
    """Some runs of an entry by one launch.

    executable: what is launched.  buffer: then has a result of each run, `row` bytes apart.  declared: that result.
    """

    executable: Any
    buffer: Any
    runs: int
    row: int
    declared: Buffer

    def room(self) -> np.ndarray:
        """What `buffer` is read into."""
        return np.empty((self.runs, self.row), np.uint8)

    def each(self, rows: np.ndarray) -> list[np.ndarray]:
        """The result of every run, where `buffer` has these bytes."""
        dtype = find_dtype(self.declared.dtype).numpy
        return [row[: self.declared.nbytes].view(dtype).reshape(self.declared.shape) for row in rows]


class Executables:
    """Of a session's device and engine, on its buffers, as they are declared."""

    def __init__(
        self, device: Device, engine: Engine | None, buffers: Mapping[str, Any], declared: Mapping[str, Buffer]
    ) -> None:
        self._device, self._engine, self._buffers, self._declared = device, engine, buffers, declared
        self._made: dict[int, tuple[Entry, Any]] = {}
        self._several: dict[tuple[int, str, int], tuple[Entry, Several | None]] = {}

    def of(self, entry: Entry) -> Any:
        """What an entry was prepared as, or is now."""
        found = self._made.get(id(entry))
        if found is None:
            if self._device.careful:
                flow.check(entry, self._declared)
            found = self._made[id(entry)] = entry, self.make(entry)
        return found[1]

    def make(self, entry: Entry) -> Any:
        """What is launched for an entry, made anew."""

        def launches(entry: Entry) -> Any:
            return self._device.prepare(entry, self._buffers)

        if not entry.together:
            return launches(entry)
        if (engine := self._engine) is None:
            raise UserError(f"entry {entry.label} is for several devices, and this session has one alone")
        return prepare(entry, launches, lambda step: engine.prepare(step, self._buffers))

    def several(self, entry: Entry, result: str, most: int) -> Several | None:
        """At most so many runs of an entry by one launch, each of which keeps a result; None where that is no use."""
        declared = self._declared[entry.results[result]]
        row = -(-max(declared.nbytes, 1) // ROW_ALIGNMENT) * ROW_ALIGNMENT
        runs = min(most, self._device.most_runs, READ_LATER_BYTES // row)
        if runs < 2 or entry.repeats is not None or not all(isinstance(step, Launch) for step in entry.steps):
            return None
        key = id(entry), result, runs
        if key not in self._several:
            made = None if self._is_long(entry) else self._runs(entry, declared, runs, row)
            self._several[key] = entry, made
        return self._several[key][1]

    def _is_long(self, entry: Entry) -> bool:
        read = (a for step in entry.steps for a in step.arguments if self._declared[a.buffer].kind == "weight")
        return sum(a.nbytes for a in read) > LONG_STEP

    def _runs(self, entry: Entry, declared: Buffer, runs: int, row: int) -> Several:
        kept = f"{declared.name}, of {runs} runs"
        buffers = {**self._buffers, kept: self._device.alloc(runs * row)}
        each = [_keeping(entry, declared.name, kept, number * row) for number in range(runs)]
        return Several(self._device.prepare_runs(each, buffers), buffers[kept], runs, row, declared)

    def forget(self, name: str) -> None:
        """Prepare anew what uses a buffer, which is now another."""

        def uses(entry: Entry) -> bool:
            return any(a.buffer == name for step in entry.steps for a in step.arguments)

        self._made = {key: found for key, found in self._made.items() if not uses(found[0])}
        self._several = {key: found for key, found in self._several.items() if not uses(found[0])}


def _keeping(entry: Entry, place: str, kept: str, offset: int) -> Entry:
    """An entry that has what it would put into one buffer at an offset into another."""
    steps = []
    for step in entry.launches:
        changed = (
            replace(a, buffer=kept, offset=a.offset + offset) if a.buffer == place else a for a in step.arguments
        )
        steps.append(replace(step, arguments=tuple(changed)))
    return replace(entry, steps=tuple(steps))
