"""Models with ops that no specialised schedule knows: `schedule-generic` takes them, whatever they are."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_model, open_poisoned, random_weights, shapes_of, step

Arrays = dict[str, np.ndarray]

PRELUDE = """
(require nn)
(require-dialect arith linalg tensor math scf)
(config vocab 7 context 5 width 3 outputs 4)
(weights (table [vocab width] f32) (square-w [width width] f32) (w [outputs width] f32) (b [width] f32))
"""


def softmax(x: np.ndarray, axis: int) -> np.ndarray:
    e = np.exp(x - x.max(axis, keepdims=True))
    return e / e.sum(axis, keepdims=True)


PROGRAMS: dict[str, tuple[str, Callable[[np.ndarray, Arrays], np.ndarray]]] = {
    "a product whose right side is not transposed": (
        "(contract [n k] x [n j] square-w [j k])",
        lambda x, w: x @ w["square-w"],
    ),
    "a product of one column and its bias": (
        "(linear x (slice w [0 0] [1 width]) (slice b [0] [1]))",
        lambda x, w: x @ w["w"][:1].T + w["b"][:1],
    ),
    "a batch of scalar products": ("(contract [n] x [n k] (* x x) [n k])", lambda x, w: (x**3).sum(1)),
    "a named product with its own start": (
        "(linalg.matmul {:result (type x)} x square-w x)",
        lambda x, w: x + x @ w["square-w"],
    ),
    "a column's softmax": (
        "(let [t (tensor [k width n (dim x 0)] (at x n k))]"
        " (linalg.softmax {:dimension 0 :result (type t)} t (tensor.empty {:result (type t)})))",
        lambda x, w: softmax(x.T, 0),
    ),
    "a softmax between dimensions, used further": (
        "(let [t (tensor [i 2 k width n (dim x 0)] (* (at x n k) (at b k)))"
        "      s (linalg.softmax {:dimension 1 :result (type t)} t (tensor.empty {:result (type t)}))]"
        " (tensor [n (dim x 0) k width] (+ (at s 1 k n) (at x n k))))",
        lambda x, w: softmax(x * w["b"], 1) + x,
    ),
    "a named transposition": (
        "(let [n (dim x 0) t (tensor [k width i n] (at x i k))"
        "      e (tensor.empty {:result (type x)})"
        "      u (linalg.transpose {:permutation array<i64: 1, 0> :result (type x)} t e)]"
        " (+ u x))",
        lambda x, w: 2 * x,
    ),
    "a view": ("(slice (reshape x [width (dim x 0)]) [0 0] [nil (dim x 0)])", lambda x, w: x.reshape(x.shape[::-1])[0]),
    "columns of a view": ("(slice x [0 (- width 1)] [(dim x 0) nil])", lambda x, w: x[:, -1]),
    "a weight": ("square-w", lambda x, w: w["square-w"]),
    "a number everywhere": (
        "(linalg.fill {:result (type x)} 1.5 (tensor.empty {:result (type x)}))",
        lambda x, w: x * 0 + 1.5,
    ),
    "named elementwise ops": (
        "(linalg.exp {:result (type x)} (linalg.mul {:result (type x)} x x (tensor.empty {:result (type x)}))"
        " (tensor.empty {:result (type x)}))",
        lambda x, w: np.exp(x * x),
    ),
    "a loop over rows": (
        "(scf.for {:result (type x)} (: 0 index) (: 3 index) (: 1 index) x"
        " (region (block [(: i index) (: y (type x))] (scf.yield (+ (linear y square-w) x)))))",
        lambda x, w: ((x @ w["square-w"].T + x) @ w["square-w"].T + x) @ w["square-w"].T + x,
    ),
    "products around an exponential": (
        "(linear (elementwise (fn [v] (exp v)) (contract [n k] x [n j] square-w [j k])) w)",
        lambda x, w: np.exp(x @ w["square-w"]) @ w["w"].T,
    ),
    "a result that is a weight's own": ("(+ b 0.0)", lambda x, w: w["b"]),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    text, reference = PROGRAMS[name]
    program = tmp_path / "odd.lisp"
    program.write_text(f"{PRELUDE}(entry logits [tokens positions] (let [x (rows table tokens)] {text}))")
    rng = seeded.rng()
    width, context = int(rng.choice([1, 2, 3, 5, 17, 31])), int(rng.choice([1, 5, 16]))
    artifact = compile_model(program, width=width, context=context, vocab=11, outputs=int(rng.integers(1, 40)))
    weights = random_weights(artifact)
    with open_poisoned(artifact, weights) as session:
        for batch, positions in shapes_of(session):
            tokens = rng.integers(0, 11, (batch, positions))
            wanted = reference(weights.exact()["table"][tokens.reshape(-1)], weights.exact())
            found = step(session, tokens, np.zeros_like(tokens))["logits"]
            assert found.shape == wanted.shape
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5, err_msg=f"width {width}")
