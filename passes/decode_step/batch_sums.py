"""What clusters add to the residual stream of several sequences: subgroups leave a block's part, one subgroup of a
block sums up a share, and all blocks read the sums.

Rank r of every cluster has a part of what is added to the rank's columns.  These columns' lines, of four numbers of a
sequence, are shared out among the ranks r of all clusters: each sums up its share in the order of the clusters, adds it
to the residual stream, which it keeps, and leaves the lines where all blocks read them.  The lowest bit of a line's
first number says of which use of its place it is.  A place is used again two exchanges later: who writes there then has
read lines of the exchange between, of which each needed what was there.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import each, loop, when, word
from lispgpt.passes.decode_step.batch_layout import NEW_ROW_SUBGROUPS
from lispgpt.passes.decode_step.batch_products import BatchProducts, for_threads
from lispgpt.passes.decode_step.chain import Product
from lispgpt.passes.decode_step.launch import Launch, added_to, copied, embedded, preload
from lispgpt.passes.decode_step.layout import RANKS, THREADS, TOKEN, Sharing
from lispgpt.passes.decode_step.residual import Piece, Residual
from lispgpt.passes.targets import ptx


def wait_for_tokens() -> None:
    """All subgroups but the one that brings weights, once a run's tokens are known."""
    ptx.wait_at(TOKEN, THREADS + 32 * (1 + NEW_ROW_SUBGROUPS))


def marked(line: Sequence[Number], mark: Number) -> list[Number]:
    return [(line[0].bits() & -2) | mark, *line[1:]]


def unmarked(line: Sequence[Number]) -> list[Number]:
    """The numbers of a line, which are the same in every use of its place."""
    return [(line[0] & -2).bits(), *(w.bits() for w in line[1:])]


@dataclass(frozen=True)
class Place:
    """Where the sums of an addition are: one of PLACES, and whether it has been one's an odd number of times before."""

    number: Number
    odd: Number

    @staticmethod
    def behind_attention(launch: Launch, run: Number, layer: Number) -> Place:
        return Place(word(0), ((launch.before + run) * launch.layout.layers + layer).bit(0))

    @staticmethod
    def behind_layer(launch: Launch, run: Number, layer: Number) -> Place:
        """Blocks without layers read a run's last one alone, which has a place of its own."""
        last, now = launch.layout.layers - 1, launch.before + run
        ends = layer == last
        return Place(ends.where(word(2), 1), ends.where(now, now * last + layer).bit(0))


class BatchResidual(Residual):
    """Of several sequences, in lines of four numbers."""

    def take(self, place: Place, since: Number) -> list[Number]:
        """Its numbers behind an addition.  since: the clock when the block had made its part: who asks too early is in
        the way of those who add."""
        ptx.pause_until(since, self.launch.layout.pause)
        found = self._await(place, self.pieces)
        ptx.subgroup_barrier()
        return found

    def follow(self, place: Place) -> None:
        """Wait until the first numbers are there: one subgroup asks as long as layers go on, whose exchanges all would
        be in the way of."""
        when(self.launch.subgroup == 0, lambda: self._await(place, self.pieces[:1]))
        self.launch.synchronize()

    def _await(self, place: Place, pieces: Sequence[Piece]) -> list[Number]:
        places, mark = [_summed(self.launch, place, p.sequence, p.column) for p in pieces], _mark(place.odd)
        return [w for line in ptx.await_lines(places, lambda words: (words[0] ^ mark) & 1) for w in unmarked(line)]


def _mark(odd: Number) -> Number:
    """The bit that lines have at a place that was used an odd number of times before."""
    return odd.where(word(0), 1)


def _summed(launch: Launch, place: Place, sequence: Number, column: Number) -> ir.Value:
    """Where a sequence's line lies."""
    row = place.number * launch.layout.sequences + sequence
    return ptx.pointer(
        launch.exchange, (row * launch.layout.width + column) * 4 + launch.layout.lines["residual_stream"]
    )


