"""Attention of a clustered launch: a block's positions of some heads, whose number modulo the ranks is its rank.

What the product before has made of the cluster's rows lies in each of its blocks' memories, and what is made ahead of
the layers in each block's own: attention's kernel is read with both in place of its arguments, so that what it does to
queries and keys, such as a rotation, is done in registers by whoever reads them.

A cluster's subgroups share its heads of keys and values out, and each head's subgroups the block's positions.  A row of
keys is one for some lanes, each with 16 or 32 bytes; a subgroup takes as many at once as there is room for.  Keys and
values of past positions are loaded before the query is there, as many as registers hold, as the words that lie
there: who converts a number waits for it.  The first of them may lie in the block's memory; where none do, all are
brought to the cache of all cores while the layer ahead is under way, to stay there.  Further ones come one batch after
the other, whose result is joined to what the subgroup has left of those before.  The row's own key and value come with
the query; the block whose position it is writes them: in each cluster that has their head the same.  Parts over some
positions are joined: of a block's subgroups, then of a cluster's ranks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, nullcontext
from functools import partial
from math import prod

from lispgpt.base.dtypes import DTYPES
from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, element_type, viewed
from lispgpt.ir.threads import chosen, each, either, fused, given, greater, lesser, real, turns, when, word
from lispgpt.passes.decode_step.kv_cache import row_words, rows_there
from lispgpt.passes.decode_step.launch import Copied, Launch, copied, lanes, over_lanes
from lispgpt.passes.decode_step.layout import RANKS, SUBGROUPS
from lispgpt.passes.decode_step.products import PAIR, parts_of_pair
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
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.team import Team
from lispgpt.passes.recognise.attention import attention_of
from lispgpt.passes.targets import ptx


def make_hoisted(
    launch: Launch, position: Number, row: Index | None, spread: Callable[[int, Callable[[Number], None]], None]
) -> None:
    """row: of several sequences, this one's.  spread: (count, body) calls body(number) of so many numbers, each by one
    thread."""
    for ahead in launch.chain.hoisted:
        made = copied(launch, ahead, 0)
        for argument, series in ahead.arguments.items():
            if series.buffer == launch.chain.tokens:
                raise Refused("what a kernel ahead of the layers makes depends on the token")
            if series.buffer == launch.chain.positions:
                made.hold(argument, position.value)
        for tensor, memory in outputs_of(made.op):
            argument = ahead.results[ir.BlockArgument(memory).arg_number]
            shape = launch.layout.hoisted[argument]
            start = launch.place("ahead") + launch.layout.hoisted_at[argument]
            spread(prod(shape), partial(_leave, made, tensor, shape, start, row))


def _leave(
    made: Copied, tensor: ir.Value, shape: tuple[int, ...], start: Number, row: Index | None, number: Number
) -> None:
    index, rest = [], number
    for extent in shape[:0:-1]:
        index.append((rest % extent).index())
        rest = rest // extent
    with made.reader.scope():
        value = Number(made.reader.read(tensor, [rest.index() if row is None else row, *index[::-1]]))
    ptx.store_words(start + number * 4, [value])


class HeadReader:
    """Of a layer.  position: the row's own, sequence: which it is."""

    def __init__(self, launch: Launch, layer: Number, position: Number, sequence: Number | int = 0) -> None:
        self.launch, self.position, self.sequence = launch, position, sequence
        self.made = copied(launch, launch.chain.attention, layer)
        self.normed = [copied(launch, norm, layer) for norm in launch.chain.head_norms]
        attention, layout = attention_of(self.made.op), launch.layout
        assert attention is not None
        self.attention, self.heads, self.depth = attention, layout.heads, layout.depth
        self.base = word(0)
        self._bind()

    def _bind(self) -> None:
        launch, made = self.launch, self.made
        made.bind(launch.chain.rows_argument, partial(self._own_columns, made.reader))
        for number, (one, norm) in enumerate(zip(self.normed, launch.chain.head_norms, strict=True)):
            one.bind(norm.source, partial(self._own_columns, one.reader))
            if number in launch.layout.gammas:
                one.bind(norm.gamma, partial(self._gamma, one.reader, launch.layout.gammas[number]))
            made.bind(norm.result, partial(self._normed, number))
        for argument, shape in launch.layout.hoisted.items():
            made.bind(argument, partial(self._hoisted, launch.layout.hoisted_at[argument], shape))
        for argument, series in launch.chain.attention.arguments.items():
            if series.buffer == launch.chain.positions:
                made.hold(argument, self.position.value)
        bind_cache(self.attention, made.reader)

    def _own_columns(self, reader: Reader, index: Sequence[Index], width: int) -> ir.Value:
        """What the product before has made of the row's columns, of those that are the cluster's."""
        return _loaded(self.launch.place("own") + (word(index[-1]) - self.base) * 4, width, reader.in_step)

    def _hoisted(self, first: int, shape: Sequence[int], index: Sequence[Index], width: int) -> ir.Value:
        number = word(index[0]) if shape[0] > 1 else word(0)
        for i, extent in zip(index[1:], shape[1:], strict=True):
            number = number * extent + word(i)
        return _loaded(self.launch.place("ahead") + first + number * 4, width, self.made.reader.in_step)

    def _gamma(self, reader: Reader, place: int, index: Sequence[Index], width: int) -> ir.Value:
        """The weights of a norm of heads that lie in the block's memory."""
        start = self.launch.place("gammas") + 4 * self.depth * place
        return _loaded(start + word(index[-1]) * 4, width, reader.in_step)

    def _normed(self, number: int, index: Sequence[Index], width: int) -> ir.Value:
        """What a norm makes of a head's row, whose sum a subgroup's lanes find together, once for what is read of one
        head."""
        one, reader = self.normed[number], self.made.reader
        one.reader.team = Team(self.launch.lane.index(), 32, 32, self.launch.subgroup.value)
        factor = defining_op(viewed(one.result)).operands[1]

        def make() -> ir.Value:
            one.reader.bound.pop(factor, None)
            with one.reader.scope(), one.reader.stepping():
                return one.reader.read(factor, index[:-1])

        one.reader.hold(factor, reader.once((factor, "of a head"), make))
        with one.reader.scope(), one.reader.stepping(reader.in_step):
            return one.reader.read(one.result, index, width)

    def place(self, shared: Number, member: Number | int) -> list[Index]:
        """Indices of attention's leading loops: of a cluster's head of keys, and one of its heads of queries."""
        launch, heads, layout = self.launch, self.heads, self.launch.layout
        number = launch.head_of_keys(shared)
        if heads.group > layout.each:
            member = launch.share * layout.each % heads.group + member
        member = word(member)
        return self.heads.place(number.index(), member.index(), self.row)

    @property
    def row(self) -> Index:
        """The number of the sequence's row."""
        return self.sequence if isinstance(self.sequence, int) else self.sequence.index()

    def slot(self, shared: Number, member: Number | int) -> Number:
        """The number of a head among the cluster's."""
        return shared * self.launch.layout.members + member

    def query(self, shared: Number, member: Number | int, column: Number, width: int) -> list[Number]:
        """As f32, as it is made of the cluster's columns."""
        layout, firsts = self.launch.layout, self.heads.firsts
        self.base = self.launch.share * (layout.each * self.depth) + firsts[0]
        reader = self.made.reader
        with reader.scope(), reader.stepping():
            place = self.place(shared, member)
            return lanes(b.extend(read_operand(reader, self.attention.queries, place, 0, column.index(), width)))

    def new_row(self, kind: int, shared: Number, column: Number) -> ir.Value:
        """Two numbers of the row's own key (0) or value (1), as the cache has them."""
        layout, reader = self.launch.layout, self.made.reader
        before = layout.rows_of_kinds[0] + kind * layout.rows_of_kinds[1]
        self.base = self.launch.first_shared * self.depth + (self.heads.firsts[1 + kind] - before)
        with reader.scope(), reader.stepping():
            index = own_index(self.attention, kind, self.place(shared, 0), column.index())
            return read_row(self.attention.writes[kind], reader, self.row, index, 2)

    def part(self, slot: Number) -> Number:
        return slot * ((self.launch.layout.head_subgroups + 1) * self.launch.layout.part)


