"""Small arrays on their way to a GPU and back: in pinned memory, so that copies need no help of the host's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.base import READ_LATER_BYTES, READS_AHEAD
from lispgpt.runtime.devices.driver import FAILED_BEFORE, Driver

POOL_BYTES, ALIGNMENT = 1 << 16, 16
OF_A_KIND = 16
"""Arrays of the largest size so far that the memory has room for."""
Owned = list[tuple[str, Any]]
"""What a device gives back when it is closed: the driver's call, and what it is called with."""


def pinned(driver: Driver, owned: Owned, nbytes: int) -> tuple[int, memoryview]:
    """Pinned memory, which the GPU may read and write too: its address, and its bytes."""
    about, hint = f"{nbytes:,} bytes of pinned memory", "the machine is short of memory that stays in place"
    (host,) = driver("MemAllocHost", nbytes, about=about, hint=hint)
    owned.append(("MemFreeHost", host))
    return int(host), memoryview((ctypes.c_ubyte * nbytes).from_address(int(host))).cast("B")


class PinnedInputs:
    """Memory that is given out in a ring: from what was given last copies may be under way, the rest is free again.

    owned: takes what the device is to give back when it is closed.
    """

    def __init__(self, driver: Driver, owned: Owned) -> None:
        self._driver, self._owned = driver, owned
        self._address, self._bytes = 0, memoryview(b"")
        self._given = self._free = 0

    def kept(self, sources: Sequence[tuple[int, np.ndarray]], nbytes: int, wait: Callable[[], None]) -> int:
        """The address of so many bytes, which stay as they are until the stream has been waited for.

        sources: C-contiguous arrays that are not empty, and where in these bytes each begins.  wait: waits for the
        stream and calls `done`.
        """
        place = self.place(nbytes, wait)
        for offset, array in sources:
            start = place - self._address + offset
            self._bytes[start : start + array.nbytes] = array.data.cast("B")
        return place

    def place(self, nbytes: int, wait: Callable[[], None]) -> int:
        """The address of so many bytes, which are nobody else's until the stream has been waited for."""
        room, size = len(self._bytes), -(-nbytes // ALIGNMENT) * ALIGNMENT
        if OF_A_KIND * size > room:
            room = max(POOL_BYTES, 2 * room, OF_A_KIND * size)  # what was given before stays until the device is closed
            self._address, self._bytes = pinned(self._driver, self._owned, room)
            self._given = self._free = -(-self._given // room) * room
        if self._given % room + size > room:
            self._given += room - self._given % room
        if self._given + size - self._free > room:
            wait()
        self._given += size
        return self._address + (self._given - size) % room

    def done(self) -> None:
        """Note that all copies are done."""
        self._free = self._given

    def freed_by(self, read: Callable[[], np.ndarray]) -> Callable[[], np.ndarray]:
        """A read of the stream, after which the copies that were asked for before it are done."""
        given = self._given

        def wait() -> np.ndarray:
            array = read()
            self._free = max(self._free, given)
            return array

        return wait

    def fill(self, array: np.ndarray, place: int) -> None:
        """Fill an array that is not empty with the bytes at a place."""
        start = place - self._address
        array.data.cast("B")[:] = self._bytes[start : start + array.nbytes]


class LaterReads:
    """Reads that wait for what a stream had to do when they were asked for, at most `READS_AHEAD` at once."""

    def __init__(self, driver: Driver, owned: Owned, stream: Any) -> None:
        self._driver, self._owned, self._stream = driver, owned, stream
        self._address, self._bytes = 0, memoryview(b"")
        self._events: list[Any] = []
        self._count = 0

    def check(self, nbytes: int) -> None:
        """Have room for reads of so many bytes; UserError where that is too much."""
        if nbytes > READ_LATER_BYTES:
            raise UserError(f"a result of {nbytes:,} bytes is too large to be read while the next step runs")
        if not self._address:
            self._address, self._bytes = pinned(self._driver, self._owned, READ_LATER_BYTES * READS_AHEAD)
        for _ in range(READS_AHEAD - len(self._events)):
            (event,) = self._driver("EventCreate")
            self._owned.append(("EventDestroy", event))
            self._events.append(event)

    def read(self, copy: Callable[[int], None], array: np.ndarray) -> Callable[[], np.ndarray]:
        """What waits for an array and gives it.  copy: has the stream copy its bytes to an address."""
        number = self._count % READS_AHEAD
        event, start = self._events[number], number * READ_LATER_BYTES
        self._count += 1
        copy(self._address + start)
        self._driver("EventRecord", event, self._stream)

        def wait() -> np.ndarray:
            self._driver("EventSynchronize", event, hint=FAILED_BEFORE)
            array.data.cast("B")[:] = self._bytes[start : start + array.nbytes]
            return array

        return wait
