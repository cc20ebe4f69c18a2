"""Models and parts of models, as users wrote them: states, recurrences, losses over odd layouts, steps of training."""

from __future__ import annotations

from typing import Any

import numpy as np
from fuzz.written import Written, softmax


def sigmoid(x: np.ndarray) -> np.ndarray:
    return 1 / (1 + np.exp(-x))


def onehot(ids: np.ndarray, n: int) -> np.ndarray:
    return np.eye(n)[ids]


def causal(q: np.ndarray, k: np.ndarray, v: np.ndarray) -> np.ndarray:
    scores = np.einsum("bsd,btd->bst", q, k) / np.sqrt(q.shape[-1])
    seen = np.tril(np.ones(scores.shape[1:], bool))
    return softmax(np.where(seen, scores, -np.inf)) @ v


def lstm(x: np.ndarray, h: np.ndarray, c: np.ndarray, w: Any) -> tuple[np.ndarray, np.ndarray]:
    gates = np.concatenate([x, h], 1) @ w["w"].T + w["b"]
    i, f, g, o = np.split(gates, 4, 1)
    c = sigmoid(f) * c + sigmoid(i) * np.tanh(g)
    return sigmoid(o) * np.tanh(c), c


def middle_loss(x: np.ndarray, labels: np.ndarray) -> tuple[Any, np.ndarray]:
    """Of classes along the middle dimension: the mean, and its gradient."""
    p, hit = softmax(x, 1), np.moveaxis(onehot(labels, x.shape[1]), 2, 1)
    return -(np.log(p) * hit).sum() / labels.size, (p - hit) / labels.size


def descent(w: np.ndarray, x: np.ndarray, y: np.ndarray) -> tuple[np.ndarray, Any]:
    for _ in range(3):
        w = w - 0.05 * 2 * (x @ w - y) @ x
    return w, ((x @ w - y) ** 2).sum()


def group_norm(x: np.ndarray) -> np.ndarray:
    groups = x.reshape(x.shape[0], 2, -1)
    centred = groups - groups.mean(-1, keepdims=True)
    return (centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5)).reshape(x.shape)


def _recurrence(x: np.ndarray) -> np.ndarray:
    h = np.zeros(x.shape[1])
    for row in x:
        h = np.tanh(0.5 * h + row)
    return h


def _windows(x: np.ndarray) -> np.ndarray:
    return np.stack([x[:, k : k + 8] for k in range(3)], 2)


def _turned(x: np.ndarray, a: np.ndarray) -> np.ndarray:
    left, right = x[:, ::2], x[:, 1::2]
    c, s = np.cos(a)[:, None], np.sin(a)[:, None]
    return np.stack([left * c - right * s, left * s + right * c], -1).reshape(x.shape)


