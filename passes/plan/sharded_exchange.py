"""The exchanger of a sharded launch: a warp that owns a rank's columns of the stream.

Every cluster has a part of what is added to the stream.  Rank r of each writes its part of the rank's columns, four
numbers a line, where rank r of all clusters reads; all add them up in the same order, so that they have the same bits.
The lowest bit of a line's first number says of which use of its place it is: a place is used again two exchanges later,
when what was written there depends on what all its readers have sent since.  Then a rank tells its cluster.
"""

from __future__ import annotations

from functools import reduce

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.read import outputs_of
from lispgpt.passes.kernels.words import Word, either, loop, when, word
from lispgpt.passes.plan.sharded_chain import Product
from lispgpt.passes.plan.sharded_choice import Choice, choose, end, leave, tell
from lispgpt.passes.plan.sharded_draw import Draw
from lispgpt.passes.plan.sharded_launch import Launch, copied, finished, halves, lanes, preload
from lispgpt.passes.plan.sharded_layout import RANKS, STREAM, TWO_ROLES
from lispgpt.passes.plan.sharded_tail import Series


class Exchanger:
    def __init__(self, launch: Launch) -> None:
        self.launch = launch
        layout, lane = launch.layout, launch.lane
        self.works = lane < layout.quads
        self.quad = self.works.where(lane, 0)
        self.within = (self.quad // 4) * 16 + (self.quad % 4) * 2
        self.column = launch.rank * layout.columns + self.within
        self.places = [(self.column + more).index() for more in (0, 8)]

    def emit(self) -> None:
        """With the last run's results by the first block."""
        launch = self.launch
        self.ranks = [launch.remote(i) for i in range(RANKS)]
        if launch.layout.draws:
            self._drawn(Draw(launch))
            return

        def run(number: Word, token: Word) -> list[Word]:
            def layered() -> list[Word]:
                chosen = either(number > 0, "r", lambda: [self._chosen(number)], lambda: [token])[0]
                self._stream(number, chosen)
                return [chosen]

            def other() -> list[Word]:
                self._final(number)
                return [token]

            (token,) = either(launch.layered, "r", layered, other)
            c.meet(STREAM, TWO_ROLES)
            tell(launch, launch.before + number + 1)
            return [token]

        loop(0, launch.times, [launch.token], run)
        when(launch.block == 0, lambda: end(launch, choose(launch, launch.before + launch.times), launch.times - 1))

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
                when(self._reports, lambda: leave(launch, choice, number))
            return [choice.token, result, round_]

        _, result, round_ = loop(0, launch.times, [launch.token, word(0), draw.round], run)

        def last() -> None:
            end(launch, Choice((result < 0).where(0, result), result, []), None)
            when(launch.lane == 0, lambda: b.store(round_.value, launch.exchange, [1]))

        when(launch.block == 0, last)

    @property
    def _reports(self) -> Word:
        """Whether this thread leaves results."""
        return (self.launch.block == 0) & (self.launch.lane == 0)

    def _chosen(self, run: Word) -> Word:
        """The token that the run before this one has chosen."""
        launch = self.launch
        choice = choose(launch, launch.before + run)
        if launch.kept:
            when(self._reports, lambda: leave(launch, choice, run - 1))
        return choice.token

    # ---- the stream

    def _stream(self, run: Word, token: Word) -> None:
        launch, chain, layout = self.launch, self.launch.chain, self.launch.layout
        position = launch.position + run
        with copied(launch, chain.embedding, chain.embedded, 0) as made:
            for argument, series in chain.embedded.items():
                if series.buffer in (chain.tokens, chain.positions):
                    made.hold(argument, (token if series.buffer == chain.tokens else position).value)
            tensor = next(t for t, m in outputs_of(made.op) if ir.BlockArgument(m).arg_number == chain.stream)
            pairs = [made.reader.read(tensor, [0, place], 2) for place in self.places]
        x = [w for pair in pairs for w in lanes(pair)]
        self._send(x, self._four(chain.norms[0].gamma, 0))

        def layer(number: Word, *stream: Word) -> list[Word]:
            gamma = self._four(chain.norms[1].gamma, number)
            now = self._exchange(run, number, 0, chain.out, list(stream), "out_sums")
            self._send(now, gamma)
            gamma = either(
                number + 1 < layout.layers, "ffff",
                lambda: self._four(chain.norms[0].gamma, number + 1), lambda: self._four(chain.norms[2].gamma, 0),
            )  # fmt: skip
            now = self._exchange(run, number, 1, chain.down, now, "down_sums")
            when(self._last(number), lambda: self._leave(run, now))
            self._send(now, gamma)
            return now

        loop(0, layout.layers, x, layer)

    def _four(self, series: Series, layer: Word | int) -> list[Word]:
        memory = self.launch.floats(series, layer)
        return [w for place in self.places for w in lanes(b.load(memory, [place], 2))]

    def _exchange(
        self, run: Word, layer: Word, number: int, product: Product, stream: list[Word], sums: str
    ) -> list[Word]:
        """The stream with all clusters' parts."""
        launch, layout = self.launch, self.launch.layout
        count = (launch.before + run) * (2 * layout.layers) + layer * 2 + number
        mark = ((count >> 1) & 1) ^ 1
        sharing = layout.out if number == 0 else layout.down
        first = (((count & 1) * RANKS + launch.rank) * layout.layer_clusters) * (layout.quads * 16) + self.quad * 16
        first = first + layout.lines["slots"]
        places = [c.pointer(launch.exchange, first + i * (layout.quads * 16)) for i in range(layout.layer_clusters)]
        mine = c.pointer(launch.exchange, first + launch.cluster * (layout.quads * 16))
        with finished(launch, product, layer) as made:
            for place in self.places:
                preload(made, [0, place], 2)
            c.meet(STREAM, TWO_ROLES)
            start = launch.place(sums) + self.within * 4
            parts = []
            for i in range(sharing.slices):
                parts.append([w for more in (0, 32) for w in c.load_reals(start + i * (4 * layout.columns) + more, 2)])
            own = parts[0]
            for part in parts[1:]:
                own = [x + y for x, y in zip(own, part, strict=True)]
            line = [(own[0].bits() & -2) | mark, *own[1:]]
            when(self.works, lambda: c.store_line(mine, line))
            found = c.await_lines(places, lambda words: (words[0] ^ mark) & 1)
            total = [w.bits() for w in found[0]]
            for part in found[1:]:
                total = [x + w.bits() for x, w in zip(total, part, strict=True)]
            sums_, before = halves(total), halves(stream)
            assert product.stream is not None
            now = []
            for i, place in enumerate(self.places):
                made.hold_product(sums_[i], [0, place])
                made.hold(product.stream, before[i], [0, place])
                now += lanes(made.reader.read(made.result, [0, place], 2))
        c.warp_barrier()
        return now

    def _send(self, stream: list[Word], gamma: list[Word]) -> None:
        """The stream times gamma to all ranks, and what the norm wants to know of this rank's columns."""
        launch, layout = self.launch, self.launch.layout
        scaled = [x * g for x, g in zip(stream, gamma, strict=True)]
        to = (launch.rank * layout.quads + launch.lane) * 16 + layout.at["stream"]

        def send() -> None:
            for remote in self.ranks:
                c.send(remote + to, scaled, remote + layout.barrier["x"])

        when(self.works, send)
        total = (stream[0] + stream[1]) + (stream[2] + stream[3])
        square = (stream[0] * stream[0] + stream[1] * stream[1]) + (stream[2] * stream[2] + stream[3] * stream[3])
        total, square = self.works.where(total, 0.0), self.works.where(square, 0.0)
        for distance in (16, 8, 4, 2, 1):
            total, square = total + total.from_lane(distance), square + square.from_lane(distance)

        def statistics() -> None:
            remote = launch.remote(launch.lane)
            place = remote + layout.at["statistics"] + launch.rank * 8
            c.send(place, [total, square], remote + layout.barrier["statistics"])

        when(launch.lane < RANKS, statistics)

    # ---- what clusters without layers get

    def _last(self, layer: Word) -> Word:
        first = (self.launch.cluster == 0).value
        flags = [(layer == self.launch.layout.layers - 1).value, first, self.works.value]
        return Word(reduce(lambda x, y: b.emit("arith.andi", [x, y], [x.type]), flags))

    def _line(self) -> ir.Value:
        layout = self.launch.layout
        offset = (self.launch.rank * layout.quads + self.quad) * 16 + layout.lines["final"]
        return c.pointer(self.launch.exchange, offset)

    def _leave(self, run: Word, stream: list[Word]) -> None:
        mark = ((self.launch.before + run) & 1) ^ 1
        c.store_line(self._line(), [(stream[0].bits() & -2) | mark, *stream[1:]])

    def _final(self, run: Word) -> None:
        gamma = self._four(self.launch.chain.norms[2].gamma, 0)
        mark = ((self.launch.before + run) & 1) ^ 1
        (line,) = c.await_lines([self._line()], lambda words: (words[0] ^ mark) & 1)
        c.warp_barrier()
        self._send([w.bits() for w in line], gamma)
