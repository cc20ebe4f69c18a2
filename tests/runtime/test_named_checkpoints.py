"""Safetensors files of any model: tensors by name, slices of layers, types, and random ones made for a program."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.request import Request
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.base import MappedCheckpoint, StoredTensor, TensorInfo
from lispgpt.runtime.checkpoints.make import make_for

pytestmark = pytest.mark.drawn

PROGRAM = """(require nn)
(config layers 3  width 4)
(weights (per layers (w [width width] bf16) (b [width])) (scale [width]) (table [5 width]) (ids [5] i32))
(entry run [(x [n width])]
  (let [y (fold (fn [x l] (linear x (w l) (b l))) x (range layers))]
    (* y (tensor [i width] (* (at scale i) (at table (at ids 1) i))))))
"""


@pytest.fixture
def program(tmp_path: Path) -> Path:
    (tmp_path / "program.lisp").write_text(PROGRAM)
    return tmp_path / "program.lisp"


def values(rng: np.random.Generator) -> dict[str, np.ndarray]:
    """Weights that BF16 and F16 both hold as they are."""
    shapes = {"w": (3, 4, 4), "b": (3, 4), "scale": (4,), "table": (5, 4)}
    found = {name: np.round(rng.normal(0, 8, shape)) / 16 for name, shape in shapes.items()}
    return {**found, "ids": rng.integers(0, 5, 5)}


def expected(given: dict[str, np.ndarray], x: np.ndarray) -> np.ndarray:
    for w, b in zip(given["w"], given["b"], strict=True):
        x = x @ w.T + b
    return x * given["scale"] * given["table"][given["ids"][1]]


@pytest.mark.parametrize("dtype", [np.float32, np.float16, np.float64])
@pytest.mark.parametrize("prefix", [None, "layers.", "model.blocks.", ""])
def test_weights_are_bound_by_name_stacked_or_in_slices(
    prefix: str | None, dtype: type, program: Path, tmp_path: Path
) -> None:
    seed = int(seeded.rng().integers(1 << 32))
    rng = np.random.default_rng(seed)
    given = values(rng)
    stored = {name: value.astype(np.int32 if name == "ids" else dtype) for name, value in given.items()}
    if prefix is not None:
        for name in ("w", "b"):
            stored |= {f"{prefix}{layer}.{name}": part for layer, part in enumerate(stored.pop(name))}
    stored["unused"] = np.zeros(3, np.int64)
    save_file(stored, tmp_path / "weights.safetensors")
    x = rng.normal(size=(2, 4))
    with lispgpt.load(program, tmp_path / "weights.safetensors") as model:
        found = model.run("run", x=x)["run"]
    np.testing.assert_allclose(found, expected(given, x), rtol=1e-4, atol=1e-4, err_msg=f"seed {seed}")


def test_what_is_missing_or_ambiguous_is_said(program: Path, tmp_path: Path) -> None:
    given = {n: v.astype(np.int32 if n == "ids" else np.float32) for n, v in values(seeded.rng()).items()}
    slices = {f"layers.{layer}.w": part for layer, part in enumerate(given.pop("w"))}
    others = {name.replace("layers", "more"): part for name, part in slices.items()}
    for stored in (given, given | dict(list(slices.items())[1:]), given | slices | others):
        save_file(stored, tmp_path / "weights.safetensors")
        with (
            pytest.raises(UserError, match="the checkpoint has no weight 'w'"),
            lispgpt.load(program, tmp_path / "weights.safetensors") as model,
        ):
            model.run("run", x=np.zeros((1, 4)))
    save_file(given | {"w": np.zeros((3, 4, 5), np.float32)}, tmp_path / "weights.safetensors")
    with (
        pytest.raises(UserError, match=r"'w' is \[3 4 4\] in the program, \[3 4 5\]"),
        lispgpt.load(program, tmp_path / "weights.safetensors") as model,
    ):
        model.run("run", x=np.zeros((1, 4)))
    save_file(given | slices | {"b": np.full((3, 4), np.nan, np.float32)}, tmp_path / "weights.safetensors")
    with (
        pytest.raises(UserError, match="'b' holds NaN"),
        lispgpt.load(program, tmp_path / "weights.safetensors") as model,
    ):
        model.run("run", x=np.zeros((1, 4)))


def test_a_file_of_anything_else_is_refused(tmp_path: Path) -> None:
    save_file({"x": np.zeros(3, np.uint32)}, tmp_path / "numbers.safetensors")
    with pytest.raises(UserError, match="holds no tensor of"):
        checkpoints.open(tmp_path / "numbers.safetensors")
    (tmp_path / "cut.safetensors").write_bytes((tmp_path / "numbers.safetensors").read_bytes()[:40])
    with pytest.raises(UserError, match="damaged"):
        checkpoints.open(tmp_path / "cut.safetensors")
    save_file(
        {"x": np.zeros(3, np.float32)}, tmp_path / "odd.safetensors", {"config": json.dumps({"layers": {"of": 3}})}
    )
    with pytest.raises(UserError, match="gives layers as"):
        checkpoints.open(tmp_path / "odd.safetensors")


def test_vectors_come_in_pieces_as_matrices_do(tmp_path: Path) -> None:
    for shape in ((6,), (6, 5)):
        whole = seeded.rng().normal(size=(2, *shape)).astype(np.float32)
        pieces = tuple(part for layer in whole for part in (layer[:2], layer[2:]))
        stored = StoredTensor(TensorInfo((2, *shape), "f32", stacked=True), pieces)
        made = MappedCheckpoint("test", tmp_path, {}, (), {"w": stored})
        found = np.full((2, *shape), np.nan, np.float32)
        made.read_into("w", found, "f32")
        np.testing.assert_array_equal(found, whole)


def test_stacked_layers_that_a_file_says_nothing_of_are_read_one_by_one(tmp_path: Path) -> None:
    whole = seeded.rng().normal(size=(3, 4, 5)).astype(np.float32)
    made = MappedCheckpoint("test", tmp_path, {}, (), {"w": StoredTensor(TensorInfo(whole.shape, "f32"), (whole,))})
    for layer in range(3):
        found = np.full((4, 5), np.nan, np.float32)
        made.read_layer_into("w", layer, found, "f32")
        np.testing.assert_array_equal(found, whole[layer])
    with pytest.raises(UserError, match=r"w is \[3, 4, 5\], and one layer of a model of its sizes has \[2, 5\]"):
        made.read_layer_into("w", 3, np.empty((2, 5), np.float32), "f32")


def test_random_weights_are_made_for_any_program(program: Path, tmp_path: Path) -> None:
    path = tmp_path / "made.safetensors"
    found = declared(Request(program, overrides={"layers": 2}))
    assert make_for(path, found.config, found.weights, seed=7) is None
    opened = checkpoints.open(path)
    assert opened.config == {"layers": 2, "width": 4}
    assert {n: (opened.info(n).shape, opened.info(n).dtype) for n in opened.names()} == {
        "w": ((2, 4, 4), "bf16"), "b": ((2, 4), "f32"), "scale": ((4,), "f32"), "table": ((5, 4), "f32"),
        "ids": ((5,), "i32"),
    }  # fmt: skip
    again = tmp_path / "again.safetensors"
    make_for(again, found.config, found.weights, seed=7)
    assert path.read_bytes() == again.read_bytes()
    make_for(again, found.config, found.weights, seed=8)
    assert path.read_bytes() != again.read_bytes()
    with lispgpt.load(program, path) as model:
        result = model.run("run", x=np.ones((3, 4)))["run"]
    assert np.isfinite(result).all() and result.any()
