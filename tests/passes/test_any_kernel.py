"""Kernels that only the general schedules take, run on the CPU and on an emulated AMD GPU, compiled for NVIDIA."""

from __future__ import annotations

import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compiled_models import open_poisoned, random_weights, step
from emulated_amd.running import Emulation

from lispgpt.compiler.driver import Observer, Request, compile_request

Arrays = dict[str, np.ndarray]
WIDTH, CONTEXT, VOCAB = 5, 16, 11
PRELUDE = """
(require nn)
(require-dialect arith linalg math scf tensor)
(config vocab 11 context 16 width 5)
(weights (table [vocab width] f32) (w [width width] f32) (b [width] f32))
(defn filled [type v] (linalg.fill {:result type} v (tensor.empty {:result type})))
"""
FIRST = "(arith.index_cast {:result index} (tensor.extract tokens (: 0 index)))"
RUNNING = (
    '(linalg.generic {:ins 1 :outs 2 :indexing_maps ["affine_map<(n, k) -> (n, k)>" "affine_map<(n, k) -> (n)>"'
    ' "affine_map<(n, k) -> (n)>"] :iterator_types ["parallel" "reduction"] :result [rows rows]}'
    " x (filled rows 0.0) (filled rows 0.0)"
    " (region (block [(: a f32) (: s f32) (: t f32)] (linalg.yield (arith.addf a s) (arith.addf t s)))))"
)
FUNCTIONS = (
    "(elementwise (fn [v] (+ (erf v) (log (+ 1.5 (abs v))) (math.atan v) (math.cbrt v) (math.sinh v) (math.erfc v)"
    " (math.log1p (abs v)) (math.expm1 v) (math.atan2 v 0.5) (math.round v) (math.tan v))) x)"
)


def softmax(x: np.ndarray, axis: int = -1) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


def rounds(x: np.ndarray, w: Arrays, count: int) -> np.ndarray:
    y = x
    for _ in range(count):
        y = y @ w["w"] + x
    return y


def doubled(x: np.ndarray) -> np.ndarray:
    while abs(x[0, 0]) < 100:
        x = 2 * x
    return x


def functions(x: np.ndarray) -> np.ndarray:
    of_errors = np.vectorize(math.erf)(x) + np.vectorize(math.erfc)(x)
    logarithms = np.log(1.5 + abs(x)) + np.log1p(abs(x)) + np.expm1(x)
    angles = np.arctan(x) + np.arctan2(x, 0.5) + np.tan(x)
    return of_errors + logarithms + angles + np.cbrt(x) + np.sinh(x) + np.trunc(x + np.copysign(0.5, x))


