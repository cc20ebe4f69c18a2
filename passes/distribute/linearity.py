"""Which results of an op are linear in sums that are still in parts: what it makes of parts is a part of what it is."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir.combiners import combiner_of
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import captured_values, defining_op, filled_with, is_elementwise, operations

PLAIN, LINEAR, NOTHING = "plain", "linear", "nothing"
"""What a value is: no part of a sum; a part; or zero, or without a meaning, which is a part of any sum."""

ADDITIONS = ("arith.addf", "arith.subf", "arith.addi", "arith.subi")
PRODUCTS = ("arith.mulf", "arith.muli")
CONVERSIONS = ("arith.extf", "arith.truncf", "arith.negf", "arith.sitofp", "arith.extsi", "arith.trunci")
SUMS = ("arith.addf", "arith.addi")
SUM, MAX, MIN = "sum", "max", "min"
REDUCTIONS = {
    **dict.fromkeys(SUMS, SUM),
    **dict.fromkeys(("arith.maximumf", "arith.maxnumf", "arith.maxsi"), MAX),
    **dict.fromkeys(("arith.minimumf", "arith.minnumf", "arith.minsi"), MIN),
}
"""What each op makes of numbers of which devices have some each, as `shard.all_reduce` calls it."""


def results_of(op: ir.Operation, kind: Callable[[ir.Value], str]) -> list[str] | None:
    """What each result of a linalg op is, where `kind` says it of its operands; None where parts are not enough."""
    operands = list(op.operands)
    if op.name == "linalg.contract":
        given = [kind(v) for v in operands[:2]]
        return [LINEAR] if given.count(LINEAR) < 2 else None
    if op.name == "linalg.reduce":
        return [LINEAR] if combiner_of(op) in SUMS else None
    if op.name != "linalg.generic" or any(kind(v) == LINEAR for v in captured_values(op)):
        return None
    if not is_elementwise(op) and not adds_up(op):
        return None
    block = op.regions[0].blocks[0]
    known = {argument: kind(value) for argument, value in zip(block.arguments, operands, strict=True)}
    for inner in operations(block)[:-1]:
        found = _through(inner, [known.get(v, PLAIN) for v in inner.operands])
        if found is None or (len(inner.regions) and found != PLAIN):
            return None
        known.update(dict.fromkeys(inner.results, found))
    return [known.get(v, PLAIN) for v in operations(block)[-1].operands]


def _through(op: ir.Operation, given: Sequence[str]) -> str | None:
    """What an op on numbers makes of such; None where it is not linear in the parts among them."""
    if op.name == "arith.constant":
        return NOTHING if is_zero(op) else PLAIN
    if op.name in CONVERSIONS:
        return given[0]
    if op.name == "arith.select" and given[0] != LINEAR:
        return _together(given[1:])
    if op.name in ADDITIONS:
        return _together(given)
    if op.name in PRODUCTS:
        if NOTHING in given:
            return NOTHING
        return None if given.count(LINEAR) == 2 else LINEAR if LINEAR in given else PLAIN
    if op.name == "arith.divf" and given[1] != LINEAR:
        return given[0]
    return None if LINEAR in given else PLAIN


def _together(given: Sequence[str]) -> str | None:
    """What a sum, or one of two values, is."""
    kinds = set(given) - {NOTHING}
    return NOTHING if not kinds else kinds.pop() if len(kinds) == 1 else None


def is_zero(op: ir.Operation) -> bool:
    """Whether an arith.constant is the number zero."""
    value = op.attributes["value"]
    if isinstance(value, ir.FloatAttr):
        return bool(value.value == 0.0)
    return isinstance(value, ir.IntegerAttr) and value.value == 0


def is_nothing(op: ir.Operation) -> bool:
    """Whether an op makes a tensor of zeros, or one that is still to be written."""
    return op.name == "tensor.empty" or (op.name == "linalg.fill" and filled_with(op.results[0]) == 0)


def adds_up(op: ir.Operation) -> bool:
    """Whether what a linalg op makes of an element is the sum of what its loops give for it."""
    return reduction_of(op) == SUM


def reduction_of(op: ir.Operation) -> str | None:
    """Whether what a linalg op makes of an element is the sum, the largest or the least of what its loops give for it,
    and of what it starts with; None for anything else, and where its results are not alike in this."""
    if op.name == "linalg.contract":
        return SUM
    if op.name == "linalg.reduce":
        return REDUCTIONS.get(combiner_of(op) or "")
    if op.name != "linalg.generic":
        return None
    block = op.regions[0].blocks[0]
    made = operations(block)[-1].operands
    carried = list(block.arguments)[len(block.arguments) - len(made) :]
    found = set()
    for value, total in zip(made, carried, strict=True):
        combine = defining_op(value)
        if combine is None or total not in list(combine.operands) or len(list(total.uses)) != 1:
            return None
        found.add(REDUCTIONS.get(combine.name))
    return found.pop() if len(found) == 1 else None
