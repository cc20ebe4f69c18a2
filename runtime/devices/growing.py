"""Ranges of a GPU's addresses with memory only where it was asked for: what is allowed for costs what is used.

A driver maps memory in pages, of 2 MiB on most GPUs.  All pages of a range begin as one and the same that holds
zeros and may only be read, so that kernels may look at any of it.  A page that is to be written gets memory of its
own; addresses stay what they were, and so do the graphs that hold them.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.devices.driver import Driver

SHORT = "the GPU is short of memory: --context N makes room for fewer positions"
Call = tuple[Any, ...]
"""A driver's call by its name here, and what it takes."""


@dataclass(frozen=True)
class Vendor:
    """How a vendor's package says things.

    properties: of memory on the device itself.  may: its access, to read only or to write as well.
    """

    properties: Any
    may: Callable[[bool], Any]


@dataclass(frozen=True)
class _Range:
    """own: of each page, whether it has memory of its own."""

    nbytes: int
    own: np.ndarray


class Ranges:
    """The ranges of one device; UserError where its driver maps no memory.

    granularity: bytes that get memory together.
    """

    def __init__(self, driver: Driver, vendor: Vendor, stream: Any) -> None:
        self._driver, self._stream = driver, stream
        self._properties, self._may = vendor.properties, vendor.may
        self._ranges: dict[int, _Range] = {}
        self._given_back: dict[Call, None] = {}
        self._handles: list[Any] = []
        try:
            self.granularity = int(driver("MemGranularity", self._properties)[0])
            self._zeros = self._made(self.granularity)
            home = self._address(self.granularity)
            self._map(home, self.granularity, self._zeros, writing=True)
            driver("MemsetD8Async", home, 0, self.granularity, stream)
        except UserError:
            for call in self.close():
                driver.status(*call)
            raise

    def taken(self, address: int) -> int:
        """Bytes of memory that a range has."""
        return self.granularity * int(self._ranges[address].own.sum())

    def reserve(self, nbytes: int) -> int:
        """A range of zeros, which may be read; its address."""
        size = -(-max(nbytes, 1) // self.granularity) * self.granularity
        address = self._address(size)
        for start in range(0, size, self.granularity):
            self._map(address + start, self.granularity, self._zeros)
        self._access(address, size, False)
        self._ranges[address] = _Range(nbytes, np.zeros(size // self.granularity, bool))
        return address

    def __contains__(self, address: int) -> bool:
        return address in self._ranges

    def back(self, address: int, start: int, end: int) -> None:
        """Have memory for these bytes of a range, of zeros where there was none, once all that runs is done."""
        found = self._ranges[address]
        first, last = start // self.granularity, -(-min(end, found.nbytes) // self.granularity)
        wanted = first + np.flatnonzero(~found.own[first:last])
        if not wanted.size:
            return
        self._driver("StreamSynchronize", self._stream)
        for run in np.split(wanted, np.flatnonzero(np.diff(wanted) > 1) + 1):
            self._back_run(address, found, int(run[0]), len(run))

    def _back_run(self, address: int, found: _Range, first: int, count: int) -> None:
        """Give neighbouring pages memory."""
        start, size = address + first * self.granularity, count * self.granularity
        handle = self._made(size)
        for number in range(count):
            place = ("MemUnmap", start + number * self.granularity, self.granularity)
            self._driver(*place)
            del self._given_back[place]
        self._map(start, size, handle, writing=True)
        found.own[first : first + count] = True
        self._driver("MemsetD8Async", start, 0, size, self._stream)

    def close(self) -> Sequence[Call]:
        """The calls that give all of it back, in their order; the ranges are forgotten."""
        calls = [*reversed(self._given_back), *(("MemRelease", handle) for handle in self._handles)]
        self._ranges, self._given_back, self._handles = {}, {}, []
        return calls

    def _made(self, nbytes: int) -> Any:
        (handle,) = self._driver("MemCreate", nbytes, self._properties, about=f"{nbytes:,} bytes", hint=SHORT)
        self._handles.append(handle)
        return handle

    def _address(self, nbytes: int) -> int:
        address = int(self._driver("MemAddressReserve", nbytes, about=f"{nbytes:,} bytes")[0])
        self._given_back[("MemAddressFree", address, nbytes)] = None
        return address

    def _map(self, address: int, nbytes: int, handle: Any, writing: bool = False) -> None:
        self._driver("MemMap", address, nbytes, handle)
        self._given_back[("MemUnmap", address, nbytes)] = None
        if writing:
            self._access(address, nbytes, True)

    def _access(self, address: int, nbytes: int, writing: bool) -> None:
        self._driver("MemSetAccess", address, nbytes, self._may(writing))
