"""Products of a clustered launch that sum over what a cluster has: a rank's columns of the residual stream.

A chunk is 64 of a weight's columns for all of the rank's rows, 16 of which are a matrix instruction's.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import either, loop, real, when
from lispgpt.passes.decode_step.products import LINE_STEPS, PAIR, Held, Products, RingProduct
from lispgpt.passes.decode_step.sharing import SUBGROUPS, Sharing
from lispgpt.passes.decode_step.weights import Fragment, ScaledWeights, weights_of
from lispgpt.passes.targets import ptx


class ColumnProducts(RingProduct):
    """A product that sums over what the cluster has at `source`, and leaves sums for the exchanger.  name: its own in
    the layout.  count: of its chunks."""

    def __init__(self, products: Products, name: str, sharing: Sharing, count: int, source: str, sums: str) -> None:
        super().__init__(products, sharing, sums)
        self.count, self.source, self.group, self.part = count, source, products.group, products.part
        self.weights = weights_of(products.launch, name)

    @property
    def packed(self) -> bool:
        """Whether its weights are whole numbers, of which BF16 takes long to make."""
        return isinstance(self.weights, ScaledWeights)

    def _multiply_held(self) -> None:
        held, steps = self.held, self.sharing.steps
        x = self.weights.sums(held.numbers[0], self._operand(held.slice * steps, steps), held.scales)
        row = held.slice * self.launch.layout.sum_columns + held.tiles[0] * 16 + self.group
        self._leave(row, x, held.works)

    def _load(self) -> Held:
        return self.products.load_columns(self.chunk, self.sharing, self.weights)

    def _walk(self) -> None:
        """A subgroup has some tiles of rows in all chunks."""
        launch, layout = self.launch, self.launch.layout
        tiles = layout.out_projection.all
        mine = [launch.subgroup + first for first in range(0, tiles, SUBGROUPS)]
        works = [None if SUBGROUPS * (i + 1) <= tiles else tile < tiles for i, tile in enumerate(mine)]

        def one(number: Number, *totals: Number) -> list[Number]:
            slot, parity = launch.slot(self.chunk + number)
            ptx.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            right = self._operand(number * (LINE_STEPS), LINE_STEPS)
            found: list[Number] = []
            for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
                before = list(totals[4 * i : 4 * i + 4])
                multiply = partial(self._tile, base, tile, right, before)
                found += multiply() if there is None else either(there, "ffff", multiply, partial(list, before))
            self.products.free(slot)
            return found

        totals = loop(0, self.count, [real(0.0)] * (4 * len(mine)), one)
        for i, (tile, there) in enumerate(zip(mine, works, strict=True)):
            self._leave(tile * 16 + self.group, totals[4 * i : 4 * i + 4], there)

    def _tile(self, base: Number, tile: Number, right: list[Fragment], totals: list[Number]) -> list[Number]:
        row, steps, weights = self.products.row_of(tile), len(right), self.weights
        numbers = [weights.load(weights.column_place(base, step, tile, row)) for step in range(steps)]
        each_, _ = weights.shared(steps, steps)
        scales = (s for step in range(0, steps, each_) for s in weights.column_scales(base, step, tile))
        return weights.sums(numbers, right, scales, totals, 1)

    def _operand(self, first: Number, count: int) -> list[Fragment]:
        start = self.launch.place(self.source) + self.part * PAIR + (self.group & 3) * 4 + first * (8 * PAIR)
        pairs = [start + step * (8 * PAIR) for step in range(count)]
        return [[ptx.load_words(pair + late, 1)[0] for late in (0, 4 * PAIR)] for pair in pairs]

    def _leave(self, row: Number, x: list[Number], works: Number | None) -> None:
        """Sums of the parts' columns, of a lane's two rows."""
        place = self.launch.place(self.sums) + row * 4
        both = [x[0] + x[1], x[2] + x[3]]
        both = [value + value.from_lane(1) for value in both]

        def store() -> None:
            ptx.store_words(place, [both[0]])
            ptx.store_words(place + 32, [both[1]])

        when(self.part == 0 if works is None else (self.part == 0) & works, store)
