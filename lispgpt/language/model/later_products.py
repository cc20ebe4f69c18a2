"""Products that the rounds of a loop add to sums: made once after the loop, of what all rounds multiplied.

    for i: total += a_i · b_i    becomes    for i: a[i], b[i] = a_i, b_i
                                            total += the sum over i of a[i] · b[i]

So a weight's gradient is one long product in place of many short ones, each of which reads and writes all of the sum.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model import index_algebra
from lispgpt.language.model.gradient_rules import is_filled_with
from lispgpt.language.model.named_ops import is_contraction
from lispgpt.language.reader.forms import Form

MOST_KEPT = 2
"""A product waits where what is kept for it of a round has at most so many times the sum's elements: as many as the
round would read and write of the sum."""


@dataclass(frozen=True)
class _Later:
    """A product that waits.  sum: the number of the sum that it belongs to; maps: of its operands and result; operands:
    what has those of all rounds, a tensor from outside or the number of a room."""

    sum: int
    maps: list[list[str]]
    operands: list[ir.Value | int]


class LaterProducts:
    """The products of one loop."""

    def __init__(self, evaluator: Evaluator, block: ir.Block, known: dict[ir.Value, ir.Value], form: Form) -> None:
        """known: of values of a round, the tensors outside that have those of all rounds."""
        self.evaluator, self.block, self.known, self.form = evaluator, block, known, form
        self._kept: list[ir.Value] = []
        self._rooms: list[ir.Type] = []
        self._later: list[_Later] = []

    def take(self, number: int, start: ir.Value, total: ir.Value) -> ir.Value:
        """What a round makes of a sum that starts it, without the products that can wait; number: the sum's own."""
        summands = _summands(total, start)
        if summands is None:
            return total
        left = []
        for value in summands:
            op = self._product(value)
            if op is None:
                left.append(value)
                continue
            maps = [[str(d) for d in dim_positions(map_)] for map_ in indexing_maps(op)]
            self._later.append(_Later(number, maps, [self._place(v) for v in list(op.operands)[:2]]))
        if len(left) == len(summands):
            return total
        for value in left:
            start = arithmetic.binary(self.evaluator, "+", start, value, self.form)
        return start

    def _place(self, value: ir.Value) -> ir.Value | int:
        if value in self.known:
            return self.known[value]
        if value not in self._kept:
            self._kept.append(value)
        return self._kept.index(value)

    def keep(self, rounds: int, number: ir.Value) -> list[ir.Value]:
        """Put what the products want into rooms at a round's number; the rooms after the round."""
        filled = []
        for value in self._kept:
            shape, kind = shape_of(value), value.type.element_type
            self._rooms.append(shapes.tensor_type(self.evaluator, (rounds, *shape), kind, self.form))
            room = self.block.add_argument(self._rooms[-1], self.evaluator.site.location(self.form))
            places = (number, *[0] * len(shape)), (None, *shape)
            filled.append(shapes.insert(self.evaluator, value, room, *places, self.form))
        return filled

    def starts(self) -> list[ir.Value]:
        """What the rooms start as."""
        return [tensors.empty(self.evaluator, tuple(t.shape), t.element_type, self.form) for t in self._rooms]

    def add(self, totals: list[ir.Value], rooms: list[ir.Value]) -> list[ir.Value]:
        """The loop's sums with the products; rooms: as the loop left them."""
        totals = list(totals)
        for later in self._later:
            a, b = (rooms[v] if isinstance(v, int) else v for v in later.operands)
            left, right, kept = later.maps
            pair = (a, ["round", *left]), (b, ["round", *right])
            made = index_algebra.contraction(self.evaluator, None, kept, *pair, self.form)
            before = totals[later.sum]
            if not is_filled_with(before, 0.0):
                made = arithmetic.binary(self.evaluator, "+", before, made, self.form)
            totals[later.sum] = made
        return totals

    def _product(self, value: ir.Value) -> ir.Operation | None:
        """The op of a product that can wait."""
        op = defining_op(value)
        if op is None or not (op.name == "linalg.contract" or (op.name == "linalg.generic" and is_contraction(op))):
            return None
        own = operations(self.block)
        pair = list(op.operands)[:2]
        if op not in own or value.type.element_type != self.evaluator.builder.f32:
            return None
        if not all(v in self.known or self._varies(v, own) for v in pair):
            return None
        if not is_filled_with(op.operands[2], 0.0) or any(None in dim_positions(m) for m in indexing_maps(op)):
            return None
        fresh = sum(prod(shape_of(v)) for v in dict.fromkeys(pair) if v not in self.known)
        return op if fresh <= MOST_KEPT * prod(shape_of(value)) else None

    def _varies(self, value: ir.Value, own: list[ir.Operation]) -> bool:
        """Whether a value is one of a round's own."""
        op = defining_op(value)
        return ir.BlockArgument(value).owner == self.block if op is None else op in own


def _summands(total: ir.Value, start: ir.Value) -> list[ir.Value] | None:
    """What a sum adds to the value that starts it; None where that is not once in it."""
    found, waiting = [], [total]
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if value != start and op is not None and _adds(op):
            waiting += list(op.operands)[1::-1]
        else:
            found.append(value)
    return [v for v in found if v != start] if found.count(start) == 1 else None


def _adds(op: ir.Operation) -> bool:
    """Whether an op adds two tensors of one shape, element by element."""
    if op.name != "linalg.generic" or len(op.operands) != 3 or len({str(v.type) for v in op.operands}) > 1:
        return False
    body = operations(op.regions[0].blocks[0])
    identity = ir.AffineMap.get_identity(len(shape_of(op.results[0])))
    inputs = list(op.regions[0].blocks[0].arguments)[:2]
    return (
        [inner.name for inner in body] == ["arith.addf", "linalg.yield"]
        and set(body[0].operands) == set(inputs)
        and all(m == identity for m in indexing_maps(op))
    )
