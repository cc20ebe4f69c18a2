"""What the operands of products have to do with scores: queries and keys that make them, and what they weigh.

Scores are S[q…, t]; the loops q… are their leading dimensions, t is the position looked at.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import dim_positions, element_type, indexing_maps, shape_of

POSITION, DEPTH = -1, -2
"""Dimensions that are no leading loop of the scores: the position looked at, and what queries and keys (or, in values
and the result, each value) have of numbers."""


@dataclass(frozen=True)
class Operand:
    """dims: for each dimension of the tensor, a leading loop of the scores, POSITION or DEPTH.  rounded: whether its
    product's body rounds it to BF16."""

    tensor: ir.Value
    dims: tuple[int, ...]
    rounded: bool = False

    def index(self, place: Sequence[Any], t: Any, d: Any) -> list[Any]:
        """The tensor's indices from those of the leading loops, of the position and of the number in its depth."""
        named = {POSITION: t, DEPTH: d}
        return [named[dim] if dim in named else place[dim] for dim in self.dims]

    @property
    def has_rows(self) -> bool:
        """Whether numbers that are neighbours in depth are neighbours in memory."""
        return self.dims[-1] == DEPTH

    @property
    def depth(self) -> int:
        return shape_of(self.tensor)[self.dims.index(DEPTH)]

    @property
    def element(self) -> ir.Type:
        return element_type(self.tensor)


def score_operands(product: ir.Operation) -> tuple[Operand, Operand] | None:
    """Queries and keys of a product that makes scores; None where it is laid out in no such way."""
    rank = len(shape_of(product.results[0]))
    *operands, made = (dim_positions(m) for m in indexing_maps(product))
    names = _names(made)
    sides = [tuple(names.get(loop, DEPTH) for loop in dims) for dims in operands]
    number = next((i for i in range(2) if POSITION not in sides[i]), None)
    if number is None or not _are_plain(product) or {*sides[0], *sides[1]} != {*range(rank - 1), POSITION, DEPTH}:
        return None
    queries, keys = (Operand(product.operands[i], sides[i]) for i in (number, 1 - number))
    if DEPTH not in keys.dims or DEPTH not in queries.dims or _repeats(queries) or _repeats(keys):
        return None
    return queries, keys


def sum_operands(product: ir.Operation, weights: ir.Value) -> tuple[Operand, Operand] | None:
    """What a product weighs by something of the scores' shape, and its result; None where it is laid out in no such
    way.  Each has a depth of its own."""
    mine = [i for i in range(2) if product.operands[i] == weights]
    if len(mine) != 1 or not _are_plain(product):
        return None
    *operands, made = (dim_positions(m) for m in indexing_maps(product))
    names = _names(operands[mine[0]])
    other = Operand(product.operands[1 - mine[0]], tuple(names.get(p, DEPTH) for p in operands[1 - mine[0]]))
    out = Operand(product.results[0], tuple(names.get(loop, DEPTH) for loop in made))
    if DEPTH not in other.dims or DEPTH not in out.dims or _repeats(other) or _repeats(out):
        return None
    return other, out


def _names(loops: Sequence[Any]) -> dict[Any, int]:
    """What each loop of a tensor of the scores' shape is."""
    return {loop: dim if dim < len(loops) - 1 else POSITION for dim, loop in enumerate(loops)}


def _repeats(operand: Operand) -> bool:
    return len(set(operand.dims)) != len(operand.dims)


def _are_plain(product: ir.Operation) -> bool:
    """Whether every index of a product's operands and result is a loop, and no loop stands twice in one."""
    return all(None not in dims and len(set(dims)) == len(dims) for dims in map(dim_positions, indexing_maps(product)))
