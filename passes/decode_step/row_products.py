"""Products of rows in a clustered launch, 8 of a weight's rows along all of the residual stream.

Subgroups have their weights in registers before the residual stream is there, where the layout holds a layer; otherwise
they walk through the ring's chunks when it is.  Both halves of the depth take part at once: rows 0 to 7 of an
instruction are these rows along the residual stream's first half, rows 8 to 15 the same along the second.  What fills
an instruction's columns says a `RowOperand`.  What the norm of the residual stream adds and subtracts is put in order
afterwards (see finish.py).
"""

from __future__ import annotations

from math import gcd

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each
from lispgpt.passes.decode_step.int8_digits import Int8Digits
from lispgpt.passes.decode_step.products import Loaded, Numbers, Products, RingProduct
from lispgpt.passes.decode_step.row_operand import RowOperand
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

    def _multiply_loaded(self) -> None:
        operand, steps = self.operand, self.sharing.steps
        right = operand.operand(self.loaded.slice * steps, steps, steps)
        self._leave(self.loaded, operand.add(self.loaded.numbers, right, self.loaded.scales, operand.none(steps)))

    def _load(self) -> Loaded:
        launch, layout, operand, sharing = self.launch, self.launch.layout, self.operand, self.sharing
        number, works = self.products.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first, steps = part * sharing.steps, sharing.steps

        def load() -> Numbers:
            slot, parity = launch.slot(self.chunk + tile)
            ptx.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            found = list(operand.load(base, first, steps, steps)), list(operand.scales(base, first, steps))
            self.products.release(slot, layout.arrivals // sharing.slices)
            return found

        count = operand.count_scales(steps)
        found = self.products.load_where(works, steps // operand.together, (count, 1), load)
        return Loaded(tile, part, works, *found)

    def _walk(self) -> None:
        """Some chunks at a time.  Every subgroup waits for every chunk, so that it sees every phase of their
        barriers."""
        launch, layout, operand, sharing = self.launch, self.launch.layout, self.operand, self.sharing
        number, works = self.products.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first, steps = part * sharing.steps, sharing.steps

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
                self.products.release(slot, 1)
            self._leave(Loaded(turn * sharing.tiles + tile, part, works, ()), totals)

        each(0, sharing.all // sharing.tiles, some)

    def _leave(self, loaded: Loaded, totals: list[Number]) -> None:
        own = self.operand.whole(totals)
        row = loaded.slice * (8 * self.sharing.all) + loaded.tile * 8 + self.products.group
        place = self.launch.place(self.sums) + row * 4
        self.products.when_works(self.products.part == 0, loaded.works, lambda: ptx.store_words(place, [own]))
