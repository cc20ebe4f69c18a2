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
    """used: bytes from which copies may be under way; none after the stream has been waited for.

    owned: takes what the device is to give back when it is closed.
    """

    def __init__(self, driver: Driver, owned: list[tuple[str, Any]]) -> None:
        self._driver, self._owned = driver, owned
        self._address = self._room = 0
        self.used = 0

    def kept(self, source: np.ndarray, wait: Callable[[], None]) -> int:
        """The address of a copy of a small array's bytes, which stays as it is until the stream has been waited for.

        wait: does that, and makes `used` zero.
        """
        place = self.place(source.nbytes, wait)
        ctypes.memmove(place, source.ctypes.data, source.nbytes)
        return place

    def place(self, nbytes: int, wait: Callable[[], None]) -> int:
        """The address of so many bytes, which are nobody else's until the stream has been waited for."""
        if not self._address or OF_A_KIND * nbytes > max(self._room, POOL_BYTES):
            self._room, self.used = max(POOL_BYTES, OF_A_KIND * nbytes), 0
            (host,) = self._driver("MemAllocHost", self._room, about="pinned memory")
            self._owned.append(("MemFreeHost", host))
            self._address = int(host)
        if self.used + nbytes > self._room:
            wait()
        place = self._address + self.used
        self.used += -(-nbytes // ALIGNMENT) * ALIGNMENT
        return place
