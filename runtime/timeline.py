"""When each launch, copy and exchange of a process ran, kept as events of Chrome's trace format.

While `recording` is open, the sessions that are made have devices and engines that note what they do.  A launch then is
waited for before the next begins: its time is its own, and the whole takes longer than it does unwatched.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np

from lispgpt.base.files import write_text
from lispgpt.runtime.collectives.base import Engine
from lispgpt.runtime.devices.base import Device, Pieces
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Collective, Launch

HOST, LAUNCHES, COPIES, EXCHANGES = TRACKS = ("host", "launches", "copies", "exchanges")
MOST_EVENTS = 1_000_000
"""After so many, nothing more is noted: some 200 MB."""


@dataclass
class Timeline:
    """path: where it is kept.  rank: this process's among those that share the work.  several: if there are others.
    devices: what sessions have opened in this process, each with tracks of its own.  began: microseconds since 1970."""

    path: Path
    rank: int = 0
    several: bool = False
    devices: list[str] = field(default_factory=list)
    began: float = field(default_factory=lambda: time.time() * 1e6)
    events: list[dict[str, Any]] = field(default_factory=list)
    _start: float = field(default_factory=time.perf_counter)

    def now(self) -> float:
        """Microseconds since the beginning."""
        return (time.perf_counter() - self._start) * 1e6

    def note(self, number: int, track: str, name: str, begun: float, **about: Any) -> None:
        """An event of the device of that number, which began then and ends now."""
        if len(self.events) < MOST_EVENTS:
            times = {"ts": round(begun, 3), "dur": round(self.now() - begun, 3)}
            where = {"pid": self.rank, "tid": number * len(TRACKS) + TRACKS.index(track)}
            self.events.append({"name": name, "cat": track, "ph": "X", **times, **where, "args": about})

    def to_json(self) -> dict[str, Any]:
        """As Chrome's trace format has it, with what `lispgpt trace` needs to put several side by side."""
        device = self.devices[0] if self.devices else ""
        title = f"rank {self.rank}: {device}" if self.several else device
        about: list[dict[str, Any]] = [_named("process_name", self.rank, 0, title)]
        for number in range(max(1, len(self.devices))):
            names = [f"{track} of model {number + 1}" if number else track for track in TRACKS]
            about += [_named("thread_name", self.rank, number * len(TRACKS) + i, name) for i, name in enumerate(names)]
        own = {"made by": "lispgpt", "rank": self.rank, "began": self.began}
        return {"traceEvents": [*about, *self.events], "displayTimeUnit": "ms", "otherData": own}

    def keep(self) -> None:
        """Write the file; of several processes, each has one of its own, with its number in its name."""
        own = self.path.with_name(f"{self.path.stem}-{self.rank}{self.path.suffix}") if self.several else self.path
        write_text(own, json.dumps(self.to_json()))

    def watch(self, device: Device, engine: Engine | None) -> None:
        """Have a session's device and engine note what they do."""
        number = len(self.devices)
        self.devices.append(device.name)
        _mix(device, RecordedDevice, self, number)
        if engine is not None:
            _mix(engine, RecordedEngine, self, number)
            self.rank, self.several = engine.rank, True


def _named(kind: str, pid: int, tid: int, name: str) -> dict[str, Any]:
    return {"name": kind, "ph": "M", "pid": pid, "tid": tid, "args": {"name": name}}


def _mix(found: Any, recorded: type, timeline: Timeline, number: int) -> None:
    """Make an object of its own class one that notes what it does."""
    if not isinstance(found, recorded):
        own = {"timeline": timeline, "number": number}
        found.__class__ = type(f"Recorded{type(found).__name__}", (recorded, type(found)), own)


_recording: list[Timeline] = []


def watch(device: Device, engine: Engine | None) -> None:
    """Note what these do, while there is a recording."""
    if _recording:
        _recording[-1].watch(device, engine)


