"""Attention as tile programs see it: rows of queries by (batch, row), and operands as views.

A batch is a point of all leading loops of the scores but one, `row`, which is the longest that keys and values do not
have.
"""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels import products
from lispgpt.passes.kernels.kernel import coordinates
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.recognise.score_operands import DEPTH, POSITION, Operand
from lispgpt.passes.tile.copies import seen_as


@dataclass(frozen=True)
class AttentionRows:
    attention: Attention

    @cached_property
    def row(self) -> int:
        """The leading loop of the scores that rows go along."""
        return max(self.attention.query_dims, key=lambda d: (self.attention.extents[d], -d))

    @cached_property
    def outer(self) -> list[int]:
        """The others."""
        return [d for d in range(len(self.attention.extents)) if d != self.row]

    @property
    def batches(self) -> int:
        return prod(self.attention.extents[d] for d in self.outer)

    @property
    def rows(self) -> int:
        return self.attention.extents[self.row]

    @property
    def columns(self) -> int:
        """Of the result."""
        return self.attention.width

    @property
    def along_columns(self) -> int:
        """How many numbers of a row of the result lie side by side."""
        return self.columns if self.attention.out.has_rows else 1

    @property
    def result(self) -> ir.Value:
        """The sums of weighed values, of which the kernel's results are made."""
        found: ir.Value = self.attention.weighted.results[0]
        return found

    @property
    def log_sum(self) -> ir.Value | None:
        """Each row's log-sum-exp, where the kernel has it as a result."""
        return self.attention.log_sum[-1].results[0] if self.attention.log_sum else None

    def is_log_sum(self, tensor: ir.Value) -> bool:
        return self.log_sum is not None and tensor == self.log_sum

    def loops(self, batch: Index, row: Index) -> list[Index]:
        """The scores' leading indices."""
        where = coordinates(batch, [self.attention.extents[d] for d in self.outer])
        where.insert(self.row, row)
        return where

    def place(self, batch: Index, row: Index, column: Index) -> list[Index]:
        """Where in the result a number of a row belongs."""
        return self.attention.out.index(self.loops(batch, row), None, column)

    def batch_of(self, operand: Operand, batch: Index) -> Index:
        """The batch of an operand's view from that of the rows."""
        where, found = self.loops(batch, 0), 0
        for dim in operand.dims:
            if dim not in (self.row, POSITION, DEPTH):
                found = b.add(b.mul(found, self.attention.extents[dim]), where[dim])
        return found

    def queries(self) -> products.Operand:
        """[batch, row, number]."""
        return seen(self.attention.queries, (self.row,), (DEPTH,))

    def keys(self) -> products.Operand:
        """[batch, position, number]."""
        return seen(self.attention.keys, (POSITION,), (DEPTH,))

    def values(self, across: bool) -> products.Operand:
        """[batch, number, position], or across [batch, position, number]."""
        kinds = ((DEPTH,), (POSITION,))
        return seen(self.attention.values, *(kinds[::-1] if across else kinds))


def seen(operand: Operand, outer: tuple[int, ...], inner: tuple[int, ...]) -> products.Operand:
    """An operand's numbers by (batch, outer, inner), where these are some of its dimensions."""
    kinds = [
        tuple(i for i, d in enumerate(operand.dims) if (d in outer, d in inner) == which)
        for which in ((False, False), (True, False), (False, True))
    ]
    return products.Operand(*seen_as(operand.tensor, kinds))
