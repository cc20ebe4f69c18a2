"""What is made from attention's scores beside its result: each row's log-sum-exp, and sums that are its gradients."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from lispgpt.ir.combiners import combiner_of, starts_neutral
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import (
    defining_op,
    dim_positions,
    filled_with,
    indexing_maps,
    integers,
    is_elementwise,
    operations,
    shape_of,
)
from lispgpt.passes.recognise.attention_gradients import AttentionGradients, attention_gradients

INPUTS = ("f32", "bf16", "f16")


def is_product(op: ir.Operation) -> bool:
    """Whether an op is a linalg.contract whose sums start at zero, as those of every schedule do."""
    return op.name == "linalg.contract" and starts_at_zero(op)


def starts_at_zero(op: ir.Operation) -> bool:
    """Whether what a linalg op adds floats to is a tensor of zeros."""
    start = op.operands[2]
    return isinstance(start.type.element_type, ir.FloatType) and filled_with(start) == 0


def is_f32_product(op: ir.Operation) -> bool:
    """Whether it is a product of floats of at most 32 bits whose sums are f32."""
    types = [str(operand.type.element_type) for operand in list(op.operands)[:2]] if is_product(op) else []
    return bool(types) and all(t in INPUTS for t in types) and str(op.results[0].type.element_type) == "f32"


# ---- the log-sum-exp


def find_log_sum(seen: ir.Value) -> tuple[ir.Operation, ...]:
    """The ops that make top + log Σ exp(seen - top) over the last dimension, top being the largest; the last one has
    it.  Empty where there are none."""
    top = _reduction(seen, ("arith.maximumf", "arith.maxnumf"))
    if top is None:
        return ()
    known: dict[ir.Value, Any] = {seen: "seen", top.results[0]: "top"}
    powers = _reader(seen, known, ("math.exp", ("arith.subf", "seen", "top")))
    total = None if powers is None else _reduction(powers.results[0], ("arith.addf",))
    if powers is None or total is None:
        return ()
    known, found = {top.results[0]: "top", total.results[0]: "total"}, [top, powers, total]
    waiting = [total.results[0]]
    while waiting:
        for op in [use.owner.operation for use in waiting.pop().uses]:
            expression = _expression(op, known)
            if expression is None or op in found:
                continue
            known[op.results[0]] = expression
            found.append(op)
            if expression == ("arith.addf", ("math.log", "total"), "top"):
                return tuple(found) if _only_read_by(found) else ()
            waiting.append(op.results[0])
    return ()


def _reduction(value: ir.Value, combiners: tuple[str, ...]) -> ir.Operation | None:
    """The one op that reduces a value's last dimension so, from nothing."""
    last = [len(shape_of(value)) - 1]
    found = [
        op
        for op in (use.owner.operation for use in value.uses)
        if op.name == "linalg.reduce"
        and combiner_of(op) in combiners
        and integers(op.attributes["dimensions"]) == last
        and starts_neutral(op)
    ]
    return found[0] if len(found) == 1 else None


def _reader(value: ir.Value, known: dict[ir.Value, Any], expression: Any) -> ir.Operation | None:
    """The op that reads a value and computes the expression, and whose result a reduction alone reads."""
    for op in (use.owner.operation for use in value.uses):
        if _expression(op, known) == expression and len(list(op.results[0].uses)) == 1:
            return op
    return None


def _expression(op: ir.Operation, known: dict[ir.Value, Any]) -> Any:
    """What an elementwise op computes at each point from known tensors there; None where it is anything else."""
    if not is_elementwise(op) or any(operand not in known for operand in list(op.operands)[:-1]):
        return None
    for map_ in indexing_maps(op):
        if dim_positions(map_) != list(range(len(map_.results))):
            return None
    block = op.regions[0].blocks[0]
    values = {a: known[o] for a, o in zip(block.arguments, list(op.operands)[:-1], strict=False)}
    for inner in operations(block)[:-1]:
        parts = [values.get(operand) for operand in inner.operands]
        if None in parts or not parts:
            return None
        values[inner.results[0]] = (inner.name, *(sorted(parts, key=str) if inner.name == "arith.addf" else parts))
    return values.get(operations(block)[-1].operands[0])


def _only_read_by(ops: list[ir.Operation]) -> bool:
    """Whether nothing else reads what all of them but the last make."""
    return all(use.owner.operation in ops for op in ops[:-1] for use in op.results[0].uses)


# ---- gradients


def find_gradients(
    scores: ir.Operation, weigh: Sequence[ir.Operation], own: Sequence[ir.Operation]
) -> tuple[AttentionGradients, ...] | None:
    """The sums weighed by what is made from scores, one for each kernel; None where anything but these sums and the
    attention's `own` ops reads scores, or what is made of them point by point."""
    shape = shape_of(scores.results[0])
    products, made = [scores], list(weigh)
    sums: list[ir.Operation] = []
    waiting = [op.results[0] for op in (scores, *weigh)]
    while waiting:
        value = waiting.pop()
        for use in value.uses:
            op = use.owner.operation
            if not _reads_in_place(op, use.operand_number):
                return None
            if op in own or op in made or op in sums:
                continue
            if is_elementwise(op) and shape_of(op.results[0]) == shape:
                made.append(op)
                others = [p for p in map(defining_op, op.operands) if p is not None and p not in products]
                more = [p for p in others if is_f32_product(p) and shape_of(p.results[0]) == shape]
                products += more
                waiting += [op.results[0], *(p.results[0] for p in more)]
            elif is_f32_product(op):
                sums.append(op)
            else:
                return None
    return _by_kernel(products, made, sums) if sums else ()


def _reads_in_place(op: ir.Operation, number: int) -> bool:
    """Whether an op reads an operand at its own point, or in a way of its own, and not to write there."""
    if op.name == "linalg.generic":
        map_ = indexing_maps(op)[number]
        return dim_positions(map_) == list(range(map_.n_dims)) and number < len(op.operands) - 1
    return op.name.startswith("linalg.") and number < len(op.operands) - 1


def _by_kernel(
    products: list[ir.Operation], made: list[ir.Operation], sums: list[ir.Operation]
) -> tuple[AttentionGradients, ...] | None:
    """Sums over positions, and sums over queries, with what each needs of products and of elementwise ops."""
    kernels: dict[bool, list[ir.Operation]] = {True: [], False: []}
    order = {op: number for number, op in enumerate(_in_block_order([*products, *made, *sums]))}
    for op in sorted(sums, key=order.__getitem__):
        whole = _needed([op], products, made, order)
        if whole is None:
            return None
        kernels[whole.over_positions].append(op)
    found = [_needed(ops, products, made, order) for ops in kernels.values() if ops]
    return None if None in found else tuple(whole for whole in found if whole is not None)


def _needed(
    sums: list[ir.Operation], products: list[ir.Operation], made: list[ir.Operation], order: dict[ir.Operation, int]
) -> AttentionGradients | None:
    needed: set[ir.Operation] = set()
    waiting = [defining_op(v) for op in sums for v in list(op.operands)[:2]]
    while waiting:
        op = waiting.pop()
        if op is not None and op not in needed and (op in products or op in made):
            needed.add(op)
            waiting += [defining_op(v) for v in op.operands] if op in made else []
    parts = [sorted((op for op in ops if op in needed), key=order.__getitem__) for ops in (products, made)]
    return attention_gradients(parts[0], parts[1], sums) if parts[0] else None


def _in_block_order(ops: list[ir.Operation]) -> list[ir.Operation]:
    wanted = set(ops)
    return [op for op in operations(ops[0].block) if op in wanted]
