"""Loops in entries: what they carry, and what is made of it behind them."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked, random_weights
from emulated_amd.running import Emulation
from emulated_cuda import entries

from lispgpt.runtime.devices.cpu import CpuDevice
from lispgpt.runtime.session import Session

HEADER = "(require nn) (require kernels) (require gradients) (require-dialect linalg tensor scf arith math)"


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


def shrunk(x: np.ndarray) -> dict[str, Any]:
    z, kept = x, []
    for _ in range(5):
        z = 0.5 * z - (z * z).sum(-1, keepdims=True)
        kept.append(z.sum(-1))
    return {"z": z, "all": np.stack(kept[::-1]), "x": x + softmax(softmax(x))}


def reshaped(x: np.ndarray) -> dict[str, Any]:
    b = np.sin(x).reshape(6, 4)
    y = softmax(b)
    for _ in range(3):
        y, s = 0.5 * y + b, 0.5 * y[0, 0]
    return {"b": 0.5 * b, "x": x * s}


def mixed(x: np.ndarray) -> Any:
    h = x[1]
    for row in x:
        h = np.sin(h[::-1] + row)
    return h.sum()


def slopes(function: Callable[[np.ndarray], Any], x: np.ndarray) -> np.ndarray:
    found = np.zeros_like(x)
    for where in np.ndindex(x.shape):
        step = np.zeros_like(x)
        step[where] = 1e-6
        found[where] = (function(x + step) - function(x - step)) / 2e-6
    return found


def doubled(x: np.ndarray) -> dict[str, Any]:
    y, kept, n = x, np.zeros(6), 0
    while n < 6 and np.abs(y).sum() < 1e3:
        kept[n] = y[1, 2]
        for _ in range(2):
            y = y + y[:, ::-1]
        n += 1
    return {"y": y, "kept": kept, "n": n}


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
    ("(over [i 0 9 1] [y x] (tensor [r 4 c 6] (* 0.99 (at y (- 3 r) c))))", lambda x: x[::-1] * 0.99**9),
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
              (scf.for {:result [tensor<4x6xf32> f32]} (: 0 index) (: 9 index) (: 1 index) x (: 0.5 f32)
              (region (block [(: i index) (: y tensor<4x6xf32>) (: s f32)] (scf.yield (sin y) (* 0.99 s))))))
            {:total total})""",
        lambda x: {"total": 0.5 * 0.99**9},
    ),
    ("(over [k 0 2 1] [n (argmax x)] (+ n (: 1 i32)))", lambda x: x.argmax(-1) + 2),
    (
        """(nth (scan (fn [h r] (let [h (softmax (reshape (+ h r) [1 6]))] [(reshape h [6]) (sum h)]))
                   (slice x [0 0] [nil 6]) x) 1)""",
        lambda x: np.ones((4, 1)),
    ),
    (
        """(let [step (fn [z _] (let [z (- (* 0.5 z) (reshape (sum (* z z)) [4 1]))] [z (sum z)]))
                 [z all] (scan step x 5 {:reverse true})]
            {:z z :all all :x (+ x (first (scan (fn [y _] [(softmax y) nil]) x 2))) })""",
        shrunk,
    ),
    (
        """(let [step (fn [h r] [(sin (+ (reverse-columns h) r)) nil])
                 f (fn [y] (sum (reshape (first (scan step (slice y [1 0] [nil 6]) y {:chunk 2})) [6])))
              [g] (gradients (f x) [x])] {:y (f x) :g g})""",
        lambda x: {"y": mixed(x), "g": slopes(mixed, x)},
    ),
    (
        "(let [b (sin x)] (first (gradients (sum (reshape (over [i 1 4 1] [y b] (* b y)) [24])) [x])))",
        lambda x: 4 * np.sin(x) ** 3 * np.cos(x),
    ),
    (
        """(let [b (reshape (sin (reshape x [24])) [6 4])
                 [y s] (do (def [y s] (scf.for {:result [tensor<6x4xf32> f32]} (: 1 index) (: 6 index) (: 2 index)
              (softmax b) (* 0.5 (at b 5 0)) (region (block [(: i index) (: y tensor<6x4xf32>) (: s f32)]
                (scf.yield (+ (* 0.5 y) b) (* 0.5 (at y 0 0))))))) [y s])]
            {:b (* 0.5 b) :x (* x s)})""",
        reshaped,
    ),
    (
        """(let [double (fn [y] (first (scan (fn [y i] [(+ y (reverse-columns y)) nil]) y 2)))
              small (fn [y] (< (at (sum (reshape (abs y) [24]))) 1e3))
              [y kept n] (scan (fn [y i] [(double y) (at y 1 2)]) x 6 {:while small})]
            {:y y :kept kept :n n})""",
        doubled,
    ),
]  # fmt: skip


