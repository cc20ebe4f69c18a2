"""Programs on tensors, as users wrote them: gathers of gathers, sizes of one, whole numbers, strides, choices."""

from __future__ import annotations

from math import erf

import numpy as np
from fuzz.written import Written


def two_by_two(m: np.ndarray) -> np.ndarray:
    a, b, c, d = m[:, 0, 0], m[:, 0, 1], m[:, 1, 0], m[:, 1, 1]
    a, d = a + 4, d + 4
    return np.stack([d, -b, -c, a], -1).reshape(-1, 2, 2) / (a * d - b * c)[:, None, None]


def pool(x: np.ndarray) -> np.ndarray:
    n, h, w, c = x.shape
    return x.reshape(n, h // 2, 2, w // 2, 2, c).max((2, 4))


def distances(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return ((x[:, None] - y[None]) ** 2).sum(-1)


PROGRAMS = [
    Written(
        "transposed", "(entry f [(x [n m])] {:y (tensor [j m i n] (at x i j)) :z (tensor [k m] (at x 0 k))})",
        {"x": (5, 7)}, lambda i, w, s: {"y": i["x"].T, "z": i["x"][0]},
    ),
    Written(
        "gather of a gather", "(require nn) (weights (t [9 6])) (entry f [(ids [n] i32) (more [k] i32)]"
        " {:y (rows t (tensor [i k] (at ids (at more i)))) :z (tensor [i k] (at t (at ids (at more i)) (at more i)))})",
        {"ids": (9, (5,)), "more": (5, (8,))},
        lambda i, w, s: {"y": w["t"][i["ids"][i["more"]]], "z": w["t"][i["ids"][i["more"]], i["more"]]},
    ),
    Written(
        "sizes of one", "(entry f [(x [n m])] (let [a (reshape x [1 n 1 m]) b (sum a)] {:a (reshape a [n 1 m 1])"
        " :b (reshape b [n]) :c (* (reshape x [n m 1]) (reshape x [n 1 m])) :d (reshape (sum (sum a)) [1 n])}))",
        {"x": (3, 5)}, lambda i, w, s: {
            "a": i["x"][:, None, :, None], "b": i["x"].sum(-1), "c": i["x"][:, :, None] * i["x"][:, None],
            "d": i["x"].sum(-1)[None],
        },
    ),
    Written(
        "whole numbers", "(entry f [(a [n] i32) (b [n] i32)] {:q (quot (- a 50) (+ b 1)) :m (mod (- a 50) (+ b 1))"
        " :s (+ (* a a) (- b)) :c (min (max a b) 40) :t (tensor [i n] (+ (at a i) (* 3 (cast i i32))))})",
        {"a": (100, (11,)), "b": (30, (11,))}, lambda i, w, s: {
            "q": np.trunc((i["a"] - 50) / (i["b"] + 1)).astype(int), "m": (i["a"] - 50) % (i["b"] + 1),
            "s": i["a"] * i["a"] - i["b"], "c": np.minimum(np.maximum(i["a"], i["b"]), 40),
            "t": i["a"] + 3 * np.arange(11),
        },
    ),
    Written(
        "short floats", "(require nn) (weights (w [6 10] bf16) (v [4 6] bf16) (b [4])) (entry f [(x [n 10])]"
        " {:y (linear (cast (linear x w) f16) (cast v f16) b) :u (cast w f32) :t (* 2.0 v)})",
        {"x": (7, 10)}, lambda i, w, s: {"y": i["x"] @ w["w"].T @ w["v"].T + w["b"], "u": w["w"], "t": 2 * w["v"]},
        tolerance=2e-3,
    ),
    Written(
        "no inputs", "(weights (w [4])) (entry f [] {:c (tensor [i 4] (cast i f32)) :w (* 2.0 w)"
        " :tri (tensor [i 3 j 3] (select (<= j i) 1.0 0.0)) :k (tensor [i 2] (cast i i32))})",
        {}, lambda i, w, s: {"c": np.arange(4.0), "w": 2 * w["w"], "tri": np.tri(3), "k": np.arange(2)},
    ),
    Written(
        "inputs given back", "(weights (w [3])) (entry f [(x [n 3]) (k [n] i32)] {:x x :k k :w w :again x :y (+ x w)})",
        {"x": (2, 3), "k": (9, (2,))},
        lambda i, w, s: {"x": i["x"], "k": i["k"], "w": w["w"], "again": i["x"], "y": i["x"] + w["w"]},
    ),
    Written(
        "no dimensions", "(entry f [(a [] f32) (b [] i32)] {:c (* a a) :d (+ b 1) :e (+ a (cast b f32)) :f"
        " (tensor [] 1.5)"
        " :g (reshape a [1]) :h (exp (- (abs a)))})",
        {"a": (), "b": (50, ())}, lambda i, w, s: {
            "c": i["a"] ** 2, "d": i["b"] + 1, "e": i["a"] + i["b"], "f": 1.5, "g": i["a"].reshape(1),
            "h": np.exp(-abs(i["a"])),
        },
    ),
    Written(
        "strides", "(require-dialect tensor) (entry f [(x [9 8])] {:y (tensor [i 4 j 4] (at x (+ 1 (* 2 i)) (* 2 j)))"
        " :r (tensor [i 9 j 8] (at x (- 8 i) j)) :z (tensor.extract_slice {:result tensor<3x4xf32>"
        " :static_offsets array<i64: 1, 0> :static_sizes array<i64: 3, 4> :static_strides array<i64: 3, 2>} x)})",
        {"x": (9, 8)}, lambda i, w, s: {"y": i["x"][1:9:2, ::2], "r": i["x"][::-1], "z": i["x"][1:8:3, ::2]},
    ),
    Written(
        "choices", "(entry f [(x [n]) (k [n] i32)] {:y (select (> x 1.0) x (select (< x -1.0) (- x) (select (= k 0) 0.5"
        " (select (= (mod k 2) 0) (* x x) (cast k f32)))))})",
        {"x": (40,), "k": (4, (40,))}, lambda i, w, s: {"y": np.where(i["x"] > 1, i["x"], np.where(
            i["x"] < -1, -i["x"], np.where(i["k"] == 0, 0.5, np.where(i["k"] % 2 == 0, i["x"] ** 2, i["k"]))))},
    ),
    Written(
        "chains of products", "(require nn) (weights (a [8 5]) (b [5 6]) (c [6 3])) (entry f [(x [n 8])]"
        " {:y (contract [i m] (contract [i l] (contract [i k] x [i j] a [j k]) [i k] b [k l]) [i l] c [l m])"
        " :z (contract [m j] (contract [k m] b [k l] c [l m]) [k m] a [j k])})",
        {"x": (9, 8)}, lambda i, w, s: {"y": i["x"] @ w["a"] @ w["b"] @ w["c"], "z": (w["a"] @ w["b"] @ w["c"]).T},
    ),
    Written(
        "the best row", "(require nn) (weights (t [6 4])) (entry f [(x [n 6])] (let [best (argmax x)]"
        " {:best best :row (rows t best) :score (tensor [i n] (at x i (at best i)))}))",
        {"x": (7, 6)}, lambda i, w, s: {
            "best": i["x"].argmax(1), "row": w["t"][i["x"].argmax(1)], "score": i["x"].max(1)},
    ),
    Written(
        "a histogram", "(entry f [(k [n] i32)] {:h (sum (tensor [c 7 i n] (select (= (at k i) (cast c i32)) 1.0 0.0)))"
        " :m (reduce max -2147483648 k) :total (reduce + 0 k)})",
        {"k": (7, (33,))},
        lambda i, w, s: {"h": np.bincount(i["k"], minlength=7), "m": i["k"].max(), "total": i["k"].sum()},
    ),
    Written(
        "outer products", "(entry f [(x [n]) (y [m])] {:a (* (reshape x [n 1]) (reshape y [1 m]))"
        " :b (contract [i j] x [i] y [j]) :c (tensor [i n j m k 2] (+ (at x i) (* (at y j) (cast k f32))))})",
        {"x": (5,), "y": (6,)}, lambda i, w, s: {
            "a": np.outer(i["x"], i["y"]), "b": np.outer(i["x"], i["y"]),
            "c": i["x"][:, None, None] + i["y"][None, :, None] * np.arange(2)},
    ),
    Written(
        "pooling", "(entry f [(x [n 4 6 3])] {:y (reduce max -inf (reduce max -inf"
        " (tensor [b n i 2 j 3 c 3 k 2 l 2] (at x b (+ (* 2 i) k) (+ (* 2 j) l) c))))})",
        {"x": (2, 4, 6, 3)}, lambda i, w, s: {"y": pool(i["x"])},
    ),
    Written(
        "neighbours", "(require nn) (entry f [(x [n 3]) (y [m 3])] (let [d (- (+ (reshape (sum (square x)) [n 1])"
        " (sum (square y))) (* 2.0 (matmul-transposed x y)))] {:d d :near (argmax (- d))}))",
        {"x": (6, 3), "y": (5, 3)},
        lambda i, w, s: {"d": distances(i["x"], i["y"]), "near": distances(i["x"], i["y"]).argmin(1)},
    ),
    Written(
        "a polynomial", "(entry f [(x [n])] {:y (fold (fn [sum a] (+ (* sum x) a)) 0.5 [2.0 -1.0 0.25])"
        " :p (fold * 1.0 [x x x]) :c (elementwise (fn [v] (* v v v)) x)})",
        {"x": (17,)}, lambda i, w, s: {
            "y": np.polyval([0.5, 2, -1, 0.25], i["x"]), "p": i["x"] ** 3, "c": i["x"] ** 3},
    ),
    Written(
        "inverses", "(entry f [(m [n 2 2])] (let [a (+ 4.0 (slice m [0 0 0] [n nil nil])) b (slice m [0 0 1] [n"
        " nil nil])"
        " c (slice m [0 1 0] [n nil nil]) d (+ 4.0 (slice m [0 1 1] [n nil nil])) det (- (* a d) (* b c))]"
        " {:y (tensor [i n j 2 k 2] (/ (cond (= j k) (select (= j 0) (at d i) (at a i)) :else (select (= j 0)"
        " (- (at b i)) (- (at c i)))) (at det i)))}))",
        {"m": (5, 2, 2)}, lambda i, w, s: {"y": two_by_two(i["m"])},
    ),
    Written(
        "casts", "(require-dialect math) (entry f [(x [n]) (k [n] i32)] {:i (cast (* 10.0 x) i32) :f (cast"
        " (cast (* 10.0 x) i32) f32)"
        " :b (cast (cast x bf16) f32) :h (cast (cast x f16) f32) :e (cast k i8) :r (math.floor x)})",
        {"x": (25,), "k": (100, (25,))}, lambda i, w, s: {
            "i": np.trunc(10 * i["x"]).astype(int), "f": np.trunc(10 * i["x"]), "b": i["x"], "h": i["x"],
            "e": i["k"], "r": np.floor(i["x"])}, tolerance=1e-2,
    ),
    Written(
        "functions", "(require-dialect math) (entry f [(x [n])] {:a (erf x) :b (+ (sin x) (cos x)) :c (math.atan x)"
        " :d (math.log1p (square x)) :e (math.expm1 x) :g (math.powf (abs x) 1.5) :h (math.log2 (+ 1.0 (abs x)))})",
        {"x": (31,)}, lambda i, w, s: {
            "a": np.vectorize(erf)(i["x"]), "b": np.sin(i["x"]) + np.cos(i["x"]), "c": np.arctan(i["x"]),
            "d": np.log1p(i["x"] ** 2), "e": np.expm1(i["x"]), "g": abs(i["x"]) ** 1.5, "h": np.log2(1 + abs(i["x"]))},
    ),
    Written(
        "odd sizes", "(weights (w [131 61] bf16) (v [61 97])) (entry f [(x [n 131])]"
        " {:y (contract [i l] (contract [i k] x [i j] w [j k]) [i k] v [k l])})",
        {"x": (33, 131)}, lambda i, w, s: {"y": i["x"] @ w["w"] @ w["v"]}, tolerance=3e-3,
    ),
    Written(
        "products of each channel", "(weights (w [5 3]) (v [5])) (entry f [(x [n 5 3])]"
        " {:y (contract [b c] x [b c k] w [c k]) :z (contract [c] x [b c k] v [c])"
        " :u (contract [] x [a b c] x [a b c]) :t (contract [k c b] x [b c k] v [c])})",
        {"x": (4, 5, 3)}, lambda i, w, s: {
            "y": np.einsum("bck,ck->bc", i["x"], w["w"]), "z": i["x"].sum((0, 2)) * w["v"],
            "u": (i["x"] ** 2).sum(), "t": np.einsum("bck,c->kcb", i["x"], w["v"])},
    ),
    Written(
        "places from inputs", "(entry f [(x [8 3]) (row [1 3]) (k [] i32)] (let [k (cast (at k) index)]"
        " {:s (slice x [k 0] [2 3]) :i (insert row x [k 0] [1 3]) :r (tensor [j 3] (at x k j))}))",
        {"x": (8, 3), "row": (1, 3), "k": (6, ())}, lambda i, w, s: {
            "s": i["x"][i["k"] : i["k"] + 2], "r": i["x"][i["k"]],
            "i": np.concatenate([i["x"][: i["k"]], i["row"], i["x"][i["k"] + 1 :]])},
    ),
    Written(
        "a sorting network", "(entry f [(x [n 4])] (let [col (fn [k] (slice x [0 k] [n nil]))"
        " swap (fn [all a b] (map (fn [v k] (cond (= k a) (min v (nth all b)) (= k b) (max v (nth all a)) :else v))"
        " all (range 4))) s (fold (fn [all p] (swap all (first p) (nth p 1))) (map col (range 4))"
        " [[0 1] [2 3] [0 2] [1 3] [1 2]])] {:y (fold (fn [y k] (insert (nth s k) y [0 k] [n nil])) x (range 4))}))",
        {"x": (9, 4)}, lambda i, w, s: {"y": np.sort(i["x"], 1)},
    ),
    Written(
        "powers of a matrix", "(weights (a [5 5])) (entry f [(x [5])] (let [a (* 0.3 a) times (fn [p q]"
        " (contract [i k] p [i j] q [j k]))] {:p (fold times a [a a a]) :x (fold (fn [x k] (contract [i] a [i"
        " j] x [j]))"
        " x (range 4)) :tr (sum (tensor [i 5] (at a i i)))}))",
        {"x": (5,)}, lambda i, w, s: (lambda a: {
            "p": a @ a @ a @ a, "x": a @ a @ a @ a @ i["x"], "tr": np.trace(a)})(0.3 * w["a"]),
    ),
]  # fmt: skip
