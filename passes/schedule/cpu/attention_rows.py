"""Some rows' softmax-weighted sums on a CPU, positions taken in tile by tile: scores, weights and sums on the stack."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand, result_buffer, store_log_sum, store_operand
from lispgpt.passes.kernels.expand import exp
from lispgpt.passes.kernels.matrices import transposed
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.softmax import LOWEST
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.schedule.cpu.register_tiles import add_products, divisor, scratch

Places = Callable[[Index], list[Index]]
"""The leading indices of the scores for a row, by its number in a tile."""


def each(reader: Reader, low: Index, high: Index, step: int, body: Callable[[Index], None]) -> None:
    """A loop that carries nothing."""

    def run(index: Index) -> None:
        with reader.scope():
            body(index)

    b.each(low, high, step, run)


@dataclass(frozen=True)
class Tile:
    """queries rows by keys positions that are held at once.  query_step, key_step: of them in registers for dot
    products.  lanes: scores in a vector; key_lanes, value_lanes: numbers of a key and of a value in one."""

    attention: Attention
    queries: int
    query_step: int
    keys: int
    key_step: int
    lanes: int
    key_lanes: int
    value_lanes: int

    @property
    def alone(self) -> bool:
        """Whether it has all positions, so that there are no sums of earlier ones."""
        return self.keys >= self.attention.context and self.attention.lower is None

    @property
    def ragged(self) -> bool:
        """Whether the positions are no multiple of a vector of scores."""
        return self.attention.context % self.lanes != 0


class RowSums:
    """What a tile's rows have summed so far: their largest score, the sum of their weights, and of weighted values."""

    def __init__(self, tile: Tile, reader: Reader) -> None:
        self.tile, self.attention, self.reader = tile, tile.attention, reader
        self.scores, self.staged = (scratch([tile.queries, n]) for n in (tile.keys, tile.attention.depth))
        self.sums = scratch([tile.queries, tile.attention.width])
        self.tops, self.totals, self.scales = (scratch([tile.queries]) for _ in range(3))
        across = tile.queries >= tile.lanes == tile.key_lanes
        self.transposed = scratch([tile.attention.depth, tile.lanes]) if across else None

    def start(self, places: Places) -> None:
        """Before any position: queries are computed once, together with what leads to them, and kept for all keys."""
        self._each_row(lambda q: self._stage(places(q), q))
        if not self.tile.alone:
            self._each_row(self._clear)

    def take(self, places: Places, start: Index, count: Index) -> None:
        """Take in `count` positions from `start` on."""
        place = places(0)
        (self._dot_products if self.transposed is None else self._dot_products_across)(place, start, count)
        self._each_row(lambda q: self._weigh(places(q), q, start, count))
        self._add_values(place, start, count)

    def store(self, places: Places, kernel: ir.Operation) -> None:
        """Each row's sums over its total, and its log-sum-exp, to where the kernel has them."""
        buffer = result_buffer(kernel, self.attention)
        self._each_row(lambda q: self._store(places(q), q, buffer))
        if self.attention.log_sum:
            self._each_row(lambda q: self._store_log_sum(places(q), q, kernel))

    def _store_log_sum(self, at: Place, q: Index, kernel: ir.Operation) -> None:
        top, total = (b.load(values, [q], 1) for values in (self.tops, self.totals))
        store_log_sum(kernel, self.attention, at, top, total)

    def _each_row(self, body: Callable[[Index], None]) -> None:
        each(self.reader, 0, self.tile.queries, 1, body)

    def _stage(self, at: Place, q: Index) -> None:
        def stage(e: Index) -> None:
            query = read_operand(self.reader, self.attention.queries, at, None, e, self.tile.key_lanes)
            b.store(b.extend(query), self.staged, [q, e], aligned=False)

        each(self.reader, 0, self.attention.depth, self.tile.key_lanes, stage)

    def _clear(self, q: Index) -> None:
        b.store(b.constant(LOWEST, b.f32()), self.tops, [q])
        b.store(b.constant(0.0, b.f32()), self.totals, [q])
        zero = b.constant(0.0, b.with_width(b.f32(), self.tile.value_lanes))
        width, lanes = self.attention.width, self.tile.value_lanes
        each(self.reader, 0, width, lanes, lambda d: b.store(zero, self.sums, [q, d], aligned=False))

    # ---- scores

    def _dot_products(self, place: Place, start: Index, count: Index) -> None:
        lanes, tiles = self.tile.key_lanes, (self.tile.query_step, self.tile.key_step)
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))

        def products(t: Index, q: Index) -> None:
            keys = [self._inside(b.add(start, b.add(t, j))) for j in range(tiles[1])]
            queries = [b.add(q, i) for i in range(tiles[0])]

            def read(e: Index) -> list[ir.Value]:
                found = [read_operand(self.reader, self.attention.keys, place, t, e, lanes) for t in keys]
                return [b.extend(key) for key in found]

            def own(query: Index, e: Index) -> ir.Value:
                return b.load(self.staged, [query, e], lanes, aligned=False)

            zeros = [zero] * (tiles[0] * tiles[1])
            totals = add_products(self.reader, (self.attention.depth, lanes), zeros, queries, own, read)
            for number, total in enumerate(totals):
                i, j = divmod(number, tiles[1])
                b.store(b.reduce_vector("add", total), self.scores, [queries[i], b.add(t, j)])

        def position(t: Index) -> None:
            each(self.reader, 0, self.tile.queries, tiles[0], lambda q: products(t, q))

        each(self.reader, 0, count, tiles[1], position)

    def _dot_products_across(self, place: Place, start: Index, count: Index) -> None:
        """The same in vectors of positions, whose keys are transposed first: that pays for many rows."""
        lanes, reader, keys = self.tile.lanes, self.reader, self.transposed
        rows = divisor(self.tile.queries, lanes)
        zeros = [b.constant(0.0, b.with_width(b.f32(), lanes))] * rows

        def turn(t: Index, e: Index) -> None:
            positions = [self._inside(b.add(start, b.add(t, j))) for j in range(lanes)]
            read = [read_operand(reader, self.attention.keys, place, position, e, lanes) for position in positions]
            for number, elements in enumerate(transposed([b.extend(key) for key in read])):
                b.store(elements, keys, [b.add(e, number), 0])

        def products(t: Index, q: Index) -> None:
            def multiply(e: ir.Value, *sums: ir.Value) -> list[ir.Value]:
                key = b.load(keys, [e, 0], lanes)
                elements = [b.load(self.staged, [b.add(q, i), e], 1) for i in range(rows)]
                return [b.fma(b.splat(x, lanes), key, total) for x, total in zip(elements, sums, strict=True)]

            for number, total in enumerate(b.loop(0, self.attention.depth, 1, zeros, multiply)):
                b.store(total, self.scores, [b.add(q, number), t], aligned=False)

        def vector(t: Index) -> None:
            each(reader, 0, self.attention.depth, lanes, lambda e: turn(t, e))
            each(reader, 0, self.tile.queries, rows, lambda q: products(t, q))

        each(reader, 0, self._rounded(count), lanes, vector)

    def _inside(self, t: Index) -> Index:
        """A position that there is, in place of one past the last that only fills a tile of registers."""
        return b.at_most(t, self.attention.context - 1) if self.tile.ragged else t

    # ---- softmax

    def _weigh(self, at: Place, q: Index, start: Index, count: Index) -> None:
        """Replace a row's scores by exp(score - maximum), with its maximum and sum, and the scale of older sums."""
        wide = b.with_width(b.f32(), self.tile.lanes)
        peaks = self._mask(at, q, start, count)
        old = None if self.tile.alone else b.load(self.tops, [q], 1)
        top = b.reduce_vector("maximumf", peaks)
        top = top if old is None else b.binary("arith.maximumf", old, top)
        below = b.splat(top, self.tile.lanes)

        def step(t: ir.Value, total: ir.Value) -> list[ir.Value]:
            score = b.load(self.scores, [q, t], self.tile.lanes, aligned=False)
            weight = exp(b.binary("arith.subf", score, below), self.reader.target)
            self._keep(q, t, weight)
            return [b.binary("arith.addf", total, weight)]

        (totals,) = b.loop(0, self._rounded(count), self.tile.lanes, [b.constant(0.0, wide)], step)
        total = b.reduce_vector("add", totals)
        if old is not None:
            scale = exp(b.binary("arith.subf", old, top), self.reader.target)
            self._rescale(q, scale)
            b.store(top, self.tops, [q])
            total = b.fma(b.load(self.totals, [q], 1), scale, total)
        elif self.attention.log_sum:
            b.store(top, self.tops, [q])
        b.store(total, self.totals, [q])

    def _keep(self, q: Index, t: Index, weight: ir.Value) -> None:
        """A vector of a row's weights."""
        b.store(weight, self.scores, [q, t], aligned=False)

    def _rescale(self, q: Index, scale: ir.Value) -> None:
        """What a row's sums so far are to be multiplied by, before they are added to."""
        b.store(scale, self.scales, [q])

    def _rounded(self, count: Index) -> Index:
        """Up to whole vectors of scores."""
        return b.mul(b.div(b.add(count, self.tile.lanes - 1), self.tile.lanes), self.tile.lanes)

    def _mask(self, at: Place, q: Index, start: Index, count: Index) -> ir.Value:
        """Make of a row's scores what softmax takes; the largest in each lane."""
        lanes, reader = self.tile.lanes, self.reader
        scores, read = self.attention.scores.results[0], self.attention.softmax.operands[0]
        lowest = b.constant(-math.inf, b.with_width(b.f32(), lanes))

        def masked(t: ir.Value, width: int) -> ir.Value:
            with reader.scope():
                reader.bind(scores, lambda index, wide: b.load(self.scores, [q, t], wide, aligned=False))
                value = reader.read(read, [*at, b.add(start, t)], width)
            b.store(value, self.scores, [q, t], aligned=False)
            return value

        def step(t: ir.Value, largest: ir.Value) -> list[ir.Value]:
            return [b.binary("arith.maximumf", largest, masked(t, lanes))]

        if not self.tile.ragged:
            return b.loop(0, self._rounded(count), lanes, [lowest], step)[0]
        whole = b.mul(b.div(count, lanes), lanes)
        (largest,) = b.loop(0, whole, lanes, [lowest], step)
        hidden = b.constant(-math.inf, b.f32())
        each(self.reader, whole, count, 1, lambda t: masked(t, 1))
        each(self.reader, count, self._rounded(count), 1, lambda t: b.store(hidden, self.scores, [q, t]))

        def rest(t: ir.Value, largest: ir.Value) -> list[ir.Value]:
            return [b.binary("arith.maximumf", largest, b.load(self.scores, [q, t], lanes, aligned=False))]

        return b.loop(whole, self._rounded(count), lanes, [largest], rest)[0]

    # ---- weighted sums

    def _add_values(self, place: Place, start: Index, count: Index) -> None:
        lanes = self.tile.value_lanes
        chunk = divisor(self.attention.width // lanes, 8)
        tile = divisor(self.tile.queries, max(1, 16 // chunk))

        def add(q: Index, d: Index) -> None:
            columns = [b.add(d, c * lanes) for c in range(chunk)]
            queries = [b.add(q, i) for i in range(tile)]

            def read(t: Index) -> list[ir.Value]:
                where = b.add(start, t)
                found = [read_operand(self.reader, self.attention.values, place, where, c, lanes) for c in columns]
                return [b.extend(value) for value in found]

            def weight(query: Index, t: Index) -> ir.Value:
                return b.splat(b.load(self.scores, [query, t], 1), lanes)

            older = [self._older(query, column) for query in queries for column in columns]
            for number, total in enumerate(add_products(self.reader, (count, 1), older, queries, weight, read)):
                where = [queries[number // chunk], columns[number % chunk]]
                b.store(total, self.sums, where, aligned=False)

        each(
            self.reader,
            0,
            self.tile.queries,
            tile,
            lambda q: each(self.reader, 0, self.attention.width, chunk * lanes, lambda d: add(q, d)),
        )

    def _older(self, query: Index, column: Index) -> ir.Value:
        """A part of a row's sums over earlier tiles, for its new maximum."""
        lanes = self.tile.value_lanes
        if self.tile.alone:
            return b.constant(0.0, b.with_width(b.f32(), lanes))
        scale = b.splat(b.load(self.scales, [query], 1), lanes)
        return b.binary("arith.mulf", b.load(self.sums, [query, column], lanes, aligned=False), scale)

    def _store(self, at: Place, q: Index, buffer: ir.Value) -> None:
        out, lanes = self.attention.out, self.tile.value_lanes
        inverse = b.binary("arith.divf", b.constant(1.0, b.f32()), b.load(self.totals, [q], 1))

        def store(d: Index) -> None:
            value = b.load(self.sums, [q, d], lanes, aligned=False)
            value = b.shortened(b.binary("arith.mulf", value, b.splat(inverse, lanes)), out.element)
            store_operand(value, buffer, out, at, None, d)

        each(self.reader, 0, self.attention.width, lanes, store)
