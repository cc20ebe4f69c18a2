"""schedule-gpu-attention: attention over the cache, split over positions, scores never in memory.

Before: writes of keys and values into the cache; scores, mask, softmax over all positions, weighted sum.
After:  one group of blocks for each row and head.  A few neighbouring lanes hold one position's key and value in
        16-byte vectors; lanes, subgroups and (where the target has clusters) blocks take positions in turn and join
        their running softmax.  A row that is alone in its sequence writes its own key and value on the way; with
        several rows a launch of its own writes them first.

Requires: what plan-arena ensures.
Ensures: kernels of kind "attention" have only scalar and vector ops, a grid and a block.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial
from math import prod
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import kernel_functions, shape_of
from lispgpt.passes.base import Pass
from lispgpt.passes.kernels.attention import Attention, parse_attention
from lispgpt.passes.kernels.kernel import calls_of, constant_arguments, coordinates, refusable, reschedule
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.softmax import Running, empty, join
from lispgpt.passes.kernels.team import subgroup_reduce
from lispgpt.passes.model.kernel_work import divide_work
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class ScheduleGpuAttention(Pass):
    """subgroups: of a block that shares its row with others; twice as many else.
    unroll: positions that a lane has in flight."""

    name: ClassVar[str] = "schedule-gpu-attention"
    subgroups: int = 4
    unroll: int = 4

    def run(self, module: ir.Module, target: Gpu) -> None:
        for kernel in kernel_functions(module, "attention"):
            if "grid" in kernel.attributes:
                continue
            with refusable(kernel):
                if parse_attention(kernel).shape[1] > 1:
                    split_off_writes(module, kernel, target)
                attention = parse_attention(kernel)
                _Schedule(kernel, attention, constant_arguments(module, kernel), target, self).emit()


def split_off_writes(module: ir.Module, kernel: ir.Operation, target: Gpu) -> None:
    """Give the cache writes a kernel of their own, called ahead of the attention with the same operands."""
    name = ir.StringAttr(kernel.attributes["sym_name"]).value + "_write"
    with ir.InsertionPoint(kernel):
        copy = kernel.clone().operation
    copy.attributes["sym_name"] = ir.StringAttr.get(name)
    copy.attributes["kernel"] = ir.StringAttr.get("cache-write")
    divide_work(kernel, copy)
    for call in calls_of(module, kernel):
        attributes = {"callee": ir.FlatSymbolRefAttr.get(name)}
        create_op("func.call", list(call.operands), [], attributes, loc=call.location, ip=ir.InsertionPoint(call))
    attention = parse_attention(copy)
    shape = shape_of(attention.writes[0].source)
    width = b.largest_width(shape[-1], 4, target.vector_bytes)
    vectors = prod(shape) // width
    threads = min(target.max_threads, -(-vectors // target.subgroup) * target.subgroup)

    def emit() -> None:
        reader = Reader(target)
        target.dependency_release()
        target.dependency_wait()
        for number in range(-(-vectors // threads)):
            _write_rows(attention, reader, b.add(b.thread_id(), number * threads), width)

    reschedule(copy, [prod(attention.shape[:2])], [threads], target, emit)


def _write_rows(attention: Attention, reader: Reader, vector: Index, width: int) -> None:
    shape = shape_of(attention.writes[0].source)

    def write() -> None:
        with reader.scope():
            index = coordinates(b.mul(vector, width), shape)
            for one in attention.writes:
                value = one.read(reader, b.block_id(), index, width)
                b.store(value, attention.cache, one.place(reader, b.block_id(), index))

    b.if_then(b.less(vector, prod(shape) // width), write)


def lane_width(depth: int, one_load: int, subgroup: int) -> int:
    """Neighbours that one lane takes of a position's vectors, so that a subgroup holds them: whole loads, if need be
    several, that divide the depth."""
    widths = range(one_load, depth + 1, one_load)
    return next(width for width in widths if depth % width == 0 and depth // width <= subgroup)


@dataclass(frozen=True)
class Element:
    """One that a thread writes of a row's result: where in it, and whether it lies in the row at all."""

    d: Index
    live: ir.Value


