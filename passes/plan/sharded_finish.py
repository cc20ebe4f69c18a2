"""The finisher of a sharded launch: a warp that makes results of warps' sums, and sends them to the cluster's ranks.

With x·gamma for a product's operand, sums S of its weights with it, G with gamma and B with beta, the product of the
normed stream is (S - mean · G) / deviation + B.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from lispgpt.ir import build as b
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, each, either, when, word
from lispgpt.passes.plan.sharded_chain import NormWeights
from lispgpt.passes.plan.sharded_launch import Copied, Launch, finished, preload, statistics
from lispgpt.passes.plan.sharded_layout import ATTENDED, PARTS, RANKS, SUMS, TWO_ROLES, Sharing
from lispgpt.passes.plan.sharded_merge import merge


class Finisher:
    def __init__(self, launch: Launch, firsts: tuple[int, int, int]) -> None:
        self.launch, self.firsts = launch, firsts

    def emit(self) -> None:
        launch, layout = self.launch, self.launch.layout
        self.ranks = [launch.remote(i) for i in range(RANKS)]

        def run(number: Word) -> None:
            def layers() -> None:
                each(0, layout.layers, lambda layer: self._layer(number, layer))

            when(launch.layered, layers)
            last = launch.layered.where(launch.exchanged(number, word(2 * layout.layers)), number & 1)
            self._statistics(last)

        each(0, launch.times, run)

    def _statistics(self, parity: Word) -> None:
        barrier = self.launch.barrier("statistics")
        when(self.launch.lane == 0, lambda: c.expect(barrier, 8 * RANKS))
        c.wait(barrier, parity)

    def _layer(self, run: Word, layer: Word) -> None:
        launch, chain = self.launch, self.launch.chain
        position = launch.position + run
        with finished(launch, chain.into, layer) as made:
            self._queries(run, layer, made)
        when(launch.lane == 0, lambda: c.expect(launch.barrier("merged"), RANKS * (4 * launch.layout.depth + 8)))
        c.meet(PARTS, TWO_ROLES)
        merge(launch, position, launch.at_layer(run, layer))
        c.pass_by(ATTENDED, TWO_ROLES)
        with finished(launch, chain.up, layer) as made:
            self._hidden(run, layer, made)

    def _row_sums(
        self, sharing: Sharing, name: str, rows: Sequence[Word], parity: Word, norm: NormWeights, fixed: Word, run: Word
    ) -> list[Word]:
        """Rows of the product of the normed stream.  fixed: where their sums of the norm's own weights are kept."""
        self._statistics(parity)
        mean, factor = statistics(self.launch, norm.centred, norm.epsilon)
        c.meet(SUMS, TWO_ROLES)
        place = self.launch.place(name)
        return [self._normed(sharing, place + r * 4, norm, mean, factor, fixed + r * 8, run) for r in rows]

    def _normed(
        self, sharing: Sharing, start: Word, norm: NormWeights, mean: Word, factor: Word, kept: Word, run: Word
    ) -> Word:
        def sums(kind: int) -> Word:
            first = start + 4 * 8 * sharing.tiles * (kind * sharing.slices)
            places = [first + 4 * 8 * sharing.tiles * i for i in range(sharing.slices)]
            return reduce(Word.__add__, [c.load_reals(place, 1)[0] for place in places])

        def made() -> list[Word]:
            found = [sums(1), sums(2)]
            c.store_words(kept, found)
            return found

        total = sums(0)
        gamma, beta = either(run == 0, "ff", made, lambda: c.load_reals(kept, 2))
        total = total - mean * gamma if norm.centred else total
        return factor * total + beta if norm.beta is not None else factor * total

    def _finished(self, made: Copied, place: Sequence[object], value: Word) -> Word:
        """What the ops behind a product make of a sum."""
        made.hold_product(value.value, place)
        return Word(made.reader.read(made.result, list(place)))

    def _send(self, to: Word, words: Sequence[Word], barrier: str) -> None:
        """To the same place of all ranks' memory."""
        for remote in self.ranks:
            c.send(remote + to, words, remote + self.launch.layout.barrier[barrier])

    def _fixed(self, layer: Word, first: int) -> Word:
        """Where a layer's rows keep what does not change from run to run."""
        return self.launch.place("fixed") + (layer * self.launch.layout.layer_rows + first) * 8

    def _queries(self, run: Word, layer: Word, made: Copied) -> None:
        """A lane's row of queries, keys or values, to all ranks."""
        launch, layout, each_ = self.launch, self.launch.layout, self.launch.layout.head_rows
        rows = 3 * each_
        lane = (launch.lane < rows).where(launch.lane, rows - 1)
        kind, within = lane // each_, lane % each_
        first = (kind == 0).where(word(self.firsts[0]), (kind == 1).where(word(self.firsts[1]), self.firsts[2]))
        row = first + launch.cluster * layout.depth + launch.rank * each_ + within
        place = [0, row.index()]
        preload(made, place, 1)
        parity = launch.exchanged(run, layer * 2)
        (value,) = self._row_sums(
            layout.into, "into_sums", [lane], parity, launch.chain.norms[0], self._fixed(layer, 0), run
        )
        value = self._finished(made, place, value)
        to = (kind * layout.depth + launch.rank * each_ + within) * 4 + layout.at["own"]

        four = [value, *(value.from_lane(distance) for distance in (1, 2, 3))]
        first_of_four = (launch.lane % 4 == 0).value
        inside = (launch.lane < rows).value
        when(Word(b.emit("arith.andi", [first_of_four, inside], [inside.type])), partial(self._send, to, four, "own"))

    def _hidden(self, run: Word, layer: Word, made: Copied) -> None:
        """A lane's hidden units, as parts of the next product's operand, to all ranks."""
        launch, layout = self.launch, self.launch.layout
        own = launch.cluster * layout.hidden + launch.rank * layout.hidden_rows
        numbers = [launch.lane + 32 * turn for turn in range(layout.hidden_rows // 32)]
        places = [[0, (own + number).index()] for number in numbers]
        for place in places:
            preload(made, place, 1)
        parity = launch.exchanged(run, layer * 2 + 1)
        sums = self._row_sums(
            layout.up, "up_sums", numbers, parity, launch.chain.norms[1], self._fixed(layer, 8 * layout.into.tiles), run
        )
        for number, place, value in zip(numbers, places, sums, strict=True):
            unit = self._finished(made, place, value)
            k = launch.rank * layout.hidden_rows + number
            to = (k // 16) * 64 + ((k % 8) // 2) * 16 + layout.at["units"]
            four = [unit, *(unit.from_lane(distance) for distance in (1, 8, 9))]
            when((launch.lane & 9) == 0, partial(self._send, to, four, "hidden_units"))
