"""Products that read what only moves elements from where it is, and sums over any dimension: beside numpy."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text

from lispgpt.execution.model import Model

CONVOLUTIONS = """
(require nn arrays convolutions gradients)
(entry e [(x [4 9 8 {inputs}] f32) (w [{outputs} {inputs} 3 3] f32) (d [{sizes} {outputs}] f32)]
  (let [y (convolution x w {{:padding 1 :strides {stride}}})
        [g h] (gradients (sum (reshape (* y d) [{count}])) [x w])]
    {{:y y :g g :h h}}))
"""


def windows(x: np.ndarray, stride: int) -> np.ndarray:
    """[images rows columns channels 3 3]"""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride]


@pytest.mark.parametrize(("inputs", "outputs", "stride"), [(32, 48, 1), (48, 32, 2)])
def test_convolutions_of_whole_vectors(inputs: int, outputs: int, stride: int, tmp_path: Path) -> None:
    """Whose patches no kernel writes but for the weights' gradient."""
    sizes = (4, -(-9 // stride), -(-8 // stride))
    text = {"sizes": " ".join(map(str, sizes)), "count": np.prod(sizes) * outputs}
    artifact = compile_text(CONVOLUTIONS.format(inputs=inputs, outputs=outputs, stride=stride, **text), tmp_path)
    rng = seeded.rng()
    given = {"x": (4, 9, 8, inputs), "w": (outputs, inputs, 3, 3), "d": (*sizes, outputs)}
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
    with Model(artifact, None) as model:
        found = model.run("e", **arrays)
    x, w, d = (arrays[name].astype(np.float64) for name in "xwd")
    right = {"y": np.einsum("npqcij,ocij->npqo", windows(x, stride), w)}
    right["h"] = np.einsum("npqcij,npqo->ocij", windows(x, stride), d)
    spread = np.zeros((4, 11, 10, inputs))
    for i in range(3):
        for j in range(3):
            rows, columns = (slice(k, k + stride * n, stride) for k, n in ((i, sizes[1]), (j, sizes[2])))
            spread[:, rows, columns] += d @ w[:, :, i, j]
    right["g"] = spread[:, 1:-1, 1:-1]
    for name, exact in right.items():
        np.testing.assert_allclose(found[name], exact, rtol=1e-4, atol=1e-3 * np.abs(exact).max(), err_msg=name)
    written = [name for name in artifact.kernels if "x1x3x3x" in name]
    assert len(written) <= 1, written


def test_reductions_over_any_dimension(tmp_path: Path) -> None:
    names = {"sum-along": np.sum, "max-along": np.max, "min-along": np.min, "mean": np.mean, "variance": np.var}
    parts = [f":{name}-{axis} ({name} x {axis})" for name in names for axis in range(3)]
    slopes = " ".join(f"g{axis}" for axis in range(3))
    losses = " ".join(f"(gradients (sum (square (reshape (variance x {n}) [{60 // (3 + n)}]))) [x])" for n in range(3))
    artifact = compile_text(
        f"(require nn arrays gradients)\n(entry e [(x [3 4 5] f32)]\n(let [[{slopes}] (concat {losses})]\n"
        f"{{{' '.join(parts)} {' '.join(f':{name} {name}' for name in slopes.split())}}}))",
        tmp_path,
    )
    x = seeded.rng().standard_normal((3, 4, 5)).astype(np.float32)
    with Model(artifact, None) as model:
        found = model.run("e", x=x)
    exact = x.astype(np.float64)
    for name, of in names.items():
        for axis in range(3):
            np.testing.assert_allclose(found[f"{name}-{axis}"], of(exact, axis=axis), rtol=1e-4, atol=1e-5)
    for axis in range(3):
        off = exact - exact.mean(axis, keepdims=True)
        slope = 4 * exact.var(axis, keepdims=True) * off / x.shape[axis]
        np.testing.assert_allclose(found[f"g{axis}"], slope, rtol=1e-3, atol=1e-5)
    generic = [name for name in artifact.kernels if name.startswith("generic")]
    assert generic, "sums of columns read what is there"
