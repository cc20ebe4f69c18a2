"""Loops in entries: what they carry, and what is made of it behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked

HEADER = "(require nn) (require kernels) (require-dialect linalg tensor scf arith math)"


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def summed_elements(x: np.ndarray) -> dict[str, Any]:
    total, y = 0.5, x
    for i in range(3):
        total, y = 0.5 * total + y[i, 1], y * total
    return {"y": y, "after": total * x[0], "total": total}


def counted(x: np.ndarray) -> dict[str, Any]:
    n, y = 0, x
    while np.abs(y).max() > 0.25:
        y, n = 0.5 * y, n + 1
    return {"y": y, "n": n}


CASES: list[tuple[str, Callable[[np.ndarray], Any]]] = [
    (
        "(over [i 0 1 1] [x x] (reshape (+ 1.0 (reshape (softmax x) [24])) [4 6]))",
        lambda x: 1 + softmax(x),
    ),
    (
        "(over [i 0 1 1] [x x] (* x (sum (reshape (square x) [24]))))",
        lambda x: x * (x**2).sum(),
    ),
    ("(over [i 0 2 1] [y x] x)", lambda x: x),
    ("(over [i 0 2 1] [y x] (tensor [r 4 c 6] (at y (- 3 r) c)))", lambda x: x),
    ("(over [i 0 70 1] [y x] (tensor [r 4 c 6] (* 0.99 (at y (- 3 r) c))))", lambda x: x * 0.99**70),
    (
        "(tensor [r 4] (over [i 0 6 1] [s (: 0.0 f32)] (+ s (at x r i))))",
        lambda x: x.sum(-1),
    ),
    (
        """(do (def [y total] (scf.for {:result [tensor<4x6xf32> f32]} (: 0 index) (: 3 index) (: 1 index) x (: 0.5 f32)
              (region (block [(: i index) (: y tensor<4x6xf32>) (: s f32)]
                (scf.yield (* y s) (+ (* 0.5 s) (at y i 1)))))))
            {:y y :after (* (slice x [0 0] [nil 6]) total) :total total})""",
        summed_elements,
    ),
    (
        """(let [[y n] (loop {:result [tensor<4x6xf32> i32]} [y x n 0]
                       :while (> (at (reduce max 0.0 (reshape (abs y) [24]))) 0.25) :do [(* 0.5 y) (+ n 1)])]
            {:y y :n n})""",
        counted,
    ),
    (
        """(do (def [y total]
              (scf.for {:result [tensor<4x6xf32> f32]} (: 0 index) (: 70 index) (: 1 index) x (: 0.5 f32)
              (region (block [(: i index) (: y tensor<4x6xf32>) (: s f32)] (scf.yield (sin y) (* 0.99 s))))))
            {:total total})""",
        lambda x: {"total": 0.5 * 0.99**70},
    ),
    ("(over [k 0 2 1] [n (argmax x)] (+ n (: 1 i32)))", lambda x: x.argmax(-1) + 2),
]


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    entries = [f"(entry e{i} [(x [4 6] f32)] {text})" for i, (text, _) in enumerate(CASES)]
    return compile_text("\n".join([HEADER, *entries]), tmp_path_factory.mktemp("loops"))


@pytest.mark.parametrize("number", range(len(CASES)))
def test_a_loop_gives_what_its_rounds_give(compiled: Any, number: int) -> None:
    text, right = CASES[number]
    rng, seed = seeded.named_rng()
    x = rng.normal(size=(4, 6)).astype(np.float32)
    wanted = right(x.astype(np.float64))
    wanted = wanted if isinstance(wanted, dict) else {f"e{number}": wanted}
    with open_checked(compiled) as session:
        found = session.run(f"e{number}", x=x)
    for name, array in wanted.items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-5, err_msg=f"{text} {seed}")


LONG = {
    "chain": "(fold (fn [y i] (sin y)) x (range 400))",
    "views": "(fold (fn [y i] (reshape y (if (= (mod i 2) 0) [6 4] [4 6]))) x (range 800))",
    "rows": "(fold (fn [y i] (softmax y)) x (range 24))",
}


def test_long_chains_of_ops_and_views_are_several_kernels(tmp_path: Path) -> None:
    entries = [f"(entry {name} [(x [4 6] f32)] {text})" for name, text in LONG.items()]
    artifact = compile_text("\n".join([HEADER, *entries]), tmp_path)
    x = seeded.rng().normal(size=(4, 6)).astype(np.float32)
    wanted = {"chain": x.astype(np.float64), "views": x, "rows": x.astype(np.float64)}
    for _ in range(400):
        wanted["chain"] = np.sin(wanted["chain"])
    for _ in range(24):
        wanted["rows"] = softmax(wanted["rows"])
    with open_checked(artifact) as session:
        for name, right in wanted.items():
            np.testing.assert_allclose(session.run(name, x=x)[name], right, rtol=1e-4, atol=1e-6)