def _loaded(address: Number, width: int, together: bool) -> ir.Value:
    """So many f32 of a block's memory; together: at an address of as many's size, or of four's."""
    at_once = min(width, 4) if together and width in (2, 4, 8) else 1
    return b.vector_of([w.value for i in range(0, width, at_once) for w in ptx.load_reals(address + 4 * i, at_once)])


LOG2_E = 1.4426950408889634
LOWEST = -1e30
Pairs = list[tuple[list[Number], list[Number]]]


class PastRows(HeadReader):
    """A subgroup's part of past positions: `fetch` brings them near, a layer ahead; `load` and `attend` are for the
    layer that is under way."""

    def __init__(
        self, launch: Launch, layer: Number, position: Number, parity: Number | None = None, sequence: Number | int = 0
    ) -> None:
        super().__init__(launch, layer, position, sequence)
        layout = launch.layout
        self.parity = parity
        self.numbers, self.across, self.words = layout.row_numbers, layout.row_lanes, layout.row_words
        self.at_once = 32 // self.across
        number = launch.subgroup // layout.head_subgroups
        busy = number < layout.kv if layout.kv * layout.head_subgroups < SUBGROUPS else None
        self.shared = number if busy is None else lesser(number, word(layout.kv - 1))
        self.within = launch.subgroup % layout.head_subgroups if layout.kv > 1 else launch.subgroup
        self.count = launch.past(position)
        self.count, self.busy = chosen(busy, self.count, 0), busy
        column = launch.lane % self.across * self.numbers
        self.inside = column < self.depth if self.across * self.numbers > self.depth else None
        self.column = chosen(self.inside, column, 0)
        self.step, self.turns, self.near = layout.row_step, layout.turns, layout.near
        self.more = layout.all_turns > self.turns
        self.early = min(self.near + max(1, layout.numbers // (2 * self.words)), self.turns)
        """The turn before which rows come to registers ahead of the residual stream: behind all its exchange would
        wait."""

    def _number(self, turn: Number | int) -> Number:
        """Which of the block's positions a lane has in its turn."""
        return self.within * self.at_once + turn * self.step + self.launch.lane // self.across

    def fetch(self) -> None:
        """Bring what `load` and `attend` read to the cache of all cores."""
        for tensor in self.attention.updated:
            self.made.reader.bind(tensor, self._fetch)
        each(0, self._all_turns(), self._read)

    def _fetch(self, index: Sequence[Index], width: int) -> ir.Value:
        memory = cache_of(self.attention)
        number: Index = 0
        for at, extent in zip(index, memory.type.shape, strict=True):
            number = b.add(b.mul(number, extent), at)
        size = b.constant(DTYPES[str(memory.type.element_type)].bits // 8, b.i64())
        offset = b.emit("arith.index_cast", [b.as_value(number)], [b.i64()])
        ptx.fetch(ptx.pointer(memory, Number(b.emit("arith.muli", [offset, size], [b.i64()]))))
        return b.constant(0.0, b.with_width(memory.type.element_type, width))

    def load(self, turns: range) -> Pairs:
        """Keys and values of some turns, as words that lie there; zeros where a subgroup has none."""
        return [self._row(word(turn)) for turn in turns]

    def load_near(self) -> Pairs:
        """The same of the turns whose rows lie in the block's memory."""
        if self.near:
            assert self.parity is not None
            rows_there(self.launch, self.parity)
        return [self._near(turn) for turn in range(self.near)]

    def _near(self, turn: int) -> tuple[list[Number], list[Number]]:
        first, words = self.within * self.at_once + turn * self.step, self.words
        row = lesser(first + self.launch.lane // self.across, self.count - 1)
        byte = self.column * (4 * words // self.numbers)
        return self._where(first < self.count, lambda: row_words(self.launch, self.shared, row, byte, words))

    def _where(self, any_: Number, read: Callable[[], list[Number]]) -> tuple[list[Number], list[Number]]:
        """The words of keys and values where a subgroup has any, else zeros."""
        found = either(any_, "r" * (2 * self.words), read, lambda: [word(0)] * (2 * self.words))
        return found[: self.words], found[self.words :]

    def _row(self, turn: Number) -> tuple[list[Number], list[Number]]:
        words = ir.VectorType.get([self.words], b.i32())

        def read() -> list[Number]:
            both = [b.emit("vector.bitcast", [row], [words]) for row in self._read(turn)]
            return [*lanes(both[0]), *lanes(both[1])]

        return self._where(self.within * self.at_once + turn * self.step < self.count, read)

    def _read(self, turn: Number) -> list[ir.Value]:
        """A lane's part of a key and a value; of the last ones where there are no more."""
        number = lesser(self._number(turn), self.count - 1)
        t = self.launch.position_of_row(number).index()
        with self.made.reader.scope():
            place = self.place(self.shared, 0)
            both = (self.attention.keys, self.attention.values)
            return [read_operand(self.made.reader, o, place, t, self.column.index(), self.numbers) for o in both]

    def _reals(self, words: list[Number]) -> list[Number]:
        words = [ptx.opaque(w) for w in words]  # nothing waits for them before
        element = element_type(self.attention.keys.tensor)
        row = b.vector_of([w.value for w in words])
        return lanes(b.extend(b.emit("vector.bitcast", [row], [ir.VectorType.get([self.numbers], element)])))

    def attend(self, rows: Pairs) -> None:
        """With the queries that are there now; leave a part of each head's result."""
        counts, none = sorted({1, -(-len(rows) // 2), len(rows)}), (self.count <= self.within * self.at_once).value

        with _heads(self.launch.layout.members) as member:
            b.either(none, lambda: self._leave_nothing(member), lambda: self._attend_first(rows, member, counts))
        if self.more:
            with turns(self.turns, self._all_turns(), self.turns) as first:
                further = [self._row(first + turn) for turn in range(self.turns)]
                with _heads(self.launch.layout.members) as member:
                    self._attend(further, member, first)

    def _all_turns(self) -> Number:
        """How many turns a subgroup has, of the positions that are left for it and those behind it."""
        left = self.count - self.within * self.at_once
        return (left > 0).where((left + (self.step - 1)) // self.step, 0)

    def _attend_first(self, rows: Pairs, member: Number, counts: Sequence[int]) -> None:
        """To as many rows as are enough, of these counts."""
        first, *more = counts
        if not more:
            self._attend(rows, member, None)
            return
        enough = (self.count <= first * self.step).value
        b.either(
            enough, lambda: self._attend(rows[:first], member, None), lambda: self._attend_first(rows, member, more)
        )

    def _weighted(self, turn: Number | int, member: Number, score: Number) -> Number:
        number = self._number(turn)
        t = self.launch.position_of_row(number).index()
        with self.made.reader.scope():
            value = Number(score_at(self.made.reader, self.attention, self.place(self.shared, member), t, score.value))
        return (number < self.count).where(greater(value * LOG2_E, real(LOWEST)), LOWEST)

    def _attend(self, rows: Pairs, member: Number, turn: Number | None) -> None:
        """To rows from a turn on, whose result is joined to what there is; None: the first rows."""
        launch, across = self.launch, self.across
        query = self.query(self.shared, member, self.column, self.numbers)
        query = [chosen(self.inside, q, 0.0) for q in query]
        scores = []
        for words, _ in rows:
            key = self._reals(words)
            chains = [q * k for q, k in zip(query[:2], key[:2], strict=True)]
            for i, (q, k) in enumerate(zip(query[2:], key[2:], strict=True)):
                chains[i % 2] = fused(q, k, chains[i % 2])
            scores.append(chains[0] + chains[1])
        distances = [1 << i for i in range(5) if 1 << i >= across]
        scores = over_lanes(scores, [1 << i for i in range(5) if 1 << i < across])
        first = 0 if turn is None else turn
        scores = [self._weighted(first + i if turn is not None else i, member, s) for i, s in enumerate(scores)]
        top = scores[0]
        for s in scores[1:]:
            top = greater(top, s)
        for distance in distances:
            top = greater(top, top.from_lane(distance))
        part, end = self._left(member)
        before = None
        if turn is not None:
            ptx.subgroup_barrier()
            before = [*ptx.load_reals(end, 2), *self._loaded(part)]
            ptx.subgroup_barrier()
            top = greater(top, before[0])
        powers = [Number(exp2((s - top).value, launch.target)) for s in scores]
        total, sums = powers[0], [powers[0] * v for v in self._reals(rows[0][1])]
        for p, (_, words) in zip(powers[1:], rows[1:], strict=True):
            total = total + p
            sums = [fused(p, v, s) for v, s in zip(self._reals(words), sums, strict=True)]
        total, *sums = over_lanes([total, *sums], distances)
        if before is not None:
            factor = Number(exp2((before[0] - top).value, launch.target))
            total = fused(factor, before[1], total)
            sums = [fused(factor, old, s) for old, s in zip(before[2:], sums, strict=True)]
        when(self.busy, lambda: self._leave(member, sums, [top, total]))

    def _left(self, member: Number) -> tuple[Number, Number]:
        """Where a subgroup's part lies, and its end."""
        place = self.launch.place("parts") + self.part(self.slot(self.shared, member))
        part = place + self.within * self.launch.layout.part
        return part, part + 4 * self.depth

    def _leave(self, member: Number, sums: list[Number], both: list[Number]) -> None:
        part, end = self._left(member)
        stores = self.launch.lane < self.across
        if self.inside is not None:
            stores = self.launch.lane * self.numbers < self.depth
        with given(stores):
            for first in range(0, self.numbers, 4):
                ptx.store_words(part + (self.column + first) * 4, sums[first : first + 4])
        when(self.launch.lane == 0, lambda: ptx.store_words(end, both))

    def _leave_nothing(self, member: Number) -> None:
        """Of a subgroup that has no rows."""
        none = [real(0.0)] * self.numbers
        when(self.busy, lambda: self._leave(member, none, [real(LOWEST), real(0.0)]))

    def _loaded(self, part: Number) -> list[Number]:
        starts = range(0, self.numbers, 4)
        return [w for first in starts for w in ptx.load_reals(part + (self.column + first) * 4, 4)]


class NewRow(HeadReader):
    """The row's own key and value: a part of attention, and new rows of the cache."""

    @property
    def owns(self) -> Number:
        return self.launch.owns(self.position)

    def attend(self, shared: Number) -> None:
        """By one subgroup for each head of keys and sequence, of the block whose position it is: a part of its own, and
        the cache's rows."""
        launch, layout, depth = self.launch, self.launch.layout, self.depth
        places, inside = pairs_of(launch)
        stored = [[self.new_row(kind, shared, at) for at in places] for kind in (0, 1)]
        keys, values = ([lanes(b.extend(value)) for value in kind] for kind in stored)

        with _heads(layout.members) as number:
            score = real(0.0)
            for at, there, key in zip(places, inside, keys, strict=True):
                query = self.query(shared, number, at, 2)
                score = score + chosen(there, query[0] * key[0] + query[1] * key[1], 0.0)
            (score,) = over_lanes([score], (1, 2, 4, 8, 16))
            with self.made.reader.scope():
                t = self.position.index()
                place = self.place(shared, number)
                weighted = Number(score_at(self.made.reader, self.attention, place, t, score.value))
            part = launch.place("parts") + self.part(self.slot(shared, number)) + layout.head_subgroups * layout.part
            for at, there, value in zip(places, inside, values, strict=True):
                when(there, partial(ptx.store_words, part + at * 4, value))
            end = [weighted * LOG2_E, real(1.0)]
            when(launch.lane == 0, lambda: ptx.store_words(part + 4 * depth, end))
        for kind, write in enumerate(self.attention.writes):
            for at, there, value in zip(places, inside, stored[kind], strict=True):
                with given(there), self.made.reader.scope():
                    index = own_index(self.attention, kind, self.place(shared, 0), at.index())
                    where = place_of_row(write, self.made.reader, self.row, index)
                    b.store(value, cache_of(self.attention), where)


def merge(launch: Launch, position: Number, receive: Number) -> None:
    """By the finisher: join the block's parts of each head, publish it to all ranks, and join theirs to the heads'
    results.

    receive: the parity of the phase in which theirs are there.
    """
    with _heads(launch.layout.each) as head:
        _publish(launch, position, head)
    ptx.wait(launch.barrier("merged"), receive)
    with _heads(launch.layout.each) as head:
        _whole(launch, head)


def _heads(count: int) -> AbstractContextManager[Number]:
    """Each of so many."""
    return nullcontext(word(0)) if count == 1 else turns(0, count)


def pairs_of(launch: Launch) -> tuple[list[Number], list[Number | None]]:
    """(first numbers of pairs that a lane has of a head, whether there are such, where not all lanes have them)."""
    depth = launch.layout.depth
    firsts = range(0, depth, 64)
    at = [launch.lane * 2 + first for first in firsts]
    there = [None if first + 64 <= depth else number < depth for first, number in zip(firsts, at, strict=True)]
    return [chosen(t, n, 0) for n, t in zip(at, there, strict=True)], there


def _publish(launch: Launch, position: Number, head: Number) -> None:
    """Of one head."""
    layout, lane = launch.layout, launch.lane
    at, there = pairs_of(launch)
    top, total, *numbers = join_parts(launch, "parts", layout.head_subgroups + 1, head, at, launch.owns(position))
    to = (head * RANKS + launch.rank) * layout.part
    for i, (number, inside) in enumerate(zip(at, there, strict=True)):
        pair = numbers[2 * i : 2 * i + 2]
        four = to + (number - lane % 2 * 2) * 4, launch.of_neighbours(pair, 2)
        when(inside, partial(launch.send, "merged", [four], 2))

    with given(lane < RANKS):
        remote = launch.remote(lane)
        place = to + (layout.at["merged"] + 4 * layout.depth)
        ptx.send(remote + place, [top, total], remote + layout.barrier["merged"])


def join_parts(
    launch: Launch, name: str, count: int, head: Number, at: Sequence[Number], owns: Number | None = None
) -> list[Number]:
    """So many parts of one head, at a place of the block's memory: the largest score, the sum below it, and a lane's
    numbers.  owns: whether the last part counts; None: it does."""
    layout = launch.layout
    first = launch.place(name) + head * (count * layout.part)
    places = [first + i * layout.part for i in range(count)]
    ends = [ptx.load_reals(place + 4 * layout.depth, 2) for place in places]
    numbers = [[w for n in at for w in ptx.load_reals(place + n * 4, 2)] for place in places]
    if owns is not None:
        last_top, last_total = ends[-1]
        ends[-1] = [owns.where(last_top, LOWEST), owns.where(last_total, 0.0)]
        numbers[-1] = [owns.where(n, 0.0) for n in numbers[-1]]
    top = _largest([one for one, _ in ends])
    factors = [Number(exp2((one - top).value, launch.target)) for one, _ in ends]
    total, sums = factors[0] * ends[0][1], [factors[0] * n for n in numbers[0]]
    for factor, (_, part), own in zip(factors[1:], ends[1:], numbers[1:], strict=True):
        total = fused(factor, part, total)
        sums = [fused(factor, n, s) for n, s in zip(own, sums, strict=True)]
    return [top, total, *sums]


def _whole(launch: Launch, head: Number) -> None:
    """One head's result, as an operand."""
    layout = launch.layout
    at, there = pairs_of(launch)
    _, total, *sums = join_parts(launch, "merged", RANKS, head, at)
    whole = Number(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
    for i, (number, inside) in enumerate(zip(at, there, strict=True)):
        pair = (head * layout.depth + number) // 2
        both = [s * whole for s in sums[2 * i : 2 * i + 2]]
        to = launch.place("attended") + pair * PAIR
        when(inside, partial(ptx.store_words, to, parts_of_pair(*both)))


def _largest(numbers: list[Number]) -> Number:
    half = len(numbers) // 2
    return greater(_largest(numbers[:half]), _largest(numbers[half:])) if half else numbers[0]
