"""Attention as a kernel's attributes tell it: which op is which, which dimension means what, what a row may see.

out[q…, d] = Σ_t softmax_t(weigh(Σ_e queries[q…, e] · keys[q…, t, e])) · values[q…, t, d]

The loops q… are the leading dimensions of the scores, in their order: those that keys or values have too are shared,
the others belong to the queries alone.  `find_attention` recognises all of it in an entry and writes down what it
found; whoever comes after reads that:

  func.func private @attention_… attributes {kernel = "attention", attention = {shared = [0, 2], queries = [1],
      mask = "causal", cache = {…}, …}} {
    %s = linalg.contract {role = "scores"} …
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

from lispgpt.ir.mlir import attribute, ir, numbers
from lispgpt.ir.structure import dim_positions, indexing_maps, operations, shape_of
from lispgpt.passes.recognise.attention_gradients import AttentionGradients, ops_by_role
from lispgpt.passes.recognise.cache_writes import CacheWrite
from lispgpt.passes.recognise.mask_bounds import Bound, Bounded, mask_bounds
from lispgpt.passes.recognise.score_operands import DEPTH, POSITION, Operand, score_operands, sum_operands


@dataclass(frozen=True)
class OwnRows:
    """Each row puts its key and value into the cache at its own position, the last one that it sees.

    Row r of `each` in sequence b is row b · each + r of what is written.  sequence, row: the leading loops of these
    (None: of one sequence, of one row a sequence).
    """

    sequence: int | None
    row: int | None
    each: int


@dataclass(frozen=True)
class Attention(Bounded):
    """weigh: elementwise ops between scores and softmax, in order.  writes: keys', then values', where `own` rows are
    written by the kernel itself.  rounding: of the weights ahead of the weighted sum, and of its result (`out` is what
    that makes), where they are rounded; rest: what is to be added to the rounded result, where that is its upper part
    alone.  log_sum: the ops that make each row's log-sum-exp, the last of them last.
    gradients: sums that are weighed by what is made of the same scores, in other kernels."""

    scores: ir.Operation
    weigh: tuple[ir.Operation, ...]
    softmax: ir.Operation
    weighted: ir.Operation
    queries: Operand
    keys: Operand
    values: Operand
    out: Operand
    writes: tuple[CacheWrite, ...] = ()
    own: OwnRows | None = None
    rounding: tuple[ir.Operation | None, ir.Operation | None] = (None, None)
    rest: ir.Operation | None = None
    log_sum: tuple[ir.Operation, ...] = ()
    gradients: tuple[AttentionGradients, ...] = ()

    @property
    def extents(self) -> tuple[int, ...]:
        """Of the leading loops."""
        return shape_of(self.scores.results[0])[:-1]

    @property
    def context(self) -> int:
        """Positions that there are, seen or not."""
        return shape_of(self.scores.results[0])[-1]

    @property
    def depth(self) -> int:
        """Of queries and keys."""
        return self.queries.depth

    @property
    def width(self) -> int:
        """Of values and results."""
        return self.values.depth

    @property
    def shared(self) -> tuple[int, ...]:
        """The leading loops that keys or values have."""
        theirs = {*self.keys.dims, *self.values.dims}
        return tuple(d for d in range(len(self.extents)) if d in theirs)

    @property
    def query_dims(self) -> tuple[int, ...]:
        """The leading loops that only queries have."""
        return tuple(d for d in range(len(self.extents)) if d not in self.shared)

    @cached_property
    def bounds(self) -> tuple[Bound | None, Bound | None]:
        return mask_bounds(self.weigh[-1]) if self.weigh else (None, None)

    @property
    def exact(self) -> bool:
        """Whether weights meet values unrounded, so that they are wanted in more than 8 bits."""
        return self.rounding[0] is None and not self.values.rounded

    @property
    def biased(self) -> bool:
        """Whether tensors are read for each position on the way from scores to softmax."""
        made = {self.scores.results[0], *(op.results[0] for op in self.weigh)}
        for op in self.weigh:
            others = [m for o, m in zip(op.operands, indexing_maps(op), strict=True) if o not in made]
            if any(len(self.extents) in dim_positions(map_) for map_ in others[:-1]):
                return True
            if any(nested.name == "tensor.extract" for nested in operations(op.regions[0].blocks[0])):
                return True
        return False

    @property
    def updated(self) -> tuple[ir.Value, ...]:
        """The cache after each write."""
        return tuple(write.loop.results[0] for write in self.writes)

    @property
    def alone(self) -> bool:
        """Whether each sequence has one row, which writes its key and value."""
        return self.own is not None and self.own.each == 1

    def members(self) -> list[ir.Operation]:
        rounding = [op for op in (*self.rounding, self.rest) if op is not None]
        ops = [self.scores, *self.weigh, self.softmax, self.weighted, *rounding, *self.log_sum]
        return [*ops, *(w.loop for w in self.writes)]

    def products(self) -> list[ir.Operation]:
        """The contractions of this kernel and of those that compute its gradients."""
        theirs = [op for sums in self.gradients for op in sums.contractions()]
        return [self.scores, self.weighted, *theirs]


# ---- what is written down

ROLES = ("scores", "weigh", "softmax", "weighted", "keys", "values", "weights", "result", "rest", "log-sum")


def record_attention(attention: Attention) -> None:
    """Give each op its role, and the softmax the description that its kernel will have."""
    named = [(attention.scores, "scores"), (attention.softmax, "softmax"), (attention.weighted, "weighted")]
    named += [(op, "weigh") for op in attention.weigh] + [(op, "log-sum") for op in attention.log_sum]
    roundings = zip((*attention.rounding, attention.rest), ("weights", "result", "rest"), strict=True)
    named += [(op, role) for op, role in roundings if op is not None]
    named += [(write.loop, role) for write, role in zip(attention.writes, ("keys", "values"), strict=False)]
    for op, role in named:
        op.attributes["role"] = ir.StringAttr.get(role)
    attention.softmax.attributes["attention"] = _description(attention)


def _description(attention: Attention) -> ir.Attribute:
    upper, lower = attention.upper, attention.lower
    kind = "causal" if upper else "none"
    if lower is not None:
        kind = "windowed" if upper else "ahead"
    facts: dict[str, Any] = {
        "shared": numbers(attention.shared),
        "queries": numbers(attention.query_dims),
        "extents": numbers([*attention.extents, attention.context]),
        "depths": numbers([attention.depth, attention.width]),
        "mask": kind,
        "positions": "none" if upper is None else "tensor" if upper.tensors() else "index",
        "bias": _bias(attention),
        "log_sum": bool(attention.log_sum),
    }
    if upper is not None and lower is not None and upper.terms == lower.terms:
        facts["window"] = upper.constant - lower.constant + 1
    if attention.own is not None:
        own = attention.own
        cache = {"sequence": own.sequence, "row": own.row, "each": own.each}
        facts["cache"] = {k: v for k, v in cache.items() if v is not None}
    return attribute(facts)


def _bias(attention: Attention) -> str:
    """Whether tensors along the positions, or the positions themselves, are made part of a score."""
    if attention.biased:
        return "tensor"
    position = len(attention.extents)
    for op in attention.weigh:
        compared = {bound.condition for bound in (attention.upper, attention.lower) if bound is not None}
        if any(_reaches_score(nested, position, compared) for nested in operations(op.regions[0].blocks[0])):
            return "position"
    return "none"


def _reaches_score(op: ir.Operation, position: int, compared: set[ir.Value]) -> bool:
    """Whether an op is the index of the position looked at, read by more than the mask's comparisons."""
    if op.name != "linalg.index" or ir.IntegerAttr(op.attributes["dim"]).value != position:
        return False
    waiting = [op.results[0]]
    while waiting:
        value = waiting.pop()
        for use in value.uses:
            user = use.owner.operation
            if user.name == "linalg.yield":
                return True
            waiting += [r for r in user.results if r not in compared]
    return False


