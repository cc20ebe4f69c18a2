"""What is ordered before what, for the race detector: vector clocks of warps and of what goes on by itself.

An agent is a warp, a warp's copies or matrix instructions, or a barrier in shared memory for all that it counts.  Each
has a clock.  A warp's view says for each agent up to which of its moments all is over, in three senses:

known: what it wrote is there for this warp.
fenced: of a warp, also for bulk copies: it has gone through a fence between its own accesses and theirs.
past: it has happened, so that writing in its place harms nobody; this also follows from what a warp was told by words
and by stores to its memory which say nothing of other memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

KNOWN, FENCED, PAST = 0, 1, 2
COPIES, STORES_READ, STORES, MATRICES = 1, 2, 3, 4
"""A warp's agents beside itself: cp.async, bulk stores reading and writing, wgmma reading."""
View = np.ndarray
"""[sense agent]."""


class Clocks:
    """count: of warps."""

    def __init__(self, count: int) -> None:
        self.count, self.agents = count, 5 * count
        self.views = np.zeros((count, 3, 6 * count), np.int32)
        warps = np.arange(count)
        self.views[warps, KNOWN, warps] = self.views[warps, PAST, warps] = 1
        self._barriers: dict[tuple[int, int], int] = {}
        self._phases: dict[tuple[int, int], int] = {}
        self._coming: dict[object, View] = {}
        self._ended: dict[object, View] = {}
        self._held: dict[int, View] = {}
        self._words: dict[int, tuple[View, View]] = {}
        self._fences: dict[int, View] = {}
        self._seen: dict[int, View] = {}

    # ---- of a warp

    def now(self, warps: np.ndarray) -> np.ndarray:
        return self.views[warps, KNOWN, warps]

    def tell(self, warp: int) -> View:
        """What a warp can tell others; what it does from now on is not part of it."""
        view = self.views[warp].copy()
        self.views[warp, KNOWN, warp] += 1
        self.views[warp, PAST, warp] += 1
        return view

    def learn(self, warp: int, view: View | None, all_: bool = True) -> None:
        """all_: that it is there for this warp, and not only that it has happened."""
        if view is None:
            return
        first = KNOWN if all_ else FENCED
        mine = self.views[warp, first:, : view.shape[1]]
        np.maximum(mine, view[first:], out=mine)

    def over(self, warp: int, kind: int, moment: int, whose: int | None = None) -> None:
        """A warp has waited for its own copies or matrix instructions, or for those of its warpgroup's first warp."""
        agent = kind * self.count + (warp if whose is None else whose)
        for sense in (KNOWN, PAST):
            self.views[warp, sense, agent] = max(self.views[warp, sense, agent], moment)

    def fence_copies(self, warp: int) -> None:
        """fence.proxy.async: of what this warp itself has done."""
        own = [warp, COPIES * self.count + warp]
        self.views[warp, FENCED, own] = self.views[warp, KNOWN, own]
        self.tell(warp)

    # ---- barriers of threads

    def arrive(self, barrier: object, warps: Sequence[int]) -> None:
        view = self.views[warps].max(0)
        self.views[warps, KNOWN, warps] += 1
        self.views[warps, PAST, warps] += 1
        self._come(barrier, view)

    def open(self, barrier: object, warps: Sequence[int]) -> None:
        view = self._coming.pop(barrier, None)
        if view is not None:
            width = view.shape[1]
            self.views[warps, :, :width] = np.maximum(self.views[warps, :, :width], view)

    def hold(self, warps: Iterable[int], relaxed: bool) -> None:
        """They come to their cluster's barrier, where they will wait later."""
        for warp in warps:
            self._held[warp] = self.tell(warp) if not relaxed else self.views[warp] * 0

    def come(self, barrier: object, warps: Iterable[int]) -> None:
        for warp in warps:
            self._come(barrier, self._held.pop(warp))

    def _come(self, barrier: object, view: View) -> None:
        coming = self._coming.get(barrier)
        self._coming[barrier] = view if coming is None else self._joined(coming, view)

    def _joined(self, one: View, other: View) -> View:
        short, long = sorted((one, other), key=lambda v: v.shape[1])
        long = long.copy()
        np.maximum(long[:, : short.shape[1]], short, out=long[:, : short.shape[1]])
        return long

    # ---- barriers in shared memory

    def agent(self, barrier: tuple[int, int]) -> int:
        """Of what a barrier in shared memory counts."""
        if barrier not in self._barriers:
            self._barriers[barrier] = self.agents
            self.agents += 1
            if self.agents > self.views.shape[2]:
                more = np.zeros((self.count, 3, self.agents // 2), np.int32)
                self.views = np.concatenate([self.views, more], axis=2)
        return self._barriers[barrier]

    def phase(self, barrier: tuple[int, int]) -> int:
        """The moment at which what is counted now will be there."""
        return self._phases.get(barrier, 0) + 1

    def count_bytes(self, barrier: tuple[int, int], view: View) -> None:
        """Bytes have come, from somebody who had this view when they were sent."""
        agent = self.agent(barrier)
        mine = np.zeros((3, max(view.shape[1], agent + 1)), np.int32)
        mine[FENCED:, : view.shape[1]] = view[FENCED:]
        mine[KNOWN, agent] = mine[PAST, agent] = self.phase(barrier)
        self._come(barrier, mine)

    def end_phase(self, barrier: tuple[int, int]) -> None:
        self._phases[barrier] = self.phase(barrier)
        self._ended[barrier] = self._coming.pop(barrier, np.zeros((3, 1), np.int32))

    def pass_phase(self, barrier: tuple[int, int], warps: Iterable[int]) -> None:
        """They have found that the phase ended last is over."""
        for warp in warps:
            self.learn(warp, self._ended.get(barrier))

    # ---- words in global memory

    def fence(self, warp: int) -> None:
        """fence.acq_rel: in front of words that are stored, behind words that were read."""
        self.learn(warp, self._seen.get(warp))
        self._fences[warp] = self.tell(warp)

    def store_words(self, warp: int, places: Iterable[int], releases: bool, adds: bool) -> None:
        told = self.tell(warp)
        strong = told if releases else self._fences.get(warp, told * 0)
        for place in places:
            before = self._words.get(place) if adds else None
            after = (
                (told, strong) if before is None else (self._joined(before[0], told), self._joined(before[1], strong))
            )
            self._words[place] = after

    def load_word(self, warp: int, place: int, acquires: bool) -> None:
        told, strong = self._words.get(place, (None, None))
        if told is None or strong is None:
            return
        self.learn(warp, told, all_=False)
        if acquires:
            self.learn(warp, strong)
        self._seen[warp] = strong if warp not in self._seen else self._joined(self._seen[warp], strong)