PROGRAMS: dict[str, tuple[str, Callable[[np.ndarray, Arrays, np.ndarray], np.ndarray]]] = {
    "sums over the first dimension": (
        "(linalg.reduce {:dimensions array<i64: 0> :result (type b)} x (filled (type b) 1.0)"
        " (region (block [(: a f32) (: s f32)] (linalg.yield (arith.addf a s)))))",
        lambda x, w, t: x.sum(0) + 1,
    ),
    "squares of everything summed": (
        "(linalg.reduce {:dimensions array<i64: 0, 1> :result tensor<f32>} x (filled tensor<f32> 2.0)"
        " (region (block [(: a f32) (: s f32)] (linalg.yield (arith.addf (arith.mulf a a) s)))))",
        lambda x, w, t: np.array((x**2).sum() + 2),
    ),
    "tensors joined": (
        "(tensor.concat {:dim 1 :result (tensor-type [(dim x 0) (* 2 width)] f32)} x x)",
        lambda x, w, t: np.concatenate([x, x], 1),
    ),
    "every other column": (
        "(tensor.extract_slice {:static_offsets array<i64: 0, 0> :static_sizes array<i64: 1, 2>"
        " :static_strides array<i64: 1, 2> :result tensor<1x2xf32>} x)",
        lambda x, w, t: x[:1, 0:4:2],
    ),
    "rows and columns gathered": (
        "(tensor [n (dim x 0) k width] (at w k (mod (* n 2) width)))",
        lambda x, w, t: w["w"].T[2 * np.arange(len(x)) % WIDTH],
    ),
    "numbers in the program": (
        "(let [c (: dense<[1.0, 2.0, 3.0, 4.0, 5.0]> tensor<5xf32>)]"
        " (tensor [n (dim x 0) k width] (* (at x n k) (at c k))))",
        lambda x, w, t: x * np.arange(1, 6),
    ),
    "a branch that is taken or not": (
        f"(let [c (arith.cmpi {{:predicate 2}} {FIRST} (: 4 index))]"
        " (scf.if {:result (type x)} c (region (block [] (scf.yield (+ x 1.0))))"
        " (region (block [] (scf.yield (linear x w))))))",
        lambda x, w, t: x + 1 if t[0] < 4 else x @ w["w"].T,
    ),
    "as many rounds as the first token says": (
        f"(scf.for {{:result (type x)}} (: 0 index) {FIRST} (: 1 index) x"
        " (region (block [(: i index) (: y (type x))] (scf.yield (+ (contract [n k] y [n j] w [j k]) x)))))",
        lambda x, w, t: rounds(x, w, t[0]),
    ),
    "rounds until a number is large": (
        "(scf.while {:result (type x)} x (region (block [(: y (type x))]"
        " (scf.condition (arith.cmpf {:predicate 4} (math.absf (tensor.extract y (: 0 index) (: 0 index)))"
        " (: 100.0 f32)) y))) (region (block [(: z (type x))] (scf.yield (+ z z)))))",
        lambda x, w, t: doubled(x),
    ),
    "two results of one reduction": (
        f"(let [rows (tensor-type [(dim x 0)] f32) [s t] {RUNNING}] (+ s t))",
        lambda x, w, t: x.sum(1) + np.cumsum(np.concatenate([x[:, :1] * 0, x], 1), 1)[:, :-1].sum(1),
    ),
    "softmax over rows, and attention without a cache": (
        "(let [p (softmax (contract [n m] x [n k] x [m k]))"
        "      q (linalg.softmax {:dimension 0 :result (type p)} p (tensor.empty {:result (type p)}))]"
        " (contract [n k] q [n m] x [m k]))",
        lambda x, w, t: softmax(softmax(x @ x.T), 0) @ x,
    ),
    "remainders": ("(elementwise (fn [v] (arith.remf v (: 0.3 f32))) x)", lambda x, w, t: np.fmod(x, np.float32(0.3))),
    "functions without an instruction": (FUNCTIONS, lambda x, w, t: functions(x)),
}
NOT_EMULATED = ("functions without an instruction",)


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "rocm:gfx1151", "cuda:sm_90a"])
@pytest.mark.parametrize("name", PROGRAMS)
def test_it_agrees_with_numpy(name: str, target: str, tmp_path: Path) -> None:
    """On NVIDIA's chips, that it compiles."""
    text, reference = PROGRAMS[name]
    program = tmp_path / "any.lisp"
    program.write_text(f"{PRELUDE}(entry out [tokens positions] (let [x (rows table tokens)] {text}))")
    artifact, _ = compile_request(Request(program, target), Observer())
    for seed in (1, 2, 3):
        random = np.random.default_rng(seed)
        weights = random_weights(artifact, seed=seed)
        tokens = random.integers(0, VOCAB, CONTEXT).astype(np.int32)
        wanted = reference(weights.exact()["table"][tokens], weights.exact(), tokens)
        if target == "cpu":
            with open_poisoned(artifact, weights) as session:
                found = step(session, tokens[None], tokens[None], "out")["out"]
        elif target.startswith("rocm") and name not in NOT_EMULATED:
            given = {n: weights.view(n) for n in weights.names()}
            emulation = Emulation(artifact, {"tokens": tokens, "positions": tokens, **given})
            found = emulation.run(emulation.entry("out", CONTEXT)).reshape(wanted.shape)
        else:
            return
        np.testing.assert_allclose(found, wanted, rtol=2e-5, atol=2e-5, err_msg=f"seed {seed}")