def attention_of(kernel: ir.Operation) -> Attention | None:
    """What is written down in a kernel's body; None where that is no attention, or not as it was recognised."""
    if "attention" not in kernel.attributes:
        return None
    by_role = ops_by_role(kernel, ROLES)
    if any(len(by_role[role]) != 1 for role in ("scores", "softmax", "weighted")):
        return None
    (scores,), (softmax,), (weighted,) = (by_role[role] for role in ("scores", "softmax", "weighted"))
    rounding = tuple(by_role[role][0] if by_role[role] else None for role in ("weights", "result"))
    found = attention_in(scores, tuple(by_role["weigh"]), softmax, weighted, rounding)
    if found is None:
        return None
    facts = ir.DictAttr(kernel.attributes["attention"])
    own, writes = None, tuple(CacheWrite(op) for role in ("keys", "values") for op in by_role[role])
    if "cache" in facts:
        cache = {a.name: ir.IntegerAttr(a.attr).value for a in ir.DictAttr(facts["cache"])}
        own = OwnRows(cache.get("sequence"), cache.get("row"), cache["each"])
    rest = by_role["rest"][0] if by_role["rest"] else None
    return replace(found, writes=writes, own=own, rest=rest, log_sum=tuple(by_role["log-sum"]))


def attention_in(
    scores: ir.Operation,
    weigh: tuple[ir.Operation, ...],
    softmax: ir.Operation,
    weighted: ir.Operation,
    rounding: tuple[ir.Operation | None, ...],
) -> Attention | None:
    """These ops as attention; None where the two products are laid out in no such way."""
    weights = softmax if rounding[0] is None else rounding[0]
    made, summed = score_operands(scores), sum_operands(weighted, weights.results[0])
    if made is None or summed is None:
        return None
    values, out = summed
    if {*out.dims} != {*range(len(shape_of(scores.results[0])) - 1), DEPTH} or POSITION not in values.dims:
        return None
    if rounding[1] is not None:
        out = replace(out, tensor=rounding[1].results[0])
    queries, keys = (replace(operand, rounded=_rounds(scores)) for operand in made)
    values = replace(values, rounded=_rounds(weighted))
    return Attention(scores, weigh, softmax, weighted, queries, keys, values, out, rounding=(rounding[0], rounding[1]))


def _rounds(product: ir.Operation) -> bool:
    """Whether a product's body rounds what it multiplies."""
    return any(op.name == "arith.truncf" for op in operations(product.regions[0].blocks[0]))
