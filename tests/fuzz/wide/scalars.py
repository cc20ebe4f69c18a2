"""Element by element: functions, operators that broadcast, choices, types, and whole numbers."""

from __future__ import annotations

import math
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.wide.graph import Node
from fuzz.wide.maker import Maker

erf = np.vectorize(math.erf, otypes=[float])


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def gelu(x: Any) -> Any:
    return 0.5 * x * (1 + np.tanh(math.sqrt(2 / math.pi) * (x + 0.044715 * x**3)))


UNARY: list[tuple[str, Callable[..., Any], bool]] = [
    ("(relu {0})", lambda x: np.maximum(x, 0), True),
    ("(sigmoid {0})", sigmoid, True),
    ("(silu {0})", lambda x: x * sigmoid(x), True),
    ("(gelu {0})", gelu, True),
    ("(gelu-exact {0})", lambda x: 0.5 * x * (1 + erf(x / math.sqrt(2))), True),
    ("(square {0})", lambda x: x * x, True),
    ("(sqrt (+ 0.1 (abs {0})))", lambda x: np.sqrt(0.1 + np.abs(x)), True),
    ("(rsqrt (+ 0.3 (square {0})))", lambda x: 1 / np.sqrt(0.3 + x * x), True),
    ("(tanh {0})", np.tanh, True),
    ("(exp (min {0} 2.0))", lambda x: np.exp(np.minimum(x, 2)), True),
    ("(log (+ 0.5 (abs {0})))", lambda x: np.log(0.5 + np.abs(x)), True),
    ("(sin {0})", np.sin, True),
    ("(cos (* 0.7 {0}))", lambda x: np.cos(0.7 * x), True),
    ("(erf {0})", erf, True),
    ("(- {0})", lambda x: -x, True),
    ("(- 1.5 {0})", lambda x: 1.5 - x, True),
    ("(/ 2.0 (+ 1.0 (square {0})))", lambda x: 2 / (1 + x * x), True),
    ("(max -0.5 (min {0} 0.8))", lambda x: np.maximum(-0.5, np.minimum(x, 0.8)), True),
    ("(math.atan {0})", np.arctan, True),
    ("(math.exp2 (min {0} 3.0))", lambda x: np.exp2(np.minimum(x, 3)), True),
    ("(math.log1p (square {0}))", lambda x: np.log1p(x * x), True),
    ("(math.expm1 (min {0} 1.0))", lambda x: np.expm1(np.minimum(x, 1)), True),
    ("(math.floor (* 2.0 {0}))", lambda x: np.floor(2 * x), False),
    ("(math.roundeven {0})", np.rint, False),
    ("(mod {0} 1.7)", lambda x: np.mod(x, 1.7), False),
]
"""Lisp, numpy, and whether finite differences of it are what its gradient is."""


def unary(m: Maker) -> Node:
    text, function, _ = m.one_of([u for u in UNARY if u[2] or not m.smooth])
    x = m.x()
    if "(math." in text or m.chance(0.15):
        text = f"(elementwise (fn [e] {text.replace('{0}', 'e')}) {{0}})"
    return m.add(text, [x], lambda n, a: function(a))


BINARY: list[tuple[str, Callable[..., Any]]] = [
    ("(+ {0} {1})", np.add),
    ("(- {0} {1})", np.subtract),
    ("(* {0} {1})", np.multiply),
    ("(/ {0} (+ 1.0 (square {1})))", lambda a, b: a / (1 + b * b)),
    ("(max {0} {1})", np.maximum),
    ("(min {0} {1})", np.minimum),
    ("(+ (* 0.25 {0}) (* 0.75 {1}))", lambda a, b: 0.25 * a + 0.75 * b),
]


def partner(m: Maker, x: Node) -> Node:
    """Something that goes with x, element by element."""
    for y in m.some(most=3000):
        if y is not x and _together(x.shape, y.shape):
            return y
    kept = m.whole(0, x.rank)
    shape = [1 if m.chance(0.25) else size for size in x.shape[x.rank - kept :]]
    return m.weight(*shape, scale=1.0, dtype="f32") if shape else m.input(())


def _together(a: tuple[int, ...], b: tuple[int, ...]) -> bool:
    try:
        return math.prod(np.broadcast_shapes(a, b)) <= 6000 and len(b) > 0 and len(a) > 0
    except ValueError:
        return False


def binary(m: Maker) -> Node:
    text, function = m.one_of(BINARY)
    x = m.x()
    y = partner(m, x)
    pair = [x, y] if m.chance(0.6) else [y, x]
    return m.add(text, pair, lambda n, a, b: function(a, b))


