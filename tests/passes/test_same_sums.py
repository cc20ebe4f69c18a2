"""Sums of a row have the same bits whatever columns are beside it, and whatever rows are as long as they are as few."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest
import seeded
from gpu.chips import emulated_cuda_opener

import lispgpt
from lispgpt.runtime.devices import cuda

INNER, COLUMNS, ROWS = 256, (96, 1000), (1, 2, 8)
PROGRAM = """
(require nn)
(config columns 96)
(entry product [(x [n 256] f32) (w [columns 256] f32)] (matmul-transposed x w))
(entry normed [(x [n 256] f32) (w [columns 256] f32)]
  (softmax (rms-norm x (reshape (slice w [3 0] [1 256]) [256]) 1e-6)))
"""


@pytest.fixture(autouse=True)
def emulated() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(cuda, "open_device", emulated_cuda_opener)
        yield


def bits(results: np.ndarray) -> bytes:
    """Of the first row's first columns."""
    return results[0, : COLUMNS[0]].tobytes()


@pytest.mark.parametrize(
    "target", ["cpu", *(pytest.param(t, marks=pytest.mark.slow) for t in ("emulated:gfx1151", "cuda:sm_90a"))]
)
def test_a_row_is_the_same_beside_others(target: str, tmp_path: Path) -> None:
    program, rng = tmp_path / "sums.lisp", seeded.rng()
    program.write_text(PROGRAM)
    x, w = (rng.normal(size=(n, INNER)).astype(np.float32) for n in (ROWS[-1], COLUMNS[-1]))
    found: dict[tuple[str, int], list[bytes]] = {}
    for columns in COLUMNS:
        shapes = [{"n": rows} for rows in ROWS]
        with lispgpt.load(program, target=target, settings={"columns": columns}, shapes=shapes) as model:
            for name in ("product", "normed"):
                for rows in ROWS:
                    result = model.run(name, x=x[:rows], w=w[:columns])[name]
                    found.setdefault((name, min(rows, 2)), []).append(bits(result))
                    if name == "product":
                        np.testing.assert_allclose(result, x[:rows] @ w[:columns].T, atol=1e-3)
    for form, each in found.items():
        assert len(set(each)) == 1, form
    assert bits(x) != bits(x[1:])
    assert set(found["normed", 1]) == set(found["normed", 2])
