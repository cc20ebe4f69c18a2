"""Accesses of the same memory of which one writes, and nothing orders them; found whatever the order was here.

Every place of a memory remembers who wrote it last, and who read it last, as a mark: a moment and a thread.  Time goes
on wherever something is ordered, so that a wave has to fear what other waves of its workgroup have done since the last
barrier, and what other workgroups have done at any time.  Lanes of one wave go in step: they are in
each other's way where one instruction has two of them store to one place, unless they store the same and have not
read what they change.

A load beside a store, such as one of a row past the last whose value a select drops, is no race where the launch leaves
the same bits whatever the load finds: it is noted, and the launch run again with garbage in its place (see `machine`).
So is one of what several workgroups then store alike, which would be a sum of theirs without atomics.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from lispgpt.runtime.devices.amd_emulator.faults import KernelFault
from lispgpt.runtime.devices.amd_emulator.waves import Waves

i64 = np.int64
Places = Callable[[], np.ndarray]
"""Gives a truth value for each place."""
THREAD_BITS = 28
THREAD = (1 << THREAD_BITS) - 1
WAVES, GROUPS, UPDATE = (1 << THREAD_BITS + n for n in range(3))
"""Of a mark, whether several waves or workgroups are meant, and whether it is of an atomic access."""
MOMENT = 1 << THREAD_BITS + 3
NEVER = (1 << 63) - 1


class Order:
    """What orders the accesses of a launch.

    A thread's number has its lane in the lowest bits, then its wave, then its workgroup, which count from the launch's
    first.  lanes: of a wave.  waves: of a workgroup.  exchange: whether words are exchanged that all workgroups see at
    once; then what one knows of another is not followed.
    """

    def __init__(self, lanes: int, waves: int) -> None:
        self.lanes, self.waves = lanes, 1 << (waves - 1).bit_length()
        self.group = THREAD & -lanes * self.waves
        self.wave = THREAD & -lanes & ~self.group
        self.now, self.first_group = 1, 0
        self.exchange = False

    def start(self, waves: Waves) -> None:
        """Let waves begin."""
        self.since = np.full(waves.n, self.now, i64)
        self.first_thread = ((self.first_group + waves.group) * self.waves + waves.member) * self.lanes
        self.first_group += waves.groups

    def passed(self, waves: np.ndarray) -> None:
        """Note which waves have just passed a barrier."""
        self.now += 1
        self.since[waves] = self.now

    def names(self, mark: int) -> tuple[int, int, int]:
        """(workgroup, wave in it, lane) of a mark."""
        group, thread = divmod(mark & THREAD, self.lanes * self.waves)
        return (group, *divmod(thread, self.lanes))


class Shadow:
    """Who wrote and read each place of a memory.

    A mark is 0 where nobody was.  what: of the memory, for messages.  own: whether workgroups have places of their own.
    excused: by place, stores beside which something is loaded, as their marks, and the marks from which on loads ahead
    of them are not ordered before; None where such loads are races whatever they find.  fault: the first of them.
    """

    def __init__(self, order: Order, places: int, what: str, own: bool) -> None:
        self.order, self.what, self.own = order, what, own
        self.excused: dict[int, list[tuple[int, int]]] | None = None
        self.fault: KernelFault | None = None
        self.others = order.wave if own else order.wave | order.group
        self.written, self.was_read = np.zeros((2, max(places, 1)), i64)

    def load(self, at: np.ndarray, wave: np.ndarray, lane: np.ndarray, update: bool = False) -> None:
        """Note loads.  at: places [access, lane].  wave, lane: numbers of each lane's wave, and of the lane in it."""
        mine, since = self._mine(wave, lane, update)
        self._compare(at, self.written[at], mine, since, "reads", "written")
        before = self.was_read[at]
        self.was_read[at] = mine
        after = self.was_read[at]
        several = ((before ^ mine) & self.others != 0) & (before >= (since if self.own else 1))
        several |= (after ^ mine) & self.others != 0
        if several.any():
            self._join(at, before, after, mine, since)

    def store(
        self, at: np.ndarray, wave: np.ndarray, lane: np.ndarray, kept: Places | None, changed: Places | None = None
    ) -> None:
        """Note stores.  kept: which places hold afterwards what the lane has stored there [access, lane]; None where
        these are updates, each of which counts.  changed: which held something else before; where it is given, who
        stores what is there already harms nobody."""
        update = kept is None
        mine, since = self._mine(wave, lane, update)
        self._compare(at, self.written[at], mine, since, "writes", "written", changed)
        self._compare(at, self.was_read[at], mine, since, "writes", "read", changed)
        self.written[at] = mine
        if kept is not None:
            after = self.written[at]
            if (lost := after != mine).any():
                same, apart = kept(), (after ^ mine) & self.others != 0
                excused = same & ((self.was_read[at] < since) | (self.order.waves == 1))
                lost &= ~excused | (apart & (changed is None))
                if self.order.exchange:
                    lost &= (after ^ mine) & self.order.group == 0
                if self.excused is not None and changed is not None and (read := lost & same & apart).any():
                    self._excuse(self._race(after, mine, read, "writes", "written"), at[read], after[read])
                    lost &= ~read
                if lost.any():
                    raise self._race(after, mine, lost, "writes", "written")

    def unset(self, at: np.ndarray) -> np.ndarray | None:
        """At which places nobody has written; None: somebody has at all of them."""
        missing = self.written[at] == 0
        return missing if missing.any() else None

    def _mine(self, wave: np.ndarray, lane: np.ndarray, update: bool) -> tuple[np.ndarray, np.ndarray]:
        """(marks of what is done now, marks from which on other waves are not ordered before)."""
        order = self.order
        marks = order.first_thread[wave] + lane | (order.now * MOMENT | update * UPDATE)
        return marks, order.since[wave] * MOMENT

    def _join(self, at: np.ndarray, before: np.ndarray, after: np.ndarray, mine: np.ndarray, since: np.ndarray) -> None:
        """Let marks stand for several who have read."""
        flags = np.zeros(at.shape, i64)
        for other in (before, after):
            differs, near = other ^ mine, other >= since
            flags |= np.where(near | (other > 0 if not self.own else False), other & (WAVES | GROUPS), 0)
            flags |= WAVES * (near & (differs & self.order.wave != 0))
            if not self.own:
                flags |= GROUPS * ((other > 0) & (differs & self.order.group != 0))
        for kinds in (WAVES, GROUPS):  # whose mark has more of them stays
            chosen = flags & kinds != 0
            self.was_read[at[chosen]] = (after | flags)[chosen]

    def _compare(
        self, at: np.ndarray, marks: np.ndarray, mine: np.ndarray, since: np.ndarray, does: str, did: str,
        changed: Places | None = None,
    ) -> None:  # fmt: skip
        """KernelFault where what was done is of another wave, and nothing orders the two."""
        bad = marks >= since
        if self.own and not bad.any():
            return
        bad &= (((marks ^ mine) & self.order.wave) | marks & WAVES) != 0
        if not self.own:
            far = (marks > 0) & (((marks ^ mine) & self.order.group | marks & GROUPS) != 0)
            bad = bad & ~far
            if not self.order.exchange:
                bad = bad | far
        bad &= marks & mine & UPDATE == 0
        if not bad.any() or (changed is not None and not (bad := bad & changed()).any()):
            return
        fault = self._race(marks, mine, bad, does, did)
        if self.excused is None or (does, did) == ("writes", "written"):
            raise fault
        mine, since = np.broadcast_to(mine, bad.shape), np.broadcast_to(since, bad.shape)
        if does == "reads":
            self._excuse(fault, at[bad], marks[bad])
        else:
            self._excuse(fault, at[bad], mine[bad], since[bad])

    def _excuse(self, fault: KernelFault, at: np.ndarray, stores: np.ndarray, firsts: np.ndarray | None = None) -> None:
        """Note stores beside which something is loaded: a fault, unless what the loads find changes nothing."""
        self.fault = self.fault or fault
        starts = [NEVER] * len(at) if firsts is None else firsts.tolist()
        for place, store, first in zip(at.tolist(), stores.tolist(), starts, strict=True):
            self.excused.setdefault(place, []).append((store, first))  # type: ignore[union-attr]

    def doubtful(
        self, known: dict[int, list[tuple[int, int]]], at: np.ndarray, wave: np.ndarray, lane: np.ndarray
    ) -> np.ndarray:
        """Which loads are beside stores that are known [access, lane]."""
        mine, since = self._mine(wave, lane, False)
        mine, since = np.broadcast_to(mine, at.shape), np.broadcast_to(since, at.shape)
        found = np.zeros(at.shape, bool)
        for place in zip(*np.nonzero(np.isin(at, list(known))), strict=True):
            own, floor = int(mine[place]), int(since[place])
            found[place] = any(self._beside(own, floor, *store) for store in known[int(at[place])])
        return found

    def _beside(self, load: int, since: int, store: int, first: int) -> bool:
        """Whether nothing orders a load by a thread, whose last barrier was then, and a store."""
        if (load ^ store) & self.order.group & THREAD:
            return True
        return bool((load ^ store) & self.order.wave) and (store >= since if load > store else load >= first)

    def _race(self, marks: np.ndarray, mine: np.ndarray, bad: np.ndarray, does: str, did: str) -> KernelFault:
        place = tuple(int(numbers[0]) for numbers in np.nonzero(bad))
        mark, own = int(marks[place]), int(np.broadcast_to(mine, marks.shape)[place])
        (group, wave, lane), (other_group, other_wave, other_lane) = self.order.names(own), self.order.names(mark)
        mine_is, when = f"wave {wave}", ""
        if mark & GROUPS or other_group != group:
            who = "several workgroups have" if mark & GROUPS else f"workgroup {other_group} has"
        elif mark & WAVES or other_wave != wave:
            who, when = "several waves have" if mark & WAVES else f"wave {other_wave} has", " since the last barrier"
        else:
            mine_is, who, when = f"{mine_is}, lane {lane},", f"lane {other_lane} has", " by the same instruction"
        return KernelFault(f"a race in {self.what}, workgroup {group}: {mine_is} {does} what {who} {did}{when}")
