"""Every type that a program may declare: as inputs, weights, states and results, on CPUs and GPUs."""

from __future__ import annotations

from math import erf
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from compiled_models import compile_text
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.errors import UserError

KINDS: dict[str, Any] = {
    "f64": np.float64,
    "f32": np.float32,
    "f16": np.float16,
    "i64": np.int64,
    "i32": np.int32,
    "i16": np.int16,
    "i8": np.int8,
    "u8": np.uint8,
    "bool": np.bool_,
}
TARGETS = ["cpu", pytest.param("emulated:gfx1151", marks=pytest.mark.slow)]


def numbers(kind: str, shape: tuple[int, ...]) -> np.ndarray:
    dtype, rng = np.dtype(KINDS[kind]), seeded.rng()
    if dtype.kind == "f":
        return rng.normal(size=shape).astype(dtype)
    if dtype.kind == "b":
        return rng.integers(0, 2, shape).astype(bool)
    info = np.iinfo(dtype)
    return rng.integers(max(info.min, -(1 << 40)), min(info.max, 1 << 40), shape, dtype=np.int64).astype(dtype)


def entry(kind: str) -> str:
    """Gives the input, half of the weight, what the state was, and has the state be the input."""
    new = "(saturate x u8)" if kind == "u8" else "x"
    return f"""(weights (w-{kind} [2 3] {kind}))
        (state (s-{kind} [2 3] {kind}))
        (entry e-{kind} [(x [2 3] {kind})]
          (let [was (read-state s-{kind})]
            (do (update! s-{kind} {new})
                {{:same {new} :part (slice w-{kind} [1 0] [nil 3]) :was was}})))"""


@pytest.mark.parametrize("target", TARGETS)
def test_each_type_is_an_input_a_weight_a_state_and_a_result(tmp_path: Path, target: str) -> None:
    path, weights = tmp_path / "types.lisp", tmp_path / "w.safetensors"
    path.write_text("\n".join(map(entry, KINDS)))
    held = {f"w-{kind}": numbers(kind, (2, 3)) for kind in KINDS}
    save_file(held, weights)
    with lispgpt.load(path, weights, target=target, cache=None) as model:
        for kind, dtype in KINDS.items():
            was = np.zeros((2, 3), dtype)
            for _ in range(2):
                x = numbers(kind, (2, 3))
                found = model.run(f"e-{kind}", x=x)
                np.testing.assert_array_equal(found["same"], x, err_msg=kind)
                np.testing.assert_array_equal(found["part"], held[f"w-{kind}"][1], err_msg=kind)
                np.testing.assert_array_equal(found["was"], was, err_msg=kind)
                assert found["same"].dtype == x.dtype
                assert found["part"].dtype == (np.dtype(np.int32) if kind == "u8" else x.dtype)
                was = x


ARITHMETIC = """(require nn) (require-dialect math)
(entry f64s [(a [3 40] f64) (b [5 40] f64)]
  {:product (contract [i j] a [i k] b [j k]) :sum (sum a) :best (argmax a)})
(entry functions [(a [3 40] f64)] {:exp (exp a) :soft (softmax a) :erf (tensor [r 3 c 40] (math.erf (at a r c)))})
(entry wide [(a [3 40] i64) (b [5 40] i64)] (contract [i j] a [i k] b [j k]))
(entry narrow [(a [3 40] i8) (b [5 40] i8)] (contract [i j] a [i k] b [j k]))
(entry held [(x [40] f32) (k [40] i64)]
  {:a (saturate x i8) :b (saturate x u8) :c (saturate x i16) :d (saturate x i32) :e (saturate x i64)
   :f (saturate k i8) :g (saturate k u8) :h (saturate k i32) :cut (cast k i16)})"""


