"""What a launch may do to global memory, as its arguments say, and the races that it runs there.

An argument that is only read is not written, and what lies outside of all arguments is not touched.  What an argument
only writes holds nothing before, and everything afterwards.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from lispgpt.base.access import SCRATCH, WRITE, Region
from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.memory import Access, Memory, Stored, missing_words
from lispgpt.runtime.devices.amd_emulator.races import Order, Shadow


@dataclass(frozen=True)
class Argument:
    """nbytes at an address, and what is done to them (see lispgpt.base.access)."""

    address: int
    region: Region

    @property
    def end(self) -> int:
        return self.address + self.region.nbytes


@dataclass(frozen=True)
class Held:
    """Values at places of an array of bytes or words."""

    data: np.ndarray
    places: np.ndarray
    values: np.ndarray

    def same(self, other: Held) -> bool:
        return np.array_equal(self.places, other.places) and np.array_equal(self.values, other.values)


class GlobalMemory:
    """A launch's arguments by address, cut where one starts or ends: pieces that are alike throughout.

    starts, ends: of each piece.  written: whether a piece may be.  first: of a written piece, its first place among
    those of the shadow, of `grain` bytes each.  arguments: those of each piece.  undo: what was there ahead of each
    store, where the launch may have to be run again.  doubtful: stores beside which loads find `garbage`.
    """

    undo: list[Held] | None = None
    doubtful: dict[int, list[tuple[int, int]]] | None = None
    garbage = 0

    def __init__(self, memory: Memory, arguments: Sequence[Argument], grain: int) -> None:
        self.memory, self.given = memory, (arguments, grain)
        cuts = sorted({cut for a in arguments for cut in (a.address, a.end)})
        found = [(low, high, [a for a in arguments if a.address <= low and high <= a.end])
                 for low, high in pairwise(cuts)]  # fmt: skip
        found = [piece for piece in found if piece[2]]
        self.arguments = [piece[2] for piece in found]
        self.starts = np.array([piece[0] for piece in found], np.int64)
        self.ends = np.array([piece[1] for piece in found], np.int64)
        self.written = np.array([any(a.region.writes for a in piece[2]) for piece in found], bool)
        self.fresh = np.array([not any(a.region.reads for a in piece[2]) for piece in found], bool)
        self.grain = min([grain, *(int(cut & -cut) for cut in cuts if cut)])
        sizes = np.where(self.written, (self.ends - self.starts) // self.grain, 0)
        self.first = np.cumsum(sizes) - sizes
        self.places = int(sizes.sum())

    def start(self, order: Order) -> None:
        """Begin with what nobody has touched."""
        self.shadow = Shadow(order, self.places, "global memory", own=False)
        self.shadow.excused = {}

    def piece(self, low: int, high: int) -> int:
        """The piece that has all bytes from low to high; -1 where there is none."""
        number = int(self.starts.searchsorted(low, "right")) - 1
        return number if number >= 0 and high <= self.ends[number] else -1

    def again(self, doubtful: dict[int, list[tuple[int, int]]], garbage: int) -> GlobalMemory:
        """The same for the launch once more, with garbage for loads beside stores that are known."""
        other = GlobalMemory(self.memory, *self.given)
        other.undo, other.doubtful, other.garbage = [], doubtful, garbage
        return other

    def left(self) -> list[Held]:
        """What places hold now to which the launch has stored."""
        assert self.undo is not None
        return [replace(stored, values=stored.data[stored.places]) for stored in self.undo]

    def take_back(self) -> None:
        """Give memory what it held before the launch."""
        for stored in reversed(self.undo or []):
            stored.data[stored.places] = stored.values

    def finish(self, kernel: str) -> None:
        """KernelFault where something that the launch says it writes has not been."""
        for number, arguments in enumerate(self.arguments):
            if not any(a.region.access == WRITE for a in arguments) or any(
                a.region.access == SCRATCH for a in arguments
            ):
                continue
            count = (self.ends[number] - self.starts[number]) // self.grain
            missing = self.shadow.unset(self.first[number] + np.arange(count))
            if missing is not None:
                at = int(missing.argmax()) * self.grain
                nbytes = int(missing.sum()) * self.grain
                raise KernelFault(
                    f"{kernel}: {nbytes:,} of {count * self.grain:,} bytes of {arguments[0].region.buffer} are not "
                    f"written, and the launch says that it writes all; the first is byte {at}"
                )


class GlobalAccess(Access):
    """Global memory at the addresses of some lanes, in a launch of which is known what it touches.

    wave, lane: numbers of each.  atomic: whether others may update the same word without a race.
    """

    def __init__(
        self, watched: GlobalMemory, addresses: np.ndarray, wave: np.ndarray, lane: np.ndarray, atomic: bool,
        ends: np.ndarray | None = None,
    ) -> None:  # fmt: skip
        super().__init__(watched.memory, addresses, ends)
        self.watched, self.wave, self.lane, self.atomic = watched, wave, lane, atomic
        self.touched: tuple[list[tuple[int, int]], list[tuple[int, int]]] = [], []
        self.stored: list[Stored] = []

    def load(self, offset: int, bits: int) -> np.ndarray:
        if bits > 32:  # comes again in parts
            return super().load(offset, bits)
        self.touched[0].append((offset, bits // 8))
        found = super().load(offset, bits)
        watched = self.watched
        if watched.doubtful:
            places = self.addresses.astype(np.int64) + np.arange(offset, offset + bits // 8, watched.grain)[:, None]
            numbers = watched.starts.searchsorted(places, "right") - 1
            at = watched.first[numbers] + (places - watched.starts[numbers]) // watched.grain
            at = np.where(watched.written[numbers] & (numbers >= 0) & (places < watched.ends[numbers]), at, -1)
            doubtful = watched.shadow.doubtful(watched.doubtful, at, self.wave, self.lane).any(axis=0)
            garbage = np.uint32(watched.garbage & (1 << bits) - 1)
            found = np.where(doubtful, garbage, found) if doubtful.any() else found
        return found

    def store(self, offset: int, bits: int, values: np.ndarray) -> None:
        if bits <= 32:
            self.touched[1].append((offset, bits // 8))
            self._keep(offset, bits, np.broadcast_to(values, self.addresses.shape))
        super().store(offset, bits, values)

    def _keep(self, offset: int, bits: int, values: np.ndarray) -> None:
        """Note what a store is going to change."""
        inside, size = self._inside(offset, bits // 8), bits // 8
        if inside is None:
            self.stored.append(Stored(offset, bits, values, self._words(offset, size, writing=True)))
        else:
            self.stored.append(Stored(offset, bits, values, super().load(offset, bits)))
        access = self if inside is None else Access(self.memory, self.addresses[inside])
        if self.watched.undo is not None and access.addresses.size:
            for _, (data, places, unit) in access._parts(offset, size, writing=True):
                whole = places + np.arange(size // unit)[:, None]
                self.watched.undo.append(Held(data, whole, data[whole]))

    def done(self) -> Sequence[np.ndarray]:
        loaded, stored = self.touched
        missing = self._note(loaded, writing=False) if loaded else ()
        if stored:
            self._note(stored, writing=True)
        return missing

    def _note(self, touched: list[tuple[int, int]], writing: bool) -> Sequence[np.ndarray]:
        watched = self.watched
        low = min(offset for offset, _ in touched)
        high = max(offset + size for offset, size in touched)
        number = watched.piece(self.low + low, self.high + high)
        if number >= 0 and not watched.written[number]:
            if writing:
                raise KernelFault(_only_read(watched.arguments[number][0]))
            return ()
        offsets = np.array([at for offset, size in touched for at in range(offset, offset + size, watched.grain)])
        starts = np.cumsum([0, *(size // watched.grain for _, size in touched)])[:-1]
        places = self.addresses.astype(np.int64) + offsets[:, None]
        wanted = None
        if self.ends is not None and not (self.addresses + np.uint64(high) <= self.ends).all():
            wanted = places < self.ends.astype(np.int64)
        at, wanted, numbers = self._pieces(places, wanted, number, writing)
        some = _Some(wanted, self.wave, self.lane)
        if writing:
            kept, changed = (lambda: some.of(self._kept())), (lambda: some.of(~self._equal()))
            ways = (None, None) if self.atomic else (kept, changed)
            watched.shadow.store(some.of(at), some.wave, some.lane, *ways)
            return ()
        missing = watched.shadow.unset(some.of(at))
        watched.shadow.load(some.of(at), some.wave, some.lane, self.atomic)
        if missing is None or not (missing := missing & some.of(watched.fresh[numbers])).any():
            return ()
        return missing_words(some.spread(missing), starts)

    def _pieces(
        self, places: np.ndarray, wanted: np.ndarray | None, number: int, writing: bool
    ) -> tuple[np.ndarray, np.ndarray | None, np.ndarray]:
        """(places of the shadow, which of them are to be noted, the piece of each), [place, lane] each.

        places: addresses.  wanted: which of them are touched, None for all.  number: the piece that has them all, -1
        for several or none.
        """
        watched = self.watched
        numbers = np.full(places.shape, number)
        if number < 0:
            numbers = watched.starts.searchsorted(places, "right") - 1
            wanted = np.ones(places.shape, bool) if wanted is None else wanted
            outside = wanted & ((numbers < 0) | (places >= watched.ends[numbers]))
            self._check_outside(places[outside], writing)
            wanted = wanted & ~outside
            if writing and (bad := wanted & ~watched.written[numbers]).any():
                raise KernelFault(_only_read(watched.arguments[int(numbers[bad][0])][0]))
            wanted = wanted & watched.written[numbers]
        at = watched.first[numbers] + (places - watched.starts[numbers]) // watched.grain
        return at, None if wanted is None or wanted.all() else wanted, numbers

    def _kept(self) -> np.ndarray:
        """Which places hold what the lanes have stored there [place, lane]."""
        grain, load = self.watched.grain, super().load
        return np.array([s for each in self.stored for s in each.equals(load(each.offset, each.bits), grain)])

    def _equal(self) -> np.ndarray:
        """Which held the same before."""
        return np.array([s for each in self.stored for s in each.equals(each.before, self.watched.grain)])

    def _check_outside(self, addresses: np.ndarray, writing: bool) -> None:
        """KernelFault where addresses, which are of no argument, are of no memory that every launch may read."""
        for address in np.unique(addresses).tolist():
            buffer = self.memory.before(address)
            if buffer is not None and buffer.constant and not writing:
                continue
            what = "written to" if writing else "read from"
            where = "" if buffer is None else f", byte {address - buffer.address} of {buffer.what}"
            raise KernelFault(f"{address:#x}{where}, is {what}, and the launch does not say that it touches it")


class _Some:
    """Some of the places of an instruction's lanes.  wanted: which [place, lane], None for all."""

    def __init__(self, wanted: np.ndarray | None, wave: np.ndarray, lane: np.ndarray) -> None:
        self.wanted = wanted
        lanes = slice(None) if wanted is None else np.nonzero(wanted)[1]
        self.wave, self.lane = wave[lanes], lane[lanes]

    def of(self, values: np.ndarray) -> np.ndarray:
        """[place, lane] of all, or in one row those of the wanted."""
        return values if self.wanted is None else values[self.wanted][None]

    def spread(self, values: np.ndarray) -> np.ndarray:
        """The inverse, false for those that are not wanted."""
        if self.wanted is None:
            return values
        found = np.zeros(self.wanted.shape, bool)
        found[self.wanted] = values[0]
        return found


def _only_read(argument: Argument) -> str:
    return f"a store to {argument.region.buffer}, which the launch says it only reads"
