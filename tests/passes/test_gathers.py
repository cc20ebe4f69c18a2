"""Products that read what only moves elements from where it is, and sums over any dimension: beside numpy."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import seeded
from compiled_models import compile_text

from lispgpt.execution.model import Model
from lispgpt.runtime.plan.artifact import Artifact

Arrays = dict[str, np.ndarray]

CONVOLUTIONS = """
(require nn arrays convolutions gradients)
(entry e [{given}]
  (let [y (convolution x w {{:padding 1 {options}}})
        [g h] (gradients (sum (reshape (* y d) [{count}])) [x w])]
    {{:y y :g g :h h}}))
"""


def windows(x: np.ndarray, stride: int) -> np.ndarray:
    """[images rows columns channels 3 3]"""
    padded = np.pad(x, ((0, 0), (1, 1), (1, 1), (0, 0)))
    return np.lib.stride_tricks.sliding_window_view(padded, (3, 3), (1, 2))[:, ::stride, ::stride]


@pytest.mark.parametrize(
    ("inputs", "outputs", "stride", "target"),
    [(32, 48, 1, "cpu"), (48, 32, 2, "cpu:x86-64-v3"), (40, 56, 1, "cpu:x86-64-v3"), (40, 56, 1, "cpu")],
)
def test_convolutions_of_vectors(inputs: int, outputs: int, stride: int, target: str, tmp_path: Path) -> None:
    """Whose patches no kernel writes, but for what is spread of them where windows do not stand at every place."""
    sizes = (4, -(-9 // stride), -(-8 // stride))
    given = {"x": (4, 9, 8, inputs), "w": (outputs, inputs, 3, 3), "d": (*sizes, outputs)}
    artifact = convolution_and_gradients(given, f":strides {stride}", target, tmp_path)
    arrays, found = ran(artifact, given)
    x, w, d = (arrays[name].astype(np.float64) for name in "xwd")
    right = {"y": np.einsum("npqcij,ocij->npqo", windows(x, stride), w)}
    right["h"] = np.einsum("npqcij,npqo->ocij", windows(x, stride), d)
    right["g"] = spread(x.shape, stride, lambda i, j: d @ w[:, :, i, j])
    check(found, right)
    written = [name for name in artifact.kernels if "x1x3x3x" in name]
    assert len(written) < stride, written


@pytest.mark.parametrize(("stride", "target"), [(1, "cpu"), (2, "cpu:x86-64-v3")])
def test_convolutions_of_each_channel(stride: int, target: str, tmp_path: Path) -> None:
    """Which are no products of matrices."""
    given = {"x": (2, 9, 8, 40), "w": (40, 1, 3, 3), "d": (2, -(-9 // stride), -(-8 // stride), 40)}
    artifact = convolution_and_gradients(given, f":strides {stride} :groups 40", target, tmp_path)
    arrays, found = ran(artifact, given)
    x, w, d = (arrays[name].astype(np.float64) for name in "xwd")
    right = {"y": np.einsum("npqcij,cij->npqc", windows(x, stride), w[:, 0])}
    right["h"] = np.einsum("npqcij,npqc->cij", windows(x, stride), d)[:, None]
    right["g"] = spread(x.shape, stride, lambda i, j: d * w[:, 0, i, j])
    check(found, right)
    assert not [name for name in artifact.kernels if name.startswith("contraction")]


def convolution_and_gradients(given: dict[str, tuple[int, ...]], options: str, target: str, folder: Path) -> Artifact:
    inputs = " ".join(f"({name} [{' '.join(map(str, shape))}] f32)" for name, shape in given.items())
    text = CONVOLUTIONS.format(given=inputs, options=options, count=np.prod(given["d"]))
    return compile_text(text, folder, target=target)


def ran(artifact: Artifact, given: dict[str, tuple[int, ...]]) -> tuple[Arrays, Arrays]:
    rng = seeded.rng()
    arrays = {name: rng.standard_normal(shape).astype(np.float32) for name, shape in given.items()}
    with Model(artifact, None) as model:
        return arrays, model.run("e", **arrays)


def spread(shape: tuple[int, ...], stride: int, of_tap: Callable[[int, int], np.ndarray]) -> np.ndarray:
    """What of_tap gives for each place of windows, put where the tap lies."""
    made = np.zeros((shape[0], shape[1] + 2, shape[2] + 2, shape[3]))
    for i in range(3):
        for j in range(3):
            part = of_tap(i, j)
            rows, columns = (slice(k, k + stride * n, stride) for k, n in ((i, part.shape[1]), (j, part.shape[2])))
            made[:, rows, columns] += part
    return made[:, 1:-1, 1:-1]


def check(found: Arrays, right: Arrays) -> None:
    for name, exact in right.items():
        np.testing.assert_allclose(found[name], exact, rtol=1e-4, atol=1e-3 * np.abs(exact).max(), err_msg=name)


def test_sums_of_columns_make_what_they_sum(tmp_path: Path) -> None:
    """And what two kernels make anew of one tensor is in no memory, though one of them makes more of it."""
    entries = """(require nn arrays)
(entry spreads [(x [512 48] f32) (y [512 48] f32)] {:v (variance x 0) :p (sum-along (* x y) 0)})
(entry same [(x [512 48] f32) (y [512 48] f32)]
  (let [m (select (= x y) 1.0 0.0)] {:rows (sum m) :columns (sum-along m 0)}))
"""
    artifact = compile_text(entries, tmp_path)
    rng = seeded.rng()
    x, y = (rng.integers(-3, 4, (512, 48)).astype(np.float32) for _ in range(2))
    with Model(artifact, None) as model:
        spreads, same = model.run("spreads", x=x, y=y), model.run("same", x=x, y=y)
    np.testing.assert_allclose(spreads["v"], x.astype(np.float64).var(0), rtol=1e-5)
    np.testing.assert_array_equal(spreads["p"], (x * y).sum(0))
    np.testing.assert_array_equal(same["rows"], (x == y).sum(1))
    np.testing.assert_array_equal(same["columns"], (x == y).sum(0))
    assert not [name for name in artifact.kernels if name.startswith("rows_512x48")]


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
