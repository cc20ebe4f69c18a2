"""Products of rows in a clustered launch, 8 of a weight's rows along all of the residual stream.

Subgroups have their weights in registers before the residual stream is there, where the layout holds a layer; otherwise
they walk through the ring's chunks when it is.  Both halves of the depth take part at once: rows 0 to 7 of an
instruction are these rows along the residual stream's first half, rows 8 to 15 the same along the second.  What fills
an instruction's columns says a `Side`.  What the residual stream's norm adds and subtracts is put in order afterwards
(see finish.py).
"""

from __future__ import annotations

from math import gcd

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import each
from lispgpt.passes.decode_step.int8_digits import Int8Digits
from lispgpt.passes.decode_step.products import Loaded, Numbers, Products
from lispgpt.passes.decode_step.row_operand import Bf16Parts, RowOperand
from lispgpt.passes.decode_step.sharing import Sharing
from lispgpt.passes.decode_step.weights import ScaledWeights, weights_of
from lispgpt.passes.targets import ptx

AT_ONCE = 8
"""Steps whose weights and other side are read together where they are not held."""


def operand_of(products: Products, name: str) -> RowOperand:
    """The residual stream as a product takes it, by the product's name in the layout."""
    weights = weights_of(products.launch, name)
    return Int8Digits(products, weights) if isinstance(weights, ScaledWeights) else Bf16Parts(products, weights)


class RowProducts:
    def __init__(self, products: Products, operand: RowOperand) -> None:
        self.products, self.operand, self.launch = products, operand, products.launch

    def load(self, chunk: Number, sharing: Sharing) -> Loaded:
        """The chunk-th chunk and those behind it."""
        launch, layout, operand = self.launch, self.launch.layout, self.operand
        number, works = self.products.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first, steps = part * sharing.steps, sharing.steps

        def load() -> Numbers:
            slot, parity = launch.slot(chunk + tile)
            ptx.wait(launch.full(slot), parity)
            base = launch.start + slot * layout.chunk
            found = list(operand.load(base, first, steps, steps)), list(operand.scales(base, first, steps))
            self.products.release(slot, layout.arrivals // sharing.slices)
            return found

        count = operand.count_scales(steps)
        found = self.products.load_where(works, steps // operand.together, (count, 1), load)
        return Loaded(sharing, tile, part, works, *found)

    def walk(self, chunk: Number, sharing: Sharing, sums: str) -> None:
        """Multiply the chunk-th chunk and those behind it, some at a time, by the residual stream, and leave sums.

        Every subgroup waits for every chunk, so that it sees every phase of their barriers."""
        launch, layout, operand = self.launch, self.launch.layout, self.operand
        number, works = self.products.share_out(sharing)
        tile, part = number // sharing.slices, number % sharing.slices
        first, steps = part * sharing.steps, sharing.steps

        def some(turn: Number) -> None:
            start = chunk + turn * sharing.tiles
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
            self._leave(Loaded(sharing, turn * sharing.tiles + tile, part, works, ()), totals, sums)

        each(0, sharing.all // sharing.tiles, some)

    def multiply(self, loaded: Loaded, sums: str) -> None:
        """Multiply by the residual stream, and leave sums for the finisher."""
        operand, steps = self.operand, loaded.sharing.steps
        right = operand.operand(loaded.slice * steps, steps, steps)
        self._leave(loaded, operand.add(loaded.numbers, right, loaded.scales, operand.none(steps)), sums)

    def _leave(self, loaded: Loaded, totals: list[Number], sums: str) -> None:
        own = self.operand.whole(totals)
        place = self._place(loaded, sums)
        self.products.when_works(self.products.part == 0, loaded.works, lambda: ptx.store_words(place, [own]))

    def _place(self, loaded: Loaded, sums: str) -> Number:
        """Where a lane's row's sum goes."""
        rows = 8 * loaded.sharing.all
        return self.launch.place(sums) + (loaded.slice * rows + loaded.tile * 8 + self.products.group) * 4
