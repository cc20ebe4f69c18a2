"""What few programs have: choices of scalars, loops in elements, masks, places that are computed, ops of linalg."""

from __future__ import annotations

import math
from typing import Any

import numpy as np
from fuzz.wide.graph import Node, Unfit
from fuzz.wide.maker import Maker
from fuzz.wide.products import times


def chosen(m: Maker) -> Node:
    """`if` and `cond` on what is not known while compiling."""
    x = m.x()
    text = m.one_of(
        [
            "(elementwise (fn [e] (if (> e 0.2) (* 2.0 (- e 0.2)) (* 0.5 (- e 0.2)))) {0})",
            "(elementwise (fn [e] (cond (> e 0.2) (* 2.0 (- e 0.2)) :else (* 0.5 (- e 0.2)))) {0})",
        ]
    )
    return m.add(text, [x], lambda n, a: np.where(a > 0.2, 2.0, 0.5) * (a - 0.2))


def iterated(m: Maker) -> Node:
    """A loop for each element, of a number of turns that an input says."""
    x, turns = m.x(1, 900), m.whole(1, 5)
    text = (
        "(elementwise (fn [e] (let [[_ s] (loop {:result [i32 f32]} [k (: 0 i32) s e] :while (< k TURNS) "
        ":do [(+ k 1) (* 0.5 (+ s 1.0))])] s)) {0})"
    ).replace("TURNS", str(turns))

    def run(n: Any, a: Any) -> Any:
        for _ in range(turns):
            a = 0.5 * (a + 1)
        return a

    return m.add(text, [x], run)


def masks(m: Maker) -> Node:
    """A tensor of truth values, and what it lets through."""
    x = m.x(m.whole(1, 3), 2000)
    names = ["i", "j", "k"][: x.rank]
    sizes = " ".join(f"{n} {s}" for n, s in zip(names, x.shape, strict=True))
    text = (
        f"(let [z {{0}} keep (tensor [{sizes}] (> (at z {' '.join(names)}) 0.1))] "
        "(elementwise (fn [c e] (select c (- e 0.1) 0.0)) keep z))"
    )
    return m.add(text, [x], lambda n, a: np.where(a > 0.1, a - 0.1, 0))


def placed(m: Maker) -> Node:
    """A part from a place that an input says."""
    x = m.x(2, 2000)
    rows, columns = x.shape
    length = m.whole(1, rows)
    ids = m.ids(m.whole(1, 4), rows - length + 1)
    which = m.whole(0, ids.size - 1)
    if m.chance(0.6):
        text = f"(slice {{0}} [(cast (at {{1}} {which}) index) 0] [{length} {columns}])"
        return m.add(text, [x, ids], lambda n, a, i: a[i[which] : i[which] + length])
    part = m.weight(length, columns, scale=1.0, dtype="f32")

    def put(n: Any, a: Any, i: Any, p: Any) -> Any:
        a = a.copy()
        a[i[which] : i[which] + length] = p
        return a

    text = f"(insert {{2}} {{0}} [(cast (at {{1}} {which}) index) 0] [{length} {columns}])"
    return m.add(text, [x, ids, part], put)


def named_op(m: Maker) -> Node:
    """linalg's own ops, by their names."""
    x = m.x(2, 2000)
    a, b = x.shape
    kind = m.whole(0, 2)
    if kind == 0:
        c = m.size(40)
        w = m.weight(b, c, scale=1 / math.sqrt(b), dtype="f32")
        text = (
            f"(linalg.matmul {{:result tensor<{a}x{c}xf32>}} {{0}} {{1}} (linalg.fill {{:result tensor<{a}x{c}xf32>}} "
            f"(: 0.0 f32) (tensor.empty {{:result tensor<{a}x{c}xf32>}})))"
        )
        return m.add(text, [x, w], lambda n, x, w: n.factor(x) @ n.factor(w))
    if kind == 1:
        text = (
            f"(linalg.transpose {{:permutation array<i64: 1, 0>}} {{0}} (tensor.empty {{:result tensor<{b}x{a}xf32>}}))"
        )
        return m.add(text, [x], lambda n, x: x.T)
    text = f"(linalg.broadcast {{:dimensions array<i64: 1>}} {{0}} (tensor.empty {{:result tensor<{a}x3x{b}xf32>}}))"
    return m.add(text, [x], lambda n, x: np.repeat(x[:, None], 3, 1))


def gram(m: Maker) -> Node:
    """A product of a tensor with itself."""
    x = m.x(m.whole(2, 3), 1500)
    if x.rank == 2:
        if x.shape[0] ** 2 * x.shape[1] > 300_000:
            raise Unfit
        text = "(contract [j i] {0} [i k] {0} [j k])"
        return m.add(text, [x], lambda n, a: n.factor(a) @ n.factor(a).T)
    if x.shape[1] ** 2 * x.shape[0] * x.shape[2] > 300_000:
        raise Unfit
    text = "(contract [i b j] {0} [b i k] {0} [b j k])"
    return m.add(text, [x], lambda n, a: np.einsum("bik,bjk->ibj", n.factor(a), n.factor(a)))


