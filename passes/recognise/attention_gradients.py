"""Sums weighed by what is made of scores, as attention's gradients are, and what a kernel's body says of them.

S_i[q…, t] = Σ_e queries_i[q…, e] · keys_i[q…, t, e];  W_j = elementwise ops on the S_i and on what is read at q…, t;
out_j = Σ W_j · other_j over t (the gradient of queries), or over some of q… for each t (of keys and of values).

A kernel of such sums computes scores anew, so that nothing of the size of rows times positions is ever in memory:

  func.func private @attention_gradient_… attributes {kernel = "attention-gradient", sums = {over = "positions", …}} {
    %s = linalg.contract {role = "scores"} …     %w = linalg.generic {role = "weigh"} …
    %y = linalg.contract {role = "sum"} …
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lispgpt.ir.mlir import attribute, ir, numbers
from lispgpt.ir.structure import defining_op, dim_positions, indexing_maps, is_elementwise, operations, shape_of
from lispgpt.passes.recognise.mask_bounds import Bound, Bounded, is_minus_infinity, known_within, mask_bounds
from lispgpt.passes.recognise.score_operands import DEPTH, POSITION, Operand, score_operands, sum_operands


@dataclass(frozen=True)
class ScoreProduct:
    op: ir.Operation
    queries: Operand
    keys: Operand

    @property
    def depth(self) -> int:
        return self.queries.depth


@dataclass(frozen=True)
class WeightedSum:
    """weights: of the scores' shape.  other: what they weigh; it and the result have its depth.  out: the sum, or what
    alone reads it and rounds it."""

    op: ir.Operation
    weights: ir.Value
    other: Operand
    out: Operand

    @property
    def ops(self) -> list[ir.Operation]:
        """The product, and what rounds it."""
        made = defining_op(self.out.tensor)
        return [self.op] if made is None or made == self.op else [self.op, made]

    @property
    def unrounded(self) -> ir.Value:
        """The weights before they are rounded, where an op does nothing else."""
        op = defining_op(self.weights)
        return op.operands[0] if op is not None and _rounds(op) else self.weights


@dataclass(frozen=True)
class AttentionGradients(Bounded):
    """Of one kernel: all are over the same dimensions.  weigh: elementwise ops from scores to weights, in order.
    masked: the one that hides positions from a softmax, where that makes the weights."""

    products: tuple[ScoreProduct, ...]
    weigh: tuple[ir.Operation, ...]
    sums: tuple[WeightedSum, ...]
    masked: ir.Operation | None = None

    own = None
    """No rows are written to a cache."""

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the leading loops of the scores."""
        return shape_of(self.products[0].op.results[0])[:-1]

    @property
    def context(self) -> int:
        """Positions that there are, seen or not."""
        return shape_of(self.products[0].op.results[0])[-1]

    @property
    def over_positions(self) -> bool:
        """Whether each query has a sum over positions, and not each position one over queries."""
        return POSITION not in self.sums[0].out.dims

    @property
    def summed(self) -> tuple[int, ...]:
        """The leading loops that are summed over."""
        return tuple(d for d in range(len(self.extents)) if d not in self.sums[0].out.dims)

    @cached_property
    def bounds(self) -> tuple[Bound | None, Bound | None]:
        if self.masked is not None:
            return mask_bounds(self.masked)
        for op in self.weigh:
            found = mask_bounds(op)
            if found != (None, None) and all(_vanishes(s.weights, op.results[0]) for s in self.sums):
                return found
        return None, None

    @cached_property
    def known_within(self) -> frozenset[ir.Value]:
        """Comparisons of the elementwise ops that hold wherever the bounds do."""
        return frozenset(c for op in self.weigh for c in known_within(op, self.upper, self.lower))

    def contractions(self) -> list[ir.Operation]:
        return [*(p.op for p in self.products), *(s.op for s in self.sums)]

    def shared(self) -> list[ir.Operation]:
        """The ops that other kernels may compute too."""
        return [*(p.op for p in self.products), *self.weigh]


def attention_gradients(
    products: Sequence[ir.Operation], weigh: Sequence[ir.Operation], sums: Sequence[ir.Operation]
) -> AttentionGradients | None:
    """These ops as sums of one kernel; None where some product is laid out in another way."""
    made, found = [], []
    for op in products:
        sides = score_operands(op)
        if sides is None:
            return None
        made.append(ScoreProduct(op, *sides))
    inside = {op.results[0] for op in (*products, *weigh)}
    for op in sums:
        weights = [v for v in list(op.operands)[:2] if v in inside]
        operands = sum_operands(op, weights[0]) if len(weights) == 1 else None
        if operands is None:
            return None
        other, out = operands
        found.append(WeightedSum(op, weights[0], other, _rounded(out)))
    whole = AttentionGradients(tuple(made), tuple(weigh), tuple(found))
    return whole if _is_uniform(whole) else None


