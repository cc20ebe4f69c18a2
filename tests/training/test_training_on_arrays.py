"""Runs on arrays: of a dict, an .npz file or a function that yields them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from safetensors.numpy import save_file
from test_cli import Call, call, made  # noqa: F401
from training.tiny import Seen, losses

import lispgpt
from lispgpt.runtime.training.run_folder import read_metrics
from lispgpt.training.going_on import asked_by_steps

PROGRAM = """(require nn training)
(config wide 3)
(weights (w [2 wide] {:init (normal 0.1)}) (b [2] {:init 0.5}))
(entry fit [(x [batch wide] f32) (y [batch 2] f32) (seed [] i32)]
  (let [d (- (linear x w b) y)]
    {:loss (/ (sum (sum (square d))) (* 1.0 (dim x 0))) :worst (maximum (maximum (square d))) :drawn (cast seed f32)}))
(training fit)
"""
SCRIPT = """import numpy as np
def batches(batch, seed):
    rng = np.random.default_rng(seed)
    for number in range(7):
        x = rng.normal(size=(batch, 3)).astype(np.float32)
        yield {"x": x, "y": x[:, :2] - 1, "unused": np.arange(batch)}
def broken(batch):
    yield {"x": np.zeros((batch, 3)), "y": np.zeros((batch, 2))}
    raise RuntimeError("no more")
def narrow(batch):
    yield {"x": np.zeros((batch - 1, 3)), "y": np.zeros((batch - 1, 2))}
