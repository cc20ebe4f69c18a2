"""The other side of the head's product in a sharded launch, the normed stream: who has which columns puts them in a
block's memory, and each warp takes what its matrix instructions multiply a chunk of 8 rows by, along both halves of the
depth at once (sharded_products.py)."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Sequence

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word
from lispgpt.passes.plan.sharded_layout import MULTIPLIERS
from lispgpt.passes.plan.sharded_products import Products
from lispgpt.passes.plan.sharded_residual import Residual
from lispgpt.passes.plan.sharded_sharing import WARPS
from lispgpt.passes.plan.sharded_weights import Fragment, Weights, total


class Side(ABC):
    """words: of an operand that a lane has for a step."""

    words: int

    @abstractmethod
    def put(self, residual: Residual, values: Sequence[Word]) -> None:
        """By all threads that multiply, each its columns; ends with all of them there."""

    @abstractmethod
    def operand(self, first: int, count: int) -> list[Fragment]:
        """What a lane has of so many steps from a step on, both even."""

    @abstractmethod
    def of_steps(self, operand: list[Fragment], first: int, count: int) -> list[Fragment]:
        """The same out of all steps'."""

    @abstractmethod
    def none(self) -> list[Word]:
        """A lane's sums of nothing."""

    @abstractmethod
    def add(self, base: Word, operand: list[Fragment], first: int, before: Sequence[Word]) -> list[Word]:
        """A lane's sums, to which products of a chunk are added: of the operand's steps, from the first on."""

    @abstractmethod
    def whole(self, sums: Sequence[Word]) -> Word:
        """A row's sum, of its lanes' sums."""


class Parts(Side):
    """In three parts of BF16, for weights of BF16."""

    words = 2

    def __init__(self, products: Products, weights: Weights) -> None:
        self.products, self.weights = products, weights

    def put(self, residual: Residual, values: Sequence[Word]) -> None:
        for i, pair in enumerate(residual.pairs):
            residual.put(pair, values[2 * i : 2 * i + 2])
        c.meet(MULTIPLIERS, 32 * WARPS)

    def operand(self, first: int, count: int) -> list[Fragment]:
        return self.products.operand(first, count)

    def of_steps(self, operand: list[Fragment], first: int, count: int) -> list[Fragment]:
        return operand[first : first + count]

    def none(self) -> list[Word]:
        return [w for chain in self.weights.chains(4) for w in chain]

    def add(self, base: Word, operand: list[Fragment], first: int, before: Sequence[Word]) -> list[Word]:
        numbers = map(self.weights.load, self.weights.row_places(base, first, len(operand)))
        return [w for chain in self.weights.add(_chains(before), numbers, operand, ()) for w in chain]

    def whole(self, sums: Sequence[Word]) -> Word:
        return self.products.across_halves(total(_chains(sums)))


def _chains(sums: Sequence[Word]) -> list[list[Word]]:
    return [list(sums[i : i + 4]) for i in range(0, len(sums), 4)]
