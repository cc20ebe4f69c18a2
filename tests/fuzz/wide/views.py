"""What moves elements: comprehensions that permute, shift, mask and gather, slices, insertions, sums, loops."""

from __future__ import annotations

import string
from collections.abc import Callable
from typing import Any

import numpy as np
from fuzz.wide.graph import Node, Unfit
from fuzz.wide.maker import Maker

LETTERS = string.ascii_lowercase


def loops(names: str | list[str], shape: tuple[int, ...]) -> str:
    return "[" + " ".join(f"{n} {size}" for n, size in zip(names, shape, strict=True)) + "]"


def ordered(names: str | list[str], shape: tuple[int, ...], order: list[int]) -> str:
    """Loops in another order."""
    return loops([names[i] for i in order], tuple(shape[i] for i in order))


def permuted(m: Maker) -> Node:
    """Dimensions in another order, each element changed on the way."""
    x = m.x(m.whole(2, 4))
    order = m.permutation(x.rank)
    names = LETTERS[: x.rank]
    text = f"(tensor {ordered(names, x.shape, order)} (* 0.5 (at {{0}} {' '.join(names)})))"
    return m.add(text, [x], lambda n, a: 0.5 * a.transpose(order))


def moved(m: Maker) -> Node:
    """Elements along one dimension reversed, rotated, repeated, thinned or held at the ends."""
    x = m.x(m.whole(1, 3))
    axis = m.whole(0, x.rank - 1)
    size, by = x.shape[axis], m.whole(1, 5)
    kind = m.whole(0, 5)
    at, places = [
        (f"(- {size - 1} i)", np.arange(size)[::-1]),
        (f"(mod (+ i {by}) {size})", (np.arange(size) + by) % size),
        (f"(quot i {by})", np.arange(size * by) // by),
        (f"(* i {by})", np.arange(-(-size // by)) * by),
        (f"(max (- i {by}) 0)", np.maximum(np.arange(size) - by, 0)),
        (f"(min (+ i {by}) {size - 1})", np.minimum(np.arange(size) + by, size - 1)),
    ][kind]
    names = ["i" if d == axis else f"d{d}" for d in range(x.rank)]
    shape = tuple(len(places) if d == axis else s for d, s in enumerate(x.shape))
    where = [at if d == axis else n for d, n in enumerate(names)]
    text = f"(tensor {loops(names, shape)} (at {{0}} {' '.join(where)}))"
    return m.add(text, [x], lambda n, a: np.take(a, places, axis))


def masked(m: Maker) -> Node:
    """What the places of elements decide."""
    x = m.x(m.whole(2, 3))
    by = m.whole(0, 6)
    i, j = np.ogrid[: x.shape[-2], : x.shape[-1]]
    text, keep = m.one_of(
        [
            ("(<= j i)", j <= i),
            (f"(< (abs (- (cast i i32) (cast j i32))) {by + 1})", abs(i - j) <= by),
            (f"(= (mod (+ i j) {by + 2}) 0)", (i + j) % (by + 2) == 0),
            (f"(or (< i {by}) (>= j {by}))", (i < by) | (j >= by)),
            (f"(and (> i {by}) (not (= j {by})))", (i > by) & (j != by)),
        ]
    )
    names = ["b", "i", "j"][-x.rank :]
    other, value = m.one_of([("0.0", 0.0), ("-1.5", -1.5)])
    text = f"(tensor {loops(names, x.shape)} (select {text} (at {{0}} {' '.join(names)}) {other}))"
    return m.add(text, [x], lambda n, a: np.where(keep, a, value))


def outer(m: Maker) -> Node:
    """One element for each pair of two tensors' elements, or of places."""
    if m.chance(0.3):
        shape = m.shape(2, 800)
        text = f"(tensor {loops('ij', shape)} (sin (+ (* 0.3 (cast (cast i i32) f32)) (cast (cast (* i j) i32) f32))))"
        i, j = np.ogrid[: shape[0], : shape[1]]
        return m.add(text, [], lambda n: np.sin(n.moved(np.float32(0.3) * i + i * j, 2.0**-22)))
    x, y = m.x(1, 96), m.x(m.whole(1, 2), 200)
    names = ["i", "j", "k"][: 1 + y.rank]
    order = m.permutation(len(names))
    sizes = (*x.shape, *y.shape)
    text = f"(tensor {ordered(names, sizes, order)} (- (at {{0}} i) (at {{1}} {' '.join(names[1:])})))"
    return m.add(text, [x, y], lambda n, a, b: np.subtract.outer(a, b).transpose(order))


def gathered(m: Maker) -> Node:
    """Rows by numbers, or one element of each row."""
    x = m.x(m.whole(2, 3), 2000)
    kind = m.whole(0, 3)
    if kind == 0 and x.rank == 2:
        ids = m.ids(m.size(40), x.shape[0])
        return m.add("(rows {0} {1})", [x, ids], lambda n, a, i: a[i])
    if kind == 1 and x.rank == 2:
        ids = m.ids(x.shape[0], x.shape[1])
        return m.add(
            f"(tensor [r {x.shape[0]}] (at {{0}} r (at {{1}} r)))", [x, ids], lambda n, a, i: a[np.arange(len(a)), i]
        )
    axis = m.whole(0, x.rank - 1)
    ids = m.ids(m.size(30), x.shape[axis])
    names = ["a", "b", "c"][: x.rank]
    shape = tuple(ids.size if d == axis else s for d, s in enumerate(x.shape))
    order = m.permutation(x.rank)
    where = [f"(at {{1}} {n})" if d == axis else n for d, n in enumerate(names)]
    text = f"(tensor {ordered(names, shape, order)} (at {{0}} {' '.join(where)}))"
    return m.add(text, [x, ids], lambda n, a, i: np.take(a, i, axis).transpose(order))


def convolved(m: Maker) -> Node:
    """A sum over a window that slides along rows: unrolled while compiling."""
    x, taps = m.x(2, 2000), m.whole(1, 4)
    if x.shape[0] < taps:
        raise Unfit
    w = m.weight(taps, scale=0.7)
    rows = x.shape[0] - taps + 1
    total = f"(fold (fn [s k] (+ s (* (at {{0}} (+ t k) c) (at {{1}} k)))) 0.0 (range {taps}))"
    text = f"(tensor [t {rows} c {x.shape[1]}] {total})"
    return m.add(text, [x, w], lambda n, a, v: sum(a[k : k + rows] * v[k] for k in range(taps)))


def sliced(m: Maker) -> Node:
    """A part; sizes of nil drop dimensions."""
    x = m.x(m.whole(1, 4))
    offsets, sizes, key, texts = [], [], [], []
    for size in x.shape:
        length = m.whole(1, size) if m.chance(0.6) else size
        start = m.whole(0, size - length)
        offsets.append(str(start))
        if length == 1 and m.chance(0.5) and sum(t != "nil" for t in texts) + 1 > 0:
            texts.append("nil")
            key.append(start)
        else:
            texts.append(str(length))
            key.append(slice(start, start + length))
        sizes.append(length)
    if all(t == "nil" for t in texts):
        raise Unfit
    place = tuple(key)
    return m.add(f"(slice {{0}} [{' '.join(offsets)}] [{' '.join(texts)}])", [x], lambda n, a: a[place])


def inserted(m: Maker) -> Node:
    """One tensor with a part of it replaced by another."""
    x = m.x(m.whole(1, 3))
    sizes = [m.whole(1, size) for size in x.shape]
    starts = [m.whole(0, size - part) for size, part in zip(x.shape, sizes, strict=True)]
    fitting = [n for n in m.some(x.rank) if n is not x and all(a >= b for a, b in zip(n.shape, sizes, strict=True))]
    if fitting:
        zeros, ends = " ".join("0" * len(sizes)), tuple(slice(0, s) for s in sizes)
        part = fitting[0]
        if part.shape != tuple(sizes):
            part = m.add(f"(slice {{0}} [{zeros}] [{' '.join(map(str, sizes))}])", [part], lambda n, a: a[ends])
    else:
        part = m.weight(*sizes, dtype="f32")
    key = tuple(slice(a, a + b) for a, b in zip(starts, sizes, strict=True))

    def put(n: Any, p: Any, whole: Any) -> Any:
        whole = whole.copy()
        whole[key] = p
        return whole

    text = f"(insert {{0}} {{1}} [{' '.join(map(str, starts))}] [{' '.join(map(str, sizes))}])"
    return m.add(text, [part, x], put)


REDUCED: list[tuple[str, Callable[..., Any], bool]] = [
    ("(sum {0})", lambda a: a.sum(-1), True),
    ("(maximum {0})", lambda a: a.max(-1), True),
    ("(reduce min inf {0})", lambda a: a.min(-1), True),
    ("(reduce + 1.5 {0})", lambda a: 1.5 + a.sum(-1), True),
    ("(reduce (fn [s v] (+ s (* v v))) 0.0 {0})", lambda a: (a * a).sum(-1), True),
    ("(reduce (fn [s v] (max s (abs v))) 0.0 {0})", lambda a: np.abs(a).max(-1), False),
    ("(reduce * 1.0 (+ 1.0 (* 0.1 (tanh {0}))))", lambda a: np.prod(1 + 0.1 * np.tanh(a), -1), True),
    ("(sum (square {0}))", lambda a: (a * a).sum(-1), True),
    ("(/ (sum {0}) (dim {0} (- (rank {0}) 1)))", lambda a: a.mean(-1), True),
]


def reduced(m: Maker) -> Node:
    text, function, _ = m.one_of([r for r in REDUCED if r[2] or not m.smooth])
    x = m.x(m.whole(1, 4))
    if text.count("{0}") > 1 and x.kind == "let":
        text = f"(let [z {{0}}] {text.replace('{0}', 'z')})"
    return m.add(text, [x], lambda n, a: function(a))


def largest(m: Maker) -> Node:
    x = m.x(2, 2000)
    return m.add("(argmax {0})", [x], lambda n, a: a.argmax(-1), "i32")


def looped(m: Maker) -> Node:
    """A loop over rows that changes a tensor as it goes: running sums, which decay."""
    x = m.x(2, 1500)
    n, c = x.shape
    text = f"""(scf.for {{:result (type {{0}})}} (: 1 index) (: {n} index) (: 1 index) {{0}}
    (region (block [(: row index) (: kept (type {{0}}))]
      (scf.yield (insert (+ (slice kept [row 0] [nil {c}]) (* 0.5 (slice kept [(- row (: 1 index)) 0] [nil {c}])))
                         kept [row 0] [nil {c}])))))"""

    def run(noise: Any, a: Any) -> Any:
        a = a.copy()
        for i in range(1, n):
            a[i] += 0.5 * a[i - 1]
        return a

    if n < 2:
        raise Unfit
    return m.add(text, [x], run)


def chained(m: Maker) -> Node:
    """Parts of a tensor, one after the other, while compiling."""
    x = m.x(2, 1500)
    if not 2 <= x.shape[0] <= 9:
        raise Unfit
    c = x.shape[1]
    text = (
        f"(fold (fn [kept i] (+ (* 0.9 (tanh kept)) (slice {{0}} [i 0] [nil {c}]))) (slice {{0}} [0 0] [nil {c}]) "
        f"(range 1 {x.shape[0]}))"
    )

    def run(n: Any, a: Any) -> Any:
        kept = a[0]
        for row in a[1:]:
            kept = 0.9 * np.tanh(kept) + row
        return kept

    return m.add(text, [x], run)


def joined(m: Maker) -> Node:
    """Two tensors side by side, by a comprehension that chooses."""
    x = m.x(2, 1500)
    y = m.weight(x.shape[0], m.size(20), scale=1.0, dtype="f32")
    a = x.shape[1]
    text = (
        f"(tensor [r {x.shape[0]} c {a + y.shape[1]}] "
        f"(select (< c {a}) (at {{0}} r (min c {a - 1})) (at {{1}} r (max (- c {a}) 0))))"
    )
    return m.add(text, [x, y], lambda n, p, q: np.concatenate([p, q], 1))
