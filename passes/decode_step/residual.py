"""The residual stream of a clustered launch, by the subgroups that multiply: each block has all of it, each thread some
columns.

What clusters add to it, they add to sums in memory that all blocks share (counted_sums.py), one for each column.  A
thread asks for those of its columns until all clusters have added, and goes on with the bits that all other blocks go
on with.  A layer has two additions, and each its own sums.  Those are added to again a layer later, by a cluster that
has read the other addition's, to which all clusters have added since they read these.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import added, fused, if_there, when, word
from lispgpt.passes.decode_step.chain import Product, Series
from lispgpt.passes.decode_step.fixed_point_sums import lacks, value_of_sum
from lispgpt.passes.decode_step.launch import Launch, copied, embedded, finished, joined, lanes, moments_of, preload
from lispgpt.passes.decode_step.layout import MULTIPLIERS, ROW, TOKEN, TWO_ROLES
from lispgpt.passes.decode_step.sharing import SUBGROUPS
from lispgpt.passes.targets import ptx

THREADS = 32 * SUBGROUPS
CHAINS = 4
"""Of a sum, which do not wait for each other."""
PAUSE = 900
"""Clocks from when a block has made its part of a sum until it asks for the whole for the first time: who asks too
early is in the way of those who add.  GPT-2 of 124M on an H200: 84.5 us a token, with 1100 85.7, with 600 6 more."""


class Residual:
    """By all threads of the subgroups that multiply."""

    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        first, pairs = launch.subgroup * 32 + launch.lane, launch.layout.width // 2
        self.pairs = [_Pair.of(first, start, pairs) for start in range(0, pairs, THREADS)]

    @property
    def kinds(self) -> str:
        """Of a thread's columns."""
        return "ff" * len(self.pairs)

    @property
    def seen_kinds(self) -> str:
        """Of what a thread has read of one addition's sums."""
        return "ll" * len(self.pairs)

    # ---- what it is made of

    def of_token(self, position: Number) -> list[Number]:
        """Ahead of all layers, once the exchanger publishes the token."""
        launch, chain = self.launch, self.launch.chain
        ptx.wait_at(TOKEN, TWO_ROLES)
        token = ptx.load_words(launch.place("token"), 1)[0]
        with copied(launch, chain.embedding, chain.embedded, 0) as made:
            return [w for pair in self.pairs for w in embedded(launch, made, token, position, [0, pair.column], 2)]

    def before(self) -> list[list[Number]]:
        """What earlier launches have left in the sums of both additions."""
        return [
            [half for pair in self.pairs for half in ptx.load_line(self._line("seen", number, pair))]
            for number in (0, 1)
        ]

    def keep(self, seen: Sequence[Sequence[Number]]) -> None:
        """By one block, behind the last run: the same for the next launch."""

        def store() -> None:
            for number, halves in enumerate(seen):
                for i, pair in enumerate(self.pairs):
                    line = self._line("seen", number, pair)
                    if_there(pair.works, partial(ptx.store_halves, line, halves[2 * i : 2 * i + 2]))

        when(self.launch.block == 0, store)

    def added(
        self,
        number: int,
        product: Product,
        layer: Number,
        residual_stream: Sequence[Number],
        seen: Sequence[Number],
        since: Number,
    ) -> tuple[list[Number], list[Number]]:
        """(the residual stream with what all clusters add by this product, what is read of the sums).  number: 0 or 1,
        of a layer's addition.  since: the clock when this block had made its part."""
        launch = self.launch
        assert product.residual_stream is not None
        with finished(launch, product, layer) as made:
            for pair in self.pairs:
                preload(made, [0, pair.column], 2)
            places = [self._line("sums", number, pair) for pair in self.pairs]

            def wanting(line: int, halves: list[Number]) -> Number:
                parts = launch.layout.layer_clusters
                return lacks(halves[0], seen[2 * line], parts) | lacks(halves[1], seen[2 * line + 1], parts)

            ptx.pause_until(since, PAUSE)
            lines = ptx.await_halves(places, wanting)
            ptx.subgroup_barrier()
            found = []
            for i, (pair, line) in enumerate(zip(self.pairs, lines, strict=True)):
                mine = slice(2 * i, 2 * i + 2)
                total = [value_of_sum(now, before) for now, before in zip(line, seen[mine], strict=True)]
                made.hold_product(joined(total), [0, pair.column])
                made.hold(product.residual_stream, joined(residual_stream[mine]), [0, pair.column])
                found += lanes(made.reader.read(made.result, [0, pair.column], 2))
        return found, [half for line in lines for half in line]

    def _line(self, name: str, number: int, pair: _Pair) -> ir.Value:
        """Of a pair's sums of an addition, or of what they were before."""
        layout = self.launch.layout
        return ptx.pointer(self.launch.exchange, pair.number * 16 + (layout.lines[name] + number * 8 * layout.width))

    # ---- for whom it is

    def factors(self, series: Series, layer: Number | int) -> list[Number]:
        """A norm's of a thread's columns."""
        memory = self.launch.floats(series, layer)
        return [w for pair in self.pairs for w in lanes(b.load(memory, [pair.column], 2))]

    def hand_on(
        self, residual_stream: Sequence[Number], gamma: Sequence[Number], put: Callable[[list[Number]], None]
    ) -> None:
        """To the block's product, times a norm's factors; to the finisher, as it is."""
        for i, pair in enumerate(self.pairs):
            own = residual_stream[2 * i : 2 * i + 2]
            if_there(pair.works, partial(ptx.store_words, self.launch.place("residual_stream") + pair.number * 8, own))
        put([x * g for x, g in zip(residual_stream, gamma, strict=True)])
        ptx.arrive_at(ROW, TWO_ROLES)
        ptx.wait_at(MULTIPLIERS, THREADS)

    def moments(self, residual_stream: Sequence[Number], centred: bool, epsilon: float) -> tuple[Number, Number]:
        """(mean, 1 / deviation)."""
        launch = self.launch
        totals = [x if p.works is None else p.works.where(x, 0.0) for p, *xs in self._with(residual_stream) for x in xs]
        sums = sums_across(totals)
        place = launch.place("statistics")
        when(launch.lane == 0, lambda: ptx.store_words(place + launch.subgroup * 8, sums))
        ptx.wait_at(MULTIPLIERS, THREADS)
        parts = [ptx.load_reals(place + 8 * i, 2) for i in range(SUBGROUPS)]
        total, square = parts[0]
        for one, other in parts[1:]:
            total, square = total + one, square + other
        return moments_of(launch, total, square, centred, epsilon)

    def _with(self, residual_stream: Sequence[Number]) -> list[tuple[_Pair, Number, Number]]:
        return [(pair, residual_stream[2 * i], residual_stream[2 * i + 1]) for i, pair in enumerate(self.pairs)]

    # ---- clusters without layers

    def leave(self, run: Number, residual_stream: Sequence[Number]) -> None:
        """By the first cluster, each rank its columns."""
        launch = self.launch
        each = launch.layout.columns // 2
        for pair, *own in self._with(residual_stream):
            mine = pair.number // each == launch.rank
            here = mine if pair.works is None else mine & pair.works
            line = [*own, self._mark(run), word(0)]
            when(here & (launch.cluster == 0), partial(ptx.store_line, self._final(pair), line))

    def final(self, run: Number) -> list[Number]:
        """The residual stream behind all layers, as the first cluster leaves it: one subgroup asks whether it is there,
        as long as layers go on, whose exchanges it would be in the way of otherwise."""
        mark, places = self._mark(run), [self._final(pair) for pair in self.pairs]

        def wanting(words: list[Number]) -> Number:
            return words[2] ^ mark

        when(
            self.launch.subgroup == 0,
            lambda: ptx.await_lines([ptx.pointer(self.launch.exchange, self._finals)], wanting),
        )
        ptx.wait_at(MULTIPLIERS, THREADS)
        lines = ptx.await_lines(places, wanting)
        ptx.subgroup_barrier()
        return [w.bits() for line in lines for w in line[:2]]

    def _final(self, pair: _Pair) -> ir.Value:
        return ptx.pointer(self.launch.exchange, pair.number * 16 + self._finals)

    @property
    def _finals(self) -> int:
        return self.launch.layout.lines["final"]

    def _mark(self, run: Number) -> Number:
        """Which no run before has had at the place."""
        return self.launch.before + run + 1


@dataclass(frozen=True)
class _Pair:
    """Two neighbouring columns of a thread.  number: of all pairs; another's where it has none.  works: whether it has
    one; None: all threads have.  column: the first one."""

    number: Number
    works: Number | None
    column: ir.Value

    @staticmethod
    def of(thread: Number, start: int, pairs: int) -> _Pair:
        number, works = thread + start, None
        if start + THREADS > pairs:
            works = number < pairs
            number = number % pairs
        return _Pair(number, works, (number * 2).index())


def sums_across(numbers: Sequence[Number]) -> list[Number]:
    """The sum of a subgroup's numbers, and of their squares."""
    totals, squares = list(numbers[:CHAINS]), [x * x for x in numbers[:CHAINS]]
    for i, x in enumerate(numbers[CHAINS:]):
        totals[i % CHAINS], squares[i % CHAINS] = totals[i % CHAINS] + x, fused(x, x, squares[i % CHAINS])
    total, square = added(totals), added(squares)
    for distance in (16, 8, 4, 2, 1):
        total, square = total + total.from_lane(distance), square + square.from_lane(distance)
    return [total, square]
