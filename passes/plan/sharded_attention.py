"""Attention of a sharded launch: a block's positions of some heads, whose number modulo the ranks is its rank.

A cluster's warps share its heads of keys and values out, and each head's warps the block's positions.  A row of keys
is one for some lanes, each with 4 or 8 numbers; a warp takes as many at once as there is room for.  Keys and values
of earlier positions are loaded before the query is there, as many as registers hold; further ones one batch after the
other, whose result is joined to what the warp has left of those before.  The row's own key and value come with the
query; the block whose position it is writes them: in each cluster that has their head the same.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.attention import (
    bind_cache,
    cache_of,
    own_index,
    place_of_row,
    read_operand,
    read_row,
    score_at,
)
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.kernels.words import Word, each, either, fused, greater, lesser, real, when, word
from lispgpt.passes.model.attention import attention_of
from lispgpt.passes.model.cache_writes import CacheWrite
from lispgpt.passes.plan.sharded_launch import Copied, Launch, lanes
from lispgpt.passes.plan.sharded_layout import MOST_NUMBERS, RANKS, WARPS

LOG2_E = 1.4426950408889634
LOWEST = -1e30
Pairs = list[tuple[list[Word], list[Word]]]


def rows_at_once(depth: int) -> tuple[int, int]:
    """(numbers of a row that a lane has, lanes of a row)."""
    numbers = 4 if depth <= 128 else 8
    across = 1
    while across * numbers < depth:
        across *= 2
    return numbers, across


class Earlier:
    """A warp's part of earlier positions.  made: attention's kernel for a layer.  position: the row's own."""

    def __init__(self, launch: Launch, made: Copied, position: Word) -> None:
        self.launch, self.made, self.position = launch, made, position
        attention, layout = attention_of(made.op), launch.layout
        assert attention is not None
        self.attention, self.heads, self.depth = attention, layout.heads, layout.depth
        self.numbers, self.across = rows_at_once(self.depth)
        self.at_once = 32 // self.across
        number = launch.warp // layout.head_warps
        busy = number < layout.kv if layout.kv * layout.head_warps < WARPS else None
        self.shared = number if busy is None else lesser(number, word(layout.kv - 1))
        self.within = launch.warp % layout.head_warps if layout.kv > 1 else launch.warp
        self.count = (position + (RANKS - 1) - launch.rank) // RANKS
        if busy is not None:
            self.count = busy.where(self.count, 0)
        self.busy = busy
        column = launch.lane % self.across * self.numbers
        self.inside = column < self.depth if self.across * self.numbers > self.depth else None
        self.column = column if self.inside is None else self.inside.where(column, 0)
        self.base = word(0)
        self._bind()
        self.step = self.at_once * layout.head_warps
        """Positions of the block that a head's warps take at once."""
        turns = -(-layout.context // (RANKS * self.step))
        self.turns = min(turns, MOST_NUMBERS // self.numbers)
        self.more = turns > self.turns

    def _bind(self) -> None:
        launch, made = self.launch, self.made
        for tensor in made.tensors[launch.chain.rows_argument]:
            made.reader.bind(tensor, self._own_columns)
        for argument, shape in launch.layout.ahead_shapes.items():
            for tensor in made.tensors[argument]:
                made.reader.bind(tensor, partial(self._ahead, launch.layout.ahead_place(argument), shape))
        for argument, series in launch.chain.attended.items():
            if series.buffer == launch.chain.positions:
                made.hold(argument, self.position.value)
        bind_cache(self.attention, made.reader)

    def _own_columns(self, index: Sequence[Index], width: int) -> ir.Value:
        """What the product before has made of the row's columns, of those that are the cluster's."""
        return _loaded(self.launch.place("own") + (word(index[-1]) - self.base) * 4, width, self.made.reader.in_step)

    def _ahead(self, first: int, shape: Sequence[int], index: Sequence[Index], width: int) -> ir.Value:
        number = word(index[0])
        for i, extent in zip(index[1:], shape[1:], strict=True):
            number = number * extent + word(i)
        return _loaded(self.launch.place("ahead") + first + number * 4, width, self.made.reader.in_step)

    def _place(self, shared: Word, member: Word | int) -> list[Index]:
        """Indices of attention's leading loops: of a cluster's head of keys, and one of its heads of queries."""
        launch, heads, layout = self.launch, self.heads, self.launch.layout
        number = launch.first_shared + shared
        if layout.head_clusters * layout.each > heads.count:
            number = lesser(number, word(heads.count // heads.group - 1))
        if heads.group > layout.each:
            member = launch.share * layout.each % heads.group + member
        member = word(member)
        return self.heads.place(number.index(), member.index())

    def _slot(self, shared: Word, member: Word | int) -> Word:
        """The number of a head among the cluster's."""
        return shared * self.launch.layout.members + member

    def _query(self, shared: Word, member: Word | int, column: Word, width: int) -> list[Word]:
        """As f32, as it is made of the cluster's columns."""
        layout, firsts = self.launch.layout, self.heads.firsts
        self.base = self.launch.share * (layout.each * self.depth) + firsts[0]
        reader = self.made.reader
        with reader.scope(), reader.stepping():
            place = self._place(shared, member)
            return lanes(b.extend(read_operand(reader, self.attention.queries, place, 0, column.index(), width)))

    def _number(self, turn: Word | int) -> Word:
        """Which of the block's positions a lane has in its turn."""
        return self.within * self.at_once + turn * self.step + self.launch.lane // self.across

    def load(self) -> Pairs:
        """Keys and values, as they lie; zeros where a warp has none."""
        return [self._row(word(turn)) for turn in range(self.turns)]

    def _row(self, turn: Word) -> tuple[list[Word], list[Word]]:
        any_ = self.within * self.at_once + turn * self.step < self.count

        def read() -> list[Word]:
            number = lesser(self._number(turn), self.count - 1)
            t = (number * RANKS + self.launch.rank).index()
            with self.made.reader.scope():
                place = self._place(self.shared, 0)
                both = [
                    b.extend(read_operand(self.made.reader, operand, place, t, self.column.index(), self.numbers))
                    for operand in (self.attention.keys, self.attention.values)
                ]
            return [*lanes(both[0]), *lanes(both[1])]

        found = either(any_, "f" * (2 * self.numbers), read, lambda: [real(0.0)] * (2 * self.numbers))
        return found[: self.numbers], found[self.numbers :]

    def attend(self, rows: Pairs) -> None:
        """With the queries that are there now; leave a part of each head's result."""
        self._members(lambda member: self._attend_first(rows, member, sorted({1, -(-len(rows) // 2), len(rows)})))
        if not self.more:
            return

        def batch(first: Word) -> None:
            further = [self._row(first + turn) for turn in range(self.turns)]
            self._members(lambda member: self._attend(further, member, first))

        left = self.count - self.within * self.at_once
        each(self.turns, self._turns(left), batch, self.turns)

    def _turns(self, left: Word) -> Word:
        """How many turns a warp has, of so many positions that are left for it and those behind it."""
        return (left > 0).where((left + (self.step - 1)) // self.step, 0)

    def _members(self, body: Callable[[Word], None]) -> None:
        """For each of the heads that have the warp's keys in common."""
        members = self.launch.layout.members
        if members == 1:
            body(word(0))
        else:
            each(0, members, body)

    def _attend_first(self, rows: Pairs, member: Word, counts: Sequence[int]) -> None:
        """To as many rows as are enough, of these counts."""
        first, *more = counts
        if not more:
            self._attend(rows, member, None)
            return
        enough = (self.count <= first * self.step).value
        b.either(
            enough, lambda: self._attend(rows[:first], member, None), lambda: self._attend_first(rows, member, more)
        )

    def _weighed(self, turn: Word | int, member: Word, score: Word) -> Word:
        number = self._number(turn)
        t = (number * RANKS + self.launch.rank).index()
        with self.made.reader.scope():
            value = Word(score_at(self.made.reader, self.attention, self._place(self.shared, member), t, score.value))
        return (number < self.count).where(greater(value * LOG2_E, real(LOWEST)), LOWEST)

    def _attend(self, rows: Pairs, member: Word, turn: Word | None) -> None:
        """To rows from a turn on, whose result is joined to what there is; None: the first rows."""
        launch, across = self.launch, self.across
        query = self._query(self.shared, member, self.column, self.numbers)
        if self.inside is not None:
            query = [self.inside.where(q, 0.0) for q in query]
        scores = []
        for key, _ in rows:
            total = query[0] * key[0]
            for q, k in zip(query[1:], key[1:], strict=True):
                total = fused(q, k, total)
            scores.append(total)
        distances = [1 << i for i in range(5)]
        for distance in (d for d in distances if d < across):
            scores = [s + s.from_lane(distance) for s in scores]
        first = 0 if turn is None else turn
        scores = [self._weighed(first + i if turn is not None else i, member, s) for i, s in enumerate(scores)]
        top = scores[0]
        for s in scores[1:]:
            top = greater(top, s)
        for distance in (d for d in distances if d >= across):
            top = greater(top, top.from_lane(distance))
        part = launch.place("parts") + self._part(self._slot(self.shared, member)) + self.within * launch.layout.part
        end = part + 4 * self.depth
        before = None
        if turn is not None:
            c.warp_barrier()
            before = [*c.load_reals(end, 2), *self._loaded(part)]
            c.warp_barrier()
            top = greater(top, before[0])
        powers = [Word(exp2((s - top).value, launch.target)) for s in scores]
        total, sums = powers[0], [powers[0] * v for v in rows[0][1]]
        for p, (_, value) in zip(powers[1:], rows[1:], strict=True):
            total = total + p
            sums = [fused(p, v, s) for v, s in zip(value, sums, strict=True)]
        for distance in (d for d in distances if d >= across):
            total = total + total.from_lane(distance)
            sums = [s + s.from_lane(distance) for s in sums]
        if before is not None:
            factor = Word(exp2((before[0] - top).value, launch.target))
            total = fused(factor, before[1], total)
            sums = [fused(factor, old, s) for old, s in zip(before[2:], sums, strict=True)]
        empty = self.within * self.at_once >= self.count

        def store() -> None:
            stores = launch.lane < across if self.inside is None else (launch.lane * self.numbers) < self.depth
            when(stores, lambda: self._store(part, sums))
            when(launch.lane == 0, lambda: c.store_words(end, [top, empty.where(real(0.0), total)]))

        store() if self.busy is None else when(self.busy, store)

    def _part(self, slot: Word) -> Word:
        return slot * ((self.launch.layout.head_warps + 1) * self.launch.layout.part)

    def _store(self, part: Word, sums: list[Word]) -> None:
        for first in range(0, self.numbers, 4):
            c.store_words(part + (self.column + first) * 4, sums[first : first + 4])

    def _loaded(self, part: Word) -> list[Word]:
        starts = range(0, self.numbers, 4)
        return [w for first in starts for w in c.load_reals(part + (self.column + first) * 4, 4)]

    # ---- the row's own key and value

    @property
    def owns(self) -> Word:
        return self.position % RANKS == self.launch.rank

    def own(self) -> None:
        """By one warp for each head of keys, of the block whose position it is: a part of its own, and the cache's
        rows."""
        launch, layout, depth = self.launch, self.launch.layout, self.depth
        shared = word(WARPS - 1) - launch.warp
        columns = [launch.lane * 2 + first for first in range(0, depth, 64)]
        inside = [
            None if first + 64 <= depth else at < depth for first, at in zip(range(0, depth, 64), columns, strict=True)
        ]
        places = [at if there is None else there.where(at, 0) for at, there in zip(columns, inside, strict=True)]
        stored = [[self._own_row(kind, shared, at) for at in places] for kind in (0, 1)]
        keys, values = ([lanes(b.extend(value)) for value in kind] for kind in stored)

        def member(number: Word) -> None:
            score = real(0.0)
            for at, there, key in zip(places, inside, keys, strict=True):
                query = self._query(shared, number, at, 2)
                both = query[0] * key[0] + query[1] * key[1]
                score = score + (both if there is None else there.where(both, 0.0))
            for distance in (1, 2, 4, 8, 16):
                score = score + score.from_lane(distance)
            with self.made.reader.scope():
                t = self.position.index()
                place = self._place(shared, number)
                weighed = Word(score_at(self.made.reader, self.attention, place, t, score.value))
            part = launch.place("parts") + self._part(self._slot(shared, number)) + layout.head_warps * layout.part
            for at, there, value in zip(places, inside, values, strict=True):
                _if(there, partial(c.store_words, part + at * 4, value))
            end = [weighed * LOG2_E, real(1.0)]
            when(launch.lane == 0, lambda: c.store_words(part + 4 * depth, end))

        self._members(member)
        for kind, write in enumerate(self.attention.writes):
            for at, there, value in zip(places, inside, stored[kind], strict=True):
                _if(there, partial(self._write, kind, write, shared, at, value))

    def _own_row(self, kind: int, shared: Word, column: Word) -> ir.Value:
        """Two numbers of the row's own key (0) or value (1), as the cache has them."""
        layout, reader = self.launch.layout, self.made.reader
        before = layout.rows_of_kinds[0] + kind * layout.rows_of_kinds[1]
        self.base = self.launch.first_shared * self.depth + (self.heads.firsts[1 + kind] - before)
        with reader.scope(), reader.stepping():
            index = own_index(self.attention, kind, self._place(shared, 0), column.index())
            return read_row(self.attention.writes[kind], reader, 0, index, 2)

    def _write(self, kind: int, write: CacheWrite, shared: Word, column: Word, value: ir.Value) -> None:
        with self.made.reader.scope():
            index = own_index(self.attention, kind, self._place(shared, 0), column.index())
            where = place_of_row(write, self.made.reader, 0, index)
            b.store(value, cache_of(self.attention), where)


def _if(condition: Word | None, body: Callable[[], None]) -> None:
    if condition is None:
        body()
    else:
        when(condition, body)


def _loaded(address: Word, width: int, together: bool) -> ir.Value:
    """So many f32 of a block's memory; together: at an address of as many's size."""
    if together and width in (2, 4):
        return b.vector_of([w.value for w in c.load_reals(address, width)])
    return b.vector_of([c.load_reals(address + 4 * i, 1)[0].value for i in range(width)])
