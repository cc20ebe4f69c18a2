"""The example programs that train: what they learn is what they generate with, and others can read it."""

from __future__ import annotations

import json
from itertools import pairwise
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from training.tiny import losses, train

import lispgpt
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints import Checkpoint
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.huggingface import export as export_huggingface
from lispgpt.runtime.checkpoints.initial import InitialWeights
from lispgpt.runtime.checkpoints.llmc import export as export_llmc
from lispgpt.runtime.checkpoints.numbers import bf16_to_f32
from lispgpt.runtime.data.shards import read_shard, write_shard
from lispgpt.runtime.training.snapshot import open_snapshot

EXAMPLES = Path(__file__).resolve().parents[2] / "examples"
TEXT = EXAMPLES / "texts" / "harbour.txt"
SMALL: dict[str, Any] = {"layers": 2, "heads": 2, "width": 32}
STEPS: dict[str, Any] = {"batch": 4, "length": 16, "lr": 5e-3, "weight_decay": 0.0, "val_fraction": 0.1}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def values(opened: Checkpoint, name: str) -> np.ndarray:
    """A tensor as f32, exactly as stored."""
    array = opened.tensor(name)
    return bf16_to_f32(array) if array.dtype == np.uint16 else array


def loss_by_generation(program: Path, checkpoint: Path, tokens: np.ndarray, cache: Path) -> float:
    """The mean loss of a sequence by the entry that text is generated with, token by token."""
    found = []
    with lispgpt.load(program, checkpoint, cache=cache) as model:
        for place, (token, target) in enumerate(pairwise(tokens)):
            logits = model.run("logits", tokens=[[token]], positions=[[place]])["logits"][0].astype(np.float64)
            logits = logits[: model.session.config["vocab"]]
            found.append(np.log(np.exp(logits - logits.max()).sum()) + logits.max() - logits[target])
    return float(np.mean(found))


@pytest.mark.parametrize("weight_type", [pytest.param("f32", marks=pytest.mark.slow), "bf16"])
def test_gpt2_learns_and_its_checkpoint_is_read_in_three_formats(cache: Path, tmp_path: Path, weight_type: str) -> None:
    run, program = tmp_path / "run", EXAMPLES / "gpt2_train.lisp"
    settings = {**SMALL, "weight-type": weight_type}
    given = {"steps": 60, "vocab_size": 320, "eval_every": 60, "eval_batches": 100, "seed": seeded.fresh_seed()}
    train(run, cache, program=program, data=[TEXT], settings=settings, **STEPS, **given)
    assert np.mean(losses(run)[-5:]) < 0.8 * losses(run)[0]
    latest = run / "latest"
    folder, file = checkpoints.open(latest), checkpoints.open(latest / "model.bin")
    assert (folder.format, file.format) == ("huggingface", "llmc")
    exact = open_snapshot(latest)
    assert json.loads((latest / "config.json").read_text())["n_layer"] == 2
    for name in folder.names():
        own = values(exact, name)
        for opened in (folder, file):
            vocab = folder.config["vocab"] if name == "wte" else None
            theirs = values(opened, name)
            rounded = opened is file and weight_type == "bf16"  # norms too are in BF16 in llm.c's
            np.testing.assert_allclose(theirs[:vocab], own[:vocab], rtol=1e-2 if rounded else 0)
    tokens = read_shard(run / "tokens" / "train-000.bin").tokens[:17].astype(int)
    generate = EXAMPLES / "gpt2_generate.lisp"
    one = lispgpt.evaluate(program, run, [_shard_of(tmp_path, tokens)], length=16, cache=cache)
    expected = loss_by_generation(generate, latest, tokens, cache)
    assert one.targets == 16 and abs(one.loss - expected) < 1e-3 * expected


def _shard_of(folder: Path, tokens: np.ndarray) -> Path:
    write_shard(folder / "part.bin", [tokens], 1 << 16)
    return folder / "part.bin"


@pytest.mark.parametrize("bias", [True, pytest.param(False, marks=pytest.mark.slow)])
def test_hipgpt_learns_as_it_is(cache: Path, tmp_path: Path, bias: bool) -> None:
    run, program = tmp_path / "run", EXAMPLES / "hipgpt_train.lisp"
    settings = {**SMALL, "hidden": 48, "head-bias": bias, "dropout-rate": 0.1}
    train(run, cache, program=program, data=[TEXT], vocab_size=320, settings=settings, steps=60, eval_every=60, **STEPS)
    assert np.mean(losses(run)[-5:]) < 0.8 * losses(run)[0]
    opened = checkpoints.open(run)
    assert opened.format == "safetensors" and opened.config["hidden"] == 48 and opened.config["head-bias"] is bias
    assert opened.info("qkv-w").shape == (2, 96, 32) and ("out-bias" in opened.names()) is bias
    tokens = read_shard(run / "tokens" / "train-000.bin").tokens[:17].astype(int)
    one = lispgpt.evaluate(program, run, [_shard_of(tmp_path, tokens)], length=16, cache=cache)
    expected = loss_by_generation(program, run / "latest", tokens, cache)
    assert abs(one.loss - expected) < 1e-3 * expected


def initial(names: dict[str, tuple[int, ...]], config: dict[str, Any], stacked: set[str]) -> InitialWeights:
    weights = [(name, shape, "f32", name in stacked) for name, shape in names.items()]
    return InitialWeights({**config, "weight-type": "f32"}, weights, {}, seeded.fresh_seed())


def test_what_is_not_all_of_a_gpt2_is_not_exported_as_one(tmp_path: Path) -> None:
    shape = Gpt2Shape.unpadded(300, 16, 2, 2, 8)
    names = {name: extents for name, extents, _ in shape.tensors()}
    stacked = {name for name, _, own in shape.tensors() if own}
    config = shape.config("f32")
    wider = {**names, "fc-w": (2, 40, 8), "fc-b": (2, 40), "out-w": (2, 8, 40)}
    for number, (given, other, exported) in enumerate(
        [
            (names, {}, {"config.json", "model.safetensors", "model.bin"}),
            (names, {"epsilon": 1e-6}, {"config.json", "model.safetensors"}),
            (wider, {}, set()),
            ({**names, "head-b": (300,)}, {}, set()),
            ({name: extents for name, extents in names.items() if name != "lnf-b"}, {}, set()),
            (names, {"heads": 3}, set()),
        ]
    ):
        folder = tmp_path / str(number)
        folder.mkdir()
        source = initial(given, {**config, **other}, stacked)
        for export in (export_huggingface, export_llmc):
            export(folder, source)
        assert {path.name for path in folder.iterdir()} == exported, number
    source = initial(names, config, stacked)
    export_huggingface(tmp_path / "0", source)
    opened = checkpoints.open(tmp_path / "0")
    for name in names:
        array = np.empty(source.info(name).shape, np.float32)
        source.read_into(name, array, "f32")
        rows = 300 if name == "wte" else None
        np.testing.assert_array_equal(values(opened, name)[:rows], array[:rows])
