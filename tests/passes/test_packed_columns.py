"""Products on a CPU whose columns lie side by side and are packed for many rows: sizes of blocks, and values."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import Weights, open_poisoned, step
from random_products import RandomProduct

from lispgpt.compiler.driver import Observer, Request, compile_request


def product_of(rows: int, inner: int, columns: int) -> RandomProduct:
    sizes = {"n": rows, "o": inner, "i": columns}
    return RandomProduct(("n", "o"), ("o", "i"), ("n", "i"), sizes, ("f32", "f32"), False)


@pytest.mark.parametrize(("columns", "width", "blocks"), [(900, 96, 2), (96, 48, 8)])
def test_blocks_have_as_many_rows_as_leave_every_core_some(
    columns: int, width: int, blocks: int, tmp_path: Path
) -> None:
    """Of 512 rows: as many as a block may have, or 64 where there are few blocks of columns beside them, which then are
    narrower, too."""
    artifact, _ = compile_request(Request(product_of(512, 40, columns).write(tmp_path), "cpu:x86-64-v4"), Observer())
    (entry,) = artifact.plan.entries
    assert [tuple(launch.grid) for launch in entry.launches] == [(-(-columns // width), blocks, 1)]


@pytest.mark.parametrize("inner", [70, 500])
def test_sums_of_large_blocks(inner: int, tmp_path: Path) -> None:
    """Rows and columns that fill no block; sums of one panel and of several."""
    rng = seeded.rng()
    product = product_of(int(rng.integers(500, 600)), inner, int(rng.integers(300, 400)))
    values = product.values(rng)
    artifact, _ = compile_request(Request(product.write(tmp_path), "cpu"), Observer())
    with open_poisoned(artifact, Weights(values, frozenset())) as session:
        found = next(iter(step(session, [0], [0], "out").values()))
    expected = product.expected(values)
    assert np.linalg.norm(found - expected) <= 1e-6 * np.linalg.norm(expected)
