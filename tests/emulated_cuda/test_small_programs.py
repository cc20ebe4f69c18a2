"""Small programs on the emulated GPU, whose memory refuses misaligned vectors, against float64."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compiled_models import poison, random_weights
from emulated_cuda.device import EmulatedCuda
from emulated_cuda.machine import Memory
from emulated_cuda.memory_ops import GLOBAL_BASE
from emulated_cuda.ptx import Constant

from lispgpt.compiler.driver import Observer, Request, compile_request
from lispgpt.runtime.session import Session

Arrays = dict[str, np.ndarray]


def rms_norm(x: np.ndarray, weight: np.ndarray) -> np.ndarray:
    return x / np.sqrt((x**2).mean(-1, keepdims=True) + 0.01) * weight


def behind_zeros(x: np.ndarray, count: int) -> np.ndarray:
    return np.pad(x, [(0, 0)] * (x.ndim - 1) + [(count, 0)])


def short(times: int, x: np.ndarray) -> np.ndarray:
    return np.trunc(np.float32(times) * x.astype(np.float32)).astype(np.int16)


def ways(x: np.ndarray, number: int) -> np.ndarray:
    found = (np.sin(x), np.exp(x), np.tanh(x), np.sqrt(np.abs(x)), x * x, np.cos(x))
    return found[number] if number < len(found) else x


PROGRAMS: dict[str, tuple[str, str, Callable[[Arrays], np.ndarray]]] = {
    "a product with a slice that starts inside a vector": (
        "(weights (w [26 1] bf16) (x [16 1 24 24]))",
        "(contract [a b c d] (slice w [2 0] [24 1]) [k b] x [c d k a])",
        lambda a: np.einsum("kb,cdka->abcd", a["w"][2:], a["x"]),
    ),
    "numbers through f16 and back": (
        "(weights (w [3 48]))",
        "(* 3.0 (cast (cast w f16) f32))",
        lambda a: 3 * a["w"].astype(np.float16).astype(np.float64),
    ),
    "a product over nothing": (
        "(weights (w [3 48]))",
        "(+ w (contract [a b] (slice w [0 0] [3 0]) [a k] (reshape (slice w [0 0] [0 48]) [48 0]) [b k]))",
        lambda a: a["w"],
    ),
    "sums and roots of 64 bits": (
        "(weights (w [3 48]))",
        "(let [x (+ 1.0 (cast w f64))] (cast (sum (/ (sqrt (* x x)) (+ 2.0 (* x x)))) f32))",
        lambda a: (np.abs(1 + a["w"]) / (2 + (1 + a["w"]) ** 2)).sum(1),
    ),
    "whole numbers of 64 bits from bf16": (
        "(weights (w [3 48] bf16))",
        "(cast (cast (cast (* 8.0 w) bf16) i64) f32)",
        lambda a: np.trunc(8 * a["w"]),
    ),
    "a sum of slices that start inside a vector": (
        "(weights (w [51 1]))",
        "(+ (slice w [3 0] [48 1]) (slice w [1 0] [48 1]))",
        lambda a: a["w"][3:] + a["w"][1:49],
    ),
    "a part of a state that starts inside a vector": (
        "(weights (w [1 48])) (state (s [50]))",
        "(write-state s (insert (relu w) (read-state s) [0 2] [1 48]))",
        lambda a: behind_zeros(np.maximum(a["w"], 0), 2),
    ),
    "a product as a part of a state that starts inside a vector": (
        "(weights (w [1 40]) (v [48 40])) (state (s [51]))",
        "(write-state s (insert (contract [a b] w [a k] v [b k]) (read-state s) [0 3] [1 48]))",
        lambda a: behind_zeros(a["w"] @ a["v"].T, 3),
    ),
    "a product along the rows that a normalisation has": (
        "(weights (scale [3]) (v [4 3]) (x [3 3]))",
        "(contract [a b] (rms-norm x scale 1e-2) [k b] v [a k])",
        lambda a: a["v"] @ rms_norm(a["x"], a["scale"]),
    ),
    "a product along the rows that a normalisation has, columns innermost": (
        "(weights (scale [70]) (v [4 33]) (x [4 70]))",
        "(contract [a b] (rms-norm x scale 1e-2) [k a] v [k b])",
        lambda a: rms_norm(a["x"], a["scale"]).T @ a["v"],
    ),
    "a product along the rows of a softmax": (
        "(weights (v [40 4]) (x [4 9]))",
        "(contract [a b] (softmax x) [k b] v [a k])",
        lambda a: a["v"] @ (np.exp(a["x"]) / np.exp(a["x"]).sum(-1, keepdims=True)),
    ),
    "rows and columns side by side in memory in front of a dimension of one element": (
        "(weights (x [17 1 32 1]) (w [17 1 3]) (b [17 32 3]))",
        "(linalg.batch_matmul {:result tensor<17x32x3xf32>} (reshape x [17 32 1]) w b)",
        lambda a: a["x"][:, 0] @ a["w"] + a["b"],
    ),
    "a column of a matrix": (
        "(weights (x [32 5]) (w [6 32]))",
        "(contract [a b] (slice x [0 2] [32 1]) [k a] w [b k])",
        lambda a: a["x"][:, 2:3].T @ a["w"].T,
    ),
    "a column of a matrix, which a product of rows further apart in memory meets": (
        "(weights (x [1 64 4 4]) (w [4 2]))",
        "(contract [a b c d] x [a d c k] (slice w [0 0] [4 1]) [k b])",
        lambda a: np.einsum("adck,kb->abcd", a["x"], a["w"][:, :1]),
    ),
    "rows of a tensor that are longer than what is read of them": (
        "(weights (x [3 9]))",
        "(tensor [t 5 q 3 p 8] (at x q p))",
        lambda a: np.broadcast_to(a["x"][:, :8], (5, 3, 8)),
    ),
    "pairs of bf16 that are compared": (
        "(weights (x [4 16] bf16) (y [4 16] bf16))",
        "(elementwise (fn [a b] (select (>= a b) 1.0 0.0)) x y)",
        lambda a: (a["x"] >= a["y"]).astype(np.float64),
    ),
    "minima and sums of pairs of 16 bits": (
        "(weights (w [3 48]) (x [3 48]))",
        "(let [a (cast (* 900.0 w) i16) b (cast (* 700.0 x) i16)] (cast (+ (min a b) (max a (cast 50 i16))) f32))",
        lambda a: np.minimum(short(900, a["w"]), short(700, a["x"])) + np.maximum(short(900, a["w"]), 50),
    ),
    "one of several ways, by a number": (
        "(weights (w [3 48]))",
        "(tensor [r 3 c 48] (let [a (at w r c) n (cast (* 9.0 (abs (at w r 0))) i32)]"
        " (cond (= n 0) (sin a) (= n 1) (exp a) (= n 2) (tanh a) (= n 3) (sqrt (abs a)) (= n 4) (* a a) (= n 5) (cos a)"
        "  :else a)))",
        lambda a: np.stack([ways(row, int(np.float32(9) * abs(np.float32(row[0])))) for row in a["w"]]),
    ),
    "a computed column": (
        "(weights (x [32 1]) (s [1]) (w [6 32]))",
        "(contract [a b] (+ x s) [k a] w [b k])",
        lambda a: (a["x"] + a["s"]).T @ a["w"].T,
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    declared, result, reference = PROGRAMS[name]
    program = tmp_path / "small.lisp"
    header = "(require nn)\n(require-dialect linalg)\n(config context 1)"
    program.write_text(f"{header}\n{declared}\n(entry out [tokens positions] {result})")
    artifact, _ = compile_request(Request(program, "cuda:sm_90"), Observer())
    for seed in (1, 2):
        weights = random_weights(artifact, seed=seed)
        wanted = reference(weights.exact())
        with Session(artifact, EmulatedCuda(), weights) as session:  # type: ignore[arg-type]
            poison(session)
            found = session.run("out", np.zeros((1, 1), np.int32), np.zeros((1, 1), np.int32))["out"]
        np.testing.assert_allclose(found, wanted, rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")


@pytest.mark.parametrize("nbytes", [1, 4, 204])
def test_memory_of_any_constants_is_read_by_words_of_any_width(nbytes: int) -> None:
    memory = Memory([np.arange(3, dtype=np.uint8)])
    place = memory.place([Constant("c", 4, bytes(range(nbytes)))])["c"] - GLOBAL_BASE
    assert memory.bytes.view(np.uint64).nbytes == memory.free.size == memory.bytes.size >= place + nbytes + 16
    assert bytes(memory.bytes[place : place + nbytes]) == bytes(range(nbytes))
