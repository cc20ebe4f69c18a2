"""Which ops of an entry are attention: a scores → elementwise → softmax → weighted-sum chain with its cache writes."""

from __future__ import annotations

from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    VIEWS,
    captured_values,
    defining_op,
    dim_positions,
    indexing_maps,
    is_elementwise,
    shape_of,
)


def attention_members(ops: list[ir.Operation]) -> dict[ir.Operation, int]:
    """Ops of every scores → elementwise → softmax → weighted-sum chain and the cache writes it reads."""
    members: dict[ir.Operation, int] = {}
    for number, softmax in enumerate(op for op in ops if op.name == "linalg.softmax"):
        users = [use.owner.operation for use in softmax.results[0].uses]
        chain = [softmax]
        scores = defining_op(softmax.operands[0])
        while scores is not None and is_elementwise(scores):
            chain.append(scores)
            scores = _same_shape_source(scores)
        if scores is None or not is_product(scores) or len(users) != 1 or not is_product(users[0]):
            continue
        chain += [scores, users[0]]
        if not all(_reads_scores_in_place(op, scores, chain) for op in chain[1:-2]):
            continue
        for contraction in (scores, users[0]):
            chain += _cache_writes(contraction.operands[1])
        for op in chain:
            members[op] = number
    return members


def _same_shape_source(op: ir.Operation) -> ir.Operation | None:
    """The producer of the first operand that has an elementwise op's own shape."""
    shape = shape_of(op.results[0])
    return next((defining_op(v) for v in op.operands if shape_of(v) == shape), None)


def _reads_scores_in_place(op: ir.Operation, scores: ir.Operation, chain: list[ir.Operation]) -> bool:
    """Whether an elementwise op between the scores and their softmax needs only its own point of those before it."""
    if any(_made_from(value, scores) for value in captured_values(op)):
        return False
    made = [member.results[0] for member in chain]
    for operand, map_ in zip(op.operands, indexing_maps(op), strict=True):
        at_own_point = operand in made and dim_positions(map_) == list(range(map_.n_dims))
        if not at_own_point and _made_from(operand, scores):
            return False
    return True


def _made_from(value: ir.Value, op: ir.Operation) -> bool:
    """Whether a value is computed from an op's result."""
    waiting, seen = [value], set()
    while waiting:
        made = defining_op(waiting.pop())
        if made is None or made in seen:
            continue
        if made == op:
            return True
        seen.add(made)
        waiting += [*made.operands, *captured_values(made)]
    return False


def _cache_writes(value: ir.Value) -> list[ir.Operation]:
    op = defining_op(value)
    writes = []
    while op is not None and (op.name in VIEWS or op.name == "scf.for"):
        if op.name == "scf.for":
            writes.append(op)
            op = defining_op(op.operands[3])
        else:
            op = defining_op(op.operands[0])
    return writes


def is_product(op: ir.Operation) -> bool:
    """Whether an op is a linalg.contract whose sums start at zero, as those of every schedule do."""
    if op.name != "linalg.contract":
        return False
    start = defining_op(op.operands[2])
    if start is None or start.name != "linalg.fill":
        return False
    number = defining_op(start.operands[0])
    if number is None or number.name != "arith.constant" or not isinstance(number.results[0].type, ir.FloatType):
        return False
    return ir.FloatAttr(number.attributes["value"]).value == 0
