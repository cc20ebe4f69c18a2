"""`contract` of any index order, and `reduce` with every combiner."""

from __future__ import annotations

from collections.abc import Callable
from functools import reduce
from math import prod
from typing import Any

import numpy as np
from fuzz import exact
from fuzz.elementwise import cast
from fuzz.exact import Exact, lifted
from fuzz.generate import MOST_ELEMENTS, Builder, offers
from fuzz.program import OPS, Kind, Node, Op, Run

MOST_PRODUCTS, MOST_SUMMED = 400_000, 6000


def _write_contract(node: Node, names: list[str]) -> str:
    result, left, right = (f"[{' '.join(node.facts[k])}]" for k in ("result", "left", "right"))
    return f"(contract {result} {names[0]} {left} {names[1]} {right})"


def _contract_value(node: Node, operands: list[Exact], run: Run) -> Exact:
    left, right, result = ("".join(node.facts[k]) for k in ("left", "right", "result"))
    return exact.product(f"{left},{right}->{result}", *operands, run.precision)


OPS["contract"] = Op(_write_contract, _contract_value)


@offers("f32", weight=4.0)
def make_contract(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) > 5:
        return None
    names = list("abcde"[: len(kind.shape)])
    sizes = dict(zip(names, kind.shape, strict=True))
    roles = [builder.random.choice(["left", "right", "left", "right", "both"]) for _ in names]
    if len(names) == 2 and builder.chance(0.7):
        roles = builder.random.choice([["left", "right"], ["right", "left"]])
    summed = list("kl"[: builder.random.choices([0, 1, 2], [0.05, 0.8, 0.15])[0]])
    for name in summed:
        sizes[name] = builder.summed_size(max(1, min(MOST_SUMMED, MOST_PRODUCTS // prod(sizes.values()))))
    both = [n for n, role in zip(names, roles, strict=True) if role == "both"] + summed
    left = both + [n for n, role in zip(names, roles, strict=True) if role == "left"]
    right = both + [n for n, role in zip(names, roles, strict=True) if role == "right"]
    if summed and builder.chance(0.06):
        builder.random.choice([left, right]).remove(builder.random.choice(summed))
    left, right = builder.shuffled(left), builder.shuffled(right)
    if not left or not right or max(prod(sizes[n] for n in s) for s in (left, right)) > 2 * MOST_ELEMENTS:
        return None
    dtypes = [builder.random.choice(["f32", "f32", "bf16"]) for _ in range(2)]
    operands = [
        builder.need(tuple(sizes[n] for n in side), dtype) for side, dtype in zip((left, right), dtypes, strict=True)
    ]
    return builder.add("contract", kind, *operands, result=names, left=left, right=right)


def _in_order(step: Callable[[Exact, Exact], Exact], start: float) -> Callable[[Exact], Exact]:
    """A combiner applied from the first element to the last."""

    def compute(x: Exact) -> Exact:
        first = Exact.of(np.full(x.shape[:-1], start, x.value.dtype))
        return reduce(step, (x[..., i] for i in range(x.shape[-1])), first)

    return compute


COMBINERS: dict[str, tuple[str, Callable[[Exact], Exact]]] = {
    "sum": ("(sum {0})", lambda x: exact.total(x)),
    "maximum": ("(maximum {0})", lambda x: exact.largest(x)),
    "+": ("(reduce + 1.5 {0})", lambda x: exact.total(x) + 1.5),
    "*": ("(reduce * 1.0 (elementwise (fn [v] (max -1.0 (min v 1.0))) {0}))", lambda x: _product(x)),
    "max": ("(reduce max 0.25 {0})", lambda x: exact.extreme(np.maximum, exact.largest(x), lifted(0.25))),
    "min": ("(reduce min inf {0})", lambda x: -exact.largest(-x)),
    "-": ("(reduce - 0.5 {0})", _in_order(lambda a, v: a - v, 0.5)),
    "squares": ("(reduce (fn [a v] (+ a (* v v))) 0.0 {0})", lambda x: exact.total(x * x)),
    "largest-size": (
        "(reduce (fn [a v] (max a (abs v))) 0.0 {0})", lambda x: exact.largest(exact.absolute(x)),
    ),
    "decay": ("(reduce (fn [a v] (+ (* a 0.5) v)) 1.0 {0})", _in_order(lambda a, v: a * 0.5 + v, 1.0)),
    "count": (
        "(reduce (fn [a v] (+ a (select (> v 0.25) 1.0 0.0))) 0.0 {0})",
        lambda x: exact.total(cast(exact.compare(np.greater, x, lifted(0.25)), "f32")),
    ),
}  # fmt: skip

INTEGER_COMBINERS: dict[str, tuple[str, Callable[[Exact], Exact]]] = {
    "+": ("(reduce + 2 {0})", lambda x: exact.total(x) + 2),
    "max": ("(reduce max -100 {0})", lambda x: exact.extreme(np.maximum, exact.largest(x), lifted(-100))),
    "min": ("(reduce min 100 {0})", lambda x: exact.extreme(np.minimum, 0 - exact.largest(0 - x), lifted(100))),
    "odd": ("(reduce (fn [a v] (+ (* a 3) v)) 1 {0})", _in_order(lambda a, v: a * 3 + v, 1)),
}


def _product(x: Exact) -> Exact:
    clipped = exact.extreme(np.maximum, exact.extreme(np.minimum, x, lifted(1.0)), lifted(-1.0))
    return _in_order(lambda a, v: a * v, 1.0)(clipped)


def _table(node: Node) -> Any:
    return INTEGER_COMBINERS if node.kind.dtype == "i32" else COMBINERS


OPS["reduce"] = Op(
    lambda node, names: _table(node)[node.facts["combiner"]][0].format(*names),
    lambda node, operands, _: _table(node)[node.facts["combiner"]][1](operands[0]),
)


@offers("f32", "i32", weight=2.0)
def make_reduce(builder: Builder, kind: Kind) -> Node:
    combiner = builder.random.choice(list(INTEGER_COMBINERS if kind.dtype == "i32" else COMBINERS))
    shape = (*kind.shape, builder.size(builder.room(kind.shape)))
    dtype = "bf16" if kind.dtype == "f32" and builder.chance(0.15) else kind.dtype
    return builder.add("reduce", kind, builder.need(shape, dtype), combiner=combiner)


def argmax(x: Exact) -> Exact:
    """The first of the largest; unknown where another could be as large."""
    best = x.value.max(-1, keepdims=True)
    error = x.error.max(-1)
    rivals = (x.value >= best - 2 * error[..., None]).sum(-1) > 1
    return Exact(x.value.argmax(-1), np.where((error > 0) & rivals | np.isinf(error), np.inf, 0.0))


OPS["argmax"] = Op(lambda node, names: f"(argmax {names[0]})", lambda node, operands, _: argmax(operands[0]))


@offers("i32", weight=1.0)
def make_argmax(builder: Builder, kind: Kind) -> Node | None:
    if len(kind.shape) != 1:
        return None
    return builder.add("argmax", kind, builder.need((*kind.shape, builder.size(builder.room(kind.shape)))))
