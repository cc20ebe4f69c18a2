"""The heap of a program for an NVIDIA GPU: managed memory, which both the host and the kernels may touch."""

from __future__ import annotations

from collections.abc import Callable

CHUNK = 1 << 21
SMALLEST, LARGEST = 64, 1 << 16
"""Blocks up to LARGEST are cut from chunks, in powers of two from SMALLEST; larger ones are the driver's own."""


class ManagedMemory:
    """malloc and free over a driver's managed allocations.

    allocate and release: the driver's functions, by size and by address.  Blocks are aligned to their size, up to 256
    bytes at least.
    """

    def __init__(self, allocate: Callable[[int], int], release: Callable[[int], None]) -> None:
        self._allocate, self._release = allocate, release
        self._large: dict[int, int] = {}
        self._chunks: list[int] = []
        self._left = 0
        self._sizes: dict[int, int] = {}
        self._free: dict[int, list[int]] = {}

    def malloc(self, size: int) -> int:
        """The address of at least size bytes."""
        if size > LARGEST:
            address = self._allocate(size)
            self._large[address] = size
            return address
        block = max(SMALLEST, 1 << (max(size, 1) - 1).bit_length())
        known = self._free.get(block)
        address = known.pop() if known else self._cut(block)
        self._sizes[address] = block
        return address

    def _cut(self, block: int) -> int:
        """A new block of a power of two; what is left of a chunk that is too short stays unused."""
        self._left -= self._left % block
        if self._left < block:
            self._chunks.append(self._allocate(CHUNK))
            self._left = CHUNK
        self._left -= block
        return self._chunks[-1] + self._left

    def free(self, address: int) -> bool:
        """Give a block back; False for an address that malloc did not return."""
        if self._large.pop(address, None) is not None:
            self._release(address)
            return True
        block = self._sizes.pop(address, None)
        if block is None:
            return False
        self._free.setdefault(block, []).append(address)
        return True

    def size(self, address: int) -> int:
        """The bytes behind an address that malloc returned; 0 for another."""
        return self._large.get(address) or self._sizes.get(address, 0)

    def holds(self, address: int) -> bool:
        """Whether an address lies in memory from here."""
        in_chunk = any(start <= address < start + CHUNK for start in self._chunks)
        return in_chunk or any(start <= address < start + size for start, size in self._large.items())
