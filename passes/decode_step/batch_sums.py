"""What clusters add to the residual stream of several sequences: subgroups leave a block's part, one subgroup of a
block sums up a share.

Rank r of every cluster has a part of what is added to the rank's columns.  These columns' lines, of four numbers of a
sequence, are shared out among the ranks r of all clusters: each sums up its share in the order of the clusters, adds it
to the residual stream, which it keeps, and leaves the lines where all blocks read them (batch_residual.py).  A place is
used again two exchanges later: who writes there then has read lines of the exchange between, of which each needed what
was there.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import ir
from lispgpt.ir.threads import each, loop, when, word
from lispgpt.passes.decode_step.batch_launch import BatchLaunch
from lispgpt.passes.decode_step.batch_products import TextProducts, for_threads
from lispgpt.passes.decode_step.batch_residual import Summed, embedding_of, marked, unmarked
from lispgpt.passes.decode_step.chain import Product
from lispgpt.passes.decode_step.launch import Copied, copied, finished, joined, lanes, preload
from lispgpt.passes.decode_step.layout import RANKS
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.targets import ptx


def _addend(launch: BatchLaunch, count: Number, reader: Number, writer: Number, number: Number) -> Number:
    """Where a cluster leaves a line of this rank's for another, in bytes."""
    clusters, own = launch.layout.layer_clusters, launch.layout.own_lines
    place = (((count & 1) * RANKS + launch.rank) * clusters + reader) * clusters + writer
    return (place * own + number) * 16 + launch.layout.lines["addends"]


def _mark(count: Number) -> Number:
    """The bit that addends have in an exchange, of which there were so many before."""
    return ((count >> 1) & 1) ^ 1


def leave_addends(launch: BatchLaunch, count: Number, sharing: Sharing) -> None:
    """By the subgroups that multiply: their sums of the rank's columns.  count: of exchanges before this one."""
    layout, mark, products = launch.layout, _mark(count), TextProducts(launch)

    def line(number: Number) -> None:
        own = products.sum_of(sharing, number // layout.quads, number % layout.quads * 4, 4)
        place = _addend(launch, count, number // layout.own_lines, launch.cluster, number % layout.own_lines)
        ptx.store_line(ptx.pointer(launch.exchange, place), marked(own, mark))

    for_threads(launch, layout.rank_lines, line)


class Summer:
    """The subgroup that sums up a block's share."""

    def __init__(self, launch: BatchLaunch) -> None:
        self.launch, layout = launch, launch.layout
        self.lines = []
        for turn in range(-(-layout.own_lines // 32)):
            own = launch.lane + 32 * turn
            number = launch.cluster * layout.own_lines + own
            works = (own < layout.own_lines) & (number < layout.rank_lines)
            own, number = works.where(own, 0), works.where(number, 0)
            quad = number % layout.quads + launch.rank * layout.quads
            self.lines.append((works, own, number // layout.quads, quad))

    def emit(self) -> None:
        """All runs of the launch."""
        each(0, self.launch.times, self._run)

    def _run(self, run: Number) -> None:
        launch, chain, layout = self.launch, self.launch.chain, self.launch.layout
        self.launch.wait_for_tokens()
        with copied(launch, chain.embedding, chain.embedded, 0) as made:
            residual_stream = [
                w for _, _, sequence, quad in self.lines for w in embedding_of(launch, made, sequence, quad * 4, run)
            ]

        def layer(number: Number, *residual_stream: Number) -> list[Number]:
            now = launch.before + run
            count = (now * layout.layers + number) * 2
            found = self._sum(
                chain.out_projection, number, count, list(residual_stream), Summed.of_attention(launch, now, number)
            )
            behind, last = Summed.of_layer(launch, now, number), Summed.of_run(now)
            ends = number == layout.layers - 1
            to = Summed(ends.where(last.place, behind.place), ends.where(last.mark, behind.mark))
            return self._sum(chain.down, number, count + 1, found, to)

        loop(0, layout.layers, residual_stream, layer)

    def _sum(
        self, product: Product, layer: Number, count: Number, residual_stream: list[Number], to: Summed
    ) -> list[Number]:
        """The residual stream behind an exchange, left for all."""
        launch, layout, mark, now = self.launch, self.launch.layout, _mark(count), []
        with finished(launch, product, layer) as made:
            ahead = [[sequence.index(), (quad * 4).index()] for _, _, sequence, quad in self.lines]
            for place in ahead:
                preload(made, place, 4)
            for turn, ((works, own, sequence, quad), place) in enumerate(zip(self.lines, ahead, strict=True)):
                first = ptx.wide(_addend(launch, count, launch.cluster, word(0), own))
                writers = range(layout.layer_clusters)
                places = [ptx.pointer(launch.exchange, first + writer * (16 * layout.own_lines)) for writer in writers]
                found = ptx.await_lines(places, lambda words: works.where((words[0] ^ mark) & 1, 0))  # noqa: B023
                total, *parts = map(unmarked, found)
                for part in parts:
                    total = [x + y for x, y in zip(total, part, strict=True)]
                line = self._finished(made, product, place, total, residual_stream[4 * turn : 4 * turn + 4])
                when(works, partial(ptx.store_line, to.line(launch, sequence, quad), marked(line, to.mark)))
                now += line
        ptx.subgroup_barrier()
        return now

    @staticmethod
    def _finished(
        made: Copied, product: Product, place: list[ir.Value], total: list[Number], before: list[Number]
    ) -> list[Number]:
        """Four numbers of a sequence's residual stream, to which their sums are added."""
        assert product.residual_stream is not None
        made.hold_product(joined(total), place)
        made.hold(product.residual_stream, joined(before), place)
        return lanes(made.reader.read(made.result, place, 4))
