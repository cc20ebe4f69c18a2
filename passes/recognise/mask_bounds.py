"""Which positions a mask lets a row see, from the op that masks: t ≤ upper and t ≥ lower, in the op's own values.

An elementwise op that ends with select(condition, score, -infinity) hides a position where its condition is false.
Conditions that compare the position with something that is the same for all positions of a row bound what the row sees;
of all others nothing is said here, and they stay what they are: values of the op.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Iterator
from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, dim_positions, indexing_maps, operations

Terms = tuple[tuple[int, ir.Value], ...]
LESS, AT_MOST, MORE, AT_LEAST = 2, 3, 4, 5
"""Signed comparisons by their numbers in arith.cmpi."""
MIRRORED = {LESS: MORE, AT_MOST: AT_LEAST, MORE: LESS, AT_LEAST: AT_MOST}
NEGATED = {LESS: AT_LEAST, AT_MOST: MORE, MORE: AT_MOST, AT_LEAST: LESS}
CASTS = ("arith.index_cast", "arith.extsi")


@dataclass(frozen=True)
class Bound:
    """Σ sign · value + constant, in values of `op`'s body.  condition: the comparison there that says so; holds:
    whether it is true of positions within the bound, and not false."""

    op: ir.Operation
    terms: Terms
    constant: int
    condition: ir.Value
    holds: bool

    def tensors(self) -> list[ir.Value]:
        """The tensors that the values are read from."""
        found: list[ir.Value] = []
        waiting = [value for _, value in self.terms]
        while waiting:
            value = waiting.pop()
            if isinstance(value.owner, ir.Block):
                if value.owner == self.op.regions[0].blocks[0]:
                    found.append(self.op.operands[ir.BlockArgument(value).arg_number])
                continue
            made = defining_op(value)
            waiting += list(made.operands)
            found += [made.operands[0]] if made.name == "tensor.extract" else []
        return found

    def dims(self) -> set[int]:
        """The op's loops that the values depend on."""
        found: set[int] = set()
        waiting = [value for _, value in self.terms]
        while waiting:
            value = waiting.pop()
            if isinstance(value.owner, ir.Block):
                if value.owner == self.op.regions[0].blocks[0]:
                    found.update(dim_positions(indexing_maps(self.op)[ir.BlockArgument(value).arg_number]))
                continue
            made = defining_op(value)
            waiting += list(made.operands)
            found |= {ir.IntegerAttr(made.attributes["dim"]).value} if made.name == "linalg.index" else set()
        return found

    def operand(self) -> int | None:
        """The number of the op's operand whose element the bound is; None where it is anything else."""
        if self.constant or len(self.terms) != 1 or self.terms[0][0] != 1:
            return None
        value = self.terms[0][1]
        while (made := defining_op(value)) is not None and made.name in CASTS:
            value = made.operands[0]
        inside = isinstance(value.owner, ir.Block) and value.owner == self.op.regions[0].blocks[0]
        return ir.BlockArgument(value).arg_number if inside else None


class Bounded(ABC):
    """What has scores that a mask bounds."""

    @property
    @abstractmethod
    def bounds(self) -> tuple[Bound | None, Bound | None]: ...

    @property
    def upper(self) -> Bound | None:
        """The last position that weighs anything in a row, where a mask says so."""
        return self.bounds[0]

    @property
    def lower(self) -> Bound | None:
        """The first one."""
        return self.bounds[1]


def mask_bounds(op: ir.Operation) -> tuple[Bound | None, Bound | None]:
    """The upper and the lower bound that an elementwise op puts on its last loop; None where it puts none."""
    upper = lower = None
    for predicate, condition, holds in _conditions(operations(op.regions[0].blocks[0])[-1].operands[0], op):
        found = _bound(op, predicate, condition, holds)
        if found is not None and found[0]:
            upper = upper or found[1]
        elif found is not None:
            lower = lower or found[1]
    return upper, lower


def _bound(op: ir.Operation, predicate: int, condition: ir.Value, holds: bool) -> tuple[bool, Bound] | None:
    """Whether a comparison of the position is an upper bound, and that bound; None where it is none."""
    sides = [_linear(value, op) for value in defining_op(condition).operands]
    if sides[0] is None or sides[1] is None:
        return None
    slope, terms, constant = _minus(sides[0], sides[1])
    if slope not in (1, -1):
        return None
    if slope == 1:  # t + rest ⋚ 0
        terms, constant = tuple((-sign, v) for sign, v in terms), -constant
    else:
        predicate = MIRRORED[predicate]
    if predicate in (LESS, AT_MOST):
        return True, Bound(op, terms, constant - (predicate == LESS), condition, holds)
    return False, Bound(op, terms, constant + (predicate == MORE), condition, holds)


