"""Indices that are neither proven to be within their tensor nor checked when an entry is called: held to its range.

Before: %e = tensor.extract %x[%i] : tensor<4xf32>
After:  %a = arith.maxsi %i, %c0   %b = arith.minsi %a, %c3   %e = tensor.extract %x[%b]

What is below 0 is the first, what is past the end the last; a part that begins too late ends at the end.
"""

from __future__ import annotations

from collections.abc import Callable

from lispgpt.ir import build as b
from lispgpt.ir.index_ranges import IndexRanges, indices_of
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, everything_in

Checked = Callable[[ir.Operation, ir.Value], bool]
"""Whether an op's index is held to its range by what an entry may be given."""


def hold_indices(entry: ir.Operation, checked: Checked) -> None:
    """Put the smaller and the larger of an index and its ends where it is made, once for all ops that have it."""
    ranges = IndexRanges()
    held: dict[tuple[ir.Value, int], ir.Value] = {}
    for op in everything_in(entry):
        for number, last in indices_of(op):
            index = op.operands[number]
            if not ranges.within(index, last) and not checked(op, index):
                if (index, last) not in held:
                    held[index, last] = _held(index, last, ranges)
                op.operands[number] = held[index, last]


def _held(index: ir.Value, last: int, ranges: IndexRanges) -> ir.Value:
    low, high = ranges.of(index)
    made = defining_op(index)
    place = ir.InsertionPoint.at_block_begin(index.owner) if made is None else _behind(made)
    with place, ir.Location.unknown() if made is None else made.location:
        if low < 0:
            index = create_op("arith.maxsi", [index, b.as_value(0)], [index.type]).results[0]
        if high > last:
            index = create_op("arith.minsi", [index, b.as_value(last)], [index.type]).results[0]
    return index


def _behind(op: ir.Operation) -> ir.InsertionPoint:
    """Right behind an op."""
    ops = list(op.block.operations)
    return ir.InsertionPoint(ops[ops.index(op) + 1])