@pytest.fixture(scope="module")
def compiled(tmp_path_factory: pytest.TempPathFactory) -> Any:
    texts = [f"(entry e{i} [(x [4 6] f32)] {text})" for i, (text, _) in enumerate(CASES)]
    turned = """(defn reverse-columns [y]
        (if (= (rank y) 1) (tensor [c 6] (at y (- 5 c))) (tensor [r 4 c 6] (at y r (- 5 c)))))"""
    return compile_text("\n".join([HEADER, turned, *texts]), tmp_path_factory.mktemp("loops"))


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


def recurrence(steps: int) -> str:
    return f"""(entry rnn [(x [{steps} 2 4] f32) (h [2 4] f32) (w [4 4] f32)]
        (let [step (fn [h x] (let [h (tanh (+ (linear h w) x))] [h (* x h)]))
              loss (sum (sum (sum (square (nth (scan step h x) 1)))))
              [gx gw] (gradients loss [x w])]
          {{:loss loss :gx gx :gw gw}}))"""


def losses(x: np.ndarray, h: np.ndarray, w: np.ndarray) -> Any:
    total = 0.0
    for row in x:
        h = np.tanh(h @ w.T + row)
        total += ((row * h) ** 2).sum()
    return total


def given_for(steps: int) -> dict[str, np.ndarray]:
    rng = seeded.rng()
    return {"x": rng.normal(size=(steps, 2, 4)), "h": rng.normal(size=(2, 4)), "w": 0.5 * rng.normal(size=(4, 4))}


def right_for(given: dict[str, np.ndarray]) -> dict[str, np.ndarray]:
    x, h, w = given.values()
    return {
        "loss": losses(x, h, w),
        "gx": slopes(lambda y: losses(y, h, w), x),
        "gw": slopes(lambda v: losses(x, h, v), w),
    }


def test_what_is_compiled_of_a_recurrence_does_not_grow_with_its_steps(tmp_path: Path) -> None:
    few, many = (compile_text("\n".join([HEADER, recurrence(steps)]), tmp_path) for steps in (10, 1000))
    assert len(few.kernels) == len(many.kernels)
    assert len(few.plan.entries[0].steps) == len(many.plan.entries[0].steps)
    given = given_for(10)
    with open_checked(few) as session:
        found = session.run("rnn", **{n: a.astype(np.float32) for n, a in given.items()})
    for name, array in right_for(given).items():
        np.testing.assert_allclose(found[name], array, rtol=1e-4, atol=1e-4, err_msg=name)
    given = {n: a.astype(np.float32) for n, a in given_for(1000).items()}
    with Session(many, CpuDevice(2), random_weights(many)) as session:  # type: ignore[arg-type]
        np.testing.assert_allclose(session.run("rnn", **given)["loss"], losses(*map(np.float64, given.values())), 1e-4)


@pytest.mark.parametrize("target", ["rocm:gfx1151", pytest.param("cuda:sm_90a", marks=pytest.mark.slow)])
def test_recurrences_run_on_gpus(tmp_path: Path, target: str) -> None:
    made = compile_text("\n".join([HEADER, recurrence(3)]), tmp_path, target=target)
    given = given_for(3)
    values = {n: a.astype(np.float32) for n, a in given.items()}
    if target.startswith("cuda"):
        found = entries.run_all(made, made.plan.entries[0], values)
    else:
        emulation = Emulation(made, values)
        emulation.run(made.plan.entries[0])
        found = {n: emulation.buffers[p].view(np.float32) for n, p in made.plan.entries[0].results.items()}
    for name, array in right_for(given).items():
        np.testing.assert_allclose(np.reshape(found[name], np.shape(array)), array, rtol=1e-3, atol=1e-4, err_msg=name)


LONG = {
    "chain": "(fold (fn [y i] (sin y)) x (range 400))",
    "views": "(fold (fn [y i] (reshape y (if (= (mod i 2) 0) [6 4] [4 6]))) x (range 800))",
    "rows": "(fold (fn [y i] (softmax y)) x (range 24))",
}


def test_long_chains_of_ops_and_views_are_several_kernels(tmp_path: Path) -> None:
    texts = [f"(entry {name} [(x [4 6] f32)] {text})" for name, text in LONG.items()]
    artifact = compile_text("\n".join([HEADER, *texts]), tmp_path)
    x = seeded.rng().normal(size=(4, 6)).astype(np.float32)
    wanted = {"chain": x.astype(np.float64), "views": x, "rows": x.astype(np.float64)}
    for _ in range(400):
        wanted["chain"] = np.sin(wanted["chain"])
    for _ in range(24):
        wanted["rows"] = softmax(wanted["rows"])
    with open_checked(artifact) as session:
        for name, right in wanted.items():
            np.testing.assert_allclose(session.run(name, x=x)[name], right, rtol=1e-4, atol=1e-6)
