"""A device's plan, launch by launch, beside its counterpart on the CPU: which kernel is the first that is wrong.

Each launch runs on the device, on what the launches before it left there.  The same bytes are put where the counterpart
reads, which runs then; what both have written is compared.  So a launch is judged by what it makes of what it was
given, and no error before it counts against it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from lispgpt.base.access import SCRATCH, WRITE
from lispgpt.base.errors import UserError
from lispgpt.checking.difference import Difference, of_bytes
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.plan.plan import Entry
from lispgpt.runtime.plan.steps import Argument, Launch
from lispgpt.runtime.session import Session

POISON = 0xFF
"""What memory that a launch is to write holds before: NaN."""
FAULTS = (UserError, KernelFault)
"""What a device raises where a kernel does not run to its end."""
HELD = ("weight", "made")
"""Kinds of buffers that both sides have the same in."""


@dataclass(frozen=True)
class Wrong:
    """A launch that is wrong.

    step: its number in the entry.  argument: which of the kernel's has other numbers than it should, in which buffer.
    said: what the device has to say instead, where it did not run to its end.
    """

    entry: Entry
    step: int
    launch: Launch
    argument: int
    buffer: str
    difference: Difference | None
    said: str = ""


class Walk:
    """The launches of a session's plans beside those of its counterpart's, on the same weights.

    elements: what kernels' arguments hold, by the kernels' names.  compared: how many launches were.  kernels: the
    names of those kernels.
    """

    def __init__(self, device: Session, cpu: Session, elements: Mapping[str, Sequence[str]], only: str = "") -> None:
        self.device, self.cpu, self.elements, self.only = device, cpu, elements, only
        self.compared, self.kernels = 0, dict[str, int]()

    def making(self) -> Iterator[Wrong]:
        """What is wrong with what is made of weights."""
        own, other = (session.artifact.plan.making for session in (self.device, self.cpu))
        if own is not None and other is not None:
            yield from self._launches(own, other)

    def run(self, entry: Entry, inputs: Mapping[str, Any]) -> Iterator[Wrong]:
        """What is wrong with a run of an entry of the device's, which then has run."""
        other = self.cpu.entry(entry.name, **entry.sizes)
        self.device.put(entry, inputs)
        self.cpu.put(other, inputs)
        for name in self.device.held("state", [entry]):
            self.device.committed.whole(name)
        yield from self._launches(entry, other)

    def _launches(self, own: Entry, other: Entry) -> Iterator[Wrong]:
        for first, mine, theirs in _beside(own, other):
            step, launch = first + len(mine) - 1, mine[-1]
            windows = list(zip(launch.arguments, theirs.arguments, strict=False))
            self._hand_over(windows)
            try:
                self._launch(self.device, own, mine)
            except FAULTS as error:
                yield Wrong(own, step, launch, 0, "", None, str(error))
                return
            if self.only not in ("", launch.kernel):
                continue
            self._launch(self.cpu, other, (theirs,))
            self.compared += 1
            self.kernels[launch.kernel] = self.kernels.get(launch.kernel, 0) + 1
            if wrong := self._compare(own, step, launch, windows):
                yield wrong

    def _launch(self, session: Session, entry: Entry, launches: Sequence[Launch]) -> None:
        session.device.launch(session.prepare(replace(entry, steps=tuple(launches))))
        session.device.sync()

    def _hand_over(self, windows: Sequence[tuple[Argument, Argument]]) -> None:
        """Put what a launch reads where its counterpart does, and poison what it is to write."""
        read = [mine for mine, theirs in windows if theirs.reads]
        for mine, theirs in windows:
            if theirs.reads and self.device.declared(mine.buffer).kind not in HELD:
                self.cpu.device.copy_in(self.cpu.buffers[theirs.buffer], self._bytes(self.device, mine), theirs.offset)
            apart = all(_apart(mine, each) for each in read)
            if mine.access == theirs.access == WRITE and apart:
                poison = np.full(mine.nbytes, POISON, np.uint8)
                self.device.device.copy_in(self.device.buffers[mine.buffer], poison, mine.offset)

    def _compare(
        self, entry: Entry, step: int, launch: Launch, windows: Sequence[tuple[Argument, Argument]]
    ) -> Wrong | None:
        """The worst of what a launch writes, where that is wrong."""
        found: list[Wrong] = []
        elements = self.elements[launch.kernel]
        for number, (mine, theirs) in enumerate(windows):
            if not theirs.writes or theirs.access == SCRATCH:
                continue
            parts = self._bytes(self.device, mine), self._bytes(self.cpu, theirs)
            off = of_bytes(*parts, elements[number], self.device.artifact.precision)
            if off.wrong:
                found.append(Wrong(entry, step, launch, number, mine.buffer, off))
        return max(found, key=lambda wrong: wrong.difference.worst, default=None)  # type: ignore[union-attr]

    @staticmethod
    def _bytes(session: Session, argument: Argument) -> np.ndarray:
        array = np.empty(argument.nbytes, np.uint8)
        session.device.copy_out(session.buffers[argument.buffer], array, argument.offset)
        return array


def _apart(one: Argument, other: Argument) -> bool:
    return one.buffer != other.buffer or one.end <= other.offset or other.end <= one.offset


def _beside(own: Entry, other: Entry) -> Iterator[tuple[int, tuple[Launch, ...], Launch]]:
    """(the number of the first, launches of the device's that do together what one of the counterpart's does, that one)

    A chip's schedule may split off a part of a kernel, which then runs ahead of it.  UserError where they do not fit.
    """
    start, launches = 0, own.launches
    for theirs in other.launches:
        end = next((i for i in range(start, len(launches)) if launches[i].kernel == theirs.kernel), None)
        if end is None or [a.nbytes for a in theirs.arguments] != _sizes(launches[end], len(theirs.arguments)):
            raise UserError(f"the launches of {own.label} do not fit those of the CPU: at {theirs.label}")
        yield start, launches[start : end + 1], theirs
        start = end + 1


def _sizes(launch: Launch, count: int) -> list[int]:
    return [argument.nbytes for argument in launch.arguments[:count]]
