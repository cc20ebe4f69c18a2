"""Kernels that are written out thread by thread: their values as i32, f32 and conditions (arithmetic.py), loops and
branches."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number, Operand
from lispgpt.ir.mlir import create_op, ir


def word(value: Any) -> Number:
    """An int, an index or an SSA value as i32, or a value that is no integer as it is."""
    if isinstance(value, Number):
        return value
    if isinstance(value, int):
        return Number(b.constant(value, b.i32()))
    if isinstance(value.type, ir.IndexType):
        return Number(b.emit("arith.index_cast", [value], [b.i32()]))
    return Number(value)


def real(value: float) -> Number:
    return Number(b.constant(value, b.f32()))


def greater(a: Number, c: Number) -> Number:
    """The larger of two reals or signed integers."""
    return Number(b.binary("arith.maxnumf" if a.is_real else "arith.maxsi", a.value, c.value))


def lesser(a: Number, c: Number) -> Number:
    """The smaller of two signed integers."""
    return a.emit("arith.minsi", c)


def added(numbers: Sequence[Number]) -> Number:
    """Reals, added up by halves, which do not wait for each other."""
    half = len(numbers) // 2
    return added(numbers[:half]) + added(numbers[half:]) if half else numbers[0]


def fused(a: Number, c: Number, d: Number) -> Number:
    return Number(b.fma(a.value, c.value, d.value))


def loop(
    low: Any, high: Any, inits: Sequence[Number], body: Callable[..., Sequence[Number]], step: Any = 1
) -> list[Number]:
    """scf.for by i32; body(number, *carried) returns what is carried on."""
    first, last, by = (word(x).value for x in (low, high, step))
    found = b.loop(
        first, last, by, [i.value for i in inits], lambda *values: [w.value for w in body(*map(Number, values))]
    )
    return list(map(Number, found))


@contextmanager
def turns(low: Any, high: Any, step: Any = 1) -> Iterator[Number]:
    """What is said within is done for each number from one on, below another."""
    bounds = [word(x).value for x in (low, high, step)]
    block = create_op("scf.for", bounds, regions=1).regions[0].blocks.append(bounds[0].type)
    with ir.InsertionPoint(block):
        yield Number(block.arguments[0])
        create_op("scf.yield")


def each(low: Any, high: Any, body: Callable[[Number], Any], step: Any = 1) -> None:
    with turns(low, high, step) as number:
        body(number)


def again(inits: Sequence[Number], body: Callable[..., tuple[Number, Sequence[Number]]]) -> list[Number]:
    """body(*carried) gives whether to go on and what is carried on; it is run at least once."""
    types = [i.value.type for i in inits]
    op = create_op("scf.while", [i.value for i in inits], types, regions=2)
    with ir.InsertionPoint(block := op.regions[0].blocks.append(*types)):
        condition, carried = body(*map(Number, block.arguments))
        create_op("scf.condition", [condition.value, *(c.value for c in carried)])
    with ir.InsertionPoint(block := op.regions[1].blocks.append(*types)):
        create_op("scf.yield", list(block.arguments))
    return [Number(result) for result in op.results]


Condition = Number | None
"""Whether something holds; None: it always does, which is known while compiling."""


@contextmanager
def given(condition: Condition) -> Iterator[None]:
    """What is said within is done where a condition holds."""
    if condition is None:
        yield
        return
    with ir.InsertionPoint(create_op("scf.if", [condition.value], regions=2).regions[0].blocks.append()):
        yield
        create_op("scf.yield")


def when(condition: Condition, body: Callable[[], Any]) -> None:
    with given(condition):
        body()


def both(one: Condition, other: Condition) -> Condition:
    """Whether both hold."""
    if one is None or other is None:
        return other if one is None else one
    return one & other


def chosen(condition: Condition, yes: Number, no: Operand) -> Number:
    return yes if condition is None else condition.where(yes, no)


def either(
    condition: Condition, kinds: str, then: Callable[[], Sequence[Number]], otherwise: Callable[[], Sequence[Number]]
) -> list[Number]:
    """The values of one side or of the other.  kinds: r (i32), f (f32) or l (i64) for each."""
    if condition is None:
        return list(then())
    types = [{"r": b.i32, "f": b.f32, "l": b.i64}[kind]() for kind in kinds]
    found = b.choose(condition.value, types, lambda: [w.value for w in then()], lambda: [w.value for w in otherwise()])
    return list(map(Number, found))
