"""Device memory: buffers at addresses, read and written for many lanes at once; outside of them is an error."""

from __future__ import annotations

from bisect import bisect_right, insort
from dataclasses import dataclass

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault

LINE_BYTES = 128
"""Of a cache line."""


@dataclass(frozen=True)
class Buffer:
    """data: its bytes; its start is aligned to 8 or better.  constant: whether kernels may not write it."""

    address: int
    data: np.ndarray
    what: str
    constant: bool = False

    @property
    def end(self) -> int:
        return self.address + self.data.size

    def view(self, kind: type) -> np.ndarray:
        size = np.dtype(kind).itemsize
        return self.data[: self.data.size // size * size].view(kind)


class Memory:
    """Buffers by address.

    touched: while it is a dict, the lines of LINE_BYTES that kernels read or wrote in each buffer [line], by address.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: dict[int, Buffer] = {}
        self.touched: dict[int, np.ndarray] | None = None

    def add(self, data: np.ndarray, what: str, constant: bool = False) -> int:
        """Make an array of bytes readable at its own address, which it keeps alive; the address."""
        flat = data.reshape(-1).view(np.uint8)
        address = flat.ctypes.data
        self.buffers[address] = Buffer(address, flat, what, constant)
        insort(self.starts, address)
        return address

    def remove(self, address: int) -> bool:
        """Forget a buffer; False where none starts there."""
        if self.buffers.pop(address, None) is None:
            return False
        self.starts.remove(address)
        return True

    def _buffer(self, address: int) -> Buffer | None:
        at = bisect_right(self.starts, address) - 1
        found = self.buffers[self.starts[at]] if at >= 0 else None
        return found if found is not None and address < found.end else None

    def _parts(self, addresses: np.ndarray, size: int, writing: bool) -> list[tuple[Buffer, np.ndarray | slice]]:
        """Each buffer that is touched, with the places in `addresses` that touch it."""
        low, high = int(addresses.min()), int(addresses.max())
        buffer = self._buffer(low)
        if buffer is not None and high + size <= buffer.end:
            parts: list[tuple[Buffer, np.ndarray | slice]] = [(buffer, slice(None))]
        else:
            parts = self._scattered(addresses, size, writing)
        for buffer, _ in parts:
            if writing and buffer.constant:
                raise KernelFault(f"a store to {buffer.what}, which is constant")
        return parts

    def _scattered(self, addresses: np.ndarray, size: int, writing: bool) -> list[tuple[Buffer, np.ndarray | slice]]:
        starts = np.array(self.starts, np.uint64)
        which = np.searchsorted(starts, addresses, "right") - 1
        parts: list[tuple[Buffer, np.ndarray | slice]] = []
        for number in np.unique(which):
            at = np.flatnonzero(which == number)
            buffer = self.buffers[self.starts[number]] if number >= 0 else None
            end = buffer.end if buffer is not None else 0
            bad = at[addresses[at] + np.uint64(size) > end]
            if buffer is None or bad.size:
                raise KernelFault(self._outside(int(addresses[bad[0] if bad.size else at[0]]), size, writing, buffer))
            parts.append((buffer, at))
        return parts

    def _outside(self, address: int, size: int, writing: bool, before: Buffer | None) -> str:
        what = f"{size} bytes {'written to' if writing else 'read from'} {address:#x}, outside of every buffer"
        if before is None:
            return what
        return f"{what}: {address + size - before.end} bytes past the end of {before.what} of {before.data.size} bytes"

    def _touch(self, buffer: Buffer, offsets: np.ndarray, size: int) -> None:
        if self.touched is not None:
            lines = self.touched.setdefault(buffer.address, np.zeros(buffer.data.size // LINE_BYTES + 1, bool))
            lines[offsets // LINE_BYTES] = True
            lines[(offsets + size - 1) // LINE_BYTES] = True

    def touched_bytes(self) -> int:
        """Bytes of the lines that were touched."""
        return LINE_BYTES * sum(int(lines.sum()) for lines in (self.touched or {}).values())

    def gather(self, addresses: np.ndarray, size: int) -> list[np.ndarray]:
        """`size` bytes from each address: 32-bit words, or for 1 and 2 bytes one number below 2⁸ or 2¹⁶."""
        found = [np.empty(addresses.size, np.uint32) for _ in range(max(1, size // 4))]
        for buffer, at in self._parts(addresses, size, writing=False):
            offsets = (addresses[at] - np.uint64(buffer.address)).astype(np.int64)
            self._touch(buffer, offsets, size)
            for word, values in zip(found, _read(buffer, offsets, size), strict=True):
                word[at] = values
        return found

    def scatter(self, addresses: np.ndarray, words: list[np.ndarray], size: int) -> None:
        """The inverse; where two lanes name one address, the later one's value stays."""
        for buffer, at in self._parts(addresses, size, writing=True):
            offsets = (addresses[at] - np.uint64(buffer.address)).astype(np.int64)
            self._touch(buffer, offsets, size)
            _write(buffer, offsets, [word[at] for word in words], size)


def _unit(offsets: np.ndarray, size: int) -> int:
    """The widest of 4, 2 and 1 bytes that size and offsets are multiples of."""
    bits = int(np.bitwise_or.reduce(offsets)) | size
    return 4 if bits & 3 == 0 else 2 if bits & 1 == 0 else 1


KINDS = {1: np.uint8, 2: np.uint16, 4: np.uint32}


def _read(buffer: Buffer, offsets: np.ndarray, size: int) -> list[np.ndarray]:
    unit = _unit(offsets, size)
    data, index = buffer.view(KINDS[unit]), offsets // unit
    if unit == 4:
        return [data[index + i] for i in range(size // 4)]
    each = min(size, 4) // unit
    words = []
    for word in range(max(1, size // 4)):
        parts = [data[index + word * each + i].astype(np.uint32) << np.uint32(8 * unit * i) for i in range(each)]
        words.append(np.bitwise_or.reduce(parts))
    return words


def _write(buffer: Buffer, offsets: np.ndarray, words: list[np.ndarray], size: int) -> None:
    unit = _unit(offsets, size)
    data, index = buffer.view(KINDS[unit]), offsets // unit
    each = min(size, 4) // unit
    for number, word in enumerate(words):
        for i in range(each):
            data[index + number * each + i] = (word >> np.uint32(8 * unit * i)).astype(KINDS[unit])
