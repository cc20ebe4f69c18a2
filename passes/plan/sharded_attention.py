"""Attention of a sharded launch: a block's positions of one head, whose number modulo the ranks is its rank.

Keys and values of earlier positions are loaded before the query is there.  A row of them is one for 16 lanes; each warp
takes two at once.  The row's own key and value come with the query; the block whose position it is writes them.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.attention import (
    bind_cache,
    cache_of,
    own_index,
    place_of_row,
    read_operand,
    score_at,
)
from lispgpt.passes.kernels.expand import exp2
from lispgpt.passes.kernels.words import Word, either, fused, greater, lesser, real, when
from lispgpt.passes.model.attention import attention_of
from lispgpt.passes.plan.sharded_heads import head_loop
from lispgpt.passes.plan.sharded_launch import Copied, Launch, lanes
from lispgpt.passes.plan.sharded_layout import RANKS, WARPS

LOG2_E = 1.4426950408889634
LOWEST = -1e30
ACROSS, EACH = 16, 4
"""Lanes of a row, and numbers of a lane."""
Pairs = list[tuple[list[Word], list[Word]]]


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
        self._attend_first(rows, sorted({1, -(-len(rows) // 2), len(rows)}))

    def _attend_first(self, rows: Pairs, counts: Sequence[int]) -> None:
        """To as many rows as are enough, of these counts."""
        first, *more = counts
        if not more:
            self._attend(rows)
            return
        enough = (self.count <= first * 2 * WARPS).value
        b.either(enough, lambda: self._attend(rows[:first]), lambda: self._attend_first(rows, more))

    def _attend(self, rows: Pairs) -> None:
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
