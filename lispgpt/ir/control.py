"""Branches and loops of scf at the current insertion point, whose bodies are Python functions that emit them."""

from __future__ import annotations

from collections.abc import Callable, Sequence

from lispgpt.ir.indices import Index, as_value, emit
from lispgpt.ir.mlir import create_op, ir


def if_then(condition: ir.Value, body: Callable[[], None]) -> None:
    op = create_op("scf.if", [condition], regions=2)
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        body()
        create_op("scf.yield")


def both(*conditions: ir.Value | None) -> ir.Value | None:
    """Whether all of these hold; None, which is always, where there is no other."""
    total = None
    for condition in conditions:
        if condition is not None:
            total = condition if total is None else emit("arith.andi", [total, condition], [condition.type])
    return total


def if_live(condition: ir.Value | None, body: Callable[[], None]) -> None:
    """The same, or without a condition where it is None."""
    if condition is None:
        body()
    else:
        if_then(condition, body)


def either(condition: ir.Value, then: Callable[[], None], otherwise: Callable[[], None]) -> None:
    """scf.if with two sides that have no values."""
    op = create_op("scf.if", [condition], regions=2)
    for region, side in zip(op.regions, (then, otherwise), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            side()
            create_op("scf.yield")


def choose(
    condition: ir.Value,
    types: Sequence[ir.Type],
    then: Callable[[], Sequence[ir.Value]],
    otherwise: Callable[[], Sequence[ir.Value]],
) -> list[ir.Value]:
    """scf.if with the values of one side or of the other."""
    op = create_op("scf.if", [condition], types, regions=2)
    for region, side in zip(op.regions, (then, otherwise), strict=True):
        with ir.InsertionPoint(region.blocks.append()):
            create_op("scf.yield", side())
    return list(op.results)


def loop(
    low: Index, high: Index, step: Index, inits: Sequence[ir.Value], body: Callable[..., Sequence[ir.Value]]
) -> list[ir.Value]:
    """scf.for, by indices or integers of the bounds' type; body(index, *carried) returns what is carried on."""
    bounds = [as_value(low), as_value(high), as_value(step)]
    op = create_op("scf.for", [*bounds, *inits], [i.type for i in inits], regions=1)
    block = op.regions[0].blocks.append(bounds[0].type, *[i.type for i in inits])
    with ir.InsertionPoint(block):
        carried = body(block.arguments[0], *block.arguments[1:])
        create_op("scf.yield", carried)
    return list(op.results)


def repeat(types: Sequence[ir.Type], body: Callable[[], tuple[ir.Value, Sequence[ir.Value]]]) -> list[ir.Value]:
    """scf.while whose body says whether it is to run again, and what is known after it ran last."""
    op = create_op("scf.while", results=types, regions=2)
    with ir.InsertionPoint(op.regions[0].blocks.append()):
        again, values = body()
        create_op("scf.condition", [again, *values])
    with ir.InsertionPoint(op.regions[1].blocks.append(*types)):
        create_op("scf.yield")
    return list(op.results)


def each(low: Index, high: Index, step: Index, body: Callable[[Index], None]) -> None:
    """scf.for that carries nothing."""

    def run(index: ir.Value) -> Sequence[ir.Value]:
        body(index)
        return []

    loop(low, high, step, [], run)
