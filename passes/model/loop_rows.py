"""Which rows of tensors the rounds of a loop read and write, where they are one row further on each round."""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import constant_number, defining_op, integers, operations, shape_of


@dataclass(frozen=True)
class Row:
    """Which row of a tensor a round takes: first, and how many further on each round."""

    first: int
    step: int


class LoopRows:
    """What a loop does with what it carries and what is given to it, row by row."""

    def __init__(self, op: ir.Operation, rounds: range) -> None:
        self.rounds, self.block = rounds, op.regions[0].blocks[0]
        self.counter, *self.carried = self.block.arguments
        self.end = operations(self.block)[-1]

    def of(self, i: int) -> Row | None:
        """Which row of what is carried each round takes, where that is all that it does with it."""
        value, found = self.carried[i], set()
        while True:
            after = None
            for use in value.uses:
                user = use.owner.operation
                if user == self.end:
                    if use.operand_number != i:
                        return None
                elif user.name == "tensor.insert_slice" and use.operand_number == 1 and after is None:
                    after = user.results[0]
                    found.add(self.row(user, value))
                elif user.name == "tensor.extract_slice":
                    found.add(self.row(user, value))
                else:
                    return None
            if after is None:
                break
            value = after
        ends = self.end.operands[i] == value and value != self.carried[i]
        return found.pop() if ends and len(found) == 1 else None

    def row(self, window: ir.Operation, whole: ir.Value) -> Row | None:
        """The row that a slice is, by the number of the round."""
        if window.block != self.block or not shape_of(whole):
            return None
        count = 1 if window.name == "tensor.extract_slice" else 2
        offsets, sizes = integers(window.attributes["static_offsets"]), integers(window.attributes["static_sizes"])
        strides, shape = integers(window.attributes["static_strides"]), shape_of(whole)
        if set(strides) != {1} or sizes != [1, *shape[1:]] or any(offsets[1:]):
            return None
        places = list(window.operands)[count:]
        if len(places) > 1 or (places and offsets[0] >= 0):
            return None
        known = self._by_round(places[0]) if places else (0, offsets[0])
        if known is None or not all(0 <= known[0] * r + known[1] < shape[0] for r in (0, len(self.rounds) - 1)):
            return None
        return Row(known[1], known[0])

    def _by_round(self, value: ir.Value) -> tuple[int, int] | None:
        """(a, b) of an index that is a * the round's number + b."""
        if value == self.counter:
            return self.rounds.step, self.rounds.start
        number = constant_number(value)
        if number is not None:
            return 0, number
        op = defining_op(value)
        if op is None:
            return None
        if op.name == "arith.index_cast":
            return self._by_round(op.operands[0])
        sides = [self._by_round(v) for v in op.operands] if op.name in _AFFINE else [None]
        if None in sides or (op.name == "arith.muli" and sides[0][0] and sides[1][0]):  # type: ignore[index]
            return None
        (a, b), (c, d) = sides  # type: ignore[misc]
        return _AFFINE[op.name](a, b, c, d)

    def is_made(self, i: int, row: Row) -> bool:
        """Whether the rounds write every row of what is carried once, and read none before."""
        all_of_it = abs(row.step) == 1 and len(self.rounds) == shape_of(self.carried[i])[0]
        reads = any(use.owner.operation.name == "tensor.extract_slice" for use in self.carried[i].uses)
        return all_of_it and not reads


_AFFINE = {
    "arith.addi": lambda a, b, c, d: (a + c, b + d),
    "arith.subi": lambda a, b, c, d: (a - c, b - d),
    "arith.muli": lambda a, b, c, d: (a * d + b * c, b * d),
}
"""Of two indices that are a * n + b and c * n + d, one of which at least has no n where they are multiplied."""


def row_type(whole: ir.Value) -> ir.Type:
    return ir.RankedTensorType.get(list(shape_of(whole))[1:], whole.type.element_type)


def byte_count(kind: ir.Type) -> int:
    return find_dtype(str(kind.element_type)).nbytes(prod(kind.shape))


def in_shape(value: ir.Value, kind: ir.Type) -> ir.Value:
    """A row with or without the dimension of one row."""
    if value.type == kind:
        return value
    longer, shorter = max(len(kind.shape), len(shape_of(value))), min(len(kind.shape), len(shape_of(value)))
    assert longer == shorter + 1
    i64 = ir.IntegerType.get_signless(64)
    groups = [[0, 1], *[[d] for d in range(2, longer)]] if shorter else []
    attributes = {
        "reassociation": ir.ArrayAttr.get([ir.ArrayAttr.get([ir.IntegerAttr.get(i64, d) for d in g]) for g in groups])
    }
    if len(kind.shape) == longer:
        attributes["static_output_shape"] = ir.DenseI64ArrayAttr.get(list(kind.shape))
        return create_op("tensor.expand_shape", [value], [kind], attributes).results[0]
    return create_op("tensor.collapse_shape", [value], [kind], attributes).results[0]
