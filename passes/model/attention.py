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

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import dim_positions, element_type, indexing_maps, operations, shape_of
from lispgpt.passes.model.cache_writes import CacheWrite
from lispgpt.passes.model.visible import Bound, visible_bounds

POSITION, DEPTH = -1, -2
"""Dimensions that are no leading loop of the scores: the position looked at, and what queries and keys (or, in values
and the result, each value) have of numbers."""


@dataclass(frozen=True)
class Operand:
    """dims: for each dimension of the tensor, a leading loop of the scores, POSITION or DEPTH."""

    tensor: ir.Value
    dims: tuple[int, ...]

    def index(self, place: Sequence[Any], t: Any, d: Any) -> list[Any]:
        """The tensor's indices from those of the leading loops, of the position and of the number in its depth."""
        named = {POSITION: t, DEPTH: d}
        return [named[dim] if dim in named else place[dim] for dim in self.dims]

    @property
    def has_rows(self) -> bool:
        """Whether numbers that are neighbours in depth are neighbours in memory."""
        return self.dims[-1] == DEPTH

    @property
    def depth(self) -> int:
        return shape_of(self.tensor)[self.dims.index(DEPTH)]

    @property
    def element(self) -> ir.Type:
        return element_type(self.tensor)


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
class Attention:
    """weigh: elementwise ops between scores and softmax, in order.  writes: keys', then values', where `own` rows are
    written by the kernel itself."""

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

    @property
    def upper(self) -> Bound | None:
        """The last position that a row can see, where the mask says so."""
        return self._bounds[0]

    @property
    def lower(self) -> Bound | None:
        """The first one."""
        return self._bounds[1]

    @cached_property
    def _bounds(self) -> tuple[Bound | None, Bound | None]:
        return visible_bounds(self.weigh[-1]) if self.weigh else (None, None)

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
        return [self.scores, *self.weigh, self.softmax, self.weighted, *(w.loop for w in self.writes)]


def attention_operands(
    scores: ir.Operation, softmax: ir.Operation, weighted: ir.Operation
) -> tuple[Operand, Operand, Operand, Operand] | None:
    """Queries, keys, values and result; None where the two products are laid out in no such way."""
    rank = len(shape_of(scores.results[0]))
    *operands, made = (dim_positions(m) for m in indexing_maps(scores))
    names: dict[Any, int] = {loop: dim if dim < rank - 1 else POSITION for dim, loop in enumerate(made)}
    sides = [[names.get(loop, DEPTH) for loop in dims] for dims in operands]
    number = next((i for i in range(2) if POSITION not in sides[i]), None)
    if number is None or not _are_plain(scores) or set(sides[0]) | set(sides[1]) != {*range(rank - 1), POSITION, DEPTH}:
        return None
    queries = Operand(scores.operands[number], tuple(sides[number]))
    keys = Operand(scores.operands[1 - number], tuple(sides[1 - number]))
    weights = [i for i in range(2) if weighted.operands[i] == softmax.results[0]]
    if len(weights) != 1 or not _are_plain(weighted):
        return None
    *operands, made = (dim_positions(m) for m in indexing_maps(weighted))
    names = {loop: dim if dim < rank - 1 else POSITION for dim, loop in enumerate(operands[weights[0]])}
    values = Operand(weighted.operands[1 - weights[0]], tuple(names.get(p, DEPTH) for p in operands[1 - weights[0]]))
    out = Operand(weighted.results[0], tuple(names.get(loop, DEPTH) for loop in made))
    if {*out.dims} != {*range(rank - 1), DEPTH} or POSITION not in values.dims or DEPTH not in values.dims:
        return None
    if DEPTH not in keys.dims or DEPTH not in queries.dims or any(_repeats(o) for o in (queries, keys, values, out)):
        return None
    return queries, keys, values, out


def _repeats(operand: Operand) -> bool:
    return len(set(operand.dims)) != len(operand.dims)


def _are_plain(product: ir.Operation) -> bool:
    """Whether every index of a product's operands and result is a loop, and no loop stands twice in one."""
    return all(None not in dims and len(set(dims)) == len(dims) for dims in map(dim_positions, indexing_maps(product)))


# ---- what is written down

ROLES = ("scores", "weigh", "softmax", "weighted", "keys", "values")


def record_attention(attention: Attention) -> None:
    """Give each op its role, and the softmax the description that its kernel will have."""
    named = [(attention.scores, "scores"), (attention.softmax, "softmax"), (attention.weighted, "weighted")]
    named += [(op, "weigh") for op in attention.weigh]
    named += [(write.loop, role) for write, role in zip(attention.writes, ("keys", "values"), strict=False)]
    for op, role in named:
        op.attributes["role"] = ir.StringAttr.get(role)
    attention.softmax.attributes["attention"] = _description(attention)


def _description(attention: Attention) -> ir.Attribute:
    upper, lower = attention.upper, attention.lower
    kind = "causal" if upper else "none"
    if lower is not None:
        kind = "windowed" if upper else "ahead"
    facts: dict[str, ir.Attribute] = {
        "shared": _numbers(attention.shared),
        "queries": _numbers(attention.query_dims),
        "extents": _numbers([*attention.extents, attention.context]),
        "depths": _numbers([attention.depth, attention.width]),
        "mask": ir.StringAttr.get(kind),
        "positions": ir.StringAttr.get("none" if upper is None else "tensor" if upper.tensors() else "index"),
        "bias": ir.StringAttr.get(_bias(attention)),
    }
    if upper is not None and lower is not None and upper.terms == lower.terms:
        facts["window"] = _number(upper.constant - lower.constant + 1)
    if attention.own is not None:
        own = attention.own
        cache = {"sequence": own.sequence, "row": own.row, "each": own.each}
        facts["cache"] = ir.DictAttr.get({k: _number(v) for k, v in cache.items() if v is not None})
    return ir.DictAttr.get(facts)


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
    by_role: dict[str, list[ir.Operation]] = {role: [] for role in ROLES}
    for op in operations(kernel.regions[0].blocks[0]):
        if "role" in op.attributes:
            by_role[ir.StringAttr(op.attributes["role"]).value].append(op)
    if any(len(by_role[role]) != 1 for role in ("scores", "softmax", "weighted")):
        return None
    (scores,), (softmax,), (weighted,) = (by_role[role] for role in ("scores", "softmax", "weighted"))
    operands = attention_operands(scores, softmax, weighted)
    if operands is None:
        return None
    facts = ir.DictAttr(kernel.attributes["attention"])
    own, writes = None, tuple(CacheWrite(op) for role in ("keys", "values") for op in by_role[role])
    if "cache" in facts:
        cache = {a.name: ir.IntegerAttr(a.attr).value for a in ir.DictAttr(facts["cache"])}
        own = OwnRows(cache.get("sequence"), cache.get("row"), cache["each"])
    return Attention(scores, tuple(by_role["weigh"]), softmax, weighted, *operands, writes, own)


def _number(value: int) -> ir.Attribute:
    return ir.IntegerAttr.get(ir.IntegerType.get_signless(64), value)


def _numbers(values: Sequence[int]) -> ir.Attribute:
    return ir.ArrayAttr.get([_number(v) for v in values])