@pytest.mark.parametrize("target", TARGETS)
def test_arithmetic_keeps_to_its_type(tmp_path: Path, target: str) -> None:
    (tmp_path / "a.lisp").write_text(ARITHMETIC)
    rng = seeded.rng()
    a, b = rng.normal(size=(3, 40)), rng.normal(size=(5, 40))
    x = (rng.normal(size=40) * 10.0 ** rng.integers(0, 12, 40)).astype(np.float32)
    x[:8] = [np.nan, np.inf, -np.inf, 2.5, 3.5, -0.5, 255.5, 3e19]
    k = rng.integers(-(1 << 62), 1 << 62, 40) >> rng.integers(0, 62, 40)
    with lispgpt.load(tmp_path / "a.lisp", target=target, cache=None) as model:
        found = model.run("f64s", a=a, b=b)
        if target == "cpu":
            found |= model.run("functions", a=a)
        else:
            with pytest.raises(UserError, match=r"GPUs have no math\.exp of f64: cast to f32"):
                model.run("functions", a=a)
        power = np.exp(a - a.max(-1, keepdims=True))
        wanted = {"product": a @ b.T, "sum": a.sum(-1)}
        if target == "cpu":
            wanted |= {"exp": np.exp(a), "soft": power / power.sum(-1, keepdims=True), "erf": np.vectorize(erf)(a)}
        for name, array in wanted.items():
            assert found[name].dtype == np.float64
            np.testing.assert_allclose(found[name], array, rtol=1e-12, atol=1e-13, err_msg=name)
        np.testing.assert_array_equal(found["best"], a.argmax(-1))
        large = rng.integers(-(1 << 28), 1 << 28, (8, 40))
        np.testing.assert_array_equal(model.run("wide", a=large[:3], b=large[3:])["wide"], large[:3] @ large[3:].T)
        small = rng.integers(-128, 128, (8, 40)).astype(np.int8)
        product = small[:3].astype(np.int64) @ small[3:].astype(np.int64).T
        np.testing.assert_array_equal(model.run("narrow", a=small[:3], b=small[3:])["narrow"], product)
        found = model.run("held", x=x, k=k)
        for name, kind in zip("abcde", (np.int8, np.uint8, np.int16, np.int32, np.int64), strict=True):
            info, whole = np.iinfo(kind), [0 if np.isnan(n) else n if np.isinf(n) else round(float(n)) for n in x]
            held = [int(min(max(n, info.min), info.max)) for n in whole]
            np.testing.assert_array_equal(found[name], np.array(held, kind), err_msg=name)
        for name, kind in zip("fgh", (np.int8, np.uint8, np.int32), strict=True):
            np.testing.assert_array_equal(found[name], np.clip(k, np.iinfo(kind).min, np.iinfo(kind).max).astype(kind))
        np.testing.assert_array_equal(found["cut"], k.astype(np.int16))


def test_words_of_matrices_places_and_slopes_are_of_64_bits(tmp_path: Path) -> None:
    text = """(require algebra transforms)
        (entry e [(x [4 4] f64) (k [4] i32)]
          (let [s (+ (product x (transposed x)) (identity-matrix 4 f64)) row (slice x [1 0] [nil 4])
                [q r] (qr s) [values _] (symmetric-eigen s)
                cubes (fn [x] (* x x x)) slopes (fn [x] (first (gradients (sum (cubes x)) [x])))]
            {:cholesky (cholesky s) :inverse (inverse s) :qr (product q r) :eigen (sort (reshape values [1 4]))
             :added (scatter-add x s k) :sums (segment-sum x k 3) :along (nth (jvp cubes row (* 2.0 row)) 1)
             :slopes (jacobian cubes row) :bends (jacobian slopes row) :fourier (first (fft x s))
             :total (einsum [] x [i j])}))"""
    (tmp_path / "w.lisp").write_text("(require nn arrays gradients)\n" + text)
    rng = seeded.rng()
    x, k = rng.normal(size=(4, 4)), rng.integers(0, 3, 4)
    with lispgpt.load(tmp_path / "w.lisp", cache=None, quick=True) as model:
        found = model.run("e", x=x, k=k)
    s, added = x @ x.T + np.eye(4), x.copy()
    np.add.at(added, k, s)
    wanted = {"cholesky": np.linalg.cholesky(s), "inverse": np.linalg.inv(s), "qr": s, "added": added}
    wanted |= {"eigen": np.linalg.eigvalsh(s)[None], "sums": np.stack([x[k == i].sum(0) for i in range(3)])}
    wanted |= {"along": 6 * x[1] ** 3, "slopes": np.diag(3 * x[1] ** 2), "bends": np.diag(6 * x[1])}
    wanted |= {"fourier": np.fft.fft(x + 1j * s).real, "total": x.sum()}
    for name, right in wanted.items():
        assert found[name].dtype == np.float64, name
        np.testing.assert_allclose(found[name], right, rtol=1e-9, atol=1e-10, err_msg=name)


