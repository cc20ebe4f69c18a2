"""Tensors that are made inside of a `tensor`, a lambda or a reduction: once, before it; none of its own indices."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file

import lispgpt

PROGRAM = """
(require nn)
(weights (per 2 (w [3])))
(entry out [(x [4 3] f32) (y [5] f32)]
  {:parts (tensor [i 4 j 3] (+ (at x i j) (at (w 1) j) (cast (at (argmax x) i) f32)))
   :number (tensor [i 4] (* (at (contract [] (w 0) [c] x [m c])) (at (sum x) i)))
   :branch (elementwise (fn [e] (if (> e 0.0) (+ e (at (sum y))) e)) y)
   :scaled (reduce (fn [a b] (+ a (* b (at (sum y))))) 0.0 x)
   :index (tensor [i 4 j 3] (+ (if (> (at x i j) 0.0) (cast (cast i i32) f32) 1.0) (cast (cast (+ i j) i32) f32)))})
"""


def test_they_are_made_once_before_it(tmp_path: Path) -> None:
    (tmp_path / "inside.lisp").write_text(PROGRAM)
    rng = seeded.rng()
    w, x, y = (rng.normal(size=shape).astype(np.float32) for shape in ((2, 3), (4, 3), 5))
    save_file({"w": w}, tmp_path / "w.safetensors")
    with lispgpt.load(tmp_path / "inside.lisp", tmp_path / "w.safetensors") as model:
        found = model.run("out", x=x, y=y)
    i, j = np.ogrid[:4, :3]
    wanted = {
        "parts": x + w[1] + x.argmax(1)[:, None],
        "number": (x @ w[0]).sum() * x.sum(1),
        "branch": np.where(y > 0, y + y.sum(), y),
        "scaled": x.sum(1) * y.sum(),
        "index": np.where(x > 0, i, 1) + i + j,
    }
    for name, values in wanted.items():
        np.testing.assert_allclose(found[name], values, atol=1e-5, err_msg=name)


@pytest.mark.parametrize("inner", ["(at x j k)", "(at x i k)", "(cast (cast (+ i k) i32) f32)"])
def test_one_that_depends_on_the_outer_indices_is_an_error_there(inner: str, tmp_path: Path) -> None:
    text = f"(entry out [(x [4 3] f32)] (tensor [i 4 j 4] (at (tensor [k 3] {inner}) 0)))"
    (tmp_path / "depends.lisp").write_text(text)
    with pytest.raises(lispgpt.UserError, match="makes a tensor inside of another that depends on"):
        lispgpt.compile(tmp_path / "depends.lisp")