class _Schedule:
    def __init__(
        self,
        kernel: ir.Operation,
        attention: Attention,
        constants: set[ir.Value],
        target: Gpu,
        options: ScheduleGpuAttention,
    ) -> None:
        self.kernel, self.attention, self.target = kernel, attention, target
        self.constants = constants
        self.alone = attention.shape[1] == 1
        cache_bytes = b.item_bytes(attention.cache.type)
        one_load = b.largest_width(attention.depth, cache_bytes, target.vector_bytes)
        self.width = lane_width(attention.depth, one_load, target.subgroup)
        self.lanes = 1
        while self.lanes * self.width < attention.depth:
            self.lanes *= 2
        tasks = prod(attention.shape)
        self.parts = target.cluster if tasks * 2 <= target.cores else 1
        self.subgroups = options.subgroups * (1 if self.parts > 1 else 2)
        self.unroll = max(1, options.unroll * one_load // self.width)
        self.threads = self.subgroups * target.subgroup
        self.teams = target.subgroup // self.lanes
        self.stride = self.parts * self.subgroups * self.teams

    def emit(self) -> None:
        grid = prod(self.attention.shape) * self.parts
        reschedule(self.kernel, [grid], [self.threads], self.target, self._body)
        if self.parts > 1:
            self.target.set_cluster(self.kernel, self.parts)

    def _body(self) -> None:
        thread, block = b.thread_id(), b.block_id()
        self.part = b.mod(block, self.parts)
        self.place = coordinates(b.div(block, self.parts), self.attention.shape)
        self.row = b.add(b.mul(self.place[0], self.attention.shape[1]), self.place[1])
        self.thread, self.lane = thread, b.mod(thread, self.target.subgroup)
        self.subgroup = b.div(thread, self.target.subgroup)
        start = b.mul(b.mod(self.lane, self.lanes), self.width)
        self.live = None if self.lanes * self.width == self.attention.depth else b.less(start, self.attention.depth)
        self.d = start if self.live is None else b.select(self.live, b.as_value(start), b.as_value(0))
        self.reader = Reader(self.target)
        for tensor in self.attention.updated:
            self.reader.bind(tensor, lambda index, width: b.load(self.attention.cache, index, width))
        self.target.dependency_release()
        early = self._can_look_early()
        if not early:
            self.target.dependency_wait()
        self.last = self.attention.last_position(self.reader, self.place)
        self.end = self.last if self.alone else b.add(self.last, 1)
        first = b.add(
            b.mul(b.add(b.mul(self.part, self.subgroups), self.subgroup), self.teams), b.div(self.lane, self.lanes)
        )
        fetched = self._fetch(first)
        if early:
            self.target.dependency_wait()
        self._attend(first, fetched)

    def _can_look_early(self) -> bool:
        """Whether earlier rows of the cache may be read while earlier launches still run: they write elsewhere."""
        bound = self.attention.bound
        if not (self.alone and self.target.early_launch) or bound is None:
            return False
        return self.reader.depends_only_on(bound[0], self.constants)

    def _attend(self, first: Index, fetched: list[ir.Value]) -> None:
        query_index = self.attention.query_index(self.place, self.d)
        query = b.extend(self.reader.read(self.attention.scores.operands[0], query_index, self.width))
        self.query = query if self.live is None else b.select(self.live, query, b.constant(0.0, query.type))
        running = self._own_position() if self.alone else empty(self.width)
        step = self.stride * self.unroll
        count = len(fetched)

        def body(t: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._fetch(b.add(t, step))
                state = Running(*carried[:3]).include(*self._scored(t, list(carried[3:])), self.target)
            return [*state.values(), *following]

        # Every lane goes round as often as the first of its subgroup, because they exchange values.
        lead = b.binary("arith.subi", b.as_value(first), b.as_value(b.div(self.lane, self.lanes)))
        lag = b.div(self.lane, self.lanes)
        results = b.loop(
            lead, self.end, step, [*running.values(), *fetched], lambda t, *rest: body(b.add(t, lag), *rest)
        )
        assert len(results) == 3 + count
        self._join(Running(*results[:3]))

    def _fetch(self, t: Index) -> list[ir.Value]:
        """Keys, then values, of the lane's next positions; position 0's where there are no more."""
        attention = self.attention
        keys, values = [], []
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            at = b.select(b.less(at, self.end), b.as_value(at), b.as_value(0))
            key_index = attention.key_index(self.place, at, self.d)
            keys.append(self.reader.read(attention.scores.operands[1], key_index, self.width))
            value_index = attention.value_index(self.place, at, self.d)
            values.append(self.reader.read(attention.weighted.operands[1], value_index, self.width))
        return keys + values

    def _scored(self, t: Index, fetched: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Scores of the lane's positions (-inf past the end) and their values (0 past the end)."""
        scores, rows = [], []
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            inside = b.less(at, self.end)
            score = self._masked(self._dot(b.extend(fetched[u])), at)
            scores.append(b.select(inside, score, b.constant(float("-inf"), b.f32())))
            row = b.extend(fetched[self.unroll + u])
            rows.append(b.select(inside, row, b.constant(0.0, row.type)))
        return scores, rows

    def _dot(self, key: ir.Value) -> ir.Value:
        product = b.horizontal("arith.addf", b.binary("arith.mulf", self.query, key))
        return subgroup_reduce("arith.addf", product, self.lanes, self.target.subgroup)

    def _masked(self, score: ir.Value, t: Index) -> ir.Value:
        """What the ops between product and softmax make of a score."""
        self.reader.bind(self.attention.scores.results[0], lambda index, width: score)
        return self.reader.read(self.attention.softmax.operands[0], [*self.place, t])

    def _own_position(self) -> Running:
        """The row's own key and value: one team takes them in, and one for each cached head writes them."""
        key, value = (self._own(number) for number in range(2))
        score = self._masked(self._dot(b.extend(key)), self.last)
        is_first = b.equal(b.add(b.mul(self.part, self.threads), b.div(self.thread, self.lanes)), 0)
        score = b.select(is_first, score, b.constant(float("-inf"), b.f32()))
        return empty(self.width).include([score], [b.extend(value)], self.target)

    def _own(self, number: int) -> ir.Value:
        """The row's own key or value, written to the cache on the way."""
        attention, write = self.attention, self.attention.writes[number]
        whole = (attention.key_index if number == 0 else attention.value_index)(self.place, self.last, self.d)
        index = [*whole[1:-2], self.d]
        value = write.read(self.reader, self.row, index, self.width)
        place = write.place(self.reader, self.row, index)
        writes = b.less(b.add(b.mul(self.part, self.threads), self.thread), self.lanes)
        if self.live is not None:
            writes = b.binary("arith.andi", writes, self.live)
        b.if_then(writes, lambda: b.store(value, attention.cache, place))
        return value

    def _join(self, running: Running) -> None:
        """Join lanes, then subgroups, then blocks; write the row's result."""
        distance = self.lanes
        while distance < self.target.subgroup:
            running = running.exchange(distance, self.target)
            distance *= 2
        depth = self.attention.depth
        sums, facts = b.shared([self.subgroups, depth], b.f32()), b.shared([self.subgroups, 2], b.f32())

        def publish() -> None:
            b.store(running.sums, sums, [self.subgroup, self.d])
            b.store(running.top, facts, [self.subgroup, 0])
            b.store(running.total, facts, [self.subgroup, 1])

        owner = b.less(self.lane, self.lanes)
        b.if_then(owner if self.live is None else b.binary("arith.andi", owner, self.live), publish)
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
        depth = self.attention.depth
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
        self.target.cluster_barrier()

    def _store(self, elements: list[Element], joined: list[Running]) -> None:
        for element, share in zip(elements, joined, strict=True):
            result = b.binary("arith.divf", share.sums, share.total)
            b.if_then(element.live, partial(b.store, result, self.attention.out_buffer, [*self.place, element.d]))