def _rounded(out: Operand) -> Operand:
    """A sum as an op rounds it that alone reads it, but for tile programs; the sum itself where there is none."""
    readers = [use.owner.operation for use in out.tensor.uses if not use.owner.operation.name.startswith("tile.")]
    if len(readers) != 1 or not _rounds(readers[0]):
        return out
    return replace(out, tensor=readers[0].results[0])


def _rounds(op: ir.Operation) -> bool:
    """Whether an op does nothing but round each number of a tensor."""
    if not is_elementwise(op):
        return False
    names = [inner.name for inner in operations(op.regions[0].blocks[0])]
    in_place = all(dim_positions(map_) == list(range(map_.n_dims)) for map_ in indexing_maps(op))
    return in_place and names == ["arith.truncf", "linalg.yield"]


def _is_uniform(sums: AttentionGradients) -> bool:
    """Whether all sums are for each query, over positions, or all for each position, over the same loops of queries."""
    leading = set(range(len(sums.extents)))
    for one in sums.sums:
        kept = set(one.out.dims) - {DEPTH}
        if kept != set(sums.sums[0].out.dims) - {DEPTH} or (POSITION not in kept and kept != leading):
            return False
        if not (POSITION in one.other.dims if sums.over_positions else POSITION not in one.other.dims):
            return False
    return True


def record_sums(sums: AttentionGradients) -> None:
    """Give each op its role, and the first sum the description that its kernel will have."""
    roles = ((sums.products, "scores"), (sums.sums, "sum"))
    named = [(one.op, role) for ones, role in roles for one in ones] + [(op, "weigh") for op in sums.weigh]
    for op, role in named:
        op.attributes["role"] = attribute(role)
    bounds = {"upper": sums.upper, "lower": sums.lower}
    facts = {
        "over": "positions" if sums.over_positions else "queries",
        "extents": numbers([*sums.extents, sums.context]),
        "depths": numbers([*(p.depth for p in sums.products), *(s.other.depth for s in sums.sums)]),
        "bounds": ir.ArrayAttr.get([attribute(name) for name, bound in bounds.items() if bound is not None]),
    }
    sums.sums[0].op.attributes["sums"] = attribute(facts)


def attention_gradients_of(kernel: ir.Operation) -> AttentionGradients | None:
    """What is written down in a kernel's body; None where those are no such sums, or not as they were recognised."""
    if "sums" not in kernel.attributes:
        return None
    by_role = ops_by_role(kernel, ("scores", "weigh", "sum"))
    return attention_gradients(*by_role.values()) if by_role["scores"] and by_role["sum"] else None


def ops_by_role(kernel: ir.Operation, roles: Sequence[str]) -> dict[str, list[ir.Operation]]:
    """The ops of a kernel's body that were given each of these roles, which are all that were given."""
    by_role: dict[str, list[ir.Operation]] = {role: [] for role in roles}
    for op in operations(kernel.regions[0].blocks[0]):
        if "role" in op.attributes:
            by_role[ir.StringAttr(op.attributes["role"]).value].append(op)
    return by_role


# ---- what hidden positions weigh


def _vanishes(tensor: ir.Value, masked: ir.Value) -> bool:
    """Whether a tensor is 0 wherever `masked`, at the same place, is -infinity."""
    op = defining_op(tensor)
    if op is None or not is_elementwise(op):
        return False
    block = op.regions[0].blocks[0]
    inputs = dict(zip(block.arguments, op.operands, strict=True))

    def is_zero(value: ir.Value) -> bool:
        if value in inputs:
            return _vanishes(inputs[value], masked)
        made = defining_op(value)
        if made is None:
            return False
        operands = list(made.operands)
        if made.name == "arith.constant":
            return isinstance(value.type, ir.FloatType) and ir.FloatAttr(made.attributes["value"]).value == 0
        if made.name in ("arith.mulf", "arith.truncf", "arith.extf", "arith.negf"):
            return any(map(is_zero, operands))
        if made.name == "arith.select":
            return all(map(is_zero, operands[1:]))
        return made.name == "math.exp" and is_lowest(operands[0])

    def is_lowest(value: ir.Value) -> bool:
        """Whether it is -infinity there."""
        if value in inputs:
            return inputs[value] == masked
        made = defining_op(value)
        if made is None:
            return False
        return is_minus_infinity(value) or (made.name == "arith.subf" and is_lowest(made.operands[0]))

    return is_zero(operations(block)[-1].operands[0])
