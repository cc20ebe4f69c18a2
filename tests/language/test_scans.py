"""Recurrences by `scan`: values and gradients beside float64, and how large the program of many steps is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from gradient_checks import HEADER, Case, Cases
from language.evaluating import evaluated

from lispgpt.base.errors import UserError

DEFINITIONS = """
(require arrays)
(defn cell [h x w] (let [h (tanh (+ (linear h w) x))] [h (* h x)]))
(defn lstm [[h c] x w u]
  (let [[i f g o] (split (+ (linear x w) (linear h u)) [3 3 3 3] 1)
        c (+ (* (sigmoid f) c) (* (sigmoid i) (tanh g)))
        h (* (sigmoid o) (tanh c))]
    [[h c] h]))
(defn gru [h x w u]
  (let [[zx rx nx] (split (linear x w) [3 3 3] 1)
        [zh rh nh] (split (linear h u) [3 3 3] 1)
        z (sigmoid (+ zx zh))
        h (+ (* (- 1.0 z) (tanh (+ nx (* (sigmoid (+ rx rh)) nh)))) (* z h))]
    [h h]))
(defn delta [s [q k v b]]
  (let [off (* b (- v (contract [i] s [i j] k [j])))
        s (+ s (outer off k))]
    [s (contract [i] s [i j] q [j])]))
(defn rwkv7 [s [r w k v a b]]
  (let [s (+ (* s w) (outer (contract [i] s [i j] a [j]) b) (outer v k))]
    [s (contract [i] s [i j] r [j])]))
(defn log-add [a b] (let [top (max a b)] (+ top (log (+ (exp (- a top)) (exp (- b top)))))))
(defn one-behind [x n] (tensor [i (dim x 0)] (select (< i n) -1e4 (at x (max 0 (- i n))))))
(defn ctc [scores labels twice]
  (let [logs (tensor [t (dim scores 0) s (dim labels 0)] (at (log-softmax scores) t (at labels s)))
        first-row (tensor [s (dim labels 0)] (select (< s 2) (at logs 0 s) -1e4))
        step (fn [a l]
               [(+ l (log-add (log-add a (one-behind a 1)) (select (> twice 0) (one-behind a 2) -1e4))) nil])
        [a _] (scan step first-row (slice logs [1 0] [(- (dim scores 0) 1) (dim labels 0)]))
        n (dim labels 0)]
    (- (log-add (slice a [(- n 1)] [nil]) (slice a [(- n 2)] [nil])))))
