"""What lanes make of tiles of scores for sums that these weigh: elementwise ops on them, and on what is read beside."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, replace

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.matrices import flat, shaped
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.schedule.attention.probabilities import RowValues, Where
from lispgpt.passes.tile.lower.register_rows import Seat
from lispgpt.passes.tile.lower.units import SubgroupSums
from lispgpt.passes.tile.sum_rows import SumRows
from lispgpt.passes.tile.types import RegisterTile


@dataclass(frozen=True)
class ScoreWeights:
    """tile: of scores.  task, first: the block's, and its first row.  values: of tensors with a number for each row of
    scores; own: what these have at each of the lane's rows, where rows of scores are those of results."""

    rows: SumRows
    reader: Reader
    seat: Seat
    tile: RegisterTile
    task: Index
    first: Index
    values: RowValues
    own: list[list[ir.Value]]

    @staticmethod
    def ahead(rows: SumRows, reader: Reader, seat: Seat, tile: RegisterTile, task: Index, first: Index) -> ScoreWeights:
        """Of a block's rows: what can be read ahead of all tiles has been."""
        values = RowValues(rows.sums, reader, rows.walk.along)
        found = ScoreWeights(rows, reader, seat, tile, task, first, values, [])
        return replace(found, own=[values.read(found._place(0, row, 0), 1) for row in found._kept])

    @property
    def _kept(self) -> list[Index]:
        return [b.add(self.first, row) for row in self.seat.result_rows(self.tile)]

    def _place(self, round_: Index, kept: Index, along: Index) -> Where:
        inside = b.at_most(kept, self.rows.rows - 1) if self.rows.rows % self.tile.shape[1] else kept
        return self.rows.walk.place(self.task, round_, inside, along)

    @property
    def _ragged(self) -> bool:
        return self.rows.along % self.tile.shape[2] != 0

    def of(self, round_: Index, at: Index, scores: Sequence[SubgroupSums]) -> list[SubgroupSums]:
        """For each sum; unmasked where all of a team's rows see the whole tile."""
        walk, (_, rows, count) = self.rows.walk, self.tile.shape
        each = rows // self.tile.teams[0]
        own = b.add(self.first, b.mul(self.seat.row_part, each))
        whole = walk.all_seen(own, each, at, count) if walk.is_ordered else None
        pairs = [self._beside(round_, at, n) for n in range(count // self.seat.unit.columns)]

        def made(whole: bool) -> list[ir.Value]:
            known = walk.sums.known_within if whole else frozenset()
            with self.reader.scope(), self.reader.assuming(known):
                return [value for one in self._made(round_, at, scores, pairs, whole) for value in one]

        size = len(scores[0].values)
        types = [scores[0].values[0].type] * (size * len(walk.sums.sums))
        found = made(False) if whole is None else b.choose(whole, types, lambda: made(True), lambda: made(False))
        return [replace(scores[0], values=list(found[i : i + size])) for i in range(0, len(found), size)]

    def _columns(self, at: Index, tile: int) -> list[Index]:
        """The lane's neighbours in one of the instructions, or in place of such that are none the last ones, of which
        the first is even."""
        unit, long = self.seat.unit, self.rows.along
        count = len(unit.pieces()[0].elements)
        first = b.add(at, b.add(self.seat.lanes.result_column, tile * unit.columns))
        if self._ragged and long % count == 0:
            first = b.at_most(first, long - count)
        elif self._ragged:
            return [b.at_most(b.add(first, i), long - 1) for i in range(count)]
        return [b.add(first, i) for i in range(count)]

    def _beside(self, round_: Index, at: Index, tile: int) -> list[list[ir.Value]]:
        return self.values.read_pair(lambda along: self._place(round_, 0, along), self._columns(at, tile))

    def _made(
        self, round_: Index, at: Index, scores: Sequence[SubgroupSums], pairs: list[list[list[ir.Value]]], whole: bool
    ) -> Iterator[list[ir.Value]]:
        """[sum][accumulator]."""
        unit, (high, wide) = self.seat.unit, scores[0].tiles
        each, kept = len(unit.pieces()), self._kept
        found: list[list[ir.Value]] = [[] for _ in self.rows.sums.sums]
        for number in range(high * wide):
            m, n = divmod(number, wide)
            vectors = [flat(one.values[number]) for one in scores]
            elements: list[dict[int, ir.Value]] = [{} for _ in found]
            for i, piece in enumerate(unit.pieces()):
                row = m * each + i
                for j, (element, column) in enumerate(zip(piece.elements, self._columns(at, n), strict=True)):
                    given = [b.lane_of(vector, element) for vector in vectors]
                    held = [*self.own[row], *(pair[j] for pair in pairs[n])]
                    made = self.values.weights(given, held, self._place(round_, kept[row], column))
                    for into, weight in zip(elements, made, strict=True):
                        into[element] = weight if whole else self._live(weight, at, n, j)
            for one, of in zip(found, elements, strict=True):
                one.append(shaped(b.vector_of([of[e] for e in range(len(of))]), unit.accumulator_type()))
        yield from found

    def _live(self, weight: ir.Value, at: Index, tile: int, neighbour: int) -> ir.Value:
        """0 past the end."""
        if not self._ragged:
            return weight
        column = b.add(at, b.add(self.seat.lanes.result_column, tile * self.seat.unit.columns + neighbour))
        return b.select(b.less(column, self.rows.along), weight, b.constant(0.0, b.f32()))


def reach(rows: SumRows, reader: Reader, task: Index, first: Index, count: int) -> list[Index]:
    """From where to where some of neighbouring rows have something to sum, the second excluded."""
    walk, last = rows.walk, b.at_most(b.add(first, count - 1), rows.rows - 1)
    if not walk.is_ordered:
        return [0, rows.along]
    place: Callable[[Index], list[Index]] = lambda kept: walk.place(task, 0, kept, 0)[0]  # noqa: E731
    return list(walk.range(reader, place, first, last))
