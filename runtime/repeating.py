"""An entry run again and again on what it leaves for itself, launched ahead of what has been read of its results."""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.dtypes import find_dtype
from lispgpt.runtime.devices.base import LAUNCHES_AHEAD, READS_AHEAD, Device
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
        most = ahead // LAUNCHES_AHEAD
        if repeats is not None and name in repeats.kept and (each := min(repeats.most, most)) > 1:
            yield from self._together(entry, repeats, repeats.kept[name], count, each)
            return
        several = self.executables.several(entry, name, min(most, count))
        if several is not None:
            launches, count = divmod(count, several.runs)
            at_once = max(LAUNCHES_AHEAD, min(ahead, READS_AHEAD) // several.runs)
            launch = several.executable, several.buffer, several.room
            for kept in self._launched(*launch, [several.runs] * launches, at_once):
                yield from several.each(kept)
        yield from self._alone(entry, entry.results[name], [1] * count, min(ahead, READS_AHEAD))

    def _together(self, entry: Entry, repeats: Repeats, place: str, count: int, each: int) -> Iterator[np.ndarray]:
        """What a buffer keeps of each of `count` runs, by launches of so many; the last one may have fewer."""
        runs = [min(each, count - first) for first in range(0, count, each)]
        try:
            for done, kept in zip(runs, self._alone(entry, place, runs, LAUNCHES_AHEAD), strict=False):
                yield from kept[:done]
        finally:
            tell(self.device, self.buffers, self.told, repeats, 1)

    def _alone(self, entry: Entry, place: str, runs: Sequence[int], ahead: int) -> Iterator[np.ndarray]:
        """What a buffer has after each launch of the entry itself.  runs: of each."""
        declared = self.declared[place]

        def room() -> np.ndarray:
            return np.empty(declared.shape, find_dtype(declared.dtype).numpy)

        executable = self.executables.of(entry)
        yield from self._launched(executable, self.buffers[place], room, runs, ahead, entry.repeats)

    def _launched(
        self,
        executable: Any,
        buffer: Any,
        room: Callable[[], np.ndarray],
        runs: Sequence[int],
        ahead: int,
        repeats: Repeats | None = None,
    ) -> Iterator[np.ndarray]:
        """What a buffer has after each launch; room: makes what it is read into.  runs: of each launch."""
        waiting = self.waiting
        for number in range(len(runs)):
            while len(waiting) < ahead and number + len(waiting) < len(runs) and self.more():
                now = runs[number + len(waiting)]
                if repeats is not None:
                    tell(self.device, self.buffers, self.told, repeats, now)
                self.before(now)
                waiting.append(self.device.launch_reading(executable, buffer, room()))
            if not waiting:
                return
            yield waiting.popleft()()
