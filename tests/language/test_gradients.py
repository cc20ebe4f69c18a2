"""What `gradients` makes of ops and forms of the language, against float64 central differences."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import seeded
from gradient_checks import check, drawn, evaluated
from tensor_functions import run

from lispgpt.base.errors import UserError


def softmax(x: np.ndarray) -> np.ndarray:
    powers = np.exp(x - x.max(-1, keepdims=True))
    return powers / powers.sum(-1, keepdims=True)


def layer_norm(x: np.ndarray, w: np.ndarray, b: np.ndarray) -> np.ndarray:
    centred = x - x.mean(-1, keepdims=True)
    return centred / np.sqrt((centred**2).mean(-1, keepdims=True) + 1e-5) * w + b


def gelu(x: np.ndarray) -> np.ndarray:
    return 0.5 * x * (1 + np.tanh(0.7978845608028654 * (x + 0.044715 * x**3)))


def silu(x: np.ndarray) -> np.ndarray:
    return x / (1 + np.exp(-x))


def multiplied(x: np.ndarray, y: np.ndarray) -> np.ndarray:
    return np.repeat((x @ y).T[:, None], 2, 1) * (x @ y).T[:, None]


MULTIPLIED = """(let [start (linalg.fill {:result tensor<3x5xf32>} (: 0.0 f32) (tensor.empty {:result tensor<3x5xf32>}))
        p (linalg.matmul {:result tensor<3x5xf32>} x y start)
        q (linalg.transpose {:permutation array<i64: 1, 0>} p (tensor.empty {:result tensor<5x3xf32>}))
        r (linalg.broadcast {:dimensions array<i64: 1>} q (tensor.empty {:result tensor<5x2x3xf32>}))]
    (linalg.mul {:result tensor<5x2x3xf32>} r r (tensor.empty {:result tensor<5x2x3xf32>})))"""


def moved(x: np.ndarray, y: np.ndarray, ids: np.ndarray) -> np.ndarray:
    """A part from where ids[0] says, which goes to where ids[1] says in y."""
    z = y.copy()
    z[ids[1] : ids[1] + 2, 1] = x[ids[0] : ids[0] + 2, 2]
    return x[ids[0], :3, None] * z[:3]


MOVED = """(let [[a b] [(cast (at ids 0) index) (cast (at ids 1) index)]
        z (insert (slice x [a 2] [2 nil]) y [b 1] [2 nil])
        row (slice x [a 0] [nil 3])]
    (tensor [i 3 j 6] (* (at row i) (at z i j))))"""


def inserted(x: np.ndarray) -> np.ndarray:
    y = x.copy()
    y[:2, :3] = x[1:3, 2:5]
    return x * y


CASES: list[tuple[str, Callable[..., Any], dict[str, Any]]] = [
    ("(linear x w b)", lambda x, w, b: x @ w.T + b, {"x": (3, 5), "w": (4, 5), "b": (4,)}),
    ("(layer-norm x w b)", layer_norm, {"x": (3, 5), "w": (5,), "b": (5,)}),
    (
        "(rms-norm x w 1e-5)",
        lambda x, w: x / np.sqrt((x**2).mean(-1, keepdims=True) + 1e-5) * w,
        {"x": (3, 5), "w": (5,)},
    ),
    ("(gelu x)", gelu, {"x": (3, 5)}),
    ("(silu x)", silu, {"x": (3, 5)}),
    ("(sigmoid x)", lambda x: 1 / (1 + np.exp(-x)), {"x": (3, 5)}),
    # whose powers are beyond what an f32 holds
    ("(sigmoid (+ 1.0 (* 250.0 (- (abs x)))))", lambda x: 1 / (1 + np.exp(250 * abs(x) - 1)), {"x": (3, 5)}),
    ("(silu (+ 1.0 (* 250.0 (- (abs x)))))", lambda x: silu(1 - 250 * abs(x)), {"x": (3, 5)}),
    ("(relu x)", lambda x: np.maximum(x, 0), {"x": (3, 5)}),
    (
        "(swiglu x a b c)",
        lambda x, a, b, c: (silu(x @ a.T) * (x @ b.T)) @ c.T,
        {"x": (3, 4), "a": (6, 4), "b": (6, 4), "c": (4, 6)},
    ),
    ("(softmax x)", softmax, {"x": (3, 5)}),
    ("(rows t ids)", lambda t, ids: t[ids], {"t": (6, 3), "ids": (6, 4)}),
    ("(tensor [i 4] (at t i i))", lambda t: np.diag(t)[:4], {"t": (6, 6)}),
    (
        "(tensor [i 4 j 3] (* (at t (at ids i) j) (at t j (at more j))))",
        lambda t, ids, more: t[ids][:, :3] * t[np.arange(3), more][None],
        {"t": (6, 6), "ids": (6, 4), "more": (6, 3)},
    ),
    (
        "(tensor [i 4 j 3] (at t (at ids i) (at more j)))",
        lambda t, ids, more: t[ids][:, more],
        {"t": (6, 6), "ids": (6, 4), "more": (6, 3)},
    ),
    (
        "(tensor [j 3 i 4] (* (at t i j) (at u j)))",
        lambda t, u: t[:4].T * u[:3, None],
        {"t": (6, 3), "u": (5,)},
    ),
    (
        "(contract [b o n] x [n b k] w [k o b])",
        lambda x, w: np.einsum("nbk,kob->bon", x, w),
        {"x": (3, 2, 4), "w": (4, 5, 2)},
    ),
    (
        "(contract [o m] x [n k m] w [k o n])",
        lambda x, w: np.einsum("nkm,kon->om", x, w),
        {"x": (3, 2, 4), "w": (2, 5, 3)},
    ),
    (
        "(contract [o] x [n k] w [k o])",
        lambda x, w: np.einsum("nk,ko->o", x, w),
        {"x": (3, 4), "w": (4, 5)},
    ),
    ("(slice x [1 2] [2 3])", lambda x: x[1:3, 2:5], {"x": (4, 6)}),
    (
        "(* (slice x [1 2] [2 3]) (slice x [2 0] [2 3]))",
        lambda x: x[1:3, 2:5] * x[2:, :3],
        {"x": (4, 6)},
    ),
    ("(* (slice x [0 0] [2 6]) (slice x [2 0] [2 6]))", lambda x: x[:2] * x[2:], {"x": (4, 6)}),
    ("(* x (insert (slice x [1 2] [2 3]) x [0 0] [2 3]))", inserted, {"x": (4, 6)}),
    (
        "(* (reshape x [6 4]) (reshape (sin x) [6 4]))",
        lambda x: (x * np.sin(x)).reshape(6, 4),
        {"x": (4, 6)},
    ),
    ("(maximum x)", lambda x: x.max(-1), {"x": (4, 6)}),
    ("(reduce max 0.5 x)", lambda x: x.max(-1, initial=0.5), {"x": (6, 2)}),
    ("(reduce min -0.5 x)", lambda x: x.min(-1, initial=-0.5), {"x": (6, 2)}),
    ("(mod x (+ 0.5 (square y)))", lambda x, y: x % (0.5 + y**2), {"x": (4, 6), "y": (4, 6)}),
    ("(reduce min inf x)", lambda x: x.min(-1), {"x": (4, 6)}),
    ("(reduce * 1.0 (+ 2.0 (square x)))", lambda x: (2 + x**2).prod(-1), {"x": (3, 4)}),
    (
        "(elementwise (fn [x y] (* (if (<= x y) x (exp (if (< y 0.0) (* x y) y))) y)) x y)",
        lambda x, y: np.where(x <= y, x, np.exp(np.where(y < 0, x * y, y))) * y,
        {"x": (4, 6), "y": (4, 6)},
    ),
    (
        "(tensor [i 4 j 6] (if (< j 3) (at x (at ids i) (* 2 j)) (* (at y i j) (at y 0 (- j 3)))))",
        lambda x, ids, y: np.concatenate([x[ids][:, [0, 2, 4]], y[:, 3:] * y[:1, :3]], axis=1),
        {"x": (4, 5), "ids": (4, 4), "y": (4, 6)},
    ),
    (
        "(tensor [i 6] (let [k (- i 2)] (if (>= k 0) (sin (at x k)) 0.5)))",
        lambda x: np.concatenate([[0.5, 0.5], np.sin(x)]),
        {"x": (4,)},
    ),
    (
        "(elementwise (fn [x y] (if (> y 1e6) (log (- x x)) (* x y))) x y)",
        lambda x, y: x * y,
        {"x": (4, 6), "y": (4, 6)},
    ),
    (
        "(select (< x y) (* x y) (exp x))",
        lambda x, y: np.where(x < y, x * y, np.exp(x)),
        {"x": (4, 6), "y": (4, 6)},
    ),
    ("(/ x (+ 3.0 (square y)))", lambda x, y: x / (3 + y**2), {"x": (4, 6), "y": (4, 6)}),
    ("(log (sqrt (+ 2.0 (square x))))", lambda x: np.log(np.sqrt(2 + x**2)), {"x": (4, 6)}),
    (
        "(abs (- (min x y) (max x 0.5)))",
        lambda x, y: abs(np.minimum(x, y) - np.maximum(x, 0.5)),
        {"x": (9,), "y": (9,)},
    ),
    ("(tanh (cos (rsqrt (+ 1.0 (square x)))))", lambda x: np.tanh(np.cos(1 / np.sqrt(1 + x**2))), {"x": (4, 6)}),
    ("(* x (at s 0))", lambda x, s: x * s[0], {"x": (4, 3), "s": (2,)}),
    (
        "(let [k (exp (* (at s 0) (at s 1)))] (tensor [i 4] (if (> (at x i) k) (* k k (at x i)) (at s 1))))",
        lambda x, s: np.where(x > np.exp(s[0] * s[1]), np.exp(s[0] * s[1]) ** 2 * x, s[1]),
        {"x": (4,), "s": (2,)},
    ),
    (
        "(let [k (if (> (at s 0) 0.0) (* 2.0 (at s 0)) (at s 1))] (+ (* x k) (at (sum (square x)))))",
        lambda x, s: x * (2 * s[0] if s[0] > 0 else s[1]) + (x**2).sum(),
        {"x": (4,), "s": (2,)},
    ),
    ("(* x (at s (at ids 1)))", lambda x, s, ids: x * s[ids[1]], {"x": (4,), "s": (5,), "ids": (5, 3)}),
    ("(* (at x 1) (at x 2) (at (sum x)))", lambda x: x[1] * x[2] * x.sum(), {"x": (4,)}),
    ("(sum x)", lambda x: x.sum(-1), {"x": (7,)}),
    ("(reduce (fn [a b] (+ a (* b b))) 0.5 x)", lambda x: 0.5 + (x**2).sum(-1), {"x": (3, 5)}),
    ("(reduce (fn [a b] (+ (* b (exp b)) a)) 0.0 x)", lambda x: (x * np.exp(x)).sum(-1), {"x": (5,)}),
    ("(reduce (fn [a b] (* a (+ 3.0 b))) 1.0 x)", lambda x: (3 + x).prod(-1), {"x": (3, 5)}),
    ("(reduce (fn [a b] (max a (abs b))) 0.0 x)", lambda x: np.abs(x).max(-1), {"x": (3, 5)}),
    (MULTIPLIED, multiplied, {"x": (3, 4), "y": (4, 5)}),
    (MOVED, moved, {"x": (5, 4), "y": (5, 6), "ids": (4, 2)}),
]


@pytest.mark.parametrize("expression,function,shapes", CASES, ids=[case[0] for case in CASES])
def test_gradients_are_those_of_finite_differences(
    expression: str, function: Callable[..., Any], shapes: dict[str, Any]
) -> None:
    seed = seeded.fresh_seed()
    check(expression, function, drawn(shapes, seed), seed)


@pytest.mark.parametrize("zeros", [0, 1, 2, 5])
def test_a_factor_has_the_product_of_the_others_for_a_gradient(zeros: int) -> None:
    """Where factors are zero, too, by which nothing can be divided."""
    rng = seeded.rng()
    x = rng.uniform(0.5, 2.0, (4, 5)) * rng.choice([-1.0, 1.0], (4, 5))
    for row in x[1:]:
        row[rng.permutation(5)[:zeros]] = 0.0
    weights = rng.standard_normal(4)
    x, weights = x.astype(np.float32), weights.astype(np.float32)
    found = evaluated("(first (gradients (sum (* w (reduce * 1.5 x))) [x]))", {"x": x, "w": weights})
    others = [[np.delete(row, i).astype(np.float64).prod() for i in range(5)] for row in x]
    np.testing.assert_allclose(found, 1.5 * weights[:, None].astype(np.float64) * others, rtol=1e-5, atol=1e-30)


@pytest.mark.parametrize("combiner,start", [("mulf", 1.0), ("maximumf", -9.0), ("minimumf", 9.0)])
def test_a_reduction_of_the_first_dimension_has_a_gradient(combiner: str, start: float) -> None:
    """Of a square, where a sum over the last one would have the same shape."""
    seed = seeded.fresh_seed()
    numpy = {"mulf": np.prod, "maximumf": np.max, "minimumf": np.min}[combiner]
    body = f"(region (block [(: a f32) (: b f32)] (linalg.yield (arith.{combiner} a b))))"
    text = f"(linalg.reduce {{:dimensions [0] :result tensor<3xf32>}} x (tensor [i 3] {start}) {body})"
    check(text, lambda x: numpy(x, axis=0), drawn({"x": (3, 3)}, seed), seed, "(require-dialect linalg arith)")


def test_a_function_has_the_gradient_that_it_is_given() -> None:
    given = drawn({"x": (4,)}, 7)
    definitions = "(defn f [x] (sin x)) (defgradient f [g y x] [(* 3.0 g)])"
    found = evaluated("(first (gradients (sum (f x)) [x]))", given, definitions)
    np.testing.assert_array_equal(found, np.full(4, 3.0, np.float32))


def test_no_gradient_goes_through_what_is_stopped() -> None:
    given = drawn({"x": (4,)}, 8)
    found = evaluated("(first (gradients (sum (* x (stop-gradient x))) [x]))", given)
    np.testing.assert_array_equal(found, given["x"])


def test_recomputing_gives_the_same_gradients() -> None:
    seed = seeded.fresh_seed()
    given = drawn({"x": (4, 6), "w": (3, 6)}, seed)
    check("(recompute f x w)", lambda x, w: gelu(x @ w.T), given, seed, "(defn f [x w] (gelu (linear x w)))")


def test_a_stacked_weight_has_one_gradient() -> None:
    rng = seeded.rng()
    w, x = rng.standard_normal((3, 4)).astype(np.float32), rng.standard_normal(4).astype(np.float32)
    text = (
        "(require gradients) (weights (per 3 (w [4])) (x [4])) (entry f [tokens positions] "
        "(first (gradients (sum (* x (* (w 0) (w 2)))) [w])))"
    )
    unused = np.zeros(1, np.int32)
    (found,) = run(text, [unused, unused, w, x], [(1, 1)], "f_batch1_positions1")
    np.testing.assert_allclose(found, [x * w[2], 0 * x, x * w[0]], rtol=1e-6)


@pytest.mark.parametrize(
    "expression,message",
    [
        ("(first (gradients x [x]))", "one float"),
        ("(first (gradients (sum x) []))", "vector"),
        ("(first (gradients (sum (reduce (fn [a b] (sin (+ a b))) 0.0 (reshape x [2 2]))) [x]))", "no gradient rule"),
    ],
)
def test_what_cannot_be_differentiated_is_said_at_its_form(expression: str, message: str) -> None:
    given = drawn({"x": (4,), "y": (4,)}, 9)
    with pytest.raises(UserError, match=message):
        evaluated(expression, given)


def test_what_a_product_or_a_sum_adds_to_has_a_gradient() -> None:
    dialects, seed = "(require-dialect linalg)", seeded.fresh_seed()
    maps = "[affine_map<(i,j,k)->(i,k)> affine_map<(i,j,k)->(j,k)> affine_map<(i,j,k)->(i,j)>]"
    product = f"(linalg.contract {{:indexing_maps {maps} :result tensor<3x5xf32>}} x w (exp c))"
    given = drawn({"x": (3, 4), "w": (5, 4), "c": (3, 5)}, seed)
    check(product, lambda x, w, c: x @ w.T + np.exp(c), given, seed, dialects)
    body = "(region (block [(: a f32) (: b f32)] (linalg.yield (arith.{} a b))))"
    reduction = "(linalg.reduce {{:dimensions [1] :result tensor<3xf32>}} x (exp c) " + body + ")"
    given, dialects = drawn({"x": (3, 4), "c": (3,)}, seed), f"{dialects} (require-dialect arith)"
    check(reduction.format("addf"), lambda x, c: x.sum(-1) + np.exp(c), given, seed, dialects)
    with pytest.raises(UserError, match=r"no gradient rule for `linalg.reduce by arith.maximumf onto what is there`"):
        evaluated(f"(first (gradients (sum {reduction.format('maximumf')}) [c]))", given, dialects)


def test_a_function_of_a_scalar_has_a_gradient_of_its_own() -> None:
    definitions = "(defn scale [x k] (* x k)) (defgradient scale [g y x k] [(* g k) (sum (* g x))])"
    seed = seeded.fresh_seed()
    check(
        "(scale x (exp (at s 1)))",
        lambda x, s: x * np.exp(s[1]),
        drawn({"x": (4,), "s": (2,)}, seed),
        seed,
        definitions,
    )


@pytest.mark.parametrize("loss", ["(sum x)", "(sum (* x (exp x)))"])
def test_without_the_library_of_rules_it_is_named(loss: str) -> None:
    unused = np.zeros(1, np.int32)
    program = f"(entry f [tokens positions (x [4] f32)] (first (gradients {loss} [x])))"
    with pytest.raises(UserError, match=r"stand in a library: \(require gradients\), or nn, which has it"):
        run(program, [unused, unused, np.ones(4, np.float32)], [(1, 1)], "f_batch1_positions1")