@contextmanager
def recording(path: Path | None) -> Iterator[None]:
    """Within this, note what the devices of new sessions do, in this process and in those that are forked; it is
    written when they are closed.  path: None for no recording."""
    if path is None:
        yield
        return
    _recording.append(Timeline(path))
    try:
        yield
    finally:
        _recording.pop()


@dataclass(frozen=True)
class _Apart:
    """An entry's launches as an executable each."""

    entry: Entry
    each: tuple[tuple[Launch, Any], ...]


class RecordedDevice:
    """What is put before a device's own class: its calls, noted.  Entries run launch by launch."""

    timeline: Timeline
    number: int
    copies = False
    """Whether it is copying now."""
    most_runs = 1

    def prepare(self, entry: Entry, buffers: Mapping[str, Any]) -> Any:
        prepare: Callable[..., Any] = super().prepare  # type: ignore[misc]
        return _Apart(entry, tuple((step, prepare(replace(entry, steps=(step,)), buffers)) for step in entry.launches))

    def launch(self, executable: Any) -> None:
        launch: Callable[[Any], None] = super().launch  # type: ignore[misc]
        if not isinstance(executable, _Apart):
            launch(executable)
            return
        begun = self.timeline.now()
        for step, one in executable.each:
            started = self.timeline.now()
            launch(one)
            super().sync()  # type: ignore[misc]
            about = {"kernel": step.kernel, "forms": list(step.forms), "grid": list(step.grid)}
            self.timeline.note(self.number, LAUNCHES, step.label, started, **about)
        self.timeline.note(self.number, HOST, executable.entry.label, begun)

    def close(self) -> None:
        super().close()  # type: ignore[misc]
        self.timeline.keep()

    def launch_reading(self, executable: Any, buffer: Any, array: np.ndarray) -> Callable[[], np.ndarray]:
        self.launch(executable)
        self.copy_out(buffer, array)
        return lambda: array

    def copy_in(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        with self._copying("to the device", array.nbytes):
            super().copy_in(buffer, array, offset)  # type: ignore[misc]

    def copy_in_together(self, filled: Sequence[tuple[Any, np.ndarray]]) -> None:
        for buffer, array in filled:
            self.copy_in(buffer, array)

    def copy_out(self, buffer: Any, array: np.ndarray, offset: int = 0) -> None:
        with self._copying("from the device", array.nbytes):
            super().copy_out(buffer, array, offset)  # type: ignore[misc]

    def copy(self, source: Any, target: Any, nbytes: int, source_offset: int = 0, target_offset: int = 0) -> None:
        with self._copying("within the device", nbytes):
            super().copy(source, target, nbytes, source_offset, target_offset)  # type: ignore[misc]
            super().sync()  # type: ignore[misc]

    def copy_pieces(self, source: Any, target: Any, pieces: Pieces) -> None:
        with self._copying("within the device", pieces.nbytes * len(list(pieces.each()))):
            super().copy_pieces(source, target, pieces)  # type: ignore[misc]
            super().sync()  # type: ignore[misc]

    @contextmanager
    def _copying(self, name: str, nbytes: int) -> Iterator[None]:
        """Note a copy; those that it is made of are part of it."""
        if self.copies:
            yield
            return
        begun, self.copies = self.timeline.now(), True
        try:
            yield
        finally:
            self.copies = False
        self.timeline.note(self.number, COPIES, name, begun, bytes=nbytes)


class RecordedEngine:
    """What is put before an engine's own class: its steps, each noted from its start to the end of its wait."""

    timeline: Timeline
    number: int

    def prepare(self, step: Collective, buffers: Mapping[str, Any]) -> Any:
        return step, super().prepare(step, buffers)  # type: ignore[misc]

    def start(self, prepared: Any) -> Any:
        step, own = prepared
        return step, self.timeline.now(), super().start(own)  # type: ignore[misc]

    def wait(self, begun: Any) -> None:
        step, started, own = begun
        super().wait(own)  # type: ignore[misc]
        self.settle()  # type: ignore[attr-defined]
        self.timeline.note(self.number, EXCHANGES, step.label, started, bytes=sum(a.nbytes for a in step.arguments))
