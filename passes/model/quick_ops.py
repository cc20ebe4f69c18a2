"""Elementwise ops that cost less to compute where they are read than to keep: for sums of columns that alone read them,
and for any kernels of rows where one tensor of their size is all that they are made of.

Before:  rows kernel:  %c = %x - %mean, %d = %c², written    After:  %s = sum over rows of (%x - %mean)²
         %s = sum over rows of %d                                    rows kernel: (%x - %mean) · %g
         rows kernel: %c · %g
"""

from __future__ import annotations

from collections.abc import Collection
from math import prod

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, integers, is_elementwise, operations, shape_of, viewed
from lispgpt.passes.model.kernel_group import KernelGroup, users

QUICK = frozenset(
    f"arith.{name}"
    for name in (
        *("addf", "subf", "mulf", "negf", "maximumf", "minimumf", "maxnumf", "minnumf", "cmpf", "select", "constant"),
        *("extf", "truncf", "andi", "ori", "xori", "cmpi", "uitofp", "sitofp"),
    )
) | {"linalg.yield"}
"""Ops that take a vector of numbers about a cycle."""

MOST_READ, READ_ANEW = 2.25, 1.125
"""Bytes that an op reads for each of its result's, as far as it is moved into sums, and into other kernels: to write a
result and to read it again takes two."""

SPREAD = 8
"""Times that what is spread over a shape is smaller than it."""

MOST_COPIED = 16
"""Ops that one group is given."""


def absorb_quick(groups: list[KernelGroup], placements: Collection[ir.Operation]) -> list[KernelGroup]:
    """Move such ops from rows groups into all groups that read them; those that their own group reads stay there, too,
    and are no result of it.  placements: ops that put parts where they belong."""
    homes: dict[ir.Operation, set[KernelGroup]] = {}
    for group in groups:
        for op in group.ops:
            homes.setdefault(op, set()).add(group)
    sums = {group for group in groups if len(group.ops) == 1 and _sums_columns(group.ops[0])}
    takers = sums | {group for group in groups if group.kind == "rows" and not _is_returned(group, placements)}
    kept: list[KernelGroup] = []
    for group in reversed(groups):
        for op in reversed(group.ops) if group.kind == "rows" else ():
            readers = users(op.results[0], op)
            found = {home for reader in readers for home in homes.get(reader, ())}
            others = found - {group}
            if (
                not others
                or not others <= takers
                or not readers <= set(homes)
                or any(len(taker.copied) >= MOST_COPIED for taker in others)
            ):
                continue
            if not _is_quick(op) or _read(op) > (MOST_READ if found <= sums else READ_ANEW) * _bytes(op.results[0]):
                continue
            homes[op] = found
            for taker in others:
                taker.ops.insert(0, op)
                taker.needs |= group.needs
                taker.copied.add(op)
            if group in found:
                group.lent.add(op)
            else:
                group.ops.remove(op)
        if group.ops:
            kept.insert(0, group)
            continue
        for other in groups:
            other.needs &= ~group.bit
    return kept


def _is_returned(group: KernelGroup, placements: Collection[ir.Operation]) -> bool:
    """Whether a result may take an argument's place, which is for ops of one shape."""
    readers = {reader for op in group.ops for result in op.results for reader in users(result, op)}
    return any(reader.name == "func.return" or reader in placements for reader in readers)


def _sums_columns(op: ir.Operation) -> bool:
    """Whether an op combines numbers over other dimensions than the last, along which vectors lie."""
    if op.name != "linalg.reduce" or len(op.results) != 1:
        return False
    return shape_of(op.operands[0])[-1] > 1 and len(shape_of(op.operands[0])) - 1 not in integers(
        op.attributes["dimensions"]
    )


def _is_quick(op: ir.Operation) -> bool:
    """Whether numbers that are in registers make an op's result in a few cycles."""
    tensors = any(isinstance(value.type, ir.RankedTensorType) for value in captured_values(op))
    quick = is_elementwise(op) and not tensors
    return quick and all(inner.name in QUICK for inner in operations(op.regions[0].blocks[0]))


def _read(op: ir.Operation) -> float:
    """Bytes that an op reads, where what is spread over its shape is read as it was before."""
    return sum(map(_source_bytes, list(op.operands)[:-1]))


def _source_bytes(value: ir.Value) -> float:
    op = defining_op(viewed(value))
    if op is not None and _is_quick(op) and sum(map(_bytes, list(op.operands)[:-1])) * SPREAD <= _bytes(value):
        return sum(map(_bytes, list(op.operands)[:-1]))
    return _bytes(value)


def _bytes(value: ir.Value) -> int:
    """Of a tensor's elements; 0 of a number."""
    if not isinstance(value.type, ir.RankedTensorType):
        return 0
    element = value.type.element_type
    return prod(shape_of(value)) * max(1, (64 if isinstance(element, ir.IndexType) else element.width) // 8)
