"""Sums weighed by what is made of scores, as tile programs see them: rows of results by (task, row), and views.

A task is a point of the loops that results have beside their rows.  In each of some rounds a block goes along what
rows are sums over.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import products
from lispgpt.passes.kernels.score_walk import Walk
from lispgpt.passes.recognise.attention_gradients import AttentionGradients, WeightedSum
from lispgpt.passes.recognise.score_operands import DEPTH, Operand
from lispgpt.passes.tile.attention_rows import seen


@dataclass(frozen=True)
class SumRows:
    sums: AttentionGradients

    @cached_property
    def walk(self) -> Walk:
        return Walk(self.sums)

    @property
    def rows(self) -> int:
        return self.walk.extent(self.walk.kept)

    @property
    def batches(self) -> int:
        """Tasks."""
        return prod(self.walk.tasks)

    @property
    def along(self) -> int:
        """How many there are of what rows are sums over, in each round."""
        return self.walk.extent(self.walk.along)

    @property
    def own(self) -> list[Operand]:
        """Of each product that makes scores, what rows have of their own."""
        return [self.walk.sides(n)[0] for n in range(len(self.sums.products))]

    @property
    def others(self) -> list[Operand]:
        """And what lies along the sums."""
        return [self.walk.sides(n)[1] for n in range(len(self.sums.products))]

    def tiles(self, across: bool) -> list[tuple[Operand, bool]]:
        """What tiles are of, each once: (operand, whether it is turned), with what is weighed turned where matrix
        instructions take nothing across."""
        weighed = [(one.other, not across) for one in self.sums.sums]
        return list(dict.fromkeys([*((other, False) for other in self.others), *weighed]))

    def own_view(self, operand: Operand) -> products.Operand:
        """[batch, row, number]."""
        return seen(operand, (self.walk.kept,), (DEPTH,))

    def view(self, operand: Operand, turned: bool) -> products.Operand:
        """[batch, along, number], or turned [batch, number, along]."""
        kinds = (self.walk.along,), (DEPTH,)
        return seen(operand, *(kinds[::-1] if turned else kinds))

    def batch_of(self, operand: Operand, task: Index, round_: Index) -> Index:
        """The batch of an operand's view."""
        where, found = self.walk.place(task, round_, 0, 0)[0], 0
        for dim in operand.dims:
            if dim not in (self.walk.kept, self.walk.along, DEPTH):
                found = b.add(b.mul(found, self.sums.extents[dim]), where[dim])
        return found

    def part_of(self, tensor: ir.Value) -> SumPart:
        """The sums that a tensor is the result of."""
        return next(SumPart(self, one) for one in self.sums.sums if one.op.results[0] == tensor)


@dataclass(frozen=True)
class SumPart:
    """One of the results, [task, row, number]."""

    of: SumRows
    sum: WeightedSum

    @property
    def rows(self) -> int:
        return self.of.rows

    @property
    def columns(self) -> int:
        return self.sum.other.depth

    @property
    def batches(self) -> int:
        return self.of.batches

    @property
    def along_columns(self) -> int:
        return self.columns if self.sum.out.has_rows else 1

    @property
    def result(self) -> ir.Value:
        found: ir.Value = self.sum.op.results[0]
        return found

    def place(self, batch: Index, row: Index, column: Index) -> list[Index]:
        place: tuple[Sequence[Index], Index] = self.of.walk.place(batch, 0, row, 0)
        return self.sum.out.index(*place, column)
