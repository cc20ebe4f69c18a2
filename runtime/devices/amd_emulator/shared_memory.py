"""The memory that a workgroup's waves share (LDS): its bounds, the races that they run in it, and what nobody wrote."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.memory import Access, Memory, Stored, missing_words
from lispgpt.runtime.devices.amd_emulator.races import Order, Shadow
from lispgpt.runtime.devices.amd_emulator.waves import Waves


class SharedMemory:
    """nbytes: of each workgroup.  grain: bytes that one mark stands for, the smallest that the kernel stores."""

    def __init__(self, memory: Memory, waves: Waves, nbytes: int, grain: int, order: Order) -> None:
        self.waves, self.nbytes, self.grain, self.memory = waves, nbytes, grain, memory
        self.stride = -(-nbytes // 16) * 16
        data = np.full(max(waves.groups * self.stride, 16), 0xFF, np.uint8)
        self.address = memory.add(data, "shared memory")
        self.shadow = Shadow(order, data.size // grain, "shared memory", own=True)


class SharedAccess(Access):
    """Shared memory at the addresses of some lanes [lane], in the workgroups of their waves.

    wave, lane: numbers of each.  atomic: whether several waves may update the same word without a race.
    """

    def __init__(
        self, shared: SharedMemory, addresses: np.ndarray, wave: np.ndarray, lane: np.ndarray, atomic: bool
    ) -> None:
        self.shared, self.wave, self.lane, self.atomic = shared, wave, lane, atomic
        self.asked, self.last = addresses.astype(np.int64), int(addresses.max())
        self.places = self.asked + shared.waves.group[wave] * shared.stride
        self.touched: tuple[list[int], list[int]] = [], []
        self.marks: list[int] = []
        self.stored: list[Stored] = []
        super().__init__(shared.memory, (self.places + shared.address).astype(np.uint64))

    def load(self, offset: int, bits: int) -> np.ndarray:
        if bits <= 32:  # wider ones come again in parts
            self._check(offset, bits // 8, writing=False)
        return super().load(offset, bits)

    def store(self, offset: int, bits: int, values: np.ndarray) -> None:
        if bits <= 32:
            self._check(offset, bits // 8, writing=True)
            whole = np.broadcast_to(values, self.addresses.shape)
            self.stored.append(Stored(offset, bits, whole, whole))
        super().store(offset, bits, values)

    def done(self) -> Sequence[np.ndarray]:
        shadow, (loaded, stored) = self.shared.shadow, self.touched
        missing = None
        if loaded:
            at = self._at(loaded)
            missing = shadow.unset(at)
            shadow.load(at, self.wave, self.lane, self.atomic)
        if stored:
            shadow.store(self._at(stored), self.wave, self.lane, None if self.atomic else self._kept)
        return () if missing is None else missing_words(missing, self.marks)

    def forget(self, words: Sequence[np.ndarray]) -> None:
        for stored, nothing in zip(self.stored, words, strict=True):
            offsets = [*range(stored.offset, stored.offset + stored.bits // 8, self.shared.grain)]
            self.shared.shadow.written[self._at(offsets)[:, nothing]] = 0

    def _kept(self) -> np.ndarray:
        """Which places hold what the lanes have stored there [place, lane]."""
        grain, load = self.shared.grain, super().load
        return np.array([s for each in self.stored for s in each.equals(load(each.offset, each.bits), grain)])

    def _at(self, offsets: list[int]) -> np.ndarray:
        """The marks of what is so far from each address [offset, lane]."""
        return (self.places + np.array(offsets)[:, None]) // self.shared.grain

    def _check(self, offset: int, size: int, writing: bool) -> None:
        shared, wave = self.shared, self.wave
        if self.last + offset + size > shared.nbytes:
            at = int(self.asked.argmax())
            number = wave[at]
            raise KernelFault(
                f"{size} bytes {'written to' if writing else 'read from'} shared memory at {self.asked[at] + offset}, "
                f"of {shared.nbytes} bytes (workgroup {shared.waves.group[number]}, wave {shared.waves.member[number]})"
            )
        if (self.grain | self.low + offset) % min(size, 4):
            raise KernelFault(f"{size} bytes of shared memory at an address that is no multiple of {min(size, 4)}")
        before = len(self.touched[writing])
        self.touched[writing].extend(range(offset, offset + size, shared.grain))
        if not writing:
            self.marks.append(before)
