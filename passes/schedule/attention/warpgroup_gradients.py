"""What a lane of a warpgroup makes of scores for attention's gradients, and where it writes their sums."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import store_operand
from lispgpt.passes.kernels.matrices import Lanes
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.attention.probabilities import RowValues, Where

ROWS = 64
"""Of a warpgroup."""

Pairs = list[list[list[ir.Value]]]
"""[eight columns][tensor][column]: what rows have of their own, for the lane's two columns of each eight."""


@dataclass(frozen=True)
class GradientWeights:
    """kept: the lane's rows; first: the warpgroup's.  place: of a row and an index along.  count: of a tile."""

    walk: Walk
    reader: Reader
    lanes: Lanes
    kept: list[Index]
    first: Index
    place: Callable[[Index, Index], Where]
    count: int
    values: RowValues
    own: list[list[ir.Value]]

    @property
    def long(self) -> int:
        return self.walk.extent(self.walk.along)

    def ahead(self, at: Index) -> Pairs:
        """What has to be read for a tile from `at` on, long before its scores are there."""
        return [self.values.read_pair(lambda c: self.place(0, c), self._columns(at, n)) for n in range(self.count // 8)]

    def _columns(self, at: Index, eight: int) -> list[Index]:
        """The lane's two, or in place of such that are none the last ones, of which the first is even."""
        first = b.add(at, b.add(self.lanes.result_column, 8 * eight))
        if self.long % self.count == 0:
            return [first, b.add(first, 1)]
        if self.long % 2 == 0:
            first = b.at_most(first, self.long - 2)
            return [first, b.add(first, 1)]
        return [b.at_most(b.add(first, i), self.long - 1) for i in range(2)]

    def of(self, at: Index, scores: list[list[ir.Value]], pairs: Pairs) -> list[list[list[ir.Value]]]:
        """[sum][row][column], unmasked where all rows of the warpgroup see the whole tile."""
        sizes = (len(self.walk.sums.sums), len(self.kept), self.count // 4)

        def made(whole: bool) -> list[ir.Value]:
            known = self.walk.sums.known_within if whole else frozenset()
            with self.reader.scope(), self.reader.assuming(known):
                return self._made(at, scores, pairs, whole)

        whole = self.walk.all_seen(self.first, ROWS, at, self.count)
        if whole is None:
            found = made(False)
        else:
            found = b.choose(whole, [b.f32()] * prod(sizes), lambda: made(True), lambda: made(False))
        rest = iter(found)
        return [[[next(rest) for _ in range(sizes[2])] for _ in range(sizes[1])] for _ in range(sizes[0])]

    def _made(self, at: Index, scores: list[list[ir.Value]], pairs: Pairs, whole: bool) -> list[ir.Value]:
        sums = self.walk.sums
        found: list[list[list[ir.Value]]] = [[[] for _ in self.kept] for _ in sums.sums]
        zero, ragged = b.constant(0.0, b.f32()), self.long % self.count != 0 and not whole
        for eight in range(self.count // 8):
            first = b.add(at, b.add(self.lanes.result_column, 8 * eight))
            for row, kept in enumerate(self.kept):
                for i, column in enumerate(self._columns(at, eight)):
                    own = [*self.own[row], *(pair[i] for pair in pairs[eight])]
                    live = b.less(b.add(first, i), self.long) if ragged else None
                    numbers = [one[4 * eight + 2 * row + i] for one in scores]
                    for n, weight in enumerate(self.values.weights(numbers, own, self.place(kept, column))):
                        found[n][row].append(weight if live is None else b.select(live, weight, zero))
        return [value for one in found for row in one for value in row]

    def store(self, out: Operand, buffer: ir.Value, values: list[ir.Value], inside: list[ir.Value] | None) -> None:
        """A sum's numbers of the lane's rows; inside: whether these are rows at all."""
        for row, kept in enumerate(self.kept):
            place = self.place(kept, 0)

            def write(row: int = row, place: Where = place) -> None:
                for eight in range(len(values) // 4):
                    pair = b.vector_of(values[4 * eight + 2 * row : 4 * eight + 2 * row + 2])
                    d = b.add(self.lanes.result_column, 8 * eight)
                    store_operand(b.shortened(pair, out.element), buffer, out, *place, d, True)

            b.if_live(None if inside is None else inside[row], write)
