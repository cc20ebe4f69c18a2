"""Products of rows in a clustered launch, 8 of a weight's rows along all of the residual stream.

Subgroups have their weights in registers before the residual stream is there, where the layout holds a layer; otherwise
they walk through the ring's chunks when it is.  Both halves of the depth take part at once: rows 0 to 7 of an
instruction are these rows along the residual stream's first half, rows 8 to 15 the same along the second.  What fills
an instruction's columns says a `RowOperand`.  What the norm of the residual stream adds and subtracts is put in order
afterwards (see rows.py).
"""

from __future__ import annotations

from math import gcd

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each, when
from lispgpt.passes.decode_step.products import Held, Numbers, Products, Read, RingProduct
from lispgpt.passes.decode_step.row_operand import Int8Digits, RowOperand
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.decode_step.weights import ScaledWeights, weights_of
from lispgpt.passes.targets import ptx

AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""


def operand_of(products: Products, name: str) -> RowOperand:
    """The residual stream as a product takes it, by the product's name in the layout."""
    weights = weights_of(products.launch, name)
    return Int8Digits(products, weights) if isinstance(weights, ScaledWeights) else RowOperand(products, weights)


class RowProducts(RingProduct):
    """A product of the residual stream, which leaves sums for the finisher.  name: its own in the layout."""

    def __init__(self, products: Products, name: str, sharing: Sharing, sums: str) -> None:
        super().__init__(products, sharing, sums)
        self.operand = operand_of(products, name)

    def _multiply_held(self) -> None:
        operand, held, steps = self.operand, self.held, self.sharing.steps
        right = operand.operand(held.slice * steps, steps, steps)
        totals = operand.add(held.numbers[0], right, held.scales, operand.none(steps))
        self._leave(held.tiles[0], held.slice, held.works, totals)

    def _load(self) -> Held:
        launch, layout, operand, steps = self.launch, self.launch.layout, self.operand, self.sharing.steps
        tile, part, _ = self._own()
        slot, parity = launch.slot(self.chunk + tile)

        def load() -> Numbers:
            ptx.wait(launch.full(slot), parity)
            base, first = launch.start + slot * layout.chunk, part * steps
            return list(operand.load(base, first, steps, steps)), list(operand.scales(base, first, steps))

        read: list[Read] = [(slot, layout.arrivals // self.sharing.slices, None)]
        scales = operand.count_scales(steps), 1
        return self.products.hold(self.sharing, part, [tile], load, read, steps // operand.together, scales)

    def _own(self) -> tuple[Number, Number, Number | None]:
        """A subgroup's tile, its slice of the depth, and whether it has a share."""
        number, works = self.products.share_out(self.sharing)
        return number // self.sharing.slices, number % self.sharing.slices, works

    def _walk(self) -> None:
        """Some chunks at a time.  Every subgroup waits for every chunk, so that it sees every phase of their
        barriers."""
        launch, layout, operand, sharing = self.launch, self.launch.layout, self.operand, self.sharing
        (tile, part, works), steps = self._own(), sharing.steps
        first = part * steps

        def some(turn: Number) -> None:
            start = self.chunk + turn * sharing.tiles
            slots = [launch.slot(start + i) for i in range(sharing.tiles)]
            for slot, parity in slots:
                ptx.wait(launch.full(slot), parity)
            mine = launch.slot(start + tile)[0] if sharing.tiles > 1 else slots[0][0]
            base = launch.start + mine * layout.chunk
            scales = list(operand.scales(base, first, steps))
            totals = operand.none(steps)
            for begin in range(0, steps, AT_ONCE):
                end = min(begin + AT_ONCE, steps)
                some_of_it = (first + begin, end - begin, gcd(steps, AT_ONCE))
                numbers = list(operand.load(base, *some_of_it))
                own = scales[begin * len(scales) // steps : -(-end * len(scales) // steps)]
                right = operand.operand(*some_of_it)
                totals = operand.add(numbers, right, own, totals)
            for slot, _ in slots:
                self.products.free(slot)
            self._leave(turn * sharing.tiles + tile, part, works, totals)

        each(0, sharing.all // sharing.tiles, some)

    def _leave(self, tile: Number, part: Number, works: Number | None, totals: list[Number]) -> None:
        own = self.operand.whole(totals)
        row = part * (8 * self.sharing.all) + tile * 8 + self.products.group
        leaves = self.products.part == 0
        place = self.launch.place(self.sums) + row * 4
        when(leaves if works is None else leaves & works, lambda: ptx.store_words(place, [own]))