"""
STEPS: dict[str, Any] = {"batch": 8, "lr": 0.05, "eval_every": 5, "weight_decay": 0.0}


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("arrays")
    (folder / "fit.lisp").write_text(PROGRAM)
    (folder / "script.py").write_text(SCRIPT)
    return folder


def drawn() -> dict[str, np.ndarray]:
    x = seeded.rng().normal(size=(50, 3)).astype(np.float32)
    return {"x": x, "y": x @ np.array([[1, 2], [0, 1], [3, 0]], np.float32) + 1}


def train(place: Path, run: Path, **given: Any) -> Seen:
    seen = Seen()
    lispgpt.train(run=run, cache=place / "cache", watcher=seen, **given)
    return seen


def test_a_run_on_arrays_goes_on_as_if_nothing_had_been(place: Path, tmp_path: Path) -> None:
    data = drawn()
    seen = train(place, tmp_path / "whole", program=place / "fit.lisp", data=data, steps=30, val_fraction=0.2, **STEPS)
    assert seen.about["amount"] == 8 and seen.about["unit"] == "rows" and seen.about["windows"] == 40
    whole = read_metrics(tmp_path / "whole")
    assert whole[-1]["val_loss"] < whole[4]["val_loss"] and all(record["rows_per_s"] > 0 for record in whole)
    assert {"val_loss", "val_worst", "worst", "drawn"} <= set(whole[4]) and "perplexity" not in whole[4]
    np.savez(tmp_path / "data.npz", **data)
    path = tmp_path / "data.npz"
    given = {"min_lr": 0.005, "warmup": 3}
    train(place, tmp_path / "cut", program=place / "fit.lisp", data=path, steps=30, val_fraction=0.2, **STEPS, **given)
    assert losses(tmp_path / "cut") == losses(tmp_path / "whole")
    asked = asked_by_steps(tmp_path / "whole")
    assert asked.pop("arrays") == {"x": (8, 3), "y": (8, 2)}
    assert asked == {"target": "cpu", "precision": "exact", "entries": ("train", "evaluate")}
    with lispgpt.load(place / "fit.lisp", tmp_path / "whole", cache=place / "cache") as model:
        found = model.run("evaluate", x=data["x"][40:48], y=data["y"][40:48], seed=0)
        assert float(found["loss"]) == pytest.approx(whole[-1]["val_loss"], rel=1e-5)
        w = model.weights()
    d = data["x"][40:48] @ w["w"].T + w["b"] - data["y"][40:48]
    assert float(found["loss"]) == pytest.approx(float((d.astype(np.float64) ** 2).sum() / 8), rel=1e-4)


def test_a_function_yields_batches_and_a_run_goes_on_with_it(place: Path, tmp_path: Path, call: Call) -> None:  # noqa: F811
    script, more = str(place / "script.py:batches"), ["--batch", "8", "--lr", "0.05", "--warmup", "2"]
    words = ["train", str(place / "fit.lisp"), "--data", script, "--val-data", script, "--min-lr", "0.01", *more]
    done = call(*words, "--run", str(tmp_path / "whole"), "--steps", "12", "--eval-every", "6")
    assert done.code == 0, done.err
    assert "12 steps of 8 rows" in done.err and "rows/s" in done.err and "val " in done.err
    found = losses(tmp_path / "whole")
    assert len(found) == 12 and found[-1] < found[0]
    cut = ["--run", str(tmp_path / "cut")]
    assert call(*words, *cut, "--steps", "9", "--schedule", "constant").code == 0
    assert call("train", *cut, "--resume", "--steps", "12").code == 0
    whole = ["--run", str(tmp_path / "constant")]
    assert call(*words, *whole, "--steps", "12", "--schedule", "constant").code == 0
    assert losses(tmp_path / "cut") == losses(tmp_path / "constant")


def test_devices_share_the_rows(place: Path, tmp_path: Path) -> None:
    given: dict[str, Any] = {"program": place / "fit.lisp", "steps": 4, **STEPS, "eval_every": 2}
    given |= {"data": drawn(), "val_fraction": 0.2}
    train(place, tmp_path / "one", **given)
    train(place, tmp_path / "two", **given, devices=2)
    np.testing.assert_allclose(losses(tmp_path / "one"), losses(tmp_path / "two"), rtol=1e-5)
    one, two = (read_metrics(tmp_path / run)[-1]["val_loss"] for run in ("one", "two"))
    assert one == pytest.approx(two, rel=1e-5)


def test_weights_that_a_checkpoint_lacks_begin_as_they_do(place: Path, tmp_path: Path) -> None:
    save_file({"w": np.zeros((2, 3), np.float32)}, tmp_path / "w.safetensors")
    given = {"program": place / "fit.lisp", "checkpoint": tmp_path / "w.safetensors", "data": drawn(), "steps": 1}
    seen = train(place, tmp_path / "run", **given, **{**STEPS, "lr": 0.0})
    assert any("w.safetensors has no b: they begin as the program's :init says" in note for note in seen.notes)
    with lispgpt.load(place / "fit.lisp", tmp_path / "run", cache=place / "cache") as model:
        assert (model.weights()["b"] == 0.5).all() and (model.weights()["w"] == 0).all()
    save_file({"b": np.full(2, 3, np.float32)}, tmp_path / "b.safetensors")
    both = [tmp_path / "w.safetensors", tmp_path / "b.safetensors"]
    seen = train(place, tmp_path / "both", **given | {"checkpoint": both}, **{**STEPS, "lr": 0.0})
    assert not any("begin as" in note for note in seen.notes)
    with lispgpt.load(place / "fit.lisp", tmp_path / "both", cache=place / "cache") as model:
        assert (model.weights()["b"] == 3).all() and (model.weights()["w"] == 0).all()


def test_mistakes_are_said(place: Path, tmp_path: Path) -> None:
    data = drawn()
    script = str(place / "script.py")
    for number, (given, message) in enumerate(
        [
            ({"x": data["x"]}, "takes an array y, and the data has x"),
            ({"x": data["x"][:9], "y": data["y"]}, r"as many rows each, from 1 on, and has x \[9, 3\], y \[50, 2\]"),
            ({"x": data["x"][:, :2], "y": data["y"]}, r"x of train is \[batch 3\]|x of \w+ is \[batch "),
            ({}, "there is nothing to train on"),
            ({"x": np.array(["a"] * 50), "y": data["y"]}, "arrays to train on are of numbers"),
            (script + ":broken", "script.py:broken fails at line 9: RuntimeError: no more"),
            (script + ":narrow", r"yields x \[7, 3\], and a batch has 8 rows"),
            (script + ":nobody", "has no function 'nobody'"),
            (tmp_path / "none.npz", "there is no file"),
        ]
    ):
        with pytest.raises(lispgpt.UserError, match=message):
            train(place, tmp_path / f"run{number}", program=place / "fit.lisp", data=given, steps=3, **STEPS)
