"""States whose memory is taken as positions are reached, on devices where that takes a word (see `Device.reserve`).

The compiler says of an entry which states it writes at its rows' positions only, and which of their dimensions counts
positions.  Before the entry runs, those have memory for the positions that it is given, which are those of its input
`positions`; where it leaves that input for its next run, each run is one position further.  What else writes a state,
or does not say where, has all of it.  The sequences of a batch have memory for as many positions as the longest.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from math import prod
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.devices.base import Device
from lispgpt.runtime.plan.plan import Buffer, Entry

FEWEST_PAGES = 2
"""Of what one layer's head has in all positions; less is not worth growing."""


@dataclass
class _Growing:
    """A state of `parts` neighbouring parts, each of which has `row` bytes for each of `positions`.

    committed: how many of these have memory.
    """

    buffer: Any
    parts: int
    positions: int
    row: int
    committed: int = 0


class CommittedMemory:
    """The growing states of a session, by the names of its buffers."""

    def __init__(self, device: Device) -> None:
        self._device = device
        self._states: dict[str, _Growing] = {}
        self._written: dict[int, tuple[Entry, list[str]]] = {}
        self._next: dict[str, int] = {}

    def made(self, state: Buffer, axis: int | None) -> Any:
        """A buffer for a state.  axis: the dimension of positions, where it has one that is written one by one."""
        if axis is None or not self._device.granularity:
            return self._device.alloc(state.nbytes)
        row = find_dtype(state.dtype).nbytes(prod(state.shape[axis + 1 :]))
        if row * state.shape[axis] < FEWEST_PAGES * self._device.granularity:
            return self._device.alloc(state.nbytes)
        buffer = self._device.reserve(state.nbytes)
        self._states[state.name] = _Growing(buffer, prod(state.shape[:axis]), state.shape[axis], row)
        return buffer

    def note_inputs(self, entry: Entry, arrays: Mapping[str, np.ndarray]) -> None:
        """Note what an entry's inputs hold from now on."""
        if self._states and "positions" in arrays:
            self._next[entry.inputs["positions"]] = int(arrays["positions"].max()) + 1

    def before(self, entry: Entry, runs: int = 1) -> None:
        """Have memory for what the next runs of an entry write."""
        if not self._states:
            return
        place = entry.inputs.get("positions", "")
        end = self._next.get(place)
        for name in self._of(entry):
            state = self._states[name]
            self._commit(state, state.positions if end is None or name not in entry.grows else end + runs - 1)
        if end is not None and entry.leaves("positions"):
            self._next[place] = end + runs

    def _of(self, entry: Entry) -> list[str]:
        """The growing states that an entry writes."""
        if id(entry) not in self._written:  # beside its names the entry, so that no other gets its number
            written = {a.buffer for step in entry.steps for a in step.arguments if a.writes}
            self._written[id(entry)] = entry, [name for name in self._states if name in written]
        return self._written[id(entry)][1]

    def _commit(self, state: _Growing, end: int) -> None:
        """Have memory for a state's first positions, and for as many more as cost no more of it."""
        if end <= state.committed:
            return
        step = max(1, self._device.granularity // state.row)
        state.committed = min(state.positions, -(-end // step) * step)
        for part in range(state.parts):
            start = part * state.positions * state.row
            self._device.back(state.buffer, start, start + state.committed * state.row)

    def whole(self, name: str) -> None:
        """Have memory for all of a state."""
        if name in self._states:
            self._commit(self._states[name], self._states[name].positions)

    def grows(self, name: str) -> bool:
        return name in self._states

    def part(self, name: str, start: int, end: int) -> None:
        """Have memory for these bytes of a state, and for as many positions everywhere."""
        state = self._states.get(name)
        if state is not None and end > start:
            each = state.positions * state.row
            inside = start // each == (end - 1) // each
            self._commit(state, (end - 1) % each // state.row + 1 if inside else state.positions)

    def forget(self, name: str) -> bool:
        """Write zeros where a state has memory; False where it has all that it ever will."""
        state = self._states.get(name)
        if state is None or state.committed == state.positions:
            return False
        zeros = np.zeros(state.committed * state.row, np.uint8)
        for part in range(state.parts):
            self._device.copy_in(state.buffer, zeros, part * state.positions * state.row)
        return True