def known_within(op: ir.Operation, upper: Bound | None, lower: Bound | None) -> list[ir.Value]:
    """The comparisons in an elementwise op's body that are true of every position within bounds of the same scores."""
    found = []
    for inner in operations(op.regions[0].blocks[0]):
        predicate = ir.IntegerAttr(inner.attributes["predicate"]).value if inner.name == "arith.cmpi" else None
        one = _bound(op, predicate, inner.results[0], True) if predicate in NEGATED else None
        limit = None if one is None else upper if one[0] else lower
        if one is None or limit is None or _loops(one[1]) is None or _loops(one[1]) != _loops(limit):
            continue
        if one[1].constant >= limit.constant if one[0] else one[1].constant <= limit.constant:
            found.append(inner.results[0])
    return found


def _loops(bound: Bound) -> list[tuple[int, int]] | None:
    """A bound's terms by the loops that they are the indices of; None where some are anything else."""
    ops = [(sign, defining_op(value)) for sign, value in bound.terms]
    if any(op is None or op.name != "linalg.index" for _, op in ops):
        return None
    return sorted((sign, _loop(op)) for sign, op in ops)


def _conditions(value: ir.Value, op: ir.Operation) -> Iterator[tuple[int, ir.Value, bool]]:
    """(predicate that has to hold for a score not to be -infinity, comparison, whether it is this one's own)."""
    chosen = defining_op(value)
    while chosen is not None and chosen.name == "arith.select":
        condition, yes, no = chosen.operands
        if is_minus_infinity(no):
            yield from _comparisons(condition, False)
            chosen = defining_op(yes)
        elif is_minus_infinity(yes):
            yield from _comparisons(condition, True)
            chosen = defining_op(no)
        else:
            return


def _comparisons(condition: ir.Value, negated: bool) -> Iterator[tuple[int, ir.Value, bool]]:
    op = defining_op(condition)
    if op is not None and op.name == ("arith.ori" if negated else "arith.andi"):
        for operand in op.operands:
            yield from _comparisons(operand, negated)
    elif op is not None and op.name == "arith.cmpi":
        predicate = ir.IntegerAttr(op.attributes["predicate"]).value
        if predicate in NEGATED:
            yield NEGATED[predicate] if negated else predicate, condition, not negated


Linear = tuple[int, Terms, int]
"""slope · t + Σ sign · value + constant."""


def _linear(value: ir.Value, op: ir.Operation) -> Linear | None:
    """None where an integer depends on the position in another way."""
    made = defining_op(value)
    if made is not None and made.name in CASTS:
        inner = _linear(made.operands[0], op)
        return inner if inner is None or inner[0] or not inner[1] else (0, ((1, value),), 0)
    if made is not None and made.name in ("arith.addi", "arith.subi"):
        a, b = (_linear(v, op) for v in made.operands)
        if a is None or b is None:
            return None
        return _minus(a, b if made.name == "arith.subi" else _scaled(b, -1))
    if made is not None and made.name == "arith.constant":
        return 0, (), ir.IntegerAttr(made.attributes["value"]).value
    if made is not None and made.name == "linalg.index" and _loop(made) == _last(op):
        return 1, (), 0
    return (0, ((1, value),), 0) if _is_same_for_all(value, op) else None


def _scaled(side: Linear, factor: int) -> Linear:
    return side[0] * factor, tuple((sign * factor, v) for sign, v in side[1]), side[2] * factor


def _minus(a: Linear, b: Linear) -> Linear:
    """Their difference, without the terms that cancel."""
    terms = list(a[1])
    for sign, value in b[1]:
        if (sign, value) in terms:
            terms.remove((sign, value))
        else:
            terms.append((-sign, value))
    return a[0] - b[0], tuple(terms), a[2] - b[2]


def _is_same_for_all(value: ir.Value, op: ir.Operation) -> bool:
    """Whether a value of the op's body does not change along its last loop."""
    block, waiting, outside = op.regions[0].blocks[0], [value], set(captured_values(op))
    while waiting:
        at = waiting.pop()
        if at in outside:
            continue
        if isinstance(at.owner, ir.Block):
            if at.owner != block or _last(op) in dim_positions(indexing_maps(op)[ir.BlockArgument(at).arg_number]):
                return False
            continue
        made = defining_op(at)
        if made.name == "linalg.index" and _loop(made) == _last(op):
            return False
        waiting += list(made.operands)
    return True


def _last(op: ir.Operation) -> int:
    return indexing_maps(op)[-1].n_dims - 1


def _loop(index: ir.Operation) -> int:
    return ir.IntegerAttr(index.attributes["dim"]).value


def is_minus_infinity(value: ir.Value) -> bool:
    op = defining_op(value)
    constant = op is not None and op.name == "arith.constant" and isinstance(value.type, ir.FloatType)
    return constant and ir.FloatAttr(op.attributes["value"]).value == -float("inf")
