"""schedule-gpu-attention: attention row by row, split over positions, scores never in memory.

Before: scores, what is made of them, softmax over all positions, weighted sum; often writes of keys and values to a
        cache ahead of them.
After:  one group of blocks for each row and head.  A few neighbouring lanes hold one position's key and value in
        16-byte vectors; lanes, subgroups and (where the target has clusters) blocks take positions in turn and join
        their running softmax.  A row that is alone in its sequence writes its own key and value on the way; with
        several rows a launch of its own writes them first.

Requires: what plan-arena ensures.
Ensures: kernels of kind "attention" whose attribute says what they are, and of kind "cache-write", have only scalar and
vector ops, a grid and a block.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
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
)
from lispgpt.passes.kernels.block_memory import BlockMemory, fits
from lispgpt.passes.kernels.cache_rows import schedule_writes, split_off_writes
from lispgpt.passes.kernels.copied_positions import CopiedPositions, PositionSlots
from lispgpt.passes.kernels.kernel import constant_arguments, coordinates, reschedule
from lispgpt.passes.kernels.lane_shares import Share, lane_share, lane_width, one_load
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.shared_row import SharedRow
from lispgpt.passes.kernels.softmax import Running, empty
from lispgpt.passes.kernels.team import subgroup_reduce
from lispgpt.passes.kernels.views import depends_only_on
from lispgpt.passes.model.attention import Attention, attention_of
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.targets import Gpu


@dataclass(frozen=True)
class ScheduleGpuAttention(Pass):
    """subgroups: of a block that shares its row with others; twice as many else.
    unroll: positions that a lane has in flight.  copied: so many times these may be on their way to shared memory
    ahead of the wait for what is computed, where the target has copies for that; 0: they go to registers.
    beside: threads, of this launch and others, that a core is to have registers for where they are copied."""

    subgroups: int = 4
    unroll: int = 4
    copied: int = 2
    beside: int = 1024

    def run(self, module: ir.Module, target: Gpu) -> None:
        for kernel in unscheduled_kernels(module, "attention"):
            attention = attention_of(kernel)
            if attention is None:
                continue
            if attention.writes and not attention.alone:
                attention = split_off_writes(module, kernel, target)
            _Schedule(kernel, attention, constant_arguments(module)(kernel), target, self).emit()
        for kernel in unscheduled_kernels(module, "cache-write"):
            schedule_writes(kernel, target)


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
        self.constants, self.alone = constants, attention.alone
        self.widths = [lane_width(operand, target) for operand in (attention.keys, attention.values)]
        shares = zip((attention.depth, attention.width), self.widths, strict=True)
        needed = max(-(-depth // width) for depth, width in shares)
        self.lanes = 1 << (needed - 1).bit_length()
        tasks = prod(attention.extents)
        self.parts = target.cluster if tasks * 2 <= target.cores else 1
        self.subgroups = options.subgroups * (1 if self.parts > 1 else 2)
        self.unroll = max(1, options.unroll * one_load(attention.keys, target) // self.widths[0])
        self.threads = self.subgroups * target.subgroup
        self.teams = target.subgroup // self.lanes
        self.stride = self.parts * self.subgroups * self.teams
        self.early = self._can_look_early()
        self.slots = self._slots(options.copied) if self.early else None
        self.resident = options.beside // self.threads if self.slots is not None else 0

    def _slots(self, stages: int) -> PositionSlots | None:
        """Room for keys and values on their way through shared memory; None where they go to registers."""
        copies = self.target.thread_copies
        if copies is None or not stages:
            return None
        slots = PositionSlots(self.attention, copies, stages, self.unroll, self.threads, self.widths)
        if not slots.fits(self.target.aligned_rows):
            return None
        return slots if fits(self.target, sum(map(slots.nbytes, range(2))), False) else None

    def emit(self) -> None:
        grid = prod(self.attention.extents) * self.parts
        done = reschedule(self.kernel, [grid], [self.threads], self.target, self._body)
        if self.parts > 1:
            self.target.set_cluster(self.kernel, self.parts)
        if done and self.slots is not None:
            self.memory.record(self.kernel)
            if self.resident:
                self.target.set_residency(self.kernel, self.resident)

    def _body(self) -> None:
        thread, block = b.thread_id(), b.block_id()
        self.part = b.mod(block, self.parts)
        self.place = coordinates(b.div(block, self.parts), self.attention.extents)
        self.thread, self.lane = thread, b.mod(thread, self.target.subgroup)
        self.subgroup = b.div(thread, self.target.subgroup)
        operands = (self.attention.keys, self.attention.values)
        lane = b.mod(self.lane, self.lanes)
        self.key, self.value = (lane_share(operand, lane, self.lanes, self.target) for operand in operands)
        self.reader = Reader(self.target)
        bind_cache(self.attention, self.reader)
        self.target.dependency_release()
        if not self.early:
            self.target.dependency_wait()
        self.last = last_position(self.attention, self.reader, self.place)
        self.end = self.last if self.alone else b.add(self.last, 1)
        first = b.add(
            b.mul(b.add(b.mul(self.part, self.subgroups), self.subgroup), self.teams), b.div(self.lane, self.lanes)
        )
        first = b.add(first, first_position(self.attention, self.reader, self.place))
        if self.slots is not None:
            self._attend_copies(first, self.slots)
            return
        fetched = self._fetch(first)
        if self.early:
            self.target.dependency_wait()
        self._attend(first, fetched)

    def _attend_copies(self, first: Index, slots: PositionSlots) -> None:
        """With the lane's next positions on their way to shared memory."""
        nbytes = sum(map(slots.nbytes, range(2)))
        self.memory, shares = BlockMemory(self.target, nbytes, False), (self.key, self.value)
        copied = CopiedPositions(slots, self.memory, self.reader, self.place, shares, self.thread)
        step = self.stride * self.unroll
        for stage in range(slots.stages):
            copied.start(stage, self._live(b.add(first, stage * step)))
        self.target.dependency_wait()
        running = self._begin()

        def body(t: Index, stage: ir.Value, *carried: ir.Value) -> list[ir.Value]:
            slots.copies.wait(slots.stages - 1)
            with self.reader.scope():
                fetched = [copied.read(number, stage, u) for number in range(2) for u in range(self.unroll)]
                state = Running(*carried).include(*self._scored(t, fetched), self.target)
                copied.start(stage, self._live(b.add(t, slots.stages * step)))
            return [b.as_value(b.mod(b.add(stage, 1), slots.stages)), *state.values()]

        self._join(Running(*self._rounds(first, step, [b.as_value(0), *running.values()], body)[1:4]))

    def _live(self, t: Index) -> list[tuple[Index, ir.Value]]:
        """The lane's next positions, and whether there are such."""
        places = [b.add(t, u * self.stride) for u in range(self.unroll)]
        return [(at, b.less(at, self.end)) for at in places]

    def _begin(self) -> Running:
        """With the query, and with the row's own position where it is alone."""
        queries = self.attention.queries
        query = read_operand(self.reader, queries, self.place, None, self.key.start, self.key.width)
        self.query = self.key.within(b.extend(query))
        return self._own_position() if self.alone else empty(self.value.width)

    def _rounds(
        self, first: Index, step: int, carried: list[ir.Value], body: Callable[..., list[ir.Value]]
    ) -> list[ir.Value]:
        """Every lane goes round as often as the first of its subgroup, because they exchange values."""
        lead = b.binary("arith.subi", b.as_value(first), b.as_value(b.div(self.lane, self.lanes)))
        lag = b.div(self.lane, self.lanes)
        return b.loop(lead, self.end, step, carried, lambda t, *rest: body(b.add(t, lag), *rest))

    def _can_look_early(self) -> bool:
        """Whether earlier rows of the cache may be read while earlier launches still run: they write elsewhere."""
        bound = self.attention.upper
        if not (self.alone and self.target.early_launch) or bound is None:
            return False
        lower = self.attention.lower
        tensors = bound.tensors() + (lower.tensors() if lower else [])
        return all(depends_only_on(tensor, self.constants) for tensor in tensors)

    def _attend(self, first: Index, fetched: list[ir.Value]) -> None:
        running = self._begin()
        step = self.stride * self.unroll
        count = len(fetched)

        def body(t: Index, *carried: ir.Value) -> list[ir.Value]:
            with self.reader.scope():
                following = self._fetch(b.add(t, step))
                state = Running(*carried[:3]).include(*self._scored(t, list(carried[3:])), self.target)
            return [*state.values(), *following]

        results = self._rounds(first, step, [*running.values(), *fetched], body)
        assert len(results) == 3 + count
        self._join(Running(*results[:3]))

    def _fetch(self, t: Index) -> list[ir.Value]:
        """Keys, then values, of the lane's next positions; position 0's where there are no more."""
        keys, values = [], []
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            at = b.or_zero(b.less(at, self.end), at)
            keys.append(self._read(self.attention.keys, at, self.key))
            values.append(self._read(self.attention.values, at, self.value))
        return keys + values

    def _read(self, operand: Operand, t: Index, share: Share) -> ir.Value:
        return read_operand(self.reader, operand, self.place, t, share.start, share.width)

    def _scored(self, t: Index, fetched: list[ir.Value]) -> tuple[list[ir.Value], list[ir.Value]]:
        """Scores of the lane's positions (-inf past the end) and their values (0 past the end)."""
        scores, rows = [], []
        for u in range(self.unroll):
            at = b.add(t, u * self.stride)
            inside = b.less(at, self.end)
            there = b.or_zero(inside, at) if self.attention.biased else at
            score = self._masked(self._dot(b.extend(fetched[u])), there)
            scores.append(b.select(inside, score, b.constant(float("-inf"), b.f32())))
            rows.append(b.masked(inside, b.extend(fetched[self.unroll + u])))
        return scores, rows

    def _dot(self, key: ir.Value) -> ir.Value:
        product = b.horizontal("arith.addf", b.binary("arith.mulf", self.query, key))
        return subgroup_reduce("arith.addf", product, self.lanes, self.target.subgroup)

    def _masked(self, score: ir.Value, t: Index) -> ir.Value:
        return score_at(self.reader, self.attention, self.place, t, score)

    def _own_position(self) -> Running:
        """The row's own key and value: one team takes them in, and one for each cached head writes them."""
        key, value = (self._own(number) for number in range(2))
        score = self._masked(self._dot(b.extend(key)), self.last)
        is_first = b.equal(b.add(b.mul(self.part, self.threads), b.div(self.thread, self.lanes)), 0)
        score = b.select(is_first, score, b.constant(float("-inf"), b.f32()))
        return empty(self.value.width).include([score], [b.extend(value)], self.target)

    def _own(self, number: int) -> ir.Value:
        """The row's own key or value, written to the cache on the way."""
        attention, share = self.attention, (self.key, self.value)[number]
        write, row = attention.writes[number], own_row(attention, self.place)
        index = own_index(attention, number, self.place, share.start)
        value = read_row(write, self.reader, row, index, share.width)
        place = place_of_row(write, self.reader, row, index)
        writes = b.less(b.add(b.mul(self.part, self.threads), self.thread), self.lanes)
        b.if_live(b.both(writes, share.live), lambda: b.store(value, cache_of(attention), place))
        return value

    def _join(self, running: Running) -> None:
        sizes = self.lanes, self.subgroups, self.parts, self.part
        row = SharedRow(self.kernel, self.attention, self.target, self.place, *sizes, self.thread, self.value)
        row.join(running)
