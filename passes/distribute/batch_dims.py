"""Which dimensions of a tensor count the sequences of a batch, and what reshapes make of them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from fractions import Fraction
from math import prod
from typing import NoReturn, TypeAlias

from lispgpt.base.errors import UserError
from lispgpt.ir.diagnostics import users_span
from lispgpt.ir.mlir import ir

Span: TypeAlias = "tuple[tuple[Fraction, Fraction], ...]"
"""Some of a batch, as shares of it: from where to where, in order and apart."""

ALL: Span = ((Fraction(0), Fraction(1)),)


@dataclass(frozen=True)
class BatchDim:
    """Element i of such a dimension belongs to sequence (i + offset) // inner, modulo count.

    count: sequences of the whole batch.  inner: elements of one sequence that follow each other.  offset: where the
    dimension starts, if it is a part of another.
    """

    count: int
    inner: int = 1
    offset: int = 0

    def divisible(self, extent: int, devices: int) -> bool:
        """Whether each device can take an equal part of the sequences, and of these elements."""
        return not (self.count % devices or extent % devices or self.offset % devices)

    def span(self, extent: int) -> Span:
        """Of which sequences a dimension of that extent is: of all, or of some that follow each other."""
        whole = self.count * self.inner
        start = self.offset % whole
        if start == 0 and extent % whole == 0:
            return ALL
        return ((Fraction(start, whole), Fraction(start + extent, whole)),)


def joined(one: Span, other: Span) -> Span | None:
    """Both together; None where they have sequences in common."""
    found: list[tuple[Fraction, Fraction]] = []
    for start, end in sorted([*one, *other]):
        if found and start < found[-1][1]:
            return None
        if found and start == found[-1][1]:
            start = found.pop()[0]
        found.append((start, end))
    return tuple(found)


def without(one: Span, other: Span) -> Span:
    """What is in one and not in the other."""
    found = list(one)
    for start, end in other:
        found = [part for a, b in found for part in ((a, min(b, start)), (max(a, end), b)) if part[0] < part[1]]
    return tuple(found)


def fail(op: ir.Operation, why: str) -> NoReturn:
    """UserError at the user's form that an op is of."""
    raise UserError(f"this cannot be divided among devices: {why} ({op.name})", users_span(op.location))


Dims = Mapping[int, BatchDim]
"""The dimensions of a tensor that count a batch."""


def collapsed(dims: Dims, extents: Sequence[int], groups: Sequence[Sequence[int]]) -> dict[int, BatchDim] | None:
    """What is left of them when each group of neighbouring dimensions becomes one; None where two meet in one."""
    found: dict[int, BatchDim] = {}
    for number, group in enumerate(groups):
        for place, dimension in enumerate(group):
            if dimension not in dims:
                continue
            if number in found:
                return None
            behind = prod(extents[d] for d in group[place + 1 :])
            dim = dims[dimension]
            found[number] = replace(dim, inner=dim.inner * behind, offset=dim.offset * behind)
    return found


def expanded(dims: Dims, extents: Sequence[int], groups: Sequence[Sequence[int]]) -> dict[int, BatchDim] | None:
    """What becomes of them when each is parted into the dimensions of its group, whose extents are given.

    None where no dimension of the group has whole sequences, one by one or several together, and all of the batch.
    """
    found: dict[int, BatchDim] = {}
    for number, dim in dims.items():
        home = _home(dim, [extents[d] for d in groups[number]])
        if home is None:
            return None
        found[groups[number][home[0]]] = home[1]
    return found


def _home(dim: BatchDim, extents: Sequence[int]) -> tuple[int, BatchDim] | None:
    """Which of the dimensions that one is parted into counts the sequences, or as many of them together as there are
    behind it, and how."""
    for place, extent in enumerate(extents):
        behind = prod(extents[place + 1 :])
        all_of_it = (extent * behind) % (dim.inner * dim.count) == 0 and not dim.offset
        if (all_of_it or prod(extents[:place]) == 1 < extent) and not (dim.inner % behind or dim.offset % behind):
            return place, BatchDim(dim.count, dim.inner // behind, dim.offset // behind)
        if behind % dim.inner == 0 and 1 < extent == dim.count * dim.inner // behind and not dim.offset:
            return place, BatchDim(extent)
    return None
