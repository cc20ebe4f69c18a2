"""What becomes a kernel and what does not: values that nothing reads, tensors with a part replaced."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
from compiled_models import compile_model, open_poisoned, random_weights, step

Arrays = dict[str, np.ndarray]

PRELUDE = """
(require nn)
(config vocab 7 context 5 width 3)
(weights (table [vocab width] f32) (w [width width] f32) (b [width] f32))
(state (memory [width width] f32))
"""


PROGRAMS: dict[str, tuple[str, Callable[[np.ndarray, Arrays], np.ndarray]]] = {
    "values that nothing reads": (
        "(let [y (linear (softmax (+ x x)) w) z (linear (+ y 1.0) w)] (* x 2.0))",
        lambda x, w: 2 * x,
    ),
    "a weight with a row replaced, and the weight": (
        "(let [other (insert (* b 2.0) w [1 0] [nil width])] (linear (linear x other) w))",
        lambda x, w: x @ np.concatenate([w["w"][:1], 2 * w["b"][None], w["w"][2:]]).T @ w["w"].T,
    ),
    "a product with a row replaced, and the product": (
        "(let [y (linear x w)] (+ (linear (insert b y [0 0] [nil width]) w) y))",
        lambda x, w: np.concatenate([w["b"][None], (x @ w["w"].T)[1:]]) @ w["w"].T + x @ w["w"].T,
    ),
    "a state with a row replaced that is not written": (
        "(linear x (insert b (slice (read-state memory) [0 0 0] [width nil width]) [0 0] [nil width]))",
        lambda x, w: x @ np.concatenate([w["b"][None], np.zeros_like(w["w"])[1:]]).T,
    ),
    "a number from a row of a state, for all": (
        "(+ x (slice (read-state memory) [(- width 1) 0 0] [1 1 nil]))",
        lambda x, w: x,
    ),
    "a number of a product, for all": (
        "(let [y (linear x w)] (* x (at y 0 1)))",
        lambda x, w: x * (x @ w["w"].T)[0, 1],
    ),
    "rows from the other end of a lone row": (
        "(let [y (last x)] (tensor [i 1 j width] (- (at y (- 0 i) j) (* 2.0 (at y i j)))))",
        lambda x, w: -x[-1:],
    ),
}


@pytest.mark.parametrize("name", PROGRAMS)
def test_it_agrees_with_numpy(name: str, tmp_path: Path) -> None:
    text, reference = PROGRAMS[name]
    (tmp_path / "odd.lisp").write_text(
        f"{PRELUDE}(entry logits [tokens positions] (let [x (rows table tokens)] {text}))"
    )
    rng = np.random.default_rng()
    artifact = compile_model(tmp_path / "odd.lisp", width=int(rng.choice([2, 3, 17])), vocab=11)
    weights = random_weights(artifact)
    exact = weights.exact()
    with open_poisoned(artifact, weights) as session:
        for batch, positions in session.shapes("logits") * 2:
            tokens = rng.integers(0, 11, (batch, positions))
            found = step(session, tokens, np.zeros_like(tokens))["logits"]
            wanted = reference(exact["table"][tokens.reshape(-1)], exact)
            np.testing.assert_allclose(found, wanted, atol=1e-5, rtol=1e-5)
