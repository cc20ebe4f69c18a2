"""Sums of columns that a rows kernel can make beside its rows: of what it computes, or reads anyway.

  %shares = tensor.expand_shape %x …            : tensor<4096x768xf32> into tensor<512x8x768xf32>
  %sums = linalg.reduce { arith.addf } ins(%shares : …) outs(%zeros : tensor<512x768xf32>) dimensions = [1]

A block that takes the rows of one share after another has its sums in registers, and %x, where nothing else reads it,
need not be in memory.
"""

from __future__ import annotations

from dataclasses import dataclass
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import RESHAPES, defining_op, filled_with, integers, operations, shape_of, viewed
from lispgpt.passes.model.kernel_group import KernelGroup, users

MOST_SUMS = 4
"""Of one kernel: each takes registers for all of its rows."""

FEWEST_COLUMNS, MOST_COLUMNS, COLUMNS_STEP = 256, 4096, 4
"""Of a row that a block's threads have in one vector each."""


@dataclass(frozen=True)
class ColumnSum:
    """values: [rows … columns], of which equal shares of the first dimension are summed.  result: [shares, what is left
    of the others, as they are or as one]."""

    result: ir.Value
    values: ir.Value

    @property
    def shares(self) -> int:
        return shape_of(self.result)[0]

    @property
    def rows(self) -> tuple[int, ...]:
        """The leading extents of the values."""
        return shape_of(self.values)[:-1]

    @property
    def columns(self) -> int:
        return shape_of(self.values)[-1]

    @property
    def each(self) -> int:
        """Rows of a share."""
        return self.rows[0] // self.shares


def column_sum(op: ir.Operation | None) -> ColumnSum | None:
    """What an op sums, where it is a linalg.reduce that does so; else None."""
    if op is None or op.name != "linalg.reduce" or len(op.results) != 1 or integers(op.attributes["dimensions"]) != [1]:
        return None
    values, shape = viewed(op.operands[0]), shape_of(op.operands[0])
    if not _reshapes(op.operands[0]) or not _adds(op) or len(shape_of(values)) < 2:
        return None
    rows, *rest = shape_of(values)
    summed = shape[0] * shape[1] == rows and prod(shape[2:]) == prod(rest)
    return ColumnSum(op.results[0], values) if summed and shape[2:] in (tuple(rest), (prod(rest),)) else None


def _reshapes(value: ir.Value) -> bool:
    """Whether a value is another of other extents, and no part of one."""
    op = defining_op(viewed(value, (*RESHAPES, "tensor.cast")))
    return op is None or op.name != "tensor.extract_slice"


def _adds(op: ir.Operation) -> bool:
    """Whether it adds numbers up in f32, widened where they are shorter, and starts with 0."""
    inner = [o.name for o in operations(op.regions[0].blocks[0])]
    adds = inner in (["arith.addf", "linalg.yield"], ["arith.extf", "arith.addf", "linalg.yield"])
    return adds and op.results[0].type.element_type == ir.F32Type.get() and filled_with(op.operands[1]) == 0


def join_column_sums(groups: list[KernelGroup], owner: dict, fewest: int) -> list[KernelGroup]:
    """Move sums in at least `fewest` shares into the rows groups that make what they sum, or read it."""
    kept = []
    for group in groups:
        sums = column_sum(group.ops[0]) if len(group.ops) == 1 else None
        home = None if sums is None or sums.shares < fewest else _home(group, sums, owner)
        if home is None:
            kept.append(group)
            continue
        home.ops += group.ops
        owner[group.ops[0]] = home
        home.is_read |= group.is_read
        for other in groups:
            if other.depends_on(group):
                other.needs = (other.needs & ~group.bit | home.bit | home.needs) & ~other.bit
    return kept


def _home(group: KernelGroup, sums: ColumnSum, owner: dict) -> KernelGroup | None:
    """The rows group that is to make sums; None where there is none."""
    if not FEWEST_COLUMNS <= sums.columns <= MOST_COLUMNS or sums.columns % COLUMNS_STEP:
        return None
    made = defining_op(sums.values)
    readers = [owner.get(op) for op in users(sums.values, group.ops[0])]
    for home in (owner.get(made), *sorted({r for r in readers if r}, key=lambda g: g.index)):
        if home is None or home is group or home.kind != "rows" or home.depends_on(group):
            continue
        others = [found for op in home.ops if (found := column_sum(op))]
        alike = all(other.shares == sums.shares and other.rows == sums.rows for other in others)
        if alike and len(others) < MOST_SUMS and _rows_of(home) == sums.rows:
            return home
    return None


def _rows_of(group: KernelGroup) -> tuple[int, ...]:
    """The extents of a group's rows, by the widest of what it makes."""
    shapes = [shape_of(op.results[0]) for op in group.ops if column_sum(op) is None]
    return max(shapes, key=len)[:-1]
