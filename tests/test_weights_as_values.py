"""Weights as values: given as arrays, read, set, saved; from several checkpoints, and as `:init` says else."""

from __future__ import annotations

import warnings
from pathlib import Path

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file
from test_cli import Call, call, made  # noqa: F401

import lispgpt
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32, f32_to_bf16

PROGRAM = """(require nn)
(config wide 4)
(weights (w [3 wide]) (short [3 wide] bf16) (per 2 (deep [wide wide] {:init (normal 0.5)})) (b [3] {:init 0.25}))
(entry e [(x [rows wide] f32)]
  (+ (linear (matmul-transposed (matmul-transposed x (deep 0)) (deep 1)) w b) (matmul-transposed x short)))
(entry grow [(x [1] f32)] (update! b (+ b 1.0)) x)
"""


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("values")
    (folder / "p.lisp").write_text(PROGRAM)
    return folder


def drawn(rng: np.random.Generator) -> dict[str, np.ndarray]:
    shapes = {"w": (3, 4), "short": (3, 4), "deep": (2, 4, 4), "b": (3,)}
    found = {name: rng.normal(size=shape).astype(np.float32) for name, shape in shapes.items()}
    return found | {"short": bf16_to_f32(f32_to_bf16(found["short"]))}


def right(x: np.ndarray, w: dict[str, np.ndarray]) -> np.ndarray:
    deep = x.astype(np.float64) @ w["deep"][0].astype(np.float64).T @ w["deep"][1].astype(np.float64).T
    return deep @ w["w"].T + w["b"] + x @ w["short"].astype(np.float64).T


def test_arrays_are_weights_and_come_back(place: Path, tmp_path: Path) -> None:
    rng = seeded.rng()
    weights, x = drawn(rng), rng.normal(size=(5, 4)).astype(np.float32)
    with lispgpt.load(place / "p.lisp", weights=weights, cache=place / "cache") as model:
        np.testing.assert_allclose(model.run("e", x=x)["e"], right(x, weights), rtol=1e-3, atol=1e-4)
        found = model.weights()
        assert set(found) == set(weights)
        for name, array in weights.items():
            np.testing.assert_array_equal(found[name], array)
        other = drawn(rng)
        model.set({"w": other["w"]}, deep=other["deep"], short=other["short"])
        weights |= {name: other[name] for name in ("w", "deep", "short")}
        np.testing.assert_allclose(model.run("e", x=x)["e"], right(x, weights), rtol=1e-3, atol=1e-4)
        model.run("grow", x=np.ones(1))
        model.set(w=2 * weights["w"])
        weights |= {"w": 2 * weights["w"], "b": weights["b"] + 1}
        np.testing.assert_allclose(model.run("e", x=x)["e"], right(x, weights), rtol=1e-3, atol=1e-4)
        np.testing.assert_array_equal(model.weights()["b"], weights["b"])
        model.save(tmp_path / "kept.safetensors")
    with lispgpt.load(place / "p.lisp", tmp_path / "kept.safetensors", cache=place / "cache") as model:
        np.testing.assert_allclose(model.run("e", x=x)["e"], right(x, weights), rtol=1e-3, atol=1e-4)


def test_what_a_checkpoint_lacks_begins_as_the_program_says(place: Path, tmp_path: Path) -> None:
    weights = drawn(seeded.rng())
    save_file({name: weights[name] for name in ("w", "short")}, tmp_path / "some.safetensors")
    with lispgpt.load(place / "p.lisp", tmp_path / "some.safetensors", cache=place / "cache") as model:
        with pytest.warns(
            UserWarning, match=r"some\.safetensors has no deep, b: they begin as the program's :init says"
        ):
            found = model.weights()
        np.testing.assert_array_equal(found["w"], weights["w"])
        assert (found["b"] == 0.25).all() and 0.2 < found["deep"].std() < 0.8
        assert not np.array_equal(found["deep"][0], found["deep"][1])
    save_file({"w": weights["w"]}, tmp_path / "less.safetensors")
    less = lispgpt.load(place / "p.lisp", tmp_path / "less.safetensors", cache=place / "cache")
    with less as model, warnings.catch_warnings(), pytest.raises(lispgpt.UserError, match="no weight 'short'"):
        warnings.simplefilter("ignore")
        model.run("e", x=np.ones((5, 4)))


