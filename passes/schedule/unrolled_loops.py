"""Loops over tensors whose rounds need the whole of what earlier rounds made: their rounds, one after the other."""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import clone_with, operations
from lispgpt.passes.model.pointwise_loops import is_pointwise, rounds_of


def unroll_loops(kernel: ir.Operation, most_rounds: int) -> None:
    """Write out every such loop in a kernel's body that has a known number of rounds, and at most so many."""
    again = True
    while again:
        again = False
        for op in operations(kernel.regions[0].blocks[0]):
            rounds = rounds_of(op) if op.name == "scf.for" and len(op.results) else None
            if rounds is not None and len(rounds) <= most_rounds and not is_pointwise(op):
                with op.location:
                    _unroll(op, rounds)
                again = True


def _unroll(loop: ir.Operation, rounds: range) -> None:
    block = loop.regions[0].blocks[0]
    counter, *carried = block.arguments
    values = list(loop.operands)[3:]
    for number in rounds:
        with ir.InsertionPoint(loop):
            known = {counter: b.constant(number, counter.type), **dict(zip(carried, values, strict=True))}
            *ops, terminator = operations(block)
            for op in ops:
                clone_with(op, known)
        values = [known.get(v, v) for v in terminator.operands]
    for result, value in zip(loop.results, values, strict=True):
        result.replace_all_uses_with(value)
    loop.erase()
