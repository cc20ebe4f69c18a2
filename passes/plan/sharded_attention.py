"""Attention of a sharded launch: a block's positions of one head, whose number modulo the ranks is its rank.

Keys and values of earlier positions are loaded before the query is there.  A row of them is one for 16 lanes; each warp
takes two at once.  The row's own key and value come with the query; the block whose position it is writes them.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import reduce
from math import prod

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
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.refusal import Refused
from lispgpt.passes.kernels.words import Word, either, fused, greater, lesser, real, when, word
from lispgpt.passes.model.attention import Attention, attention_of
from lispgpt.passes.model.score_operands import Operand
from lispgpt.passes.plan.sharded_launch import Copied, Launch, copied, lanes
from lispgpt.passes.plan.sharded_layout import RANKS, WARPS
from lispgpt.passes.targets import Gpu

LOG2_E = 1.4426950408889634
LOWEST = -1e30
ACROSS, EACH = 16, 4
"""Lanes of a row, and numbers of a lane."""
Pairs = list[tuple[list[Word], list[Word]]]


def head_loop(attention: Attention) -> int:
    """The one leading loop of attention that is longer than 1, whose numbers are heads."""
    found = [i for i, extent in enumerate(attention.extents) if extent > 1]
    if len(found) != 1 or found[0] not in attention.shared or attention.own is None or attention.lower is not None:
        raise Refused("its attention is not of heads that each have keys of their own")
    return found[0]


def rows_of_heads(kernel: ir.Operation, argument: int, target: Gpu) -> tuple[int, int, int]:
    """Columns of an argument at which queries, keys and values of the first head start, where all heads' follow.

    Refused where they lie otherwise.  What is emitted to find out is dropped.
    """
    block = kernel.regions[0].blocks[0]
    attention = attention_of(kernel)
    assert attention is not None
    ops = list(block.operations)
    with ir.InsertionPoint(ops[-1]), kernel.location:
        firsts = _columns(kernel, attention, block.arguments[argument], target)
    for op in reversed(list(block.operations)[len(ops) - 1 : -1]):
        op.operation.erase()
    return firsts


def _columns(kernel: ir.Operation, attention: Attention, source: ir.Value, target: Gpu) -> tuple[int, int, int]:
    loop, reader = head_loop(attention), Reader(target)
    seen: list[int] = []

    def note(index: Sequence[Index], width: int) -> ir.Value:
        if not all(isinstance(i, int) for i in index):
            raise Refused("its queries do not lie in rows")
        seen.append(index[-1])
        return b.constant(0.0, b.f32())

    for op in kernel.regions[0].blocks[0].operations:
        op = op.operation
        if op.name == "bufferization.to_tensor" and op.operands[0] == source:
            reader.bind(op.results[0], note)
    for head in range(attention.extents[loop]):
        for d in range(attention.depth):
            place = [head if i == loop else 0 for i in range(len(attention.extents))]
            read_operand(reader, attention.queries, place, 0, d, 1)
            for i, write in enumerate(attention.writes):
                read_row(write, reader, 0, own_index(attention, i, place, d), 1)
    firsts = seen[:3]
    want = [f + n for n in range(len(seen) // 3) for f in firsts]
    if len(seen) != 3 * attention.extents[loop] * attention.depth or seen != want:
        raise Refused("its queries, keys and values do not lie one behind the other")
    return firsts[0], firsts[1], firsts[2]


class Earlier:
    """A warp's part of earlier positions.  made: attention's kernel for a layer.  position: the row's own."""

    def __init__(self, launch: Launch, made: Copied, position: Word) -> None:
        self.launch, self.made, self.position = launch, made, position
        attention = attention_of(made.op)
        assert attention is not None
        self.attention, self.loop = attention, head_loop(attention)
        self.count = (position + (RANKS - 1) - launch.rank) // RANKS
        self.column = launch.lane % ACROSS * EACH
        made.hold(launch.chain.rows_argument, real(0.0).value)
        for argument, series in launch.chain.attended.items():
            if series.buffer == launch.chain.positions:
                made.hold(argument, position.value)
        bind_cache(attention, made.reader)
        self.rounds = -(-launch.layout.context // (RANKS * 2 * WARPS))

    def _place(self) -> list[object]:
        head = self.launch.cluster.index()
        return [head if i == self.loop else 0 for i in range(len(self.attention.extents))]

    def _number(self, turn: int) -> Word:
        """Which of the block's positions a lane has in its turn."""
        return self.launch.warp * 2 + turn * (2 * WARPS) + self.launch.lane // ACROSS

    def load(self) -> Pairs:
        """Keys and values, as they lie; zeros where a warp has none."""
        return [self._row(turn) for turn in range(self.rounds)]

    def _row(self, turn: int) -> tuple[list[Word], list[Word]]:
        any_ = self.launch.warp * 2 + turn * (2 * WARPS) < self.count

        def read() -> list[Word]:
            number = lesser(self._number(turn), self.count - 1)
            t = (number * RANKS + self.launch.rank).index()
            with self.made.reader.scope():
                both = [
                    b.extend(read_operand(self.made.reader, operand, self._place(), t, self.column.index(), EACH))
                    for operand in (self.attention.keys, self.attention.values)
                ]
            return [*lanes(both[0]), *lanes(both[1])]

        found = either(any_, "f" * (2 * EACH), read, lambda: [real(0.0)] * (2 * EACH))
        return found[:EACH], found[EACH:]

    def _weighed(self, turn: int, score: Word) -> Word:
        number = self._number(turn)
        t = (number * RANKS + self.launch.rank).index()
        with self.made.reader.scope():
            value = Word(score_at(self.made.reader, self.attention, self._place(), t, score.value))
        return (number < self.count).where(greater(value * LOG2_E, real(LOWEST)), LOWEST)

    def attend(self, rows: Pairs) -> None:
        """With the query that is there now; leave a part of the result."""
        launch = self.launch
        query = c.load_reals(launch.place("own") + self.column * 4, 4)
        scores = []
        for key, _ in rows:
            total = query[0] * key[0]
            for q, k in zip(query[1:], key[1:], strict=True):
                total = fused(q, k, total)
            scores.append(total)
        for distance in (1, 2, 4, 8):
            scores = [s + s.from_lane(distance) for s in scores]
        scores = [self._weighed(turn, s) for turn, s in enumerate(scores)]
        top = scores[0]
        for s in scores[1:]:
            top = greater(top, s)
        top = greater(top, top.from_lane(16))
        powers = [Word(exp2((s - top).value, launch.target)) for s in scores]
        total, sums = powers[0], [powers[0] * v for v in rows[0][1]]
        for p, (_, value) in zip(powers[1:], rows[1:], strict=True):
            total = total + p
            sums = [fused(p, v, s) for v, s in zip(value, sums, strict=True)]
        total = total + total.from_lane(16)
        sums = [s + s.from_lane(16) for s in sums]
        empty = launch.warp * 2 >= self.count
        part = launch.place("parts") + launch.warp * launch.layout.part
        when(launch.lane < ACROSS, lambda: c.store_words(part + self.column * 4, sums))
        end = [top, empty.where(real(0.0), total)]
        when(launch.lane == 0, lambda: c.store_words(part + 4 * launch.layout.depth, end))

    # ---- the row's own key and value

    @property
    def owns(self) -> Word:
        return self.position % RANKS == self.launch.rank

    def own(self) -> None:
        """By one warp of the block whose position it is: a part of its own, and the cache's row."""
        launch, depth = self.launch, self.launch.layout.depth
        column = launch.lane * 2
        own = launch.place("own")
        query, key, value = (c.load_reals(own + i * (4 * depth) + column * 4, 2) for i in range(3))
        memory = cache_of(self.attention)
        stored = [self._rounded(row, memory) for row in (key, value)]
        score = query[0] * stored[0][1][0] + query[1] * stored[0][1][1]
        for distance in (1, 2, 4, 8, 16):
            score = score + score.from_lane(distance)
        with self.made.reader.scope():
            t = self.position.index()
            weighed = Word(score_at(self.made.reader, self.attention, self._place(), t, score.value))
        part = launch.place("parts") + WARPS * launch.layout.part
        c.store_words(part + column * 4, stored[1][1])
        end = [weighed * LOG2_E, real(1.0)]
        when(launch.lane == 0, lambda: c.store_words(part + 4 * depth, end))
        for i, write in enumerate(self.attention.writes):
            with self.made.reader.scope():
                index = own_index(self.attention, i, self._place(), column.index())
                b.store(stored[i][0], memory, place_of_row(write, self.made.reader, 0, index))

    def _rounded(self, values: list[Word], memory: ir.Value) -> tuple[ir.Value, list[Word]]:
        """(as the cache has them, as f32 then)."""
        vector = b.vector_of([v.value for v in values])
        element = memory.type.element_type
        stored = vector if element == b.f32() else b.shortened(vector, element)
        return stored, lanes(b.extend(stored))


def fetch_cache(launch: Launch, layer: Word, position: Word) -> None:
    """By one thread: start to bring a part of a layer's earlier keys and values to the cache; all ranks', those of a
    head."""
    chain = launch.chain
    with copied(launch, chain.attention, chain.attended, layer) as made:
        attention = attention_of(made.op)
        assert attention is not None
        loop, memory = head_loop(attention), cache_of(attention)
        rows = (position + (RANKS - 1)) // RANKS
        extents, element = memory.type.shape, memory.type.element_type
        strides = [prod(extents[i + 1 :]) for i in range(len(extents))]
        for operand in (attention.keys, attention.values):

            def offset(head: Index, t: Index, operand: Operand = operand) -> Index:
                """Numbers ahead of a position's."""
                seen: list[Index] = []

                def note(index: Sequence[Index], width: int) -> ir.Value:
                    seen.extend(index)
                    return b.constant(0.0, element)

                for tensor in attention.updated:
                    made.reader.bind(tensor, note)
                place = [head if i == loop else 0 for i in range(len(attention.extents))]
                read_operand(made.reader, operand, place, t, 0, 1)
                return reduce(b.add, [b.mul(i, stride) for i, stride in zip(seen, strides, strict=True)])

            if offset(0, 1) - offset(0, 0) != attention.depth:
                return
            nbytes = b.item_bytes(memory.type)
            first = word(offset(launch.cluster.index(), (launch.rank * rows).index())) * nbytes
            size = rows * (attention.depth * nbytes)
            when(rows > 0, lambda first=first, size=size: c.fetch_bytes(c.pointer(memory, first), size))


def merge(launch: Launch, position: Word, receive: Word) -> None:
    """By the finisher: join the block's parts, tell all ranks, and join theirs to the head's result.

    receive: the parity of the phase in which theirs are there.
    """
    layout, lane = launch.layout, launch.lane
    count = (position + (RANKS - 1) - launch.rank) // RANKS
    owns = position % RANKS == launch.rank
    few = count <= 8

    def join(warps: range) -> list[Word]:
        places = [launch.place("parts") + w * layout.part for w in (*warps, WARPS)]
        ends = [c.load_reals(place + 4 * layout.depth, 2) for place in places]
        numbers = [c.load_reals(place + lane * 8, 2) for place in places]
        last_top, last_total = ends[-1]
        ends[-1] = [owns.where(last_top, LOWEST), owns.where(last_total, 0.0)]
        numbers[-1] = [owns.where(n, 0.0) for n in numbers[-1]]
        return _joined(launch, ends, numbers)

    top, total, a, other = either(few, "ffff", lambda: join(range(4)), lambda: join(range(WARPS)))
    place, barrier = layout.at["merged"], layout.barrier["merged"]
    ranks = [launch.remote(i) for i in range(RANKS)]
    for remote in ranks:
        c.send(remote + place + launch.rank * layout.part + lane * 8, [a, other], remote + barrier)

    def end() -> None:
        remote = launch.remote(lane)
        c.send(remote + (place + 4 * layout.depth) + launch.rank * layout.part, [top, total], remote + barrier)

    when(lane < RANKS, end)
    c.wait(launch.barrier("merged"), receive)
    mine = [launch.place("merged") + i * layout.part for i in range(RANKS)]
    ends = [c.load_reals(m + 4 * layout.depth, 2) for m in mine]
    _, total, a, other = _joined(launch, ends, [c.load_reals(m + lane * 8, 2) for m in mine])
    whole = Word(b.intrinsic(launch.target.intrinsics["reciprocal"], [total.value], b.f32()))
    to = launch.place("attended") + (lane // 8) * 128 + (lane % 4) * 32 + ((lane // 4) & 1) * 4
    for number, part in enumerate(c.split(a * whole, other * whole)):
        c.store_words(to + 8 * number, [part])


def _joined(launch: Launch, ends: list[list[Word]], numbers: list[list[Word]]) -> list[Word]:
    top = ends[0][0]
    for one, _ in ends[1:]:
        top = greater(top, one)
    factors = [Word(exp2((one - top).value, launch.target)) for one, _ in ends]
    total, sums = factors[0] * ends[0][1], [factors[0] * n for n in numbers[0]]
    for factor, (_, part), own in zip(factors[1:], ends[1:], numbers[1:], strict=True):
        total = fused(factor, part, total)
        sums = [fused(factor, n, s) for n, s in zip(own, sums, strict=True)]
    return [top, total, *sums]
