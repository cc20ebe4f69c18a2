"""HIP's calls that map memory to reserved addresses, for the emulated GPU.

The host's own pages are the memory: they read as zeros and are taken when they are written, so that a range is one
mapping of the host's from the start.  What is kept here is which pages kernels may read and write.
"""

from __future__ import annotations

import ctypes
import mmap

import numpy as np

from lispgpt.runtime.devices.amd_emulator.memory import NOTHING, MappedPages, Memory

INVALID_VALUE = 1
FLAGS_OFFSET = 8
"""Where hipMemAccessDesc has its flags, behind the location's kind and number."""
PRIVATE = mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS | getattr(mmap, "MAP_NORESERVE", 0)


class MappedMemory:
    """Calls by their names in HIP, without `hip`; each gives a status, None for success.

    granularity: bytes that are mapped together.  sizes: of what was created and is there, by handle.
    """

    granularity = 1 << 16

    def __init__(self, memory: Memory) -> None:
        self.memory, self.ranges = memory, dict[int, MappedPages]()
        self.sizes: dict[int, int] = {}
        self.made = 0

    def MemGetAllocationGranularity(self, size: int, properties: int, option: int) -> None:
        ctypes.c_size_t.from_address(size).value = self.granularity

    def MemAddressReserve(self, pointer: int, size: int, alignment: int, wanted: int, flags: int) -> int:
        if size % self.granularity:
            return INVALID_VALUE
        data = np.frombuffer(mmap.mmap(-1, size + self.granularity, flags=PRIVATE), np.uint8)
        data = data[-data.ctypes.data % self.granularity :][:size]
        pages = MappedPages(self.granularity, np.full(size // self.granularity, NOTHING, np.uint8))
        address = self.memory.add(data, f"the range of {size:,} reserved bytes", mapped=pages)
        self.ranges[address] = pages
        ctypes.c_void_p.from_address(pointer).value = address
        return 0

    def MemAddressFree(self, pointer: int, size: int) -> int:
        return 0 if self.ranges.pop(pointer, None) and self.memory.remove(pointer) else INVALID_VALUE

    def MemCreate(self, handle: int, size: int, properties: int, flags: int) -> None:
        self.made += 1
        self.sizes[self.made] = size
        ctypes.c_void_p.from_address(handle).value = self.made

    def MemRelease(self, handle: int) -> int:
        return INVALID_VALUE if self.sizes.pop(handle, None) is None else 0

    def MemMap(self, pointer: int, size: int, offset: int, handle: int, flags: int) -> int:
        """Memory is mapped without leave to do anything with it."""
        return INVALID_VALUE if offset or self.sizes.get(handle) != size else self._set(pointer, size, NOTHING)

    def MemUnmap(self, pointer: int, size: int) -> int:
        return self._set(pointer, size, NOTHING)

    def MemSetAccess(self, pointer: int, size: int, described: int, count: int) -> int:
        return self._set(pointer, size, ctypes.c_int.from_address(described + FLAGS_OFFSET).value)

    def _set(self, pointer: int, size: int, may: int) -> int:
        buffer = self.memory.before(pointer)
        if (
            buffer is None
            or buffer.mapped is None
            or (pointer - buffer.address) % self.granularity
            or size % self.granularity
        ):
            return INVALID_VALUE
        first = (pointer - buffer.address) // self.granularity
        buffer.mapped.may[first : first + size // self.granularity] = may
        return 0
