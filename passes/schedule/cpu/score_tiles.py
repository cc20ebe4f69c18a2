"""Weighed sums of some rows on a CPU, taken in tile by tile: scores and weights of a tile, and totals, on the stack."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import read_operand, store_operand
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.recognise.attention_gradients import WeightedSum
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.cpu.attention_rows import each
from lispgpt.passes.schedule.cpu.register_tiles import add_products, divisor, scratch
from lispgpt.passes.targets.pairs import LINES


@dataclass(frozen=True)
class ScoreTile:
    """kept rows of the results, each with `along` of what it is a sum over, at once.  step: of both in registers for
    dot products; it divides `kept`, or is more.  vector_bytes: of the target."""

    walk: Walk
    kept: int
    along: int
    step: int
    vector_bytes: int

    @property
    def kept_step(self) -> int:
        return min(self.step, self.kept)

    def lanes(self, depth: int) -> int:
        return b.largest_width(depth, 4, self.vector_bytes)

    @property
    def score_lanes(self) -> int:
        """Of a vector of scores, which goes along the positions."""
        count = self.along if self.walk.sums.over_positions else self.kept
        return min(self.vector_bytes // 4, 1 << count.bit_length() - 1)


class ScoreTiles:
    """What a call computes; task: of the walk's fixed loops.  first: of its rows."""

    def __init__(self, tile: ScoreTile, reader: Reader, task: Index, first: Index) -> None:
        self.tile, self.walk, self.sums, self.reader = tile, tile.walk, tile.walk.sums, reader
        self.task, self.first = task, first
        rounded = -(-tile.along // tile.step) * tile.step
        shape = [tile.kept, rounded] if self.sums.over_positions else [rounded, tile.kept]
        self.scores = [scratch(shape) for _ in self.sums.products]
        self.weights = [scratch(shape) for _ in self.sums.sums]
        self.staged = [scratch([tile.kept, product.depth]) for product in self.sums.products]
        self.totals = [scratch([tile.kept, -(-one.other.depth // LINES) * LINES]) for one in self.sums.sums]

    def run(self, kernel: ir.Operation) -> None:
        for one, total in zip(self.sums.sums, self.totals, strict=True):
            lanes = self.tile.lanes(one.other.depth)
            zero = b.constant(0.0, b.with_width(b.f32(), lanes))

            def clear(i: Index, d: Index, total: ir.Value = total, zero: ir.Value = zero) -> None:
                b.store(zero, total, [i, d], aligned=False)

            self._over_rows(one.other.depth, lanes, clear)
        each(self.reader, 0, self.walk.rounds, 1, self._round)
        buffers = dict(outputs_of(kernel))
        for one, total in zip(self.sums.sums, self.totals, strict=True):
            self._store(one, total, buffers[one.out.tensor])

    def _over_rows(self, depth: int, lanes: int, body: Callable[[Index, Index], None]) -> None:
        def row(i: Index) -> None:
            each(self.reader, 0, depth, lanes, lambda d: body(i, d))

        each(self.reader, 0, self.tile.kept, 1, row)

    def _place(self, round_: Index, i: Index, along: Index) -> tuple[list[Index], Index]:
        """The leading indices and the position, of the i-th row and of an index of what it is a sum over."""
        return self.walk.place(self.task, round_, b.add(self.first, i), along)

    def _round(self, round_: Index) -> None:
        last = b.add(self.first, self.tile.kept - 1)
        if self.walk.is_ordered:
            low, high = self.walk.range(
                self.reader, lambda k: self.walk.place(self.task, round_, k, 0)[0], self.first, last
            )
        else:
            low, high = 0, self.walk.extent(self.walk.along)
        self._stage(round_)
        each(
            self.reader,
            self._start(low),
            high,
            self.tile.along,
            lambda at: self._take(round_, at, b.at_most(b.sub(high, at), self.tile.along)),
        )

    def _start(self, low: Index) -> Index:
        """Where the first tile begins that has the index from which on there is something to add."""
        return low

    def _stage(self, round_: Index) -> None:
        """What products have of the rows, once for all that these are sums over."""
        for number, memory in enumerate(self.staged):
            side, lanes = self.walk.sides(number)[0], self.tile.lanes(self.sums.products[number].depth)

            def stage(i: Index, d: Index, side: Operand = side, lanes: int = lanes, memory: ir.Value = memory) -> None:
                place, t = self._place(round_, i, 0)
                b.store(b.extend(read_operand(self.reader, side, place, t, d, lanes)), memory, [i, d], aligned=False)

            self._over_rows(side.depth, lanes, stage)

    def _take(self, round_: Index, start: Index, count: Index) -> None:
        """Take in `count` of what rows are sums over, from `start` on."""
        for number in range(len(self.sums.products)):
            self._dot_products(number, round_, start, count)
        self._weigh(round_, start, count)
        for number in range(len(self.sums.sums)):
            self._accumulate(number, round_, start, count)

    # ---- scores

    def _dot_products(self, number: int, round_: Index, start: Index, count: Index) -> None:
        side, lanes = self.walk.sides(number)[1], self.tile.lanes(self.sums.products[number].depth)
        kept, step, extent = self.tile.kept_step, self.tile.step, self.walk.extent(self.walk.along)
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))

        def products(j: Index, i: Index) -> None:
            columns = [b.at_most(b.add(start, b.add(j, n)), extent - 1) for n in range(step)]
            rows = [b.add(i, n) for n in range(kept)]

            def read(e: Index) -> list[ir.Value]:
                places = [self._place(round_, 0, column) for column in columns]
                return [b.extend(read_operand(self.reader, side, *place, e, lanes)) for place in places]

            def own(row: Index, e: Index) -> ir.Value:
                return b.load(self.staged[number], [row, e], lanes, aligned=False)

            totals = add_products(self.reader, (side.depth, lanes), [zero] * (kept * step), rows, own, read)
            for n, total in enumerate(totals):
                where = self._at(rows[n // step], b.add(j, n % step))
                b.store(b.reduce_vector("add", total), self.scores[number], where)

        each(
            self.reader, 0, count, step, lambda j: each(self.reader, 0, self.tile.kept, kept, lambda i: products(j, i))
        )

    def _at(self, kept: Index, along: Index) -> list[Index]:
        """Where in memory for scores, by query and position."""
        return [kept, along] if self.sums.over_positions else [along, kept]

    # ---- weights

    def _weigh(self, round_: Index, start: Index, count: Index) -> None:
        lanes, over_positions = self.tile.score_lanes, self.sums.over_positions
        rows, columns = (self.tile.kept, count) if over_positions else (count, self.tile.kept)
        whole = b.mul(b.div(columns, lanes), lanes)

        def row(q: Index) -> None:
            each(self.reader, 0, whole, lanes, lambda t: self._weights(round_, start, q, t, lanes))
            each(self.reader, whole, columns, 1, lambda t: self._weights(round_, start, q, t, 1))

        each(self.reader, 0, rows, 1, row)

    def _weights(self, round_: Index, start: Index, q: Index, t: Index, width: int) -> None:
        kept, along = (q, t) if self.sums.over_positions else (t, q)
        place, position = self._place(round_, kept, b.add(start, along))
        for product, memory in zip(self.sums.products, self.scores, strict=True):
            value = b.load(memory, [q, t], width, aligned=False)
            self.reader.hold(product.op.results[0], value)
        for one, memory in zip(self.sums.sums, self.weights, strict=True):
            b.store(b.extend(self.reader.read(one.weights, [*place, position], width)), memory, [q, t], aligned=False)

    # ---- totals

    def _accumulate(self, number: int, round_: Index, start: Index, count: Index) -> None:
        one, totals = self.sums.sums[number], self.totals[number]
        depth, lanes = one.other.depth, self.tile.lanes(one.other.depth)
        chunk = divisor(depth // lanes, 8)
        kept = divisor(self.tile.kept, max(1, 16 // chunk))

        def add(i: Index, d: Index) -> None:
            columns, rows = [b.add(d, c * lanes) for c in range(chunk)], [b.add(i, n) for n in range(kept)]
            places = [[row, column] for row in rows for column in columns]

            def read(j: Index) -> list[ir.Value]:
                place = self._place(round_, 0, b.add(start, j))
                return [b.extend(read_operand(self.reader, one.other, *place, c, lanes)) for c in columns]

            def weight(row: Index, j: Index) -> ir.Value:
                return b.splat(b.load(self.weights[number], self._at(row, j), 1), lanes)

            older = [b.load(totals, place, lanes, aligned=False) for place in places]
            found = add_products(self.reader, (count, 1), older, rows, weight, read)
            for place, total in zip(places, found, strict=True):
                b.store(total, totals, place, aligned=False)

        each(
            self.reader,
            0,
            self.tile.kept,
            kept,
            lambda i: each(self.reader, 0, depth, chunk * lanes, lambda d: add(i, d)),
        )

    def _store(self, one: WeightedSum, totals: ir.Value, buffer: ir.Value) -> None:
        lanes = self.tile.lanes(one.other.depth)

        def store(i: Index, d: Index) -> None:
            value = b.shortened(b.load(totals, [i, d], lanes, aligned=False), one.out.element)
            place, t = self._place(0, i, 0)
            store_operand(value, buffer, one.out, place, t, d)

        self._over_rows(one.other.depth, lanes, store)