@pytest.mark.drawn
@pytest.mark.parametrize(
    ("text", "given", "said"),
    [
        (
            "(entry y [(x [2] i8)] x)",
            [1, 128],
            "input x is i8, and not all of what was given are whole numbers from -128",
        ),
        ("(entry y [(x [2] bool)] x)", [1, 2], "input x is i1, and not all .* whole numbers from 0 to 1"),
        ("(entry y [(x [2] i64)] x)", [1.0, 2.0], "input x is i64, and not all"),
        ("(entry y [(x [2] u8)] x)", [-1, 2], "input x is u8, and not all .* from 0 to 255"),
    ],
)
def test_inputs_that_a_type_cannot_hold_are_refused(tmp_path: Path, text: str, given: Any, said: str) -> None:
    (tmp_path / "y.lisp").write_text(text)
    with lispgpt.load(tmp_path / "y.lisp", cache=None) as model, pytest.raises(UserError, match=said):
        model.run("y", x=given)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("(state (s [2] u8)) (entry y [(x [2] i32)] (update! s x))", r"s is u8; \(saturate x u8\) makes what"),
        ("(weights (w [2] u8)) (entry y [(x [2] i32)] (update! w x))", "w is u8, which is read and never updated"),
        ("(entry y [(x [2] f32)] (saturate x f32))", "`saturate` wants an integer type second"),
        (
            "(entry y [(x [2 2] f32) (k [2 2] i32)] (contract [i j] x [i k] k [j k]))",
            "multiplies floats, or whole numbers",
        ),
        ("(entry y [(x [2] u16)] x)", "`u16` is not defined"),
        ("(entry y [(x [-1 3] f32)] x)", "a size is a whole number from 0 on, and `-1` is"),
        ("(weights (w [-1])) (entry y [(x [2] f32)] x)", "a size is a whole number from 0 on, and `-1` is"),
        ("(entry y [(x [2 3] f32)] (slice x [0 0] [-1 3]))", "the number -1 is not a size within tensor<2x3xf32>"),
        ("(entry y [(x [2 3] f32)] (reshape x [0 6]))", "cannot become 0x6, which counts 0"),
    ],
)
def test_what_types_cannot_do_is_said_at_its_form(tmp_path: Path, text: str, said: str) -> None:
    with pytest.raises(UserError, match=r"program.lisp:1:\d+: error: .*" + said):
        compile_text(text, tmp_path)


def test_a_checkpoint_of_other_numbers_is_refused(tmp_path: Path) -> None:
    (tmp_path / "y.lisp").write_text("(weights (w [2] i8)) (entry y [(x [2] i8)] (+ x w))")
    for array, said in ((np.ones(2, np.float32), "f32"), (np.ones(2, np.int64), "i64"), (np.ones(2, np.uint8), "u8")):
        save_file({"w": array}, tmp_path / "w.safetensors")
        said = f"weight 'w' is i8 in the program, {said} in the checkpoint"
        given = tmp_path / "y.lisp", tmp_path / "w.safetensors"
        with lispgpt.load(*given, cache=None) as model, pytest.raises(UserError, match=said):
            model.run("y", x=[1, 2])
