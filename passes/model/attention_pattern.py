"""The shape of an attention kernel: which op is which, and which loop of it means what."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    element_type,
    indexing_maps,
    is_elementwise,
    operations,
    shape_of,
)


@dataclass(frozen=True)
class Attention:
    """Ops of out[q…, d] = Σ_t softmax_t(mask(Σ_e query[q…, e] · keys[k…, t, e])) · values[k…, t, d].

    scores, softmax and weighted are the contraction, linalg.softmax and contraction; masked is the tensor that softmax
    reads; writes are the loops that put new keys and values into the cache.  Loops of the scores (q…, t): shared_dims
    are those that keys and values have too (sequence, head), query_dims those that only queries have.
    """

    scores: ir.Operation
    masked: ir.Value
    softmax: ir.Operation
    weighted: ir.Operation
    writes: tuple[ir.Operation, ...]
    shared_dims: tuple[int, ...]
    query_dims: tuple[int, ...]

    @property
    def extents(self) -> tuple[int, ...]:
        """The scores' shape; the last is the longest context."""
        return shape_of(self.scores.results[0])

    @property
    def context(self) -> int:
        return self.extents[-1]

    def query(self, at: list, e: object) -> tuple[ir.Value, list]:
        """The tensor and indices of query[q…, e]; `at` gives an index for each of q…"""
        return self._operand(self.scores, 0, [*at, None, e])

    def key(self, at: list, t: object, e: object) -> tuple[ir.Value, list]:
        return self._operand(self.scores, 1, [*at, t, e])

    def value(self, at: list, t: object, d: object) -> tuple[ir.Value, list]:
        return self._operand(self.weighted, 1, [*at, d, t])

    def _operand(self, op: ir.Operation, number: int, loops: list) -> tuple[ir.Value, list]:
        return op.operands[number], [loops[d] for d in dim_positions(indexing_maps(op)[number])]

    def position_bound(self) -> tuple[ir.Operation, int] | None:
        """The elementwise op and the number of its operand P where scores with t > P[…] are masked to -infinity.

        Then keys past the largest P weigh nothing, and need not be read.
        """
        op = defining_op(self.masked)
        if op is None or not is_elementwise(op):
            return None
        block = op.regions[0].blocks[0]
        last = len(self.extents) - 1
        chosen = defining_op(operations(block)[-1].operands[0])
        if chosen is None or chosen.name != "arith.select" or not _is_minus_infinity(chosen.operands[2]):
            return None
        compare = defining_op(chosen.operands[0])
        if (
            compare is None
            or compare.name != "arith.cmpi"
            or ir.IntegerAttr(compare.attributes["predicate"]).value != 3
        ):
            return None
        argument = compare.operands[1]
        if not _is_index_of(compare.operands[0], last) or not isinstance(argument.owner, ir.Block):
            return None
        return op, ir.BlockArgument(argument).arg_number


def match_attention(ops: list[ir.Operation]) -> Attention | None:
    """Recognise the ops of one kernel; None where they are anything else."""
    softmaxes = [op for op in ops if op.name == "linalg.softmax" and _along_last(op)]
    contractions = [op for op in ops if op.name == "linalg.contract"]
    if len(softmaxes) != 1 or len(contractions) != 2:
        return None
    scores, weighted = contractions
    softmax = softmaxes[0]
    writes = tuple(op for op in ops if op.name == "scf.for")
    rank = len(shape_of(scores.results[0]))
    query, key, out = (dim_positions(m) for m in indexing_maps(scores))
    weights, value, result = (dim_positions(m) for m in indexing_maps(weighted))
    leading = list(range(rank - 1))
    shared = tuple(d for d in key if d in leading)
    matches = (
        out == list(range(rank))
        and query == [*leading, rank]
        and key == [*shared, rank - 1, rank]
        and weights == [*leading, rank]
        and result == list(range(rank))
        and value == [*shared, rank, rank - 1]
        and weighted.operands[0] == softmax.results[0]
        and element_type(scores.results[0]) == ir.F32Type.get()
    )
    if not matches:
        return None
    queries = tuple(d for d in leading if d not in shared)
    return Attention(scores, softmax.operands[0], softmax, weighted, writes, shared, queries)


def _is_minus_infinity(value: ir.Value) -> bool:
    op = defining_op(value)
    return (
        op is not None and op.name == "arith.constant" and ir.FloatAttr(op.attributes["value"]).value == -float("inf")
    )


def _is_index_of(value: ir.Value, dim: int) -> bool:
    op = defining_op(value)
    while op is not None and op.name == "arith.index_cast":
        op = defining_op(op.operands[0])
    return op is not None and op.name == "linalg.index" and ir.IntegerAttr(op.attributes["dim"]).value == dim


def _along_last(softmax: ir.Operation) -> bool:
    return bool(ir.IntegerAttr(softmax.attributes["dimension"]).value == len(shape_of(softmax.operands[0])) - 1)
