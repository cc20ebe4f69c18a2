"""schedule-gpu-attention: attention row by row, split over positions, scores never in memory.

Before: scores, what is made of them, softmax over all positions, weighted sum; often writes of keys and values to a
        cache ahead of them.
After:  one group of blocks for each row and head, or for some heads that look at the same keys, where there is
        enough to do without.  A few neighbouring lanes hold one position's key and value in 16-byte vectors; lanes,
        subgroups and (where the target has clusters) blocks take positions in turn and join their running softmax.  A
        row that is alone in its sequence writes its own key and value on the way; with several rows a launch of its
        own writes them first.

Requires: what plan-arena ensures.
Ensures: kernels of kind "attention" whose attribute says what they are, and of kind "cache-write", have only scalar and
vector ops, a grid and a block.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import unscheduled_kernels
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.attention import (
    bind_cache,
    cache_of,
    first_position,
    last_position,
    own_index,
    own_row,
    place_of_row,
    read_operand,
    read_row,
    score_at,
    store_log_sum,
    store_result,
)
from lispgpt.passes.kernels.cache_rows import schedule_writes, split_off_writes
from lispgpt.passes.kernels.kernel import constant_arguments, coordinates, reschedule
from lispgpt.passes.kernels.packed_rows import packed_kind
from lispgpt.passes.kernels.packed_shares import PackedShare
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.softmax import Running, empty, join
from lispgpt.passes.kernels.team import subgroup_reduce
from lispgpt.passes.kernels.views import depends_only_on
from lispgpt.passes.recognise.attention import Attention, attention_of
from lispgpt.passes.recognise.cache_writes import CacheWrite
from lispgpt.passes.schedule.attention.lane_loads import LaneLoads, Row
from lispgpt.passes.schedule.attention.lane_shares import lane_share, lane_width, one_load
from lispgpt.passes.states import PLACED
from lispgpt.passes.targets import Gpu

MANY = 4
"""Times as many subgroups as for a row of a step."""
FEWEST_BLOCKS = 2
"""Blocks of a core that there are at least where one has several heads: of 64 sequences at 1000 of Llama-3.2-1B a
layer's attention then takes 46 us on an H200, and 79 with one each; with fewer blocks it takes longer."""
NUMBERS = 32
"""Of all its heads' queries, and as many of their sums, that a lane holds at most where a block has several."""


@dataclass(frozen=True)
class ScheduleGpuAttention(Pass):
    """subgroups: of a block that shares its row with others, or has several heads; twice as many else, and four times
    as many where rows are the last of many, so that they see much, and each block has a core of its own.
    unroll: positions that a lane has in flight."""

    starts_from = (PLACED,)
    only_faster = True
    subgroups: int = 4
    unroll: int = 4

    def run(self, module: ir.Module, target: Gpu) -> None:
        for kernel in unscheduled_kernels(module, "attention"):
            attention = attention_of(kernel)
            if attention is None:
                continue
            if attention.writes and not attention.alone:
                attention = split_off_writes(module, kernel, target)
            _RowAttention(kernel, attention, constant_arguments(module)(kernel), target, self).emit()
        for kernel in unscheduled_kernels(module, "cache-write"):
            schedule_writes(kernel, target)


@dataclass(frozen=True)
class Element:
    """One that a thread writes of a row's result: where in it, and whether it lies in the row at all."""

    d: Index
    live: ir.Value


