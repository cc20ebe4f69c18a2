"""The residual stream as the other side of products of rows in a clustered launch (row_products.py): who has which
columns puts them in a block's memory, and each subgroup takes what its matrix instructions multiply a chunk of 8 rows
by, along both halves of the depth at once."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import if_there
from lispgpt.passes.decode_step.products import Products
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.weights import Fragment, Scale, Weights, total
from lispgpt.passes.targets import ptx

QUAD = 32
"""Bytes of the residual stream's four numbers that a lane has in a step: two words for each part, and two zeros."""
CHAINS = 4
"""Of sums that do not wait for each other, at most."""


class RowOperand:
    """In three parts of BF16, for weights of BF16: four columns of an instruction for each half of the depth.

    words: of the operand that a lane has for a step, at most.  together: steps of a `Fragment`."""

    words, together = 2, 1

    def __init__(self, products: Products, weights: Weights) -> None:
        self.products, self.weights, self.launch = products, weights, products.launch

    def put(self, residual: Residual, values: Sequence[Number]) -> None:
        """By all threads that multiply, each its columns: to be read once they have met."""
        for i, pair in enumerate(residual.pairs):
            number = pair.number
            place = self.launch.place("x") + ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4
            for k, part in enumerate(ptx.split(*values[2 * i : 2 * i + 2])):
                if_there(pair.works, partial(ptx.store_words, place + 8 * k, [part]))

    def operand(self, first: Number | int, count: int, multiple: int) -> list[Fragment]:
        """What a lane has of so many steps from a step on, whose number is a multiple of such."""
        half, part = self.products.group // 4, self.products.group & 3
        start = self.launch.place("x") + (half * (self.launch.layout.width // 8) + self.products.part) * QUAD + part * 8
        start = start + first * (4 * QUAD)
        return [ptx.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def load(self, base: Number, first: Number | int, count: int, multiple: int) -> Iterator[Fragment]:
        """A lane's weights of such steps in a chunk, loaded one by one as they are asked for."""
        return map(self.weights.load, self.weights.row_places(base, first, count, multiple))

    def scales(self, base: Number, first: Number | int, count: int) -> Iterator[Scale]:
        """Its row's scales, each of as many of these steps."""
        return iter(())

    def count_scales(self, steps: int) -> int:
        """How many there are."""
        return 0

    def none(self, steps: int) -> list[Number]:
        """A lane's sums of nothing, to which products of so many steps are to be added."""
        return [w for chain in self.weights.chains(min(CHAINS, steps)) for w in chain]

    def add(
        self,
        weights: Iterable[Fragment],
        operand: Sequence[Fragment],
        scales: Sequence[Scale],
        before: Sequence[Number],
    ) -> list[Number]:
        """A lane's sums with these products."""
        return [w for chain in self.weights.add(_chains(before), weights, operand, ()) for w in chain]

    def whole(self, sums: Sequence[Number]) -> Number:
        """A row's sum, of its lanes': four columns, a part each, of either half's rows."""
        first, other, *later = total(_chains(sums))
        return self.products.across_parts((self.products.part < 2).where(first + other, later[0] + later[1]))


def _chains(sums: Sequence[Number]) -> list[list[Number]]:
    return [list(sums[i : i + 4]) for i in range(0, len(sums), 4)]