def test_several_checkpoints_and_arrays_the_last_wins(place: Path, tmp_path: Path) -> None:
    rng = seeded.rng()
    first, second = drawn(rng), drawn(rng)
    save_file(first, tmp_path / "first.safetensors")
    save_file({"w": second["w"], "b": second["b"]}, tmp_path / "second.safetensors")
    paths = [tmp_path / "first.safetensors", tmp_path / "second.safetensors"]
    given = {"b": [1.0, 2.0, 3.0]}
    with lispgpt.load(place / "p.lisp", paths, weights=given, cache=place / "cache") as model:
        found = model.weights()
    wanted = first | {"w": second["w"], "b": np.array(given["b"], np.float32)}
    for name, array in wanted.items():
        np.testing.assert_array_equal(found[name], array)


def test_several_checkpoints_on_a_command_line_the_last_wins(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    rng = seeded.rng()
    first, second, x = drawn(rng), drawn(rng), rng.normal(size=(5, 4)).astype(np.float32)
    save_file({name: first[name] for name in ("w", "short")}, tmp_path / "first.safetensors")
    save_file({name: second[name] for name in ("w", "b")}, tmp_path / "second.safetensors")
    np.save(tmp_path / "x.npy", x)
    words = ["run", place / "p.lisp", "--entry", "e", "--input", f"x={tmp_path / 'x.npy'}"]
    words += [each for name in ("first", "second") for each in ("--checkpoint", tmp_path / f"{name}.safetensors")]
    done = call(*words, "--output", tmp_path / "e.npy")
    assert done.code == 0, done
    assert "second.safetensors have no deep: they begin as the program's :init says" in done.err
    save_file({"deep": first["deep"]}, tmp_path / "third.safetensors")
    done = call(*words, "--checkpoint", tmp_path / "third.safetensors", "--output", tmp_path / "e.npy")
    assert done.code == 0 and "begin as" not in done.err, done
    wanted = right(x, first | {"w": second["w"], "b": second["b"]})
    np.testing.assert_allclose(np.load(tmp_path / "e.npy"), wanted, rtol=1e-3, atol=1e-4)


def test_nothing_given_begins_as_training_does(place: Path, tmp_path: Path) -> None:
    with lispgpt.load(place / "p.lisp", weights={}, cache=place / "cache") as model:
        found = model.weights()
        assert (found["b"] == 0.25).all() and 0 < np.abs(found["w"]).max() < 0.2
        model.save(tmp_path / "w.safetensors")
    assert set(checkpoints.open(tmp_path / "w.safetensors").names()) == set(found)


def test_mistakes_are_said(place: Path, tmp_path: Path) -> None:
    weights = drawn(seeded.rng())

    def load(**given: object) -> lispgpt.Model:
        return lispgpt.load(place / "p.lisp", cache=place / "cache", **given)  # type: ignore[arg-type]

    for given, message in (
        ({**weights, "v": weights["w"]}, "the program has no weight 'v'; it has w, short, deep, b"),
        ({**weights, "w": weights["deep"]}, r"weight 'w' is \[3 4\] in the program, \[2 4 4\]"),
        ({**weights, "w": weights["w"] * np.nan}, "tensor 'w' holds NaN or infinity"),
        ({**weights, "w": [["a"]]}, "weight 'w' is an array of numbers"),
    ):
        with pytest.raises(lispgpt.UserError, match=message), load(weights=given) as model:
            model.run("e", x=np.ones((5, 4)))
    with load(weights=weights) as model:
        before = model.run("e", x=np.ones((5, 4)))["e"]
        for name, array in (("v", weights["w"]), ("w", weights["deep"]), ("w", weights["w"] * np.inf)):
            with pytest.raises(lispgpt.UserError):
                model.set({name: array})
        np.testing.assert_array_equal(model.run("e", x=np.ones((5, 4)))["e"], before)
        with pytest.raises(lispgpt.UserError, match=r"is no name of a \.safetensors file"):
            model.save(tmp_path / "w.bin")
    with pytest.raises(lispgpt.UserError, match="checkpoint is a path or a list of paths"):
        load(checkpoint=5)
