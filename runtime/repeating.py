"""An entry run again and again on what it leaves for itself, launched ahead of what has been read of its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.devices.base import READS_AHEAD, Device
from lispgpt.runtime.executables import Executables
from lispgpt.runtime.plan.plan import Buffer, Entry, Repeats


def tell(device: Device, buffers: Mapping[str, Any], told: dict[str, int], repeats: Repeats, runs: int) -> None:
    """Say how many runs the next launches do.  told: what was said last, by the buffer that says it."""
    if told.get(repeats.more, 1) != runs:
        device.copy_in(buffers[repeats.more], np.array([runs - 1], np.int32))
        told[repeats.more] = runs


@dataclass(frozen=True)
class Repeated:
    """An entry on a device.  executables: what is launched.  buffers, declared, told: the session's, by name.

    waiting: gets what waits for each launch's result, and loses it when it is read.  more: asked before each launch.
    before: told how many runs the next launch does.
    """

    device: Device
    executables: Executables
    buffers: Mapping[str, Any]
    declared: Mapping[str, Buffer]
    told: dict[str, int]
    waiting: deque[Callable[[], np.ndarray]]
    more: Callable[[], bool]
    before: Callable[[int], None]

    def results(self, entry: Entry, name: str, count: int, ahead: int) -> Iterator[np.ndarray]:
        """A result of each of `count` runs, of which at most `ahead` are launched ahead of the reading."""
        repeats = entry.repeats
        if repeats is not None and name in repeats.kept:
            each = max(1, min(repeats.most, ahead, count))
            if each > 1:
                yield from self._together(entry, repeats, repeats.kept[name], count // each, each, ahead)
                count %= each
        several = self.executables.several(entry, name, min(ahead // 2, count))
        if several is not None:  # half of what may be ahead by one launch, so that the next is there when it ends
            launches, count = divmod(count, several.runs)
            at_once = min(ahead // several.runs, READS_AHEAD)
            launch = several.executable, several.buffer, several.room, several.runs
            for kept in self._launched(*launch, launches, at_once):
                yield from several.each(kept)
        yield from self._alone(entry, entry.results[name], count, min(ahead, READS_AHEAD), 1)

    def _together(
        self, entry: Entry, repeats: Repeats, place: str, launches: int, each: int, ahead: int
    ) -> Iterator[np.ndarray]:
        """What a buffer keeps of each run of launches of several."""
        try:
            for kept in self._alone(entry, place, launches, max(1, min(ahead // each, READS_AHEAD)), each):
                yield from kept[:each]
        finally:
            tell(self.device, self.buffers, self.told, repeats, 1)

    def _alone(self, entry: Entry, place: str, launches: int, ahead: int, runs: int) -> Iterator[np.ndarray]:
        """What a buffer has after each launch of the entry itself, which is so many runs."""
        declared = self.declared[place]

        def room() -> np.ndarray:
            return np.empty(declared.shape, find_dtype(declared.dtype).numpy)

        executable = self.executables.of(entry)
        yield from self._launched(executable, self.buffers[place], room, runs, launches, ahead, entry.repeats)

    def _launched(
        self,
        executable: Any,
        buffer: Any,
        room: Callable[[], np.ndarray],
        runs: int,
        launches: int,
        ahead: int,
        repeats: Repeats | None = None,
    ) -> Iterator[np.ndarray]:
        """What a buffer has after each launch; room: makes what it is read into."""
        waiting = self.waiting
        for number in range(launches):
            while len(waiting) < ahead and number + len(waiting) < launches and self.more():
                if repeats is not None:
                    tell(self.device, self.buffers, self.told, repeats, runs)
                self.before(runs)
                waiting.append(self.device.launch_reading(executable, buffer, room()))
            if not waiting:
                return
            yield waiting.popleft()()
