"""Products of a sharded launch that sum over what a cluster has: a rank's columns of the stream.

A chunk is 64 of a weight's columns for all of the rank's rows, 16 of which are a matrix instruction's.
"""

from __future__ import annotations

from functools import partial

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, either, lesser, loop, real, word
from lispgpt.passes.plan.packed_weights import LANE, STEP, PackedWeights
from lispgpt.passes.plan.sharded_layout import LINE
from lispgpt.passes.plan.sharded_products import QUAD, Loaded, Products
from lispgpt.passes.plan.sharded_scales import Fragments, scaled_sums, with_scales, without_scales
from lispgpt.passes.plan.sharded_sharing import WARPS, Sharing


class ColumnProducts:
    def __init__(self, products: Products) -> None:
        self.products, self.launch = products, products.launch
        self.group, self.part = products.group, products.part

    def load(self, chunk: Word, sharing: Sharing, packed: PackedWeights | None = None) -> Loaded:
        """The chunk-th chunk and those behind it, each 64 columns of the rank's rows."""
        launch, layout = self.launch, self.launch.layout
        number, works = self.products.share_out(sharing)
        tile, part = number % sharing.tiles, number // sharing.tiles
        first, line = part * sharing.steps, LINE // 16
        row = self._row(tile)
        each_ = 1 if packed is None else packed.steps_of(line, sharing.steps)
        count = 0 if packed is None else 2 * (sharing.steps // each_)

        def load() -> Fragments:
            weights: Fragments = []
            scales: list[Word] = []
            for start in range(0, sharing.steps, line):
                slot, parity = launch.slot(chunk + (first + start) // line)
                c.wait(launch.full(slot), parity)
                base = launch.start + slot * layout.chunk
                for step in range(start, min(start + line, sharing.steps)):
                    within = (first + step) % line
                    weights.append(self._fragment(base, within, tile, row, packed))
                    if packed is not None and step % each_ == 0:
                        scales += self._scales(packed, base, within, tile)
                self.products.release(slot, layout.arrivals // layout.readers(sharing))
            return with_scales(weights, scales)

        found = self.products.load_where(works, sharing.steps + -(-count // 4), load)
        weights, scales = without_scales(found, sharing.steps, count)
        return Loaded(sharing, tile, part, works, weights, _of_results(scales))

    def _fragment(
        self, base: Word, step: Word | int, tile: Word, row: Word, packed: PackedWeights | None
    ) -> list[Word]:
        if packed is None:
            return self._matrices(base, step, row)
        return packed.load(base + tile * (LINE // 16 * STEP) + step * STEP + self.launch.lane * LANE)

    def _scales(self, packed: PackedWeights, base: Word, step: Word | int, tile: Word) -> list[Word]:
        """Those of a lane's two rows of a tile."""
        grain = word(step) * 16 // packed.grain
        return [packed.scale(base, grain, tile * 16 + self.group + more) for more in (0, 8)]

    def multiply(self, loaded: Loaded, source: str, sums: str) -> None:
        """Multiply by what the cluster has, and leave sums for the exchanger."""
        sharing, layout = loaded.sharing, self.launch.layout
        right = self._operand(source, loaded.slice * sharing.steps, sharing.steps)
        weights = [w for w in loaded.weights if isinstance(w, list)]
        if loaded.scales:
            x = scaled_sums(weights, right, loaded.scales, [real(0.0)] * 4)
        else:
            chains = [[real(0.0)] * 4, [real(0.0)] * 4]
            for step, a in enumerate(weights):
                chains[step % 2] = c.multiply(a, right[step], chains[step % 2])
            x = [one + other for one, other in zip(*chains, strict=True)]
        place = self.launch.place(sums) + (loaded.slice * layout.sum_columns + loaded.tile * 16 + self.group) * 4
        self._leave(place, x, loaded.works)

    def walk(self, chunk: Word, count: int, source: str, sums: str, packed: PackedWeights | None = None) -> None:
        """Multiply so many chunks of 64 columns by what the cluster has; a warp has some
        tiles of rows in all of them."""
        launch, layout = self.launch, self.launch.layout
        tiles = layout.out.all
        mine = [launch.warp + first for first in range(0, tiles, WARPS)]
        works = [None if WARPS * (i + 1) <= tiles else tile < tiles for i, tile in enumerate(mine)]

        def one(number: Word, *totals: Word) -> list[Word]:
            slot, parity = launch.slot(chunk + number)
            c.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            right = self._operand(source, number * (LINE // 16), LINE // 16)
            found: list[Word] = []
            for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
                before = list(totals[4 * i : 4 * i + 4])
                multiply = partial(self._tile, base, tile, right, before, packed)
                found += multiply() if there is None else either(there, "ffff", multiply, partial(list, before))
            self.products.release(slot, 1)
            return found

        totals = loop(0, count, [real(0.0)] * (4 * len(mine)), one)
        for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
            place = launch.place(sums) + (tile * 16 + self.group) * 4
            self._leave(place, totals[4 * i : 4 * i + 4], there)

    def _tile(
        self, base: Word, tile: Word, right: Fragments, totals: list[Word], packed: PackedWeights | None
    ) -> list[Word]:
        row = self._row(tile)
        weights = [self._fragment(base, step, tile, row, packed) for step in range(len(right))]
        if packed is not None:
            steps = range(0, len(right), packed.steps_of(len(right)))
            scales = [scale for step in steps for scale in self._scales(packed, base, step, tile)]
            return scaled_sums(weights, right, _of_results(scales), totals)
        for a, b_ in zip(weights, right, strict=True):
            totals = c.multiply(a, b_, totals)
        return totals

    def _row(self, tile: Word) -> Word:
        """A lane's row of a tile of 16, one that is there."""
        row = tile * 16 + self.launch.lane % 16
        columns = self.launch.layout.columns
        return lesser(row, word(columns - 1)) if columns % 16 else row

    def _matrices(self, base: Word, step: Word | int, row: Word) -> list[Word]:
        number = self.launch.lane // 16 + step * 2
        return c.load_matrices(base + row * (2 * LINE) + ((number ^ (row % 8)) << 4))

    def _operand(self, source: str, first: Word, count: int) -> Fragments:
        start = self.launch.place(source) + self.part * QUAD + (self.group & 3) * 8 + first * (4 * QUAD)
        return [c.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def _leave(self, place: Word, x: list[Word], works: Word | None) -> None:
        """Sums of the parts' columns, of a lane's two rows."""
        both = [x[0] + x[1], x[2] + x[3]]
        both = [value + value.from_lane(1) for value in both]

        def store() -> None:
            c.store_words(place, [both[0]])
            c.store_words(place + 32, [both[1]])

        self.products.when_works(self.part == 0, works, store)


def _of_results(scales: list[Word]) -> list[list[Word]]:
    """For each two rows' scales those of an instruction's four results."""
    return [[low, low, up, up] for low, up in zip(scales[::2], scales[1::2], strict=True)]
