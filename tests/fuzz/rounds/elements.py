"""Elements for elements, and rows."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.rounds.expressions import Draw, Term, Unfit, offers

# ---- one element for one element

UNARY: dict[str, tuple[str, Callable[[Any], Any]]] = {
    "sin": ("(sin {})", np.sin),
    "tanh": ("(tanh {})", np.tanh),
    "half": ("(* 0.5 {})", lambda x: x * 0.5),
    "plus": ("(+ 1.0 {})", lambda x: x + 1),
    "bell": ("(exp (- (square {})))", lambda x: np.exp(-(x * x))),
    "square": ("(square {})", np.square),
    "inverse": ("(/ 1.0 (+ 1.5 (square {})))", lambda x: 1 / (1.5 + x * x)),
    "root": ("(sqrt (+ 0.5 (square {})))", lambda x: np.sqrt(0.5 + x * x)),
}
BINARY: dict[str, Callable[[Any, Any], Any]] = {
    "+": np.add,
    "-": np.subtract,
    "*": np.multiply,
    "max": np.maximum,
    "min": np.minimum,
}


@offers(3.0, lambda d, s: True)
def _unary(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    text, function = UNARY[d.one_of(list(UNARY))]
    inner = d.draw(shape, depth)
    return Term(text.format(inner.text), shape, lambda values: function(inner.value(values)))


@offers(3.0, lambda d, s: True)
def _binary(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    name = d.one_of(list(BINARY))
    left, other = d.draw(shape, depth), shape
    if shape and d.chance(0.3):
        other = shape[d.whole(0, len(shape)) :]
    elif shape and d.chance(0.2):
        other = tuple(1 if d.chance(0.5) else size for size in shape)
    right = d.draw(other, depth - d.whole(0, 1))
    sides = [left, right] if d.chance(0.5) else [right, left]
    text = f"({name} {sides[0].text} {sides[1].text})"
    return Term(text, shape, lambda values: BINARY[name](*[side.value(values) for side in sides]))


@offers(1.0, lambda d, s: True)
def _scaled(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    inner, (text, number) = d.draw(shape, depth), d.scalar()
    return Term(f"(* {inner.text} {text})", shape, lambda values: inner.value(values) * number(values))


@offers(0.5, lambda d, s: len(s) > 0)
def _select(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    a, b, x, y = (d.draw(shape, depth - d.whole(0, 2)) for _ in range(4))

    def value(values: dict[str, Any]) -> Any:
        left, right = a.value(values), b.value(values)
        if np.abs(left - right).min() < 1e-3:
            raise Unfit
        return np.where(left < right, x.value(values), y.value(values))

    return Term(f"(select (< {a.text} {b.text}) {x.text} {y.text})", shape, value)


# ---- rows


@offers(1.0, lambda d, s: len(s) > 0)
def _softmax(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    inner = d.draw(shape, depth)

    def value(values: dict[str, Any]) -> Any:
        x = inner.value(values)
        powers = np.exp(x - x.max(-1, keepdims=True))
        return powers / powers.sum(-1, keepdims=True)

    return Term(f"(softmax {inner.text})", shape, value)


@offers(1.5, lambda d, s: len(s) < 3)
def _reduced(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    inner = d.draw((*shape, d.whole(2, 5)), depth)
    name, function = d.one_of([("sum", np.sum), ("maximum", np.max)])
    return Term(f"({name} {inner.text})", shape, lambda values: function(inner.value(values), axis=-1))


@offers(0.5, lambda d, s: len(s) == 2)
def _norm(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    inner, weight = d.draw(shape, depth), d.weight(shape[1:])

    def value(values: dict[str, Any]) -> Any:
        x = inner.value(values)
        return x / np.sqrt((x * x).mean(-1, keepdims=True) + 0.1) * weight.value(values)

    return Term(f"(rms-norm {inner.text} {weight.text} 0.1)", shape, value)


@offers(1.5, lambda d, s: len(s) == 2)
def _product(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    middle = d.whole(2, 5)
    x, w = d.draw((shape[0], middle), depth), d.draw((shape[1], middle), depth - 2)
    return Term(f"(matmul-transposed {x.text} {w.text})", shape, lambda values: x.value(values) @ w.value(values).T)


@offers(0.4, lambda d, s: len(s) == 2)
def _picked(d: Draw, shape: tuple[int, ...], depth: int) -> Term:
    scores = d.draw((shape[0], d.whole(2, 4)), depth)
    table = d.draw((scores.shape[1], *shape[1:]), depth - 1)

    def value(values: dict[str, Any]) -> Any:
        x = scores.value(values)
        best = np.sort(x, axis=-1)
        if (best[:, -1] - best[:, -2]).min() < 1e-3:
            raise Unfit
        return table.value(values)[x.argmax(-1)]

    return Term(f"(rows {table.text} (argmax {scores.text}))", shape, value)
