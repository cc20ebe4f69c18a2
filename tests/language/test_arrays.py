"""The library of arrays: values beside numpy's, gradients beside central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
from gradient_checks import Cases

ARRAYS = "(require arrays) (require algebra) (require transforms)"


def log_softmax(x: np.ndarray) -> np.ndarray:
    shifted = x - x.max(-1, keepdims=True)
    return shifted - np.log(np.exp(shifted).sum(-1, keepdims=True))


def label_loss(x: np.ndarray, ids: np.ndarray) -> Any:
    logs, counts = log_softmax(x), ids != 2
    each = -(0.9 * logs[np.arange(len(ids)), ids] + 0.1 * logs.mean(-1))
    return (each * counts).sum() / max(counts.sum(), 1)


def masked_loss(x: np.ndarray, ids: np.ndarray, y: np.ndarray) -> Any:
    logs = log_softmax(x)
    each = -(0.9 * logs[np.arange(len(ids)), ids] + 0.1 * logs.mean(-1))
    return (each * y * y).sum() / (y * y).sum()


def added(x: np.ndarray, y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    made = x.copy()
    np.add.at(made, ids, y)
    return made


CASES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("(sum-along x 0)", lambda x: x.sum(0), {"x": (3, 4, 2)}),
    ("(sum-along x 1 true)", lambda x: x.sum(1, keepdims=True), {"x": (3, 4, 2)}),
    ("(max-along x -2)", lambda x: x.max(-2), {"x": (3, 4, 2)}),
    ("(min-along x 0 true)", lambda x: x.min(0, keepdims=True), {"x": (3, 4)}),
    ("(product-along x 0)", lambda x: x.prod(0), {"x": (3, 4)}),
    ("(mean x 1)", lambda x: x.mean(1), {"x": (3, 4, 2)}),
    ("(variance x 0 true)", lambda x: x.var(0, keepdims=True), {"x": (5, 3)}),
    ("(transpose x [2 0 1])", lambda x: x.transpose(2, 0, 1), {"x": (3, 4, 2)}),
    ("(stack [x y x] 1)", lambda x, y: np.stack([x, y, x], 1), {"x": (3, 4), "y": (3, 4)}),
    ("(stack [x y] -1)", lambda x, y: np.stack([x, y], -1), {"x": (3,), "y": (3,)}),
    ("(join [x y] 1)", lambda x, y: np.concatenate([x, y], 1), {"x": (3, 4), "y": (3, 2)}),
    # of whole vectors, and of parts that end within one
    ("(join [x y] 1)", lambda x, y: np.concatenate([x, y], 1), {"x": (3, 32), "y": (3, 16)}),
    ("(join [x y] 1)", lambda x, y: np.concatenate([x, y], 1), {"x": (3, 24), "y": (3, 40)}),
    (
        "(* (insert (slice x [1 0] [2 16]) x [0 16] [2 16]) 1.5)",
        lambda x: 1.5 * np.block([[x[:2, :16], x[1:, :16], x[:2, 32:]], [x[2:]]]),
        {"x": (3, 48)},
    ),
    ("(fold (fn [s p] (+ s (sum p))) 0.0 (split x [1 3] -1))", lambda x: x.sum(-1), {"x": (3, 4)}),
    ("(pad x 1 1 2 0.5)", lambda x: np.pad(x, ((0, 0), (1, 2)), constant_values=0.5), {"x": (3, 4)}),
    ("(flip x 1)", lambda x: np.flip(x, 1), {"x": (3, 4, 2)}),
    ("(roll x 2 -1)", lambda x: np.roll(x, 2, -1), {"x": (3, 5)}),
    ("(roll x -1 0)", lambda x: np.roll(x, -1, 0), {"x": (3, 5)}),
    ("(gather x ids 1)", lambda x, ids: x[:, ids], {"x": (3, 6), "ids": (6, 4)}),
    ("(outer x y)", lambda x, y: np.outer(x, y), {"x": (3,), "y": (4,)}),
    ("(scatter-add x y ids)", added, {"x": (4, 2), "y": (5, 2), "ids": (4, 5)}),
    ("(segment-sum y ids 4)", lambda y, ids: added(np.zeros((4, 2)), y, ids), {"y": (5, 2), "ids": (4, 5)}),
    ("(cumsum x 1)", lambda x: x.cumsum(1), {"x": (3, 7)}),
    ("(cumsum x 0)", lambda x: x.cumsum(0), {"x": (5, 2)}),
    ("(sort x)", lambda x: np.sort(x, -1), {"x": (3, 5)}),
    ("(first (top-k x 2))", lambda x: -np.sort(-x, -1)[:, :2], {"x": (3, 4)}),
    ("(cumprod x 1)", lambda x: x.cumprod(1), {"x": (2, 3, 2)}),
    (
        "(gather-nd x (tensor [i 3 k 2] (at ids (+ (* i 2) k))))",
        lambda x, ids: x[ids[::2], ids[1::2]],
        {"x": (3, 4, 2), "ids": (3, 6)},
    ),
    ("(masked-loss x ids (square y) 0.1)", masked_loss, {"x": (4, 5), "ids": (5, 4), "y": (4,)}),
    ("(log-softmax x)", log_softmax, {"x": (3, 5)}),
    ("(label-loss x ids 0.1 2)", label_loss, {"x": (6, 5), "ids": (5, 6)}),
    ("(pow (+ 1.0 (square x)) 1.5)", lambda x: (1 + x * x) ** 1.5, {"x": (3, 4)}),
    ("(log2 (+ 1.5 (square x)))", lambda x: np.log2(1.5 + x * x), {"x": (3, 4)}),
    ("(log1p (square x))", lambda x: np.log1p(x * x), {"x": (3, 4)}),
    ("(expm1 (sin x))", lambda x: np.expm1(np.sin(x)), {"x": (3, 4)}),
]
MATRIX = "(+ (product x (transposed x)) (identity-matrix 3))"


def matrix(x: np.ndarray) -> np.ndarray:
    return x @ x.T + np.eye(3)


CASES += [
    (f"(cholesky {MATRIX})", lambda x: np.linalg.cholesky(matrix(x)), {"x": (3, 3)}),
    ("(solve (+ (* 2.0 (flip (identity-matrix 3) 0)) (* 0.3 x)) y)",
     lambda x, y: np.linalg.solve(2 * np.eye(3)[::-1] + 0.3 * x, y), {"x": (3, 3), "y": (3, 2)}),
    (f"(inverse {MATRIX})", lambda x: np.linalg.inv(matrix(x)), {"x": (3, 3)}),
    (f"(let [[q r] (qr (join [{MATRIX} x] 0))] (+ (* q q) 0.0))",
     lambda x: np.linalg.qr(np.concatenate([matrix(x), x]))[0] ** 2, {"x": (3, 3)}),
    (f"(sort (reshape (first (symmetric-eigen {MATRIX} 4)) [1 3]))", lambda x: np.linalg.eigvalsh(matrix(x))[None],
     {"x": (3, 3)}),
    ("(einsum [j] x [i j])", lambda x: x.sum(0), {"x": (3, 4)}),
    ("(einsum [k i j] x [i j k])", lambda x: x.transpose(2, 0, 1), {"x": (3, 4, 2)}),
    ("(nth (fft x y) 0)", lambda x, y: np.fft.fft(x + 1j * y).real, {"x": (2, 12), "y": (2, 12)}),
    ("(nth (inverse-fft x y) 1)", lambda x, y: np.fft.ifft(x + 1j * y).imag, {"x": (2, 3, 6), "y": (2, 3, 6)}),
    ("(vmap (fn [[a b]] (* a (sum b))) [x y])", lambda x, y: x * y.sum(-1)[:, None], {"x": (3, 4), "y": (3, 2)}),
    ("(einsum [l] x [i j] y [j k] z [k l] x [i m])", lambda x, y, z: np.einsum("ij,jk,kl,im->l", x, y, z, x),
     {"x": (2, 3), "y": (3, 2), "z": (2, 4)}),
    ("(+ (vector-norm x 1) (dot y y))", lambda x, y: np.linalg.norm(x, axis=1) + y @ y, {"x": (2, 3), "y": (3,)}),
]  # fmt: skip
VALUES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("(bincount ids 6)", lambda ids: np.bincount(ids, minlength=6), {"ids": (6, 9)}),
    ("(one-hot ids 6)", lambda ids: np.eye(6)[ids], {"ids": (6, 4)}),
    (
        "(cast (argsort (round (* 2.0 x))) f32)",
        lambda x: np.argsort(np.round(2 * x), -1, kind="stable"),
        {"x": (3, 5)},
    ),
    ("(cast (argsort (round x)) f32)", lambda x: np.argsort(np.round(x), -1, kind="stable"), {"x": (2, 300)}),
    ("(cast (nth (top-k x 3) 1) f32)", lambda x: np.argsort(-x, -1, kind="stable")[:, :3], {"x": (3, 4)}),
    ("(cast (nth (top-k x 1) 1) f32)", lambda x: np.argmax(x, -1)[:, None], {"x": (3, 4)}),
    (  # of long rows, in which many elements are equal
        "(cast (nth (top-k (round x) 9) 1) f32)",
        lambda x: np.argsort(-np.round(x), -1, kind="stable")[:, :9],
        {"x": (2, 703)},
    ),
    (  # what is no number goes first
        "(cast (nth (top-k (log (max -1.0 x)) 3) 1) f32)",
        lambda x: np.argsort(-np.where(x < 0, np.inf, np.log(np.abs(x))), -1, kind="stable")[:, :3],
        {"x": (3, 5)},
    ),
    ("(+ (floor x) (* 10.0 (ceil x)))", lambda x: np.floor(x) + 10 * np.ceil(x), {"x": (3, 4)}),
    ("(round (* 4.0 x))", lambda x: np.round(4 * x), {"x": (3, 4)}),
    (
        "(jacobian (fn [r] (* r (sum r))) x)",
        lambda x: np.eye(3) * x.sum() + x[:, None],
        {"x": (3,)},
    ),
    (
        "(nth (jvp (fn [r] (sin (* r (sum r)))) x y) 1)",
        lambda x, y: np.cos(x * x.sum()) * (y * x.sum() + x * y.sum()),
        {"x": (3,), "y": (3,)},
    ),
    ("(full [2 3] 1.5 f32)", lambda x: np.full((2, 3), 1.5), {"x": (1,)}),
    (
        "(* x (fold + 0 (concat (filter (fn [n] (> n 1)) [1 2 3]) (reverse (take 2 [4 5 6])) (drop 2 [4 5 6]))))",
        lambda x: x * 20,
        {"x": (2,)},
    ),
]


@pytest.fixture(scope="module")
def cases() -> Cases:
    return Cases(CASES, ARRAYS, VALUES)


@pytest.mark.parametrize("number", range(len(CASES) + len(VALUES)), ids=[c[0] for c in (*CASES, *VALUES)])
def test_values_are_those_of_numpy(cases: Cases, number: int) -> None:
    cases.check_value(number)


@pytest.mark.parametrize("number", range(len(CASES)), ids=[case[0] for case in CASES])
def test_gradients_are_those_of_finite_differences(cases: Cases, number: int) -> None:
    cases.check_gradients(number)
