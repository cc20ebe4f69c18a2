"""Small arrays on their way to a GPU and back: in pinned memory, so that copies need no help of the host's."""

from __future__ import annotations

import ctypes
from collections.abc import Callable
from typing import Any

import numpy as np

from lispgpt.runtime.devices.driver import Driver

POOL_BYTES, ALIGNMENT = 1 << 16, 16
OF_A_KIND = 16
"""Arrays of the largest size so far that the memory has room for."""


class PinnedInputs:
    """Memory that is given out in a ring.

    given: bytes so far, with those that were left out at the end of a round.  From those that were given last copies
    may be under way; the others are free again.  owned: takes what the device is to give back when it is closed.
    """

    def __init__(self, driver: Driver, owned: list[tuple[str, Any]]) -> None:
        self._driver, self._owned = driver, owned
        self._address = self._room = 0
        self.given = self._free = 0

    def kept(self, source: np.ndarray, wait: Callable[[], None]) -> int:
        """The address of a copy of a small array's bytes, which stays as it is until the stream has been waited for.

        wait: does that, and calls `done`.
        """
        place = self.place(source.nbytes, wait)
        ctypes.memmove(place, source.ctypes.data, source.nbytes)
        return place

    def place(self, nbytes: int, wait: Callable[[], None]) -> int:
        """The address of so many bytes, which are nobody else's until the stream has been waited for."""
        size = -(-nbytes // ALIGNMENT) * ALIGNMENT
        if not self._address or OF_A_KIND * size > max(self._room, POOL_BYTES):
            self._room = max(POOL_BYTES, OF_A_KIND * size)
            (host,) = self._driver("MemAllocHost", self._room, about="pinned memory")
            self._owned.append(("MemFreeHost", host))
            self._address = int(host)
            self.given = self._free = -(-self.given // self._room) * self._room
        if self.given % self._room + size > self._room:
            self.given += self._room - self.given % self._room
        if self.given + size - self._free > self._room:
            wait()
        self.given += size
        return self._address + (self.given - size) % self._room

    def done(self, given: int) -> None:
        """Note that all copies are done from what was given so far, or was when so many bytes were."""
        self._free = max(self._free, given)
