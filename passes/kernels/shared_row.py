"""A row of attention's result, of whose positions lanes, subgroups and blocks have taken their shares."""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, store_log_sum, store_result
from lispgpt.passes.kernels.lane_shares import Share
from lispgpt.passes.kernels.softmax import Running, join
from lispgpt.passes.model.attention import Attention
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class Element:
    """One that a thread writes of a row's result: where in it, and whether it lies in the row at all."""

    d: Index
    live: ir.Value


@dataclass(frozen=True)
class SharedRow:
    """place: the row's leading indices.  lanes: that hold one position together.  threads: of a block, each of whose
    `subgroups` has a share, as has each of `parts` blocks of a cluster.  value: a lane's part of the result."""

    kernel: ir.Operation
    attention: Attention
    target: Gpu
    place: Place
    lanes: int
    subgroups: int
    parts: int
    part: Index
    thread: Index
    value: Share

    @property
    def threads(self) -> int:
        return self.subgroups * self.target.subgroup

    def join(self, running: Running) -> None:
        """Join lanes, then subgroups, then blocks; write the row's result."""
        lane, subgroup = (op(self.thread, self.target.subgroup) for op in (b.mod, b.div))
        distance = self.lanes
        while distance < self.target.subgroup:
            running = running.exchange(distance, self.target)
            distance *= 2
        depth = self.attention.width
        sums, facts = b.shared([self.subgroups, depth], b.f32()), b.shared([self.subgroups, 2], b.f32())

        def publish() -> None:
            b.store(running.sums, sums, [subgroup, self.value.start])
            b.store(running.top, facts, [subgroup, 0])
            b.store(running.total, facts, [subgroup, 1])

        owner = b.less(lane, self.lanes)
        b.if_live(b.both(owner, self.value.live), publish)
        b.barrier()
        ranks = range(self.subgroups)
        tops, totals = ([b.load(facts, [i, j], 1) for i in ranks] for j in range(2))
        places = [b.add(self.thread, first) for first in range(0, depth, self.threads)]
        elements = [Element(b.mod(place, depth), b.less(place, depth)) for place in places]
        shares = [join(tops, totals, [b.load(sums, [i, e.d], 1) for i in ranks], self.target) for e in elements]
        if self.parts > 1:
            self._join_blocks(elements, shares)
        else:
            self._store(elements, shares)

    def _join_blocks(self, elements: list[Element], joined: list[Running]) -> None:
        """Let the first block of the cluster join what all of them have, while the others keep their memory for it."""
        depth = self.attention.width
        shares = b.shared([depth + 2], b.f32())

        def publish(d: Index, share: Running) -> None:
            b.store(share.sums, shares, [d])
            b.store(share.top, shares, [depth])
            b.store(share.total, shares, [depth + 1])

        def column(at: Index) -> list[ir.Value]:
            return [self.target.cluster_load(shares, at, rank) for rank in range(self.parts)]

        def finish() -> None:
            tops, totals = column(depth), column(depth + 1)
            self._store(elements, [join(tops, totals, column(e.d), self.target) for e in elements])

        for element, share in zip(elements, joined, strict=True):
            b.if_then(element.live, partial(publish, element.d, share))
        self.target.cluster_barrier()
        b.if_then(b.equal(self.part, 0), finish)
        self.target.cluster_leave()

    def _store(self, elements: list[Element], joined: list[Running]) -> None:
        for element, share in zip(elements, joined, strict=True):
            result = b.binary("arith.divf", share.sums, share.total)
            where = self.attention.out.index(self.place, None, element.d)
            b.if_then(element.live, partial(store_result, self.kernel, self.attention, result, where))
        log_sum = partial(store_log_sum, self.kernel, self.attention, self.place, joined[0].top, joined[0].total)
        if self.attention.log_sum:
            b.if_then(b.equal(self.thread, 0), log_sum)
