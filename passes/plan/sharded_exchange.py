"""The exchanger of a sharded launch: a warp that owns a rank's columns of the stream.

Every cluster has a part of what is added to the stream.  Rank r of each writes its part of the rank's columns, four
numbers a line, where rank r of all clusters reads; all add them up in the same order, so that they have the same bits.
The lowest bit of a line's first number says of which use of its place it is: a place is used again two exchanges later,
when what was written there depends on what all its readers have sent since.  Then a rank tells its cluster.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import partial, reduce

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.words import Word, either, loop, when, word
from lispgpt.passes.plan.sharded_chain import Product, Series
from lispgpt.passes.plan.sharded_choice import Choice, choose, chosen_before, end, leave, report, tell
from lispgpt.passes.plan.sharded_draw import Draw
from lispgpt.passes.plan.sharded_launch import Launch, copied, finished, joined, lanes, preload
from lispgpt.passes.plan.sharded_layout import RANKS, STREAM, TWO_ROLES
from lispgpt.passes.plan.sharded_sharing import Sharing


class Exchanger:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        self.turns = [_Turn.of(launch, launch.lane + 32 * i) for i in range(launch.layout.quad_turns)]
        self.ranks = [launch.remote(i) for i in range(RANKS)]

    def emit(self) -> None:
        """All runs of the launch: each begins with the token that the one before has chosen.  One block leaves the last
        one's results."""
        launch = self.launch
        if launch.layout.draws:
            self._drawn(Draw(launch))
            return

        def run(number: Word, token: Word) -> list[Word]:
            def layered() -> list[Word]:
                next_ = either(number > 0, "r", lambda: [chosen_before(launch, number)], lambda: [token])[0]
                self._stream(number, next_)
                return [next_]

            def other() -> list[Word]:
                if launch.kept:
                    when((number > 0) & launch.reports, lambda: report(launch, number))
                self._final(number)
                return [token]

            (token,) = either(launch.layered, "r", layered, other)
            c.meet(STREAM, TWO_ROLES)
            tell(launch, launch.before + number + 1)
            return [token]

        loop(0, launch.times, [launch.token], run)
        when(launch.reports, lambda: end(launch, choose(launch, launch.before + launch.times), launch.times - 1))

    def _drawn(self, draw: Draw) -> None:
        """The same where every exchanger draws the token that its next run starts from."""
        launch = self.launch

        def run(number: Word, token: Word, _: Word, round_: Word) -> list[Word]:
            b.either(launch.layered.value, lambda: self._stream(number, token), lambda: self._final(number))
            draw.prepare(launch.position + number)
            c.meet(STREAM, TWO_ROLES)
            result, round_ = draw.choose(round_)
            choice = Choice((result < 0).where(0, result), result, [])
            if launch.kept:
                when(launch.reports & (launch.lane == 0), lambda: leave(launch, choice, number))
            return [choice.token, result, round_]

        _, result, round_ = loop(0, launch.times, [launch.token, word(0), draw.round], run)

        def last() -> None:
            end(launch, Choice((result < 0).where(0, result), result, []), None)
            when(launch.lane == 0, lambda: b.store(round_.value, launch.exchange, [1]))

        when(launch.reports, last)

    # ---- the stream

    def _stream(self, run: Word, token: Word) -> None:
        launch, chain, layout = self.launch, self.launch.chain, self.launch.layout
        position = launch.position + run
        with copied(launch, chain.embedding, chain.embedded, 0) as made:
            for argument, series in chain.embedded.items():
                if series.buffer in (chain.tokens, chain.positions):
                    made.hold(argument, (token if series.buffer == chain.tokens else position).value)
            tensor = next(t for t, m in outputs_of(made.op) if ir.BlockArgument(m).arg_number == chain.stream)
            x = [w for turn in self.turns for w in lanes(made.reader.read(tensor, [0, turn.place], 4))]
        self._send(x, self._four(chain.norms[0].gamma, 0))

        def layer(number: Word, *stream: Word) -> list[Word]:
            return self._layer(run, number, list(stream))

        loop(0, layout.layers, x, layer)

    def _layer(self, run: Word, number: Word, stream: list[Word]) -> list[Word]:
        """The stream behind a layer."""
        chain, last = self.launch.chain, self.launch.layout.layers - 1
        gamma = self._four(chain.norms[1].gamma, number)
        now = self._exchange(run, number, 0, chain.out, stream, "out_sums")
        self._send(now, gamma)
        gamma = either(
            number < last, "f" * len(gamma),
            lambda: self._four(chain.norms[0].gamma, number + 1), lambda: self._four(chain.norms[2].gamma, 0),
        )  # fmt: skip
        now = self._exchange(run, number, 1, chain.down, now, "down_sums")
        when(self._last(number), lambda: self._leave(run, now))
        self._send(now, gamma)
        return now

    def _four(self, series: Series, layer: Word | int) -> list[Word]:
        """Four numbers of each turn."""
        memory = self.launch.floats(series, layer)
        return [w for turn in self.turns for w in lanes(b.load(memory, [turn.place], 4))]

    def _exchange(
        self, run: Word, layer: Word, number: int, product: Product, stream: list[Word], sums: str
    ) -> list[Word]:
        """The stream with all clusters' parts."""
        launch, layout = self.launch, self.launch.layout
        count = (launch.before + run) * (2 * layout.layers) + layer * 2 + number
        mark = ((count >> 1) & 1) ^ 1
        sharing = layout.out if number == 0 else layout.down
        first = (((count & 1) * RANKS + launch.rank) * layout.layer_clusters) * (layout.quads * 16)
        first = first + layout.lines["slots"]
        with finished(launch, product, layer) as made:
            for turn in self.turns:
                preload(made, [0, turn.place], 4)
            c.meet(STREAM, TWO_ROLES)
            for turn in self.turns:
                mine = c.pointer(launch.exchange, first + turn.quad * 16 + launch.cluster * (layout.quads * 16))
                line = self._own(turn, sharing, sums)
                when(turn.works, partial(c.store_line, mine, [(line[0].bits() & -2) | mark, *line[1:]]))
            assert product.stream is not None
            now = []
            for i, turn in enumerate(self.turns):
                total = joined(self._all(first + turn.quad * 16, mark))
                made.hold_product(total, [0, turn.place])
                made.hold(product.stream, joined(stream[4 * i : 4 * i + 4]), [0, turn.place])
                now += lanes(made.reader.read(made.result, [0, turn.place], 4))
        c.warp_barrier()
        return now

    def _own(self, turn: _Turn, sharing: Sharing, sums: str) -> list[Word]:
        """This cluster's part of four columns."""
        start = self.launch.place(sums) + turn.quad * 16
        parts = [c.load_reals(start + i * (4 * self.launch.layout.sum_columns), 4) for i in range(sharing.slices)]
        own = parts[0]
        for part in parts[1:]:
            own = [x + y for x, y in zip(own, part, strict=True)]
        return own

    def _all(self, first: Word, mark: Word) -> list[Word]:
        """All clusters' parts of four columns, added up."""
        layout = self.launch.layout
        places = [
            c.pointer(self.launch.exchange, first + i * (layout.quads * 16)) for i in range(layout.layer_clusters)
        ]
        found = c.await_lines(places, lambda words: (words[0] ^ mark) & 1)
        total, *parts = map(_unmarked, found)
        for part in parts:
            total = [x + y for x, y in zip(total, part, strict=True)]
        return total

    def _send(self, stream: list[Word], gamma: list[Word]) -> None:
        """The stream times gamma to all ranks, and what the norm wants to know of this rank's columns."""
        launch, layout = self.launch, self.launch.layout
        totals = []
        for i, turn in enumerate(self.turns):
            own = stream[4 * i : 4 * i + 4]
            scaled = [x * g for x, g in zip(own, gamma[4 * i : 4 * i + 4], strict=True)]
            to = (launch.rank * layout.quads + turn.quad) * 16 + layout.at["stream"]
            when(turn.works, partial(self._send_line, to, scaled))
            total = (own[0] + own[1]) + (own[2] + own[3])
            square = (own[0] * own[0] + own[1] * own[1]) + (own[2] * own[2] + own[3] * own[3])
            totals.append([turn.works.where(total, 0.0), turn.works.where(square, 0.0)])
        total, square = (reduce(Word.__add__, parts) for parts in zip(*totals, strict=True))
        for distance in (16, 8, 4, 2, 1):
            total, square = total + total.from_lane(distance), square + square.from_lane(distance)

        def statistics() -> None:
            remote = launch.remote(launch.lane)
            place = remote + layout.at["statistics"] + launch.rank * 8
            c.send(place, [total, square], remote + layout.barrier["statistics"])

        when(launch.lane < RANKS, statistics)

    def _send_line(self, to: Word, numbers: list[Word]) -> None:
        for remote in self.ranks:
            c.send(remote + to, numbers, remote + self.launch.layout.barrier["x"])

    # ---- what clusters without layers get

    def _last(self, layer: Word) -> Word:
        first = self.launch.cluster == 0
        return (layer == self.launch.layout.layers - 1) & first

    def _line(self, turn: _Turn) -> ir.Value:
        layout = self.launch.layout
        offset = (self.launch.rank * layout.quads + turn.quad) * 16 + layout.lines["final"]
        return c.pointer(self.launch.exchange, offset)

    def _leave(self, run: Word, stream: list[Word]) -> None:
        mark = ((self.launch.before + run) & 1) ^ 1
        for i, turn in enumerate(self.turns):
            own = stream[4 * i : 4 * i + 4]
            when(turn.works, partial(c.store_line, self._line(turn), [(own[0].bits() & -2) | mark, *own[1:]]))

    def _final(self, run: Word) -> None:
        gamma = self._four(self.launch.chain.norms[2].gamma, 0)
        mark = ((self.launch.before + run) & 1) ^ 1
        lines = c.await_lines([self._line(turn) for turn in self.turns], lambda words: (words[0] ^ mark) & 1)
        c.warp_barrier()
        self._send([w for line in lines for w in _unmarked(line)], gamma)


def _unmarked(line: list[Word]) -> list[Word]:
    """The numbers of a line, which are the same in every use of its place."""
    return [(line[0] & -2).bits(), *(w.bits() for w in line[1:])]


@dataclass(frozen=True)
class _Turn:
    """Four neighbouring columns of a lane.  works: whether it has any; quad: their number among the rank's, place: the
    first one's in the stream; of the first four where it has none."""

    works: Word
    quad: Word
    place: ir.Value

    @staticmethod
    def of(launch: Launch, number: Word) -> _Turn:
        works = number < launch.layout.quads
        quad = works.where(number, 0)
        return _Turn(works, quad, (launch.rank * launch.layout.columns + quad * 4).index())