class _RowAttention:
    def __init__(
        self,
        kernel: ir.Operation,
        attention: Attention,
        constants: set[ir.Value],
        target: Gpu,
        options: ScheduleGpuAttention,
    ) -> None:
        self.kernel, self.attention, self.target = kernel, attention, target
        self.constants, self.alone = constants, attention.alone
        self.widths = [lane_width(operand, target) for operand in (attention.keys, attention.values)]
        shares = zip((attention.depth, attention.width), self.widths, strict=True)
        needed = max(-(-depth // width) for depth, width in shares)
        self.lanes = 1 << (needed - 1).bit_length()
        self.member, self.members = self._members()
        tasks = prod(attention.extents)
        self.parts = target.cluster if self.members == 1 and tasks * 2 <= target.cores else 1
        last = not self.alone and self.parts > 1 and tasks * self.parts <= target.cores
        self.subgroups = options.subgroups * (MANY if last else 1 if self.parts > 1 or self.members > 1 else 2)
        self.unroll = max(1, options.unroll * one_load(attention.keys, target) // self.widths[0])
        self.threads = self.subgroups * target.subgroup
        self.teams = target.subgroup // self.lanes
        self.stride = self.parts * self.subgroups * self.teams

    def _members(self) -> tuple[int, int]:
        """The loop of heads that look at the same keys, and how many of them a block has, which then reads these once
        for all."""
        attention, target = self.attention, self.target
        dims = [d for d in attention.query_dims if attention.extents[d] > 1]
        bounds = [bound for bound in (attention.lower, attention.upper) if bound is not None]
        if not self.alone or len(dims) != 1 or any(dims[0] in bound.dims() for bound in bounds):
            return 0, 1
        most, tasks = NUMBERS // max(self.widths), prod(attention.extents)
        divisors = [n for n in range(1, most + 1) if attention.extents[dims[0]] % n == 0]
        enough = [n for n in divisors if tasks // n >= FEWEST_BLOCKS * target.cores]
        return dims[0], max(enough, default=1)

    def emit(self) -> None:
        grid = prod(self.attention.extents) // self.members * self.parts
        reschedule(self.kernel, [grid], [self.threads], self.target, self._body)
        if self.parts > 1:
            self.target.set_cluster(self.kernel, self.parts)

    def _body(self) -> None:
        thread, block = b.thread_id(), b.block_id()
        self.part = b.mod(block, self.parts)
        extents = list(self.attention.extents)
        extents[self.member] //= self.members
        place = coordinates(b.div(block, self.parts), extents)
        self.places = [list(place) for _ in range(self.members)]
        for number, one in enumerate(self.places if self.members > 1 else ()):
            one[self.member] = b.add(b.mul(place[self.member], self.members), number)
        self.place = self.places[0]
        self.thread, self.lane = thread, b.mod(thread, self.target.subgroup)
        self.subgroup = b.div(thread, self.target.subgroup)
        operands = (self.attention.keys, self.attention.values)
        lane = b.mod(self.lane, self.lanes)
        self.key, self.value = (lane_share(operand, lane, self.lanes, self.target) for operand in operands)
        self.reader = Reader(self.target)
        bind_cache(self.attention, self.reader)
        self.keys, self.values = (
            LaneLoads(operand, share, self.reader, self.target)
            for operand, share in zip(operands, (self.key, self.value), strict=True)
        )
        self.target.dependency_release()
        early = self._can_look_early()
        if not early:
            self.target.dependency_wait()
        self.last = last_position(self.attention, self.reader, self.place)
        self.end = self.last if self.alone else b.add(self.last, 1)
        first = b.add(
            b.mul(b.add(b.mul(self.part, self.subgroups), self.subgroup), self.teams), b.div(self.lane, self.lanes)
        )
        first = b.add(first, first_position(self.attention, self.reader, self.place))
        fetched = self._fetch(first)
        if early:
            self.target.dependency_wait()
        self._attend(first, fetched)

    def _can_look_early(self) -> bool:
        """Whether earlier rows of the cache may be read while earlier launches still run: they write elsewhere."""
        bound = self.attention.upper
        if not (self.alone and self.target.early_launch) or bound is None:
            return False
        lower = self.attention.lower
        tensors = bound.tensors() + (lower.tensors() if lower else [])
        return all(depends_only_on(tensor, self.constants) for tensor in tensors)

    def _attend(self, first: Index, fetched: list[ir.Value]) -> None:
        queries = self.attention.queries
        read = [
            read_operand(self.reader, queries, place, None, self.key.start, self.key.width) for place in self.places
        ]
        self.queries = [self.key.within(b.extend(query)) for query in read]
        running = self._own_position() if self.alone else [empty(self.value.width)]
        step = self.stride * self.unroll
        count, held = len(fetched), 3 * self.members

        def body(t: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._fetch(b.add(t, step))
                scores, rows = self._scored(t, list(carried[held:]))
                before = _running(carried[:held])
                states = [one.include(own, rows, self.target) for one, own in zip(before, scores, strict=True)]
            return [*_values(states), *following]

        # Every lane goes round as often as the first of its subgroup, because they exchange values.
        lead = b.binary("arith.subi", b.as_value(first), b.as_value(b.div(self.lane, self.lanes)))
        lag = b.div(self.lane, self.lanes)
        results = b.loop(
            lead, self.end, step, [*_values(running), *fetched], lambda t, *rest: body(b.add(t, lag), *rest)
        )
        assert len(results) == held + count
        self._join(_running(results[:held]))

    def _fetch(self, t: Index) -> list[ir.Value]:
        """Keys, then values, of the lane's next positions; position 0's where there are no more."""
        keys, values = [], []
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            at = b.or_zero(b.less(at, self.end), at)
            keys += self.keys.load(self.place, at)
            values += self.values.load(self.place, at)
        return keys + values

    def _scored(self, t: Index, fetched: list[ir.Value]) -> tuple[list[list[ir.Value]], list[Row]]:
        """Each head's scores of the lane's positions (-inf past the end) and their values (0 past the end)."""
        scores: list[list[ir.Value]] = [[] for _ in self.places]
        rows, of_key, of_value = [], self.keys.count, self.values.count
        keys, values = fetched[: self.unroll * of_key], fetched[self.unroll * of_key :]
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            inside = b.less(at, self.end)
            there = b.or_zero(inside, at) if self.attention.biased else at
            key = self.keys.made(keys[u * of_key : (u + 1) * of_key])
            for own, score in zip(scores, self._scores(key, there), strict=True):
                own.append(b.select(inside, score, b.constant(float("-inf"), b.f32())))
            rows.append(self.values.made_where(inside, values[u * of_value : (u + 1) * of_value]))
        return scores, rows

    def _scores(self, row: Row, t: Index) -> list[ir.Value]:
        """Each head's of one position."""
        found, (key, factor) = [], row
        for place, query in zip(self.places, self.queries, strict=True):
            product = _product(query, key, self.target)
            score = subgroup_reduce("arith.addf", product, self.lanes, self.target.subgroup)
            score = score if factor is None else b.binary("arith.mulf", score, factor)
            found.append(score_at(self.reader, self.attention, place, t, score))
        return found

    def _own_position(self) -> list[Running]:
        """The row's own key and value: one team takes them in, and one for each cached head writes them."""
        key, value = (self._own(number) for number in range(2))
        scores = self._scores((b.extend(key), None), self.last)
        is_first = b.equal(b.add(b.mul(self.part, self.threads), b.div(self.thread, self.lanes)), 0)
        scores = [b.select(is_first, score, b.constant(float("-inf"), b.f32())) for score in scores]
        row = b.extend(value), None
        return [empty(self.value.width).include([score], [row], self.target) for score in scores]

    def _own(self, number: int) -> ir.Value:
        """The row's own key or value, written to the cache on the way."""
        attention, share = self.attention, (self.key, self.value)[number]
        write, row = attention.writes[number], own_row(attention, self.place)
        if packed_kind((attention.keys, attention.values)[number].tensor):
            return self._own_packed(number, write, row)
        index = own_index(attention, number, self.place, share.start)
        value = read_row(write, self.reader, row, index, share.width)
        place = place_of_row(write, self.reader, row, index)
        writes = b.less(b.add(b.mul(self.part, self.threads), self.thread), self.lanes)
        b.if_live(b.both(writes, share.live), lambda: b.store(value, cache_of(attention), place))
        return value

    def _own_packed(self, number: int, write: CacheWrite, row: Index) -> ir.Value:
        """The same where it is packed first: what it stands for then."""
        attention, share = self.attention, (self.key, self.value)[number]
        self.reader.indices[write.counter] = row
        first = own_index(attention, number, self.place, 0)
        part = PackedShare.of(write.source, first, share.start, share.width, self.reader)
        numbers, head = part.bytes(self.reader, self.lane, self.lanes, self.target)

        def put(value: ir.Value, byte: Index) -> None:
            index = own_index(attention, number, self.place, byte)
            b.store(value, cache_of(attention), place_of_row(write, self.reader, row, index))

        writes = b.less(b.add(b.mul(self.part, self.threads), self.thread), self.lanes)
        b.if_live(b.both(writes, share.live), lambda: part.store(numbers, head, put))
        return part.numbers(numbers, head, self.target)

    def _join(self, running: list[Running]) -> None:
        """Join lanes, then subgroups, then blocks; write the rows' results."""
        distance = self.lanes
        while distance < self.target.subgroup:
            running = [one.exchange(distance, self.target) for one in running]
            distance *= 2
        depth, rows = self.attention.width, self.members * self.subgroups
        sums, facts = b.shared([rows, depth], b.f32()), b.shared([rows, 2], b.f32())

        def publish() -> None:
            for number, one in enumerate(running):
                row = b.add(self.subgroup, number * self.subgroups)
                b.store(one.sums, sums, [row, self.value.start])
                b.store(one.top, facts, [row, 0])
                b.store(one.total, facts, [row, 1])

        owner = b.less(self.lane, self.lanes)
        b.if_live(b.both(owner, self.value.live), publish)
        b.barrier()
        places = [b.add(self.thread, first) for first in range(0, depth, self.threads)]
        elements = [Element(b.mod(place, depth), b.less(place, depth)) for place in places]
        shares = []
        for first in range(0, rows, self.subgroups):
            ranks = range(first, first + self.subgroups)
            tops, totals = ([b.load(facts, [i, j], 1) for i in ranks] for j in range(2))
            own = [join(tops, totals, [b.load(sums, [i, e.d], 1) for i in ranks], self.target) for e in elements]
            shares.append(own)
        if self.parts > 1:
            self._join_blocks(elements, *shares)
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
            self._store(elements, [[join(tops, totals, column(e.d), self.target) for e in elements]])

        for element, share in zip(elements, joined, strict=True):
            b.if_then(element.live, partial(publish, element.d, share))
        self.target.cluster_barrier()
        b.if_then(b.equal(self.part, 0), finish)
        self.target.cluster_leave()

    def _store(self, elements: list[Element], joined: list[list[Running]]) -> None:
        for place, own in zip(self.places, joined, strict=True):
            for element, share in zip(elements, own, strict=True):
                result = b.binary("arith.divf", share.sums, share.total)
                where = self.attention.out.index(place, None, element.d)
                b.if_then(element.live, partial(store_result, self.kernel, self.attention, result, where))
            log_sum = partial(store_log_sum, self.kernel, self.attention, place, own[0].top, own[0].total)
            if self.attention.log_sum:
                b.if_then(b.equal(self.thread, 0), log_sum)


def _product(one: ir.Value, other: ir.Value, target: Gpu) -> ir.Value:
    """The sum of the products of two vectors' elements: in two chains, but where the compiler would spill registers for
    them."""
    if not target.makes_room:
        return b.horizontal("arith.addf", b.binary("arith.mulf", one, other))
    pairs = [(b.lane_of(one, i), b.lane_of(other, i)) for i in range(b.width_of(one))]
    chains = [b.binary("arith.mulf", x, y) for x, y in pairs[:2]]
    for number, (x, y) in enumerate(pairs[2:]):
        chains[number % 2] = b.fma(x, y, chains[number % 2])
    return chains[0] if len(chains) == 1 else b.binary("arith.addf", *chains)


def _values(running: Sequence[Running]) -> list[ir.Value]:
    return [value for one in running for value in one.values()]


def _running(values: Sequence[ir.Value]) -> list[Running]:
    """The reverse."""
    return [Running(*values[i : i + 3]) for i in range(0, len(values), 3)]
