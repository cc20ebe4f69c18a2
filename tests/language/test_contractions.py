"""`contract` with every kind of index, against numpy in float64."""

from __future__ import annotations

import numpy as np
import pytest
from tensor_functions import run

# the result's indices, and those of the two operands
CASES = [
    "ij,ik,jk",
    "ij,ikm,jk",
    "ij,mik,jk",
    "ij,ik,mjn",
    "i,ij,kl",
    "i,ji,i",
    "ij,i,j",
    "ji,i,jk",
    ",i,i",
    "bij,bik,bjk",
]


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("case", CASES)
def test_contract(case: str, seed: int) -> None:
    result, left, right = case.split(",")
    rng = np.random.default_rng([seed, CASES.index(case)])
    sizes = {name: int(rng.integers(1, 6)) for name in "bijklmn"}
    x, w = (rng.standard_normal([sizes[n] for n in names]).astype(np.float32) for names in (left, right))
    spelled = [f"[{' '.join(names)}]" for names in (result, left, right)]
    kinds = [f"tensor<{''.join(f'{sizes[n]}x' for n in names)}f32>" for names in (result, left, right)]
    text = f"""(require-dialect func)
      (defn f [(: x {kinds[1]}) (: w {kinds[2]})] -> {kinds[0]}
        (contract {spelled[0]} x {spelled[1]} w {spelled[2]}))"""
    (got,) = run(text, [x, w], [], "f")
    expected = np.einsum(f"{left},{right}->{result}", x.astype(np.float64), w.astype(np.float64))
    np.testing.assert_allclose(got.reshape(expected.shape), expected, rtol=1e-4, atol=1e-5)