def _moved(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> dict[str, Any]:
    y = x @ w.T + b
    return {"loss": (y**2).sum(), "w": w - 0.02 * y.T @ x, "b": b - 0.02 * y.sum(0)}


PROGRAMS = [
    Written(
        "updated twice", "(state (s [3]) (n [] i32)) (weights (w [])) (entry f [(x [3])] (let [before (+ 0.0"
        " (read-state s))]"
        " (update! s (+ (read-state s) x)) (update! s (* 2.0 (read-state s))) (update! n (+ (read-state n) 1))"
        " {:before before :after (+ 0.0 (read-state s)) :n (+ 0 (read-state n)) :w (* 2.0 w)}))",
        {"x": (3,)}, lambda i, w, s: {
            "before": np.zeros(3) if s is None else s["after"],
            "w": 2 * w["w"],
            "after": 2 * (i["x"] + (0 if s is None else s["after"])), "n": 1 if s is None else s["n"] + 1,
        }, times=3,
    ),
    Written(
        "a scale for each layer", "(weights (per 3 (g []) (b [4]))) (entry f [(x [n 4])]"
        " {:y (fold (fn [x l] (+ (* (g l) x) (b l))) x (range 3)) :g (+ 0.0 (whole g))})",
        {"x": (2, 4)}, lambda i, w, s: {
            "y": ((i["x"] * w["g"][0] + w["b"][0]) * w["g"][1] + w["b"][1]) * w["g"][2] + w["b"][2], "g": w["g"]},
    ),
    Written(
        "running sums", "(entry f [(x [n 6])] (let [step (fn [y t] (let [col (slice x [0 t] [n nil])"
        " prev (if (= t 0) (* 0.0 col) (slice y [0 (- t 1)] [n nil]))] (insert (+ col prev) y [0 t] [n nil])))]"
        " {:y (fold step x (range 6)) :z (contract [i k] x [i j] (tensor [j 6 k 6] (select (<= j k) 1.0 0.0))"
        " [j k])}))",
        {"x": (4, 6)}, lambda i, w, s: {"y": i["x"].cumsum(1), "z": i["x"].cumsum(1)},
    ),
    Written(
        "a loop", "(require-dialect scf tensor arith) (entry f [(x [20 5])] {:y (scf.for {:result tensor<5xf32>}"
        " (: 0 index) (: 20 index) (: 1 index) (tensor [i 5] 0.0) (region (block [(: t index) (: h tensor<5xf32>)]"
        " (scf.yield (tanh (+ (* 0.5 h) (slice x [t 0] [nil 5])))))))})",
        {"x": (20, 5)}, lambda i, w, s: {"y": _recurrence(i["x"])},
    ),
    Written(
        "classes in the middle", "(require nn) (require gradients) (entry f [(x [b 5 t]) (y [b t] i32)]"
        " (let [top (maximum (tensor [i b k t c 5] (at x i c k)))"
        " total (sum (tensor [i b k t c 5] (exp (- (at x i c k) (at top i k)))))"
        " each (tensor [i b k t] (- (+ (log (at total i k)) (at top i k)) (at x i (at y i k) k)))"
        " loss (/ (sum (sum each)) (* b t))] {:loss loss :dx (first (gradients loss [x]))}))",
        {"x": (3, 5, 4), "y": (5, (3, 4))},
        lambda i, w, s: dict(zip(("loss", "dx"), middle_loss(i["x"], i["y"]), strict=True)),
    ),
    Written(
        "a convolution", "(require gradients) (weights (w [4 3 2])) (entry f [(x [n 10 2])] (let ["
        "y (contract [b t o] (tensor [b n t 8 k 3 c 2] (at x b (+ t k) c)) [b t k c] w [o k c])]"
        " {:y y :dw (first (gradients (sum (sum (sum (square y)))) [w]))}))",
        {"x": (3, 10, 2)}, lambda i, w, s: (lambda p, y: {"y": y, "dw": np.einsum("btkc,bto->okc", p, 2 * y)})(
            _windows(i["x"]), np.einsum("btkc,okc->bto", _windows(i["x"]), w["w"])),
        tolerance=1e-3,
    ),
    Written(
        "a temperature", "(require nn) (entry f [(x [n 6]) (t [] f32)] (let [scale (+ 0.5 (abs t))"
        " cool (elementwise (fn [v s] (/ v s)) x scale)] {:y (softmax cool) :l (+ (log (sum (exp cool))) 0.0)}))",
        {"x": (4, 6), "t": ()}, lambda i, w, s: {
            "y": softmax(i["x"] / (0.5 + abs(i["t"]))), "l": np.log(np.exp(i["x"] / (0.5 + abs(i["t"]))).sum(-1))},
    ),
    Written(
        "a masked mean", "(entry f [(x [n 5 3]) (m [n 5] i32)] (let [real (cast m f32)"
        " count (max (sum real) 1.0)] {:y (/ (contract [b c] real [b t] x [b t c]) (reshape count [n 1]))}))",
        {"x": (4, 5, 3), "m": (2, (4, 5))}, lambda i, w, s: {
            "y": np.einsum("bt,btc->bc", i["m"], i["x"]) / np.maximum(i["m"].sum(1), 1)[:, None]},
    ),
    Written(
        "pairs turned", "(entry f [(x [n 8]) (a [n])] (let [p (reshape x [n 4 2]) l (slice p [0 0 0] [n 4 nil])"
        " r (slice p [0 0 1] [n 4 nil]) c (reshape (cos a) [n 1]) s (reshape (sin a) [n 1])]"
        " {:y (reshape (insert (+ (* l s) (* r c)) (insert (- (* l c) (* r s)) p [0 0 0] [n 4 nil]) [0 0 1] [n 4 nil])"
        " [n 8])}))",
        {"x": (3, 8), "a": (3,)}, lambda i, w, s: {"y": _turned(i["x"], i["a"])},
    ),
    Written(
        "bags of rows", "(require nn) (require gradients) (weights (t [8 3])) (entry f [(ids [n 4] i32)]"
        " (let [bags (contract [b c] (reshape (rows t (reshape ids [(* n 4)])) [n 4 3]) [b k c] (tensor [k 4]"
        " 0.25) [k])"
        " loss (sum (sum (square bags)))] {:bags bags :dt (first (gradients loss [t]))}))",
        {"ids": (8, (5, 4))}, lambda i, w, s: (lambda bags: {"bags": bags, "dt": np.einsum(
            "bkv,bc->vc", onehot(i["ids"], 8), bags) / 2})(w["t"][i["ids"]].mean(1)),
    ),
    Written(
        "gates", "(require nn) (weights (w [16 7]) (b [16])) (state (h [batch 4]) (c [batch 4]))"
        " (entry f [(x [batch 3])] (let [xh (tensor [i batch j 7] (select (< j 3) (at x i (min j 2))"
        " (at (read-state h) i (max (- j 3) 0)))) all (linear xh w b) part (fn [k] (slice all [0 (* 4 k)] [batch 4]))"
        " next (+ (* (sigmoid (part 1)) (read-state c)) (* (sigmoid (part 0)) (tanh (part 2))))]"
        " (update! c next) (update! h (* (sigmoid (part 3)) (tanh next))) {:h (+ 0.0 (read-state h)) :c (+ 0.0"
        " next)}))",
        {"x": (2, 3)}, lambda i, w, s: dict(zip("hc", lstm(
            i["x"], *([np.zeros((2, 4))] * 2 if s is None else [s["h"], s["c"]]), w), strict=True)), times=3,
    ),
    Written(
        "an average that moves", "(state (m [3]) (t [] f32)) (entry f [(x [n 3])] (let [now (/ (contract [c]"
        " (tensor [i n] 1.0) [i] x [i c]) n)] (update! t (+ 1.0 (read-state t)))"
        " (update! m (+ (* 0.9 (read-state m)) (* 0.1 now)))"
        " {:m (elementwise (fn [m t] (/ m (- 1.0 (exp (* t (log 0.9)))))) (read-state m) (read-state t))"
        " :raw (+ 0.0 (read-state m)) :t (+ 0.0 (read-state t))}))",
        {"x": (6, 3)}, lambda i, w, s: (lambda raw, t: {"m": raw / (1 - 0.9**t), "raw": raw, "t": t})(
            0.1 * i["x"].mean(0) + (0 if s is None else 0.9 * s["raw"]), 1 if s is None else s["t"] + 1),
        times=3, tolerance=5e-4,
    ),
    Written(
        "attention alone", "(require nn) (weights (q [8 8]) (k [8 8] bf16) (v [8 8])) (entry f [(x [b s 8])]"
        " (let [flat (reshape x [(* b s) 8]) of (fn [w] (reshape (linear flat w) [b s 8]))"
        " scores (/ (contract [b s t] (of q) [b s d] (of k) [b t d]) (sqrt 8))"
        " seen (tensor [i b j s t s] (select (<= t j) (at scores i j t) -inf))]"
        " {:y (contract [b s d] (softmax seen) [b s t] (of v) [b t d])}))",
        {"x": (2, 6, 8)}, lambda i, w, s: {"y": causal(i["x"] @ w["q"].T, i["x"] @ w["k"].T, i["x"] @ w["v"].T)},
    ),
    Written(
        "groups", "(entry f [(x [n 6 4])] (let [g (reshape x [n 2 12]) mean (/ (sum g) 12)"
        " c (tensor [i n j 2 k 12] (- (at g i j k) (at mean i j))) v (/ (sum (square c)) 12)]"
        " {:y (reshape (tensor [i n j 2 k 12] (* (at c i j k) (rsqrt (+ (at v i j) 1e-5)))) [n 6 4])}))",
        {"x": (3, 6, 4)}, lambda i, w, s: {"y": group_norm(i["x"])},
    ),
    Written(
        "steps down", "(require gradients) (weights (w [4])) (entry f [(x [n 4]) (y [n])]"
        " (let [loss (fn [w] (sum (square (- (contract [i] x [i j] w [j]) y))))"
        " step (fn [w k] (- w (* 0.05 (first (gradients (loss w) [w]))))) last (fold step (+ 0.0 w) (range 3))]"
        " {:w last :loss (loss last)}))",
        {"x": (5, 4), "y": (5,)}, lambda i, w, s: dict(zip(
            ("w", "loss"), descent(w["w"], i["x"], i["y"]), strict=True)), tolerance=1e-3,
    ),
    Written(
        "a short state", "(state (s [4] bf16)) (entry f [(x [4])] (do (update! s (cast (+ (read-state s) x) bf16))"
        " {:y (cast (read-state s) f32)}))",
        {"x": (4,)}, lambda i, w, s: {"y": i["x"] + (0 if s is None else s["y"])}, times=3, tolerance=3e-2,
    ),
    Written(
        "weights that move", "(require gradients) (weights (w [3 3]) (b [3])) (entry f [(x [n 3])]"
        " (let [loss (sum (sum (square (+ (contract [i o] x [i k] w [o k]) b)))) [gw gb] (gradients loss [w b])]"
        " (update! w (- w (* 0.01 gw))) (update! b (- b (* 0.01 gb))) {:loss loss :w (+ 0.0 (whole w)) :b (+ 0.0 b)}))",
        {"x": (4, 3)}, lambda i, w, s: _moved(i["x"], *([w["w"], w["b"]] if s is None else [s["w"], s["b"]])),
        times=2, tolerance=1e-3,
    ),
]  # fmt: skip