@dataclass(frozen=True)
class Exchange:
    """One, by the number of exchanges before it."""

    launch: Launch
    count: Number

    @staticmethod
    def of(launch: Launch, run: Number, layer: Number, number: int) -> Exchange:
        """number: 0 or 1, of a layer's."""
        return Exchange(launch, ((launch.before + run) * launch.layout.layers + layer) * 2 + number)

    @property
    def mark(self) -> Number:
        """The bit that addends have."""
        return ((self.count >> 1) & 1) ^ 1

    def addend(self, reader: Number, writer: Number, number: Number) -> Number:
        """Where a cluster leaves a line of this rank's for another, in bytes."""
        launch, layout = self.launch, self.launch.layout
        place = ((self.count & 1) * RANKS + launch.rank) * layout.layer_clusters + reader
        place = place * layout.layer_clusters + writer
        return (place * layout.own_lines + number) * 16 + layout.lines["addends"]


def leave_addends(products: BatchProducts, exchange: Exchange, sharing: Sharing) -> None:
    """By the subgroups that multiply: their sums of the rank's columns."""
    launch, layout = products.launch, products.launch.layout

    def line(number: Number) -> None:
        own = products.sum_of(sharing, number // layout.quads, number % layout.quads * 4, 4)
        place = exchange.addend(number // layout.own_lines, launch.cluster, number % layout.own_lines)
        ptx.store_line(ptx.pointer(launch.exchange, place), marked(own, exchange.mark))

    for_threads(launch, layout.sequences * layout.quads, line)


class Summer:
    """The subgroup that sums up a block's share."""

    def __init__(self, launch: Launch) -> None:
        self.launch, layout, self.lines = launch, launch.layout, []
        for first in range(0, layout.own_lines, 32):
            own = launch.lane + first
            number = launch.cluster * layout.own_lines + own
            works = (own < layout.own_lines) & (number < layout.sequences * layout.quads)
            own, number = works.where(own, 0), works.where(number, 0)
            column = (number % layout.quads + launch.rank * layout.quads) * 4
            self.lines.append((works, own, number // layout.quads, column))

    def emit(self) -> None:
        """All runs of the launch."""
        each(0, self.launch.times, self._run)

    def _run(self, run: Number) -> None:
        launch, chain = self.launch, self.launch.chain
        wait_for_tokens()
        made = copied(launch, chain.embedding, 0)
        begun = [w for _, _, sequence, column in self.lines for w in embedded(launch, made, sequence, column, run, 4)]

        def layer(number: Number, *x: Number) -> list[Number]:
            attended, behind = Place.behind_attention(launch, run, number), Place.behind_layer(launch, run, number)
            found = self._sum(chain.out_projection, number, Exchange.of(launch, run, number, 0), x, attended)
            return self._sum(chain.down, number, Exchange.of(launch, run, number, 1), found, behind)

        loop(0, launch.layout.layers, begun, layer)

    def _sum(
        self, product: Product, layer: Number, exchange: Exchange, before: Sequence[Number], to: Place
    ) -> list[Number]:
        """The residual stream behind an exchange, left for all."""
        launch, layout, now = self.launch, self.launch.layout, list[Number]()
        made = copied(launch, product, layer)
        places = [[sequence.index(), column.index()] for _, _, sequence, column in self.lines]
        for place in places:
            preload(made, place, 4)
        for turn, ((works, own, sequence, column), place) in enumerate(zip(self.lines, places, strict=True)):
            first = ptx.wide(exchange.addend(launch.cluster, word(0), own))
            starts = [first + writer * (16 * layout.own_lines) for writer in range(layout.layer_clusters)]
            found = ptx.await_lines(
                [ptx.pointer(launch.exchange, start) for start in starts],
                lambda words: works.where((words[0] ^ exchange.mark) & 1, 0),  # noqa: B023
            )
            total, *parts = map(unmarked, found)
            for part in parts:
                total = [x + y for x, y in zip(total, part, strict=True)]
            line = added_to(made, product, place, total, before[4 * turn : 4 * turn + 4])
            to_line = _summed(launch, to, sequence, column)
            when(works, partial(ptx.store_line, to_line, marked(line, _mark(to.odd))))
            now += line
        ptx.subgroup_barrier()
        return now
