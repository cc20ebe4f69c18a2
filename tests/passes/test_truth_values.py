"""Tensors of truth values, which memory holds as bytes and registers as bits."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text, open_checked, random_weights
from emulated_cuda import entries

PROGRAM = """
(require gradients)
(weights (w [200] f32))
(entry f [(x [5 40] f32)]
  (let [keep (tensor [i 5 j 40] (> (at x i j) 0.1))
        y (elementwise (fn [c e] (select c (- e 0.1) 0.0)) keep x)
        loss (sum (* (reshape y [200]) w))
        slopes (gradients loss [w x])]
    {:loss loss :by-w (nth slopes 0) :by-x (nth slopes 1)}))
"""


@pytest.mark.parametrize("target", ["cpu", "cuda:sm_90a"])
def test_what_was_compared_chooses_in_the_same_kernel_and_in_later_ones(target: str, tmp_path: Path) -> None:
    """A kernel that stores truth values reads them again in vectors, one byte each."""
    artifact = compile_text(PROGRAM, tmp_path, target=target)
    x, weights = seeded.rng().standard_normal((5, 40)).astype(np.float32), random_weights(artifact)
    if target == "cpu":
        with open_checked(artifact, weights) as session:
            found = session.run("f", x=x)
    else:
        given = {"x": x, "w": weights.values["w"]}
        found = entries.run_all(artifact, artifact.plan.entries[0], given)
    keep, y, w = x > 0.1, np.where(x > 0.1, x - np.float32(0.1), 0), weights.values["w"]
    np.testing.assert_allclose(found["by-w"].reshape(-1), y.reshape(-1), atol=1e-6)
    np.testing.assert_allclose(found["by-x"].reshape(5, 40), np.where(keep, w.reshape(5, 40), 0), atol=1e-6)
    np.testing.assert_allclose(found["loss"].reshape(-1), [y.reshape(-1) @ w], atol=1e-3)