def long_rows(m: Maker) -> Node:
    """Sums over thousands, and products of them."""
    x = m.x(1, 100)
    w = m.weight(m.whole(1, 3), m.whole(1000, 3900), scale=0.3, dtype="" if not m.smooth else "f32")
    rows, columns = w.shape
    mixed = m.add(
        f"(tensor [r {rows} c {columns}] (* (at {{0}} r c) (at {{1}} (mod c {x.size}))))",
        [w, x],
        lambda n, w, x: w * x[np.arange(columns) % x.size],
    )
    if m.chance(0.5):
        return m.add("(* 0.1 (sum {0}))", [mixed], lambda n, a: 0.1 * a.sum(-1))
    v = m.weight(m.size(9), columns, scale=0.05)
    return m.add("(matmul-transposed {0} {1})", [mixed, v], times)


def many_dimensions(m: Maker) -> Node:
    """Five or six of them, two of which change places."""
    x = m.x(most=2000)
    y = m.reshaped(x, m.whole(5, 6))
    order = list(range(y.rank))
    i, j = m.permutation(y.rank)[:2]
    order[i], order[j] = order[j], order[i]
    names = "abcdef"[: y.rank]
    sizes = " ".join(f"{names[d]} {y.shape[d]}" for d in order)
    moved = m.add(f"(tensor [{sizes}] (at {{0}} {' '.join(names)}))", [y], lambda n, a: a.transpose(order))
    return m.add("(softmax {0})", [moved], lambda n, a: _softmax(a)) if m.chance(0.3) else moved


def _softmax(a: Any) -> Any:
    powers = np.exp(a - a.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def counted(m: Maker) -> Node:
    """Whole numbers summed, or their largest; how often each comes."""
    below = m.whole(2, 30)
    ids = m.ids(m.size(60), below)
    kind = m.whole(0, 2)
    if kind == 0:
        return m.add("(reduce + 0 {0})", [ids], lambda n, i: i.sum(), "i32")
    if kind == 1:
        return m.add("(reduce max -1 {0})", [ids], lambda n, i: i.max(), "i32")
    text = f"(sum (tensor [v {below} i {ids.size}] (select (= (at {{0}} i) (cast v i32)) 1.0 0.0)))"
    return m.add(text, [ids], lambda n, i: np.bincount(i, minlength=below).astype(float))


def recomputed(m: Maker) -> Node:
    """What gradients compute once more; what they stop at is a factor alone."""
    x = m.x(2, 2000)
    w = m.weight(m.size(40), x.shape[1])
    name = m.fresh("again-")
    m.functions.append(f"(defn {name} [x w] (tanh (matmul-transposed x w)))")
    return m.add(f"(recompute {name} {{0}} {{1}})", [x, w], lambda n, x, w: np.tanh(times(n, x, w)))


def own_gradient(m: Maker) -> Node:
    """A function that says itself what its gradient is."""
    x = m.x(m.whole(1, 3))
    name = m.fresh("ruled-")
    m.functions.append(
        f"(defn {name} [x] (elementwise (fn [v] (/ v (+ 1.0 (abs v)))) x))\n"
        f"(defgradient {name} [g y x] [(elementwise (fn [g v] (/ g (square (+ 1.0 (abs v))))) g x)])"
    )
    return m.add(f"({name} {{0}})", [x], lambda n, a: a / (1 + np.abs(a)))


def head_loss(m: Maker) -> Node:
    """The library's losses of training, some of whose targets do not count."""
    x = m.x(2, 1500)
    n, width = x.shape
    columns = max(2, m.size(64))
    vocab = m.whole(2, columns)
    targets = m.ids(n, vocab)
    some = m.add("(- {0} 1)", [targets], lambda n, i: i - 1, "i32")
    w = m.weight(columns, width, dtype="f32" if m.smooth else "")
    text = m.one_of(
        [
            f"(first (cross-entropy (matmul-transposed {{0}} {{1}}) {{2}} {vocab}))",
            f"(first (head-loss {{0}} {{1}} {{2}} {vocab}))",
        ]
    )

    def run(noise: Any, x: Any, w: Any, i: Any) -> Any:
        s = times(noise, x, w)[:, :vocab]
        top = s.max(-1)
        own = np.log(np.exp(s - top[:, None]).sum(-1)) + top - s[np.arange(n), np.maximum(i, 0)]
        return (own * (i >= 0)).sum() / max((i >= 0).sum(), 1)

    return m.add(text, [x, w, some], run)