"""


def sigmoid(x: Any) -> Any:
    return 1 / (1 + np.exp(-x))


def cells(h: Any, x: Any, w: Any) -> tuple[Any, Any]:
    kept = []
    for row in x:
        h = np.tanh(h @ w.T + row)
        kept.append(h * row)
    return h, np.stack(kept)


def lstm(h: Any, x: Any, w: Any, u: Any) -> Any:
    c, kept = 0 * h, []
    for row in x:
        i, f, g, o = np.split(row @ w.T + h @ u.T, 4, 1)
        c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
        h = sigmoid(o) * np.tanh(c)
        kept.append(h)
    return np.stack(kept) + c


def gru(h: Any, x: Any, w: Any, u: Any) -> Any:
    kept = []
    for row in x:
        (zx, rx, nx), (zh, rh, nh) = np.split(row @ w.T, 3, 1), np.split(h @ u.T, 3, 1)
        z = sigmoid(zx + zh)
        h = (1 - z) * np.tanh(nx + sigmoid(rx + rh) * nh) + z * h
        kept.append(h)
    return np.stack(kept)


def delta(s: Any, q: Any, k: Any, v: Any, b: Any) -> Any:
    kept = []
    for t in range(len(q)):
        s = s + np.outer(b[t] * (v[t] - s @ k[t]), k[t])
        kept.append(s @ q[t])
    return np.stack(kept)


def rwkv7(s: Any, r: Any, w: Any, k: Any, v: Any, a: Any, b: Any) -> Any:
    kept = []
    for t in range(len(r)):
        s = s * w[t] + np.outer(s @ a[t], b[t]) + np.outer(v[t], k[t])
        kept.append(s @ r[t])
    return np.stack(kept)


LABELS, TWICE = [0, 1, 0, 1, 0, 2, 0], [0, 0, 0, 0, 0, 1, 0]


def ctc(x: Any) -> Any:
    """The sum over every path of labels that gives 1 1 2 when doubles and 0 are dropped."""
    powers = np.exp(x - x.max(-1, keepdims=True))
    shares, total = powers / powers.sum(-1, keepdims=True), 0.0
    for path in np.ndindex(*[3] * len(x)):
        single = [p for i, p in enumerate(path) if i == 0 or p != path[i - 1]]
        if [p for p in single if p] == [1, 1, 2]:
            total = total + np.prod([shares[t, p] for t, p in enumerate(path)])
    return -np.log(total)


def halved(h: Any) -> Any:
    for _ in range(6):
        if np.abs(h).sum() > 1.0:
            h = h * 0.7 * np.cos(h)
    return h


def counted(h: Any, x: Any) -> Any:
    number, kept = 1, []
    for row in x:
        kept.append(h[1])
        h, number = h * row + number, number + 2
    return np.stack(kept)


RNN = {"h": (2, 3), "x": (4, 2, 3), "w": (3, 3)}
GATED = {"h": (2, 3), "x": (4, 2, 3)}
ROWS = dict.fromkeys("rwkvab", (4, 3))
STEP = "(fn [h x] (cell h x w))"
CASES: list[Case] = [
    (f"(let [[h y] (scan {STEP} h x)] (+ y h))", lambda h, x, w: sum(cells(h, x, w)), RNN),
    (f"(nth (scan {STEP} h x {{:reverse true}}) 1)", lambda h, x, w: cells(h, x[::-1], w)[1][::-1], RNN),
    (f"(nth (scan {STEP} h x {{:chunk 2}}) 1)", lambda h, x, w: cells(h, x, w)[1], RNN),
    (
        f"(nth (scan {STEP} h x {{:chunk 2 :reverse true}}) 1)",
        lambda h, x, w: cells(h, x[::-1], w)[1][::-1],
        RNN,
    ),
    (
        """(first (scan (fn [h i] [(* h (* 0.7 (cos h))) nil]) h 6
                        {:while (fn [h] (> (at (sum (reshape (abs h) [6]))) 1.0))}))""",
        halved,
        {"h": (2, 3)},
    ),
    ("(nth (scan (fn [[a n] x] [[(+ (* a x) (cast n f32)) (+ n 2)] (at a 1)]) [h 1] x) 1)", counted,
     {"h": (3,), "x": (4, 3)}),
    (
        "(let [[[h c] y] (scan (fn [s x] (lstm s x w u)) [h (* 0.0 h)] x)] (+ y c))",
        lstm,
        {**GATED, "w": (12, 3), "u": (12, 3)},
    ),
    ("(nth (scan (fn [s x] (gru s x w u)) h x) 1)", gru, {**GATED, "w": (9, 3), "u": (9, 3)}),
    ("(nth (scan delta s [q k v b]) 1)", delta, {"s": (3, 3), "q": (4, 3), "k": (4, 3), "v": (4, 3), "b": (4,)}),
    ("(nth (scan rwkv7 s [r w k v a b]) 1)", rwkv7, {"s": (3, 3), **ROWS}),
    (
        f"(ctc x (constant-of {LABELS}) (constant-of {TWICE}))".replace(",", ""),
        ctc,
        {"x": (6, 3)},
    ),
]  # fmt: skip
CONSTANT = """(defn constant-of [numbers]
  (fold (fn [made i] (insert (tensor [j 1] (cast (nth numbers i) i32)) made [i] [1]))
        (tensor [i (count numbers)] (cast 0 i32)) (range (count numbers))))"""


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(CASES, CONSTANT + DEFINITIONS)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0][:60] for case in CASES])
def test_values_and_gradients_are_those_of_numpy(cases: Cases, number: int) -> None:
    cases.check_value(number)
    cases.check_gradients(number)


def program(steps: int, options: str = "") -> str:
    expression = f"(nth (scan (fn [h x] (cell h x w)) h x {{{options}}}) 1)"
    inputs = f"(h [2 3] f32) (x [{steps} 2 3] f32) (w [3 3] f32)"
    loss = f"(sum (sum (sum (square {expression}))))"
    return f"{HEADER} {DEFINITIONS} (entry e [{inputs}] (first (gradients {loss} [w])))"


def test_a_program_does_not_grow_with_its_steps() -> None:
    few, many = (evaluated(program(steps))[1] for steps in (10, 1000))
    assert len(few.splitlines()) == len(many.splitlines())
    assert "1000x1000" not in many


def test_chunks_keep_the_states_of_some_steps_alone() -> None:
    for options, kept in ("", {1000}), (":chunk 20", {1000, 50, 20}):
        lines = evaluated(program(1000, options))[1].splitlines()
        rows = [line.rpartition("tensor<")[2].partition("x2x3")[0] for line in lines if "tensor.insert_slice" in line]
        assert {int(count) for count in rows} == kept


@pytest.mark.parametrize(
    "call,message",
    [
        ("(scan (fn [h x] [h]) h x)", "a step of `scan` gives .state y., and this gives 1 values"),
        ("(scan (fn [h x] [(sum h) h]) h x)", "stays of the type it starts with, tensor<2x3xf32>"),
        ("(scan (fn [h x] [h h]) h x {:backwards true})", "not :backwards"),
        ("(scan (fn [h x] [h h]) h x {:chunk 3})", "`scan` of 4 steps cannot have chunks of the number 3"),
        ("(scan (fn [h x] [h h]) h [x h])", "tensors with as many rows"),
        ("(scan (fn [h x] [h h]) h x {:while (fn [h] 1)})", "`:while` of `scan` gives an i1"),
        ("(scan (fn [[a b] x] [a nil]) [h h] x)", "gives 2 states, as it starts with"),
    ],
)
def test_what_is_no_scan_is_said_where_it_stands(call: str, message: str) -> None:
    with pytest.raises(UserError, match=message) as caught:
        evaluated(f"{HEADER} (entry e [(h [2 3] f32) (x [4 2 3] f32)] (first {call}))")
    assert "scan" in str(caught.value)
