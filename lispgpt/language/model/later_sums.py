"""Sums that the rounds of a loop add to, made of what all rounds made.

    for i: total += a_i · b_i    becomes    for i: a[i], b[i] = a_i, b_i
                                            total += the sum over i of a[i] · b[i]
    total = 0
    for i: total[i] += c_i       becomes    for i: total[i] = c_i

So a weight's gradient is one long product in place of many short ones, each of which reads and writes all of the sum,
and the gradient of what a round reads for itself is written once.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, integers, operations, shape_of
from lispgpt.language.core.evaluator import Evaluator
from lispgpt.language.forms import arithmetic, shapes, tensors
from lispgpt.language.model import index_algebra
from lispgpt.language.model.gradient_rules import is_filled_with
from lispgpt.language.model.named_ops import is_contraction
from lispgpt.language.model.table import Model
from lispgpt.language.reader.forms import Form

MOST_KEPT = 2
"""A product waits where what is kept for it of a round has at most so many times the sum's elements: as many as the
round would read and write of the sum."""


@dataclass(frozen=True)
class _Later:
    """A product that waits.  sum: the number of the sum that it belongs to; maps: of its operands and result; operands:
    what has those of all rounds, a tensor from outside or which room or sum does."""

    sum: int
    maps: list[list[str]]
    operands: list[ir.Value | tuple[str, int]]


class LaterSums:
    """The sums of one loop."""

    def __init__(self, evaluator: Evaluator, block: ir.Block, known: dict[ir.Value, ir.Value], form: Form) -> None:
        """known: of values of a round, the tensors outside that have those of all rounds."""
        self.evaluator, self.block, self.known, self.form = evaluator, block, known, form
        self._kept: list[ir.Value] = []
        self._placed: dict[ir.Value, int] = {}
        self._rooms: list[ir.Type] = []
        self._later: list[_Later] = []

    def place(self, number: int, start: ir.Value, total: ir.Value, begins: ir.Value, where: ir.Value) -> ir.Value:
        """A sum after a round that adds to a place of its own of one that begins as zeros, `where`: what it adds is
        put there."""
        op = defining_op(total)
        if op is None or op.name != "tensor.insert_slice" or not is_filled_with(begins, 0.0):
            return total
        if op.operands[1] != start or not _is_row(op, where):
            return total
        summed = defining_op(op.operands[0])
        if summed is None or not is_sum(summed):
            return total
        parts = list(summed.operands)[:2]
        old = [v for v in parts if _reads(defining_op(v), start, where)]
        new = [v for v in parts if v not in old]
        if len(old) != 1 or new[0] in self._placed:
            return total
        filled, read = made_in(self.evaluator, new[0], start, where, self.form)
        self._placed[read] = number
        return filled

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

    def _place(self, value: ir.Value) -> ir.Value | tuple[str, int]:
        if value in self.known:
            return self.known[value]
        if value in self._placed:
            return "sum", self._placed[value]
        if value not in self._kept:
            self._kept.append(value)
        return "room", self._kept.index(value)

    def keep(self, rounds: int, number: ir.Value) -> list[ir.Value]:
        """Put what the products want into rooms at a round's number; the rooms after the round."""
        filled = []
        for value in self._kept:
            kind = value.type.element_type
            self._rooms.append(shapes.tensor_type(self.evaluator, (rounds, *shape_of(value)), kind, self.form))
            room = self.block.add_argument(self._rooms[-1], self.evaluator.site.location(self.form))
            filled.append(made_in(self.evaluator, value, room, number, self.form)[0])
        return filled

    def starts(self) -> list[ir.Value]:
        """What the rooms start as."""
        return [tensors.empty(self.evaluator, tuple(t.shape), t.element_type, self.form) for t in self._rooms]

    def add(self, totals: list[ir.Value], rooms: list[ir.Value]) -> list[ir.Value]:
        """The loop's sums with the products; rooms: as the loop left them."""
        totals = list(totals)
        for later in self._later:
            of = {"sum": totals, "room": rooms}
            a, b = (of[v[0]][v[1]] if isinstance(v, tuple) else v for v in later.operands)
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
        fresh = sum(prod(shape_of(v)) for v in dict.fromkeys(pair) if v not in self.known and v not in self._placed)
        building = self.evaluator.states.of(Model).building
        any_size = building is not None and building.any_size  # for which it is to be the same
        return op if any_size or fresh <= MOST_KEPT * prod(shape_of(value)) else None

    def _varies(self, value: ir.Value, own: list[ir.Operation]) -> bool:
        """Whether a value is one of a round's own."""
        op = defining_op(value)
        return ir.BlockArgument(value).owner == self.block if op is None else op in own


def _is_row(op: ir.Operation, where: ir.Value) -> bool:
    """Whether an op cuts or puts in all of one row of a tensor, by the row's number."""
    whole = shape_of(op.operands[1] if op.name == "tensor.insert_slice" else op.operands[0])
    offsets, sizes = (integers(op.attributes[f"static_{name}"]) for name in ("offsets", "sizes"))
    numbers = list(op.operands)[2 if op.name == "tensor.insert_slice" else 1 :]
    return numbers == [where] and not any(offsets[1:]) and tuple(sizes) == (1, *whole[1:])


def _reads(op: ir.Operation | None, start: ir.Value, where: ir.Value) -> bool:
    """Whether an op cuts the row `where` out of a tensor."""
    return op is not None and op.name == "tensor.extract_slice" and op.operands[0] == start and _is_row(op, where)


def made_in(
    evaluator: Evaluator, value: ir.Value, room: ir.Value, number: ir.Value, form: Form
) -> tuple[ir.Value, ir.Value]:
    """A room with a value of a round at the round's number, and what is read of it there: all that use the value do so
    from then on, and it need not be made elsewhere and copied."""
    op, places = defining_op(value), ((number, *[0] * len(shape_of(value))), (None, *shape_of(value)))
    if op is None:
        return shapes.insert(evaluator, value, room, *places, form), value
    ops = operations(op.block)
    behind = ops.index(op) + 1
    with evaluator.builder.at(ir.InsertionPoint(ops[behind]) if behind < len(ops) else op.block):
        filled = shapes.insert(evaluator, value, room, *places, form)
        read = shapes.extract(evaluator, filled, *places, form)
    value.replace_all_uses_except(read, defining_op(filled))
    return filled, read


def _summands(total: ir.Value, start: ir.Value) -> list[ir.Value] | None:
    """What a sum adds to the value that starts it; None where that is not once in it."""
    found, waiting = [], [total]
    while waiting:
        value = waiting.pop()
        op = defining_op(value)
        if value != start and op is not None and is_sum(op):
            waiting += list(op.operands)[1::-1]
        else:
            found.append(value)
    return [v for v in found if v != start] if found.count(start) == 1 else None


def is_sum(op: ir.Operation) -> bool:
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
