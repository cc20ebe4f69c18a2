"""An adapter of a folder learns beside it, and is written as PEFT reads it."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from recorded_adapters import adapters
from training.test_fine_tuning import FOLDERS, STEPS, by_heart
from training.tiny import losses, train

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import open_weights
from lispgpt.compiler.request import Request
from lispgpt.execution.model import Model
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors
from lispgpt.runtime.given_weights import Several
from lispgpt.runtime.training.snapshot import open_snapshot
from lispgpt.training.fine_tuning import PROGRAM
from lispgpt.training.lora import Lora

ADAPTERS = {each.name: each for each in adapters()}


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.mark.drawn
@pytest.mark.parametrize(
    "base, name, lora",
    [
        ("gpt2-untied-f32", "plain", "rank=4,alpha=8,targets=c_attn+c_proj"),
        pytest.param("llama-3-f32", "stabilised", "rank=3", marks=pytest.mark.slow),
        pytest.param("qwen3-bf16", "", "rank=2,targets=q_proj+v_proj+down_proj", marks=pytest.mark.slow),
    ],
)
def test_an_adapter_learns_and_is_written_as_pefts(
    base: str, name: str, lora: str, cache: Path, tmp_path: Path
) -> None:
    """Its tensors are those that PEFT's own folder has; the model with it says what it said as it learnt."""
    folder = FOLDERS[base]
    model = folder.write(tmp_path / "model", shards=2)
    given: dict[str, Any] = {"program": model, "data": by_heart(tmp_path, folder), "val_fraction": 0.0, **STEPS}
    run = tmp_path / "run"
    train(run, cache, lora=lora, **given | {"steps": 10, "lr": 2e-3})
    assert min(losses(run)[-3:]) < losses(run)[0]
    written = read_safetensors(run / "latest" / "adapter_model.safetensors")
    if name:
        wanted = {key: tuple(shape) for key, shape in ADAPTERS[name].tensors.items()}
        assert {key: tensor.array.shape for key, tensor in written.items()} == wanted
        said, config = json.loads((run / "latest" / "adapter_config.json").read_text()), ADAPTERS[name].config
        assert said["fan_in_fan_out"] == config["fan_in_fan_out"] and said["r"] == config["r"]
        assert said["base_model_name_or_path"] == str(model.resolve())
    assert all(tensor.array.any() for tensor in written.values())
    kept = open_snapshot(run / "latest")
    assert set(kept.names()) == {each for each in kept.names() if ".lora-" in each}
    program, prompt = run / PROGRAM, seeded.rng().integers(0, 40, 9).tolist()
    weights = Several([open_weights(model, program), kept])
    with (
        Model(Request(program, "cpu", {}, weights.config), weights) as learnt,
        lispgpt.load(model, adapter=run) as run_,
    ):
        found, plain = run_.logits(prompt), learnt.logits(prompt)
        np.testing.assert_allclose(found, plain, atol=2e-3 if base.endswith("f32") else 0.1)
    with pytest.raises(UserError, match=r"is an adapter, which changes another model: give that, and --adapter"):
        lispgpt.load(run)


def test_a_run_of_an_adapter_goes_on(cache: Path, tmp_path: Path) -> None:
    """With the losses and numbers, to the last bit, that it would have had."""
    folder = FOLDERS["gpt2-untied-f32"]
    model = folder.write(tmp_path / "model")
    given: dict[str, Any] = {"program": model, "data": by_heart(tmp_path, folder), "val_fraction": 0.0, **STEPS}
    given |= {"lora": "rank=2,targets=c_attn", "lr": 1e-2, "settings": {"schedule": "constant"}}
    train(tmp_path / "whole", cache, steps=5, **given)
    train(tmp_path / "parts", cache, steps=3, **given)
    train(tmp_path / "parts", cache, resume=True, steps=5)
    assert losses(tmp_path / "parts") == losses(tmp_path / "whole")
    whole, parts = (read_safetensors(tmp_path / run / "latest/adapter_model.safetensors") for run in ("whole", "parts"))
    assert all(np.array_equal(whole[name].array, parts[name].array) for name in whole)


@pytest.mark.parametrize(
    "lora, word",
    [
        ("rank=0", "a rank from 1 to 1024"),
        ("rank=x", "a rank from 1 to 1024"),
        ("rank=2,alpha=-1", "is like rank=16"),
        ("rank=2,colour=red", "is like rank=16"),
        ("targets=q_proj+", "is like rank=16"),
        ("rank=2,targets=q_proj", "which no matrix of .* layers is called; there are c_attn, c_proj, c_fc"),
        ("rank=2,targets=wte", "which no matrix of"),
    ],
)
def test_what_no_adapter_can_be_is_said(lora: str, word: str, cache: Path, tmp_path: Path) -> None:
    folder = FOLDERS["gpt2-untied-f32"]
    given: dict[str, Any] = {"data": by_heart(tmp_path, folder), "val_fraction": 0.0, **STEPS}
    with pytest.raises(UserError, match=word):
        train(tmp_path / "run", cache, steps=2, program=folder.write(tmp_path / "model"), lora=lora, **given)
    with pytest.raises(UserError, match="--lora trains an adapter of a model's folder"):
        program = Path(__file__).resolve().parents[2] / "examples" / "gpt2_train.lisp"
        train(tmp_path / "other", cache, steps=2, program=program, lora="rank=2", **given)


def test_what_is_said_of_an_adapter_is_read_again() -> None:
    assert Lora.from_json(Lora.parsed("rank=3,targets=a+b").to_json()) == Lora(3, 6.0, ("a", "b"))
    with pytest.raises(UserError, match="damaged"):
        Lora.from_json({"rank": "3"})
