"""What GPU drivers made here know of addresses that are reserved and memory that is mapped to them."""

from __future__ import annotations

import ctypes
import mmap
from collections.abc import Callable
from types import SimpleNamespace
from typing import Any


class Mapped:
    """Addresses that are reserved, and the memory that is mapped to them, page by page.

    sizes: of the memory that there is, by its handle.  homes: where that was mapped first.  places: of each page
    that has memory, the handle, where that was mapped to, and what may be done there.
    """

    granularity = 4096

    def __init__(self) -> None:
        self.reserved: dict[int, tuple[mmap.mmap, int]] = {}
        self.sizes: dict[int, int] = {}
        self.homes: dict[int, int] = {}
        self.places: dict[int, SimpleNamespace] = {}
        self.calls: dict[str, Callable[[SimpleNamespace], tuple[Any, ...]]] = {
            "MemGranularity": lambda given: (self.granularity,), "MemAddressReserve": self.reserve,
            "MemAddressFree": self.free, "MemCreate": self.create, "MemRelease": self.release, "MemMap": self.map,
            "MemUnmap": self.unmap, "MemSetAccess": self.access,
        }  # fmt: skip

    def reserve(self, given: SimpleNamespace) -> tuple[int]:
        assert given.size and given.size % self.granularity == 0
        pages = mmap.mmap(-1, given.size)
        address = ctypes.addressof(ctypes.c_char.from_buffer(pages))
        self.reserved[address] = pages, given.size
        return (address,)

    def free(self, given: SimpleNamespace) -> tuple[()]:
        assert self.reserved.pop(given.to)[1] == given.size
        assert not any(given.to <= place < given.to + given.size for place in self.places)
        return ()

    def create(self, given: SimpleNamespace) -> tuple[int]:
        assert given.size % self.granularity == 0
        handle = 1 << 20 | len(self.homes)
        self.sizes[handle], self.homes[handle] = given.size, 0
        return (handle,)

    def release(self, given: SimpleNamespace) -> tuple[()]:
        assert not any(place.handle == given.handle for place in self.places.values())
        del self.sizes[given.handle]
        return ()

    def map(self, given: SimpleNamespace) -> tuple[()]:
        """What is mapped first holds anything; what is mapped again is what it is there."""
        assert given.size == self.sizes[given.handle]
        assert any(start <= given.to and given.to + given.size <= start + n for start, (_, n) in self.reserved.items())
        for place in range(given.to, given.to + given.size, self.granularity):
            assert place not in self.places
            self.places[place] = SimpleNamespace(handle=given.handle, start=given.to, access="")
        if self.homes[given.handle]:
            ctypes.memmove(given.to, self.homes[given.handle], given.size)
        else:
            ctypes.memset(given.to, 0xA5, given.size)
            self.homes[given.handle] = given.to
        return ()

    def unmap(self, given: SimpleNamespace) -> tuple[()]:
        assert self.places[given.to].start == given.to
        assert self.sizes[self.places[given.to].handle] == given.size
        for place in range(given.to, given.to + given.size, self.granularity):
            del self.places[place]
        return ()

    def access(self, given: SimpleNamespace) -> tuple[()]:
        (described,) = given.access if isinstance(given.access, list) else [given.access]
        assert described.location.type.endswith(("TYPE_DEVICE", "TypeDevice"))
        for place in range(given.to, given.to + given.size, self.granularity):
            self.places[place].access = described.flags.replace("_", "").lower().rpartition("prot")[2]
        return ()

    def check_written(self, to: int, size: int) -> None:
        """That all of what is written may be."""
        for start, (_, whole) in self.reserved.items():
            if start <= to < start + whole:
                first = to - (to - start) % self.granularity
                for place in range(first, to + size, self.granularity):
                    assert self.places[place].access == "readwrite", "what has no memory of its own is written"
