"""Neighbouring elements that are computed together, of what a schedule holds in registers or sums: each its own."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt
from lispgpt.compiler.driver import emit
from lispgpt.compiler.request import Observer, Request

Case = tuple[str, Callable[[np.ndarray, np.ndarray], np.ndarray]]
CASES: dict[str, Case] = {
    "branches behind a product": (
        "(elementwise (fn [u] (if (> u 0.5) (+ u u) (- u))) (contract [m] w [b] x [m b]))",
        lambda x, w: np.where(x @ w > 0.5, 2 * (x @ w), -(x @ w)),
    ),
    "a sum of one operand's own index inside a product": (
        "(contract [] (slice (sum x) [0] [11]) [d] (reshape w [11 1]) [d g])",
        lambda x, w: np.asarray(x.sum(1)[:11] @ w),
    ),
    "sums of rows as a product's operand": (
        "(contract [k] (sum x) [m] x [m k])",
        lambda x, w: x.sum(1) @ x,
    ),
    "an index that one operand alone is summed over": (
        "(contract [] (slice w [0] [4]) [d] (slice x [0 0] [4 11]) [d g])",
        lambda x, w: np.asarray(w[:4] @ x[:4].sum(1)),
    ),
}


@pytest.mark.drawn
@pytest.mark.parametrize("target", ["cpu", "emulated:gfx942", "emulated:gfx1151"])
@pytest.mark.parametrize("name", CASES)
def test_each_neighbour_has_its_own_value(name: str, target: str, tmp_path: Path) -> None:
    if target != "cpu":
        pytest.importorskip("tinygrad")
    body, wanted = CASES[name]
    (tmp_path / "case.lisp").write_text(f"(entry out [(x [64 11] f32) (w [11] f32)] {body})")
    x, w = (seeded.rng().normal(size=shape).astype(np.float32) for shape in ((64, 11), (11,)))
    with lispgpt.load(tmp_path / "case.lisp", target=target) as model:
        found = model.run("out", x=x, w=w)["out"]
    exact = wanted(x.astype(np.float64), w.astype(np.float64))
    near = np.abs(x.astype(np.float64) @ w - 0.5) > 1e-4 if "branches" in name else True
    np.testing.assert_allclose(np.where(near, found, 0), np.where(near, exact, 0), atol=2e-3)


@pytest.mark.drawn
@pytest.mark.parametrize("rows", [1, 2, 3, 5, 7])
def test_odd_columns_of_bf16_compile_for_this_cpu(rows: int, tmp_path: Path) -> None:
    """LLVM joins such conversions to vectors of bf16 for which x86's code generator has no rule."""
    text = """
    (require nn)
    (weights (w [2 11 11] bf16))
    (entry out [(x [n 11] f32)] (linear x (slice w [1 0 0] [nil 11 11])))
    """
    (tmp_path / "odd.lisp").write_text(text)
    artifact = lispgpt.compile(tmp_path / "odd.lisp", shapes=[{"n": rows}])
    assert artifact.code


MOVED = """
(require nn arrays convolutions)
(entry out [(x [6 64] f32)] {:y (tensor [i 6 j 48] (* 2.0 (at x i (+ 3 (+ (* i 2) j)))))})
(entry weights [(x [2 6 6 24] f32) (g [2 6 6 32] f32)]
  {:y (gradient-of-windows g x [32 24 3 3] [[1 1] [[1 1] [1 1]] [1 1]])})
"""


def test_neighbours_that_lie_some_places_on_are_read_at_once(tmp_path: Path) -> None:
    program = tmp_path / "moved.lisp"
    program.write_text(MOVED)
    code = emit(Request(program), "schedule", Observer())
    assert "index from vector" not in code
    x, g = (seeded.rng().normal(size=shape).astype(np.float32) for shape in ((2, 6, 6, 24), (2, 6, 6, 32)))
    rows = seeded.rng().normal(size=(6, 64)).astype(np.float32)
    padded = np.pad(x.astype(np.float64), ((0, 0), (1, 1), (1, 1), (0, 0)))
    taps = [[np.einsum("nhwo,nhwc->oc", g, padded[:, i : i + 6, j : j + 6]) for j in range(3)] for i in range(3)]
    with lispgpt.load(program) as model:
        found = model.run("weights", x=x, g=g)["y"]
        np.testing.assert_allclose(found, np.array(taps).transpose(2, 3, 0, 1), atol=1e-4)
        moved = model.run("out", x=rows)["y"]
    np.testing.assert_array_equal(moved, np.stack([2 * rows[i, 3 + 2 * i : 51 + 2 * i] for i in range(6)]))
