"""Products of a clustered launch that sum over what a cluster has: a rank's columns of the residual stream.

A chunk is 64 of a weight's columns for all of the rank's rows, 16 of which are a matrix instruction's.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, lesser, loop, real, word
from lispgpt.passes.decode_step.layout import LINE
from lispgpt.passes.decode_step.products import PAIR, Loaded, Numbers, Products
from lispgpt.passes.decode_step.sharing import SUBGROUPS, Sharing
from lispgpt.passes.decode_step.weights import Fragment, Scale, Weights
from lispgpt.passes.targets import ptx


class ColumnProducts:
    def __init__(self, products: Products, weights: Weights) -> None:
        self.products, self.weights, self.launch = products, weights, products.launch
        self.group, self.part = products.group, products.part

    def load(self, chunk: Number, sharing: Sharing) -> Loaded:
        """The chunk-th chunk and those behind it, each 64 columns of the rank's rows."""
        launch, layout, weights = self.launch, self.launch.layout, self.weights
        number, works = self.products.share_out(sharing)
        tile, part = number % sharing.tiles, number // sharing.tiles
        first, line = part * sharing.steps, LINE // 16
        row = self._row(tile)
        each_, count = weights.shared(sharing.steps, line)

        def load() -> Numbers:
            numbers: list[Fragment] = []
            scales: list[Scale] = []
            for start in range(0, sharing.steps, line):
                slot, parity = launch.slot(chunk + (first + start) // line)
                ptx.wait(launch.full(slot), parity)
                base = launch.start + slot * layout.chunk
                for step in range(start, min(start + line, sharing.steps)):
                    within = (first + step) % line
                    numbers.append(weights.load(weights.column_place(base, within, tile, row)))
                    if step % each_ == 0:
                        scales += weights.column_scales(base, within, tile)
                self.products.release(slot, layout.arrivals // layout.readers(sharing))
            return numbers, scales

        found = self.products.load_where(works, sharing.steps, (count, 2), load)
        return Loaded(sharing, tile, part, works, *found)

    def multiply(self, loaded: Loaded, source: str, sums: str) -> None:
        """Multiply by what the cluster has, and leave sums for the exchanger."""
        sharing, layout = loaded.sharing, self.launch.layout
        right = self._operand(source, loaded.slice * sharing.steps, sharing.steps)
        x = self.weights.sums(loaded.numbers, right, loaded.scales)
        place = self.launch.place(sums) + (loaded.slice * layout.sum_columns + loaded.tile * 16 + self.group) * 4
        self._leave(place, x, loaded.works)

    def walk(self, chunk: Number, count: int, source: str, sums: str) -> None:
        """Multiply so many chunks of 64 columns by what the cluster has; a subgroup has some tiles of rows in all of
        them, whose sums it leaves for the exchanger."""
        launch, layout = self.launch, self.launch.layout
        tiles = layout.out_projection.all
        mine = [launch.subgroup + first for first in range(0, tiles, SUBGROUPS)]
        works = [None if SUBGROUPS * (i + 1) <= tiles else tile < tiles for i, tile in enumerate(mine)]

        def one(number: Number, *totals: Number) -> list[Number]:
            slot, parity = launch.slot(chunk + number)
            ptx.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            right = self._operand(source, number * (LINE // 16), LINE // 16)
            found: list[Number] = []
            for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
                before = list(totals[4 * i : 4 * i + 4])
                multiply = partial(self._tile, base, tile, right, before)
                found += multiply() if there is None else either(there, "ffff", multiply, partial(list, before))
            self.products.release(slot, 1)
            return found

        totals = loop(0, count, [real(0.0)] * (4 * len(mine)), one)
        for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
            place = launch.place(sums) + (tile * 16 + self.group) * 4
            self._leave(place, totals[4 * i : 4 * i + 4], there)

    def _tile(self, base: Number, tile: Number, right: list[Fragment], totals: list[Number]) -> list[Number]:
        row, steps, weights = self._row(tile), len(right), self.weights
        numbers = [weights.load(weights.column_place(base, step, tile, row)) for step in range(steps)]
        each_, _ = weights.shared(steps, steps)
        scales = (s for step in range(0, steps, each_) for s in weights.column_scales(base, step, tile))
        return weights.sums(numbers, right, scales, totals, 1)

    def _row(self, tile: Number) -> Number:
        """A lane's row of a tile of 16, one that is there."""
        row = tile * 16 + self.launch.lane % 16
        columns = self.launch.layout.columns
        return lesser(row, word(columns - 1)) if columns % 16 else row

    def _operand(self, source: str, first: Number, count: int) -> list[Fragment]:
        start = self.launch.place(source) + self.part * PAIR + (self.group & 3) * 4 + first * (8 * PAIR)
        pairs = [start + step * (8 * PAIR) for step in range(count)]
        return [[ptx.load_words(pair + late, 1)[0] for late in (0, 4 * PAIR)] for pair in pairs]

    def _leave(self, place: Number, x: list[Number], works: Number | None) -> None:
        """Sums of the parts' columns, of a lane's two rows."""
        both = [x[0] + x[1], x[2] + x[3]]
        both = [value + value.from_lane(1) for value in both]

        def store() -> None:
            ptx.store_words(place, [both[0]])
            ptx.store_words(place + 32, [both[1]])

        self.products.when_works(self.part == 0, works, store)
