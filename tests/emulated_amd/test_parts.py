"""F32 by F32 on AMD's matrix instructions: two BF16 parts of each keep about 16 bits, three keep all."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded

import lispgpt
from lispgpt.pipelines.pipeline_file import pipeline_path

PRODUCT = "(require nn)(entry out [(x [32 64]) (w [48 64])] (matmul-transposed x w))"


@pytest.mark.drawn
@pytest.mark.parametrize(("parts", "most"), [(2, 1.3e-5), (3, 3e-7)])
def test_products_of_f32_are_as_exact_as_their_parts(parts: int, most: float, tmp_path: Path) -> None:
    text = pipeline_path("gpu").read_text().replace('matmul" :copies', f'matmul" :parts {parts} :copies')
    (tmp_path / "gpu.lisp").write_text(text)
    (tmp_path / "product.lisp").write_text(PRODUCT)
    rng = seeded.rng()
    x, w = (rng.standard_normal(shape).astype(np.float32) for shape in ((32, 64), (48, 64)))
    options = {"target": "emulated:gfx1151", "pipeline": tmp_path / "gpu.lisp"}
    with lispgpt.load(tmp_path / "product.lisp", **options) as model:
        found = model.run("out", x=x, w=w)["out"]

    x, w = x.astype(np.float64), w.astype(np.float64)
    error = np.abs(found - x @ w.T) / (np.abs(x) @ np.abs(w).T)
    assert error.max() < most
