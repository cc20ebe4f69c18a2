"""Device memory: buffers at addresses, read and written for many lanes at once; outside of them is an error."""

from __future__ import annotations

from bisect import bisect_right, insort
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault

LINE_BYTES = 128
"""Of a cache line."""
NOTHING, READ, WRITE = 0, 1, 3
"""What may be done with memory, as HIP numbers it."""
KINDS: dict[int, Any] = {1: np.uint8, 2: np.uint16, 4: np.uint32}


@dataclass(frozen=True)
class Buffer:
    """data: its bytes; its start is aligned to 8 or better.  constant: whether kernels may not write it.  mapped: where
    memory is mapped to it bit by bit, what may be done with each page (see `mapped`)."""

    address: int
    data: np.ndarray
    what: str
    constant: bool = False
    mapped: MappedPages | None = None

    @property
    def end(self) -> int:
        return self.address + self.data.size


@dataclass(frozen=True)
class MappedPages:
    """may: NOTHING, READ or WRITE for each `nbytes` of a buffer."""

    nbytes: int
    may: np.ndarray

    def check(self, buffer: Buffer, places: np.ndarray, writing: bool) -> None:
        wanted = WRITE if writing else READ
        bad = places[self.may[places // self.nbytes] < wanted]
        if bad.size:
            what = "written to" if writing else "read from"
            raise KernelFault(f"byte {int(bad[0])} of {buffer.what} is {what}, and has no memory for that")


class Memory:
    """Buffers by address.

    touched: while it is a dict, the lines of LINE_BYTES that kernels read or wrote in each buffer [line], by address.
    """

    def __init__(self) -> None:
        self.starts: list[int] = []
        self.buffers: dict[int, Buffer] = {}
        self.touched: dict[int, np.ndarray] | None = None

    def add(self, data: np.ndarray, what: str, constant: bool = False, mapped: MappedPages | None = None) -> int:
        """Make an array of bytes readable at its own address, which it keeps alive; the address."""
        flat = data.reshape(-1).view(np.uint8)
        address = flat.ctypes.data
        self.buffers[address] = Buffer(address, flat, what, constant, mapped)
        insort(self.starts, address)
        return address

    def remove(self, address: int) -> bool:
        """Forget a buffer; False where none starts there."""
        if self.buffers.pop(address, None) is None:
            return False
        self.starts.remove(address)
        return True

    def before(self, address: int) -> Buffer | None:
        """The buffer that starts last at or before an address."""
        at = bisect_right(self.starts, address) - 1
        return self.buffers[self.starts[at]] if at >= 0 else None

    def touch(self, buffer: Buffer, places: np.ndarray, size: int) -> None:
        if self.touched is not None:
            lines = self.touched.setdefault(buffer.address, np.zeros(buffer.data.size // LINE_BYTES + 1, bool))
            lines[places // LINE_BYTES] = True
            lines[(places + size - 1) // LINE_BYTES] = True

    def touched_bytes(self) -> int:
        """Bytes of the lines that were touched."""
        return LINE_BYTES * sum(int(lines.sum()) for lines in (self.touched or {}).values())


class Access:
    """Memory at the addresses of some lanes, as translated pseudocode reads and writes it.

    addresses: one for each lane, of unsigned 64 bits.  ends: for each lane, the end of what it may touch: beyond it a
    load gives 0 and a store does nothing, as buffer descriptors have it; None for no such bounds.
    """

    def __init__(self, memory: Memory, addresses: np.ndarray, ends: np.ndarray | None = None) -> None:
        self.memory, self.addresses, self.ends = memory, addresses, ends
        self.low, self.high = int(addresses.min()), int(addresses.max())
        self.distances = (addresses - np.uint64(self.low)).astype(np.int64)
        self.grain = int(np.bitwise_or.reduce(self.distances))
        self.words = self.distances >> 2

    def load(self, offset: int, bits: int) -> np.ndarray:
        """`bits` from each address plus an offset in bytes, as unsigned integers of 32 or 64 bits."""
        size = bits // 8
        if (inside := self._inside(offset, size)) is not None:
            found = np.zeros(inside.size, np.uint64 if bits > 32 else np.uint32)
            if inside.any():
                found[inside] = Access(self.memory, self.addresses[inside]).load(offset, bits)
            return found
        if bits > 32:
            low, high = self.load(offset, 32), self.load(offset + 4, 32)
            return low.astype(np.uint64) | high.astype(np.uint64) << np.uint64(32)
        return self._words(offset, size, writing=False)

    def _words(self, offset: int, size: int, writing: bool) -> np.ndarray:
        """At most 32 bits from each address.  writing: whether they are about to be written."""
        parts = [(at, _read(*where, size)) for at, where in self._parts(offset, size, writing)]
        if len(parts) == 1:
            return parts[0][1]
        whole = np.empty(self.addresses.size, np.uint32)
        for at, values in parts:
            whole[at] = values
        return whole

    def store(self, offset: int, bits: int, values: np.ndarray) -> None:
        """The inverse; where two lanes name one address, the later one's value stays."""
        size, values = bits // 8, np.broadcast_to(values, self.addresses.shape)
        if (inside := self._inside(offset, size)) is not None:
            if inside.any():
                Access(self.memory, self.addresses[inside]).store(offset, bits, values[inside])
        elif bits > 32:
            self.store(offset, 32, values.astype(np.uint32))
            self.store(offset + 4, 32, (values >> np.uint64(32)).astype(np.uint32))
        else:
            for at, where in self._parts(offset, size, writing=True):
                _write(*where, values[at].astype(np.uint32, copy=False), size)

    def done(self) -> Sequence[np.ndarray]:
        """Hear that the instruction has touched all that it touches; for each word that it loaded the lanes in which
        some of it holds nothing, () where all hold something."""
        return ()

    def forget(self, words: Sequence[np.ndarray]) -> None:
        """Hear in which lanes the words that it stored are nothing."""

    def _inside(self, offset: int, size: int) -> np.ndarray | None:
        """Which lanes are within their bounds, None where all are."""
        if self.ends is None:
            return None
        inside = self.addresses + np.uint64(offset + size) <= self.ends
        return None if inside.all() else inside

    def _parts(self, offset: int, size: int, writing: bool) -> Iterator[tuple[Any, tuple[np.ndarray, np.ndarray, int]]]:
        """(lanes, (the bytes of the buffer that they touch, places in units of its elements, bytes of an element))."""
        buffer = self.memory.before(self.low + offset)
        if buffer is not None and self.high + offset + size <= buffer.end:
            first = self.low + offset - buffer.address
            unit = (first | self.grain | size) & 3
            if unit == 0:
                found, unit = self.words + (first >> 2), 4
            else:
                unit = 1 if unit & 1 else 2
                found = (self.distances + first) // unit
            yield slice(None), self._checked(buffer, found, unit, size, writing)
            return
        addresses = self.addresses + np.uint64(offset)
        which = np.searchsorted(np.array(self.memory.starts, np.uint64), addresses, "right") - 1
        for number in np.unique(which):
            at = np.flatnonzero(which == number)
            buffer = self.memory.buffers[self.memory.starts[number]] if number >= 0 else None
            bad = at[addresses[at] + np.uint64(size) > (buffer.end if buffer is not None else 0)]
            if buffer is None or bad.size:
                raise KernelFault(_outside(int(addresses[bad[0] if bad.size else at[0]]), size, writing, buffer))
            yield (
                at,
                self._checked(buffer, (addresses[at] - np.uint64(buffer.address)).astype(np.int64), 1, size, writing),
            )

    def _checked(
        self, buffer: Buffer, places: np.ndarray, unit: int, size: int, writing: bool
    ) -> tuple[np.ndarray, np.ndarray, int]:
        if writing and buffer.constant:
            raise KernelFault(f"a store to {buffer.what}, which is constant")
        if buffer.mapped is not None:
            buffer.mapped.check(buffer, places * unit, writing)
        self.memory.touch(buffer, places * unit, size)
        return buffer.data[: buffer.data.size // unit * unit].view(KINDS[unit]), places, unit


def _outside(address: int, size: int, writing: bool, before: Buffer | None) -> str:
    what = f"{size} bytes {'written to' if writing else 'read from'} {address:#x}, outside of every buffer"
    if before is None:
        return what
    return f"{what}: {address + size - before.end} bytes past the end of {before.what} of {before.data.size} bytes"


def _read(data: np.ndarray, places: np.ndarray, unit: int, size: int) -> np.ndarray:
    found = data[places].astype(np.uint32, copy=False)
    for i in range(1, size // unit):
        found = found | data[places + i].astype(np.uint32) << np.uint32(8 * unit * i)
    return found


def _write(data: np.ndarray, places: np.ndarray, unit: int, values: np.ndarray, size: int) -> None:
    for i in range(size // unit):
        data[places + i] = (values >> np.uint32(8 * unit * i)).astype(data.dtype, copy=False)


@dataclass(frozen=True)
class Stored:
    """What lanes have stored so far from their addresses: values of so many bits.  before: what was there."""

    offset: int
    bits: int
    values: np.ndarray
    before: np.ndarray

    def equals(self, values: np.ndarray, grain: int) -> list[np.ndarray]:
        """Of each place of `grain` bytes, in which lanes these are the stored values."""
        same = (values ^ self.values.astype(np.uint32)) & np.uint32((1 << self.bits) - 1) == 0
        return [same] * (self.bits // 8 // grain)


def missing_words(missing: np.ndarray, starts: Any) -> Sequence[np.ndarray]:
    """In which lanes some of each word is missing.  missing: [place, lane].  starts: the first place of each word."""
    return list(np.logical_or.reduceat(missing, starts))


def rounds(addresses: np.ndarray) -> list[np.ndarray]:
    """Places in `addresses`, in turns in which no address comes twice."""
    order = np.argsort(addresses, kind="stable")
    ordered = addresses[order]
    starts = np.flatnonzero(np.r_[True, ordered[1:] != ordered[:-1]])
    turn = np.arange(order.size) - np.repeat(starts, np.diff(np.r_[starts, order.size]))
    return [order[turn == number] for number in range(int(turn.max()) + 1)]