def scalar_function(m: Maker) -> Node:
    """`elementwise` of a random expression of two or three tensors."""
    x = m.x()
    values = [x, *(partner(m, x) for _ in range(m.whole(1, 2)))]
    if len(values) == 3 and not _together(values[1].shape, values[2].shape):
        values.pop()
    names = ["a", "b", "c"][: len(values)]
    text, function = expression(m, names, 3)
    nodes = " ".join(f"{{{i}}}" for i in range(len(values)))
    return m.add(
        f"(elementwise (fn [{' '.join(names)}] {text}) {nodes})",
        values,
        lambda n, *arrays: np.broadcast_arrays(function(*np.broadcast_arrays(*arrays)), *arrays)[0],
    )


def expression(m: Maker, names: list[str], depth: int) -> tuple[str, Callable[..., Any]]:
    """Lisp of scalars by name, and the same of arrays."""
    if depth == 0 or m.chance(0.15):
        if m.chance(0.2):
            number = round(float(m.rng.uniform(-2, 2)), 2)
            return str(number), lambda *v: np.float64(number)
        i = m.whole(0, len(names) - 1)
        return names[i], lambda *v: v[i]
    (s, f), (t, g) = (expression(m, names, depth - 1) for _ in range(2))
    if s.lstrip("-")[0].isdigit() and t.lstrip("-")[0].isdigit():
        return expression(m, names, 0)
    kind = m.whole(0, 6)
    if kind == 0:
        return f"(+ {s} {t})", lambda *v: f(*v) + g(*v)
    if kind == 1:
        return f"(* {s} {t})", lambda *v: f(*v) * g(*v)
    if kind == 2:
        return f"(- {s} (tanh {t}))", lambda *v: f(*v) - np.tanh(g(*v))
    if kind == 3:
        sign, test = m.one_of([("<", np.less), (">=", np.greater_equal), (">", np.greater)])
        u, h = expression(m, names, depth - 1)
        w, k = expression(m, names, depth - 1)
        if m.smooth:  # what jumps has no finite differences
            return f"(select ({sign} {s} {t}) (* 0.5 (- {s} {t})) (* 2.0 (- {s} {t})))", lambda *v: np.where(
                test(f(*v), g(*v)), 0.5 * (f(*v) - g(*v)), 2 * (f(*v) - g(*v))
            )
        return f"(select ({sign} {s} {t}) {u} {w})", lambda *v: np.where(
            test(np.float32(f(*v)), np.float32(g(*v))),
            h(*v),
            k(*v),  # what differs in F32, not in float64 alone
        )
    if kind == 4:
        return f"(max {s} {t})", lambda *v: np.maximum(f(*v), g(*v))
    if kind == 5:
        return f"(/ {s} (+ 1.0 (* {t} {t})))", lambda *v: f(*v) / (1 + g(*v) ** 2)
    return f"(- {s} {t})", lambda *v: f(*v) - g(*v)


def through_type(m: Maker) -> Node:
    """There and back through a narrower type."""
    x = m.x()
    if m.chance(0.7):
        dtype = m.one_of(["bf16", "bf16", "f16"])
        narrow = m.add(f"(cast {{0}} {dtype})", [x], lambda n, a: a, dtype)
        return m.add("(cast {0} f32)", [narrow], lambda n, a: a)
    kind, least, most = m.one_of([("i32", -1000, 1000), ("i8", -100, 100), ("i64", -1000, 1000)])
    whole = m.add(
        f"(cast (cast (max {least}.0 (min {most}.0 (* 3.0 {{0}}))) {kind}) i32)",
        [x],
        lambda n, a: np.trunc(np.clip(3 * a, least, most)).astype(np.int64),
        "i32",
    )
    return m.add("(* 0.125 (cast {0} f32))", [whole], lambda n, a: 0.125 * a)


def whole_numbers(m: Maker) -> Node:
    """Arithmetic on i32."""
    known = m.some(dtype="i32")
    x = known[0] if known and m.chance(0.7) else m.input(m.shape(m.whole(1, 3), 500), "i32", m.whole(2, 99))
    number = m.whole(2, 17)
    text, function = m.one_of(
        [
            (f"(mod (+ {{0}} {number}) 11)", lambda a: (a + number) % 11),
            (f"(quot (* 3 {{0}}) {number})", lambda a: np.trunc(3 * a / number).astype(np.int64)),
            (f"(max (- {{0}} {number}) 1)", lambda a: np.maximum(a - number, 1)),
            (f"(min (* {{0}} {{0}}) {number * 7})", lambda a: np.minimum(a * a, number * 7)),
            (f"(elementwise (fn [e] (select (< e {number}) (- e) e)) {{0}})", lambda a: np.where(a < number, -a, a)),
            (f"(ceil-div {{0}} {number})", lambda a: -((-a) // number)),
            ("(elementwise (fn [e] (arith.xori e (arith.shli e (: 2 i32)))) {0})", lambda a: a ^ (a << 2)),
        ]
    )
    made = m.add(text, [x], lambda n, a: function(a), "i32")
    if m.chance(0.5):
        return m.add("(* 0.01 (cast {0} f32))", [made], lambda n, a: 0.01 * a)
    return made
