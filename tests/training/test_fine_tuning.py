"""A model's folder is fine-tuned by itself: its own program learns, and what is written is a folder like it."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import recorded_folders
import seeded
from gguf_files import write_gguf
from recorded_folders import Folder
from safetensors.numpy import save_file
from test_gguf_models import wide
from training.tiny import losses, train

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.compiled import declared
from lispgpt.compiler.folders import open_weights, program_for
from lispgpt.compiler.request import Request
from lispgpt.language.model.folders import find_map
from lispgpt.runtime.checkpoints.like_folder import LikeFolder
from lispgpt.runtime.checkpoints.safetensors_file import read_safetensors
from lispgpt.runtime.data.shards import write_shard

pytestmark = pytest.mark.drawn

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
KINDS = {folder.config["model_type"]: folder.name for folder in FOLDERS.values() if folder.dtype == "f32"}
QUICK = ("qwen3-bf16", "mamba-f32")
EVERY = [*QUICK, *(pytest.param(name, marks=pytest.mark.slow) for name in KINDS.values() if name not in QUICK)]
EXACT = ["mixtral-f32", *(pytest.param(name, marks=pytest.mark.slow) for name in KINDS.values())]
EXPERTS = ("num_experts", "num_local_experts", "n_routed_experts")
STEPS: dict[str, Any] = {"batch": 2, "length": 8, "lr": 5e-3, "warmup": 1, "eval_every": 0, "weight_decay": 0.0}
PROBE = """(require "{program}")
(require training)
(entry probe [(tokens [batch length] i32) (targets [batch length] i32)]
  (let [loss (first (loss-in-texts logits tokens targets nil))
        g (gradients loss (all-weights))]
    {{:loss loss {gradients}}}))
"""


@pytest.fixture(scope="module")
def cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


def vocabulary(config: Mapping[str, Any]) -> int:
    return int(config.get("vocab_size") or config["text_config"]["vocab_size"])


def by_heart(place: Path, folder: Folder) -> Path:
    """A shard of few tokens over and over."""
    rng = seeded.rng()
    write_shard(place / "d.bin", [np.tile(rng.integers(0, min(vocabulary(folder.config), 40), 17), 40)], 40)
    return place / "d.bin"


@pytest.mark.parametrize("name", EVERY)
def test_a_folder_learns_and_is_written_as_a_folder_like_it(name: str, cache: Path, tmp_path: Path) -> None:
    folder = FOLDERS[name]
    model = folder.write(tmp_path / "model", shards=2)
    (model / "generation_config.json").write_text('{"pad_token_id": 0}')
    run, given = tmp_path / "run", {"program": model, "data": by_heart(tmp_path, folder), "val_fraction": 0.0, **STEPS}
    train(run, cache, steps=8, **given)
    assert min(losses(run)[-2:]) < 0.97 * losses(run)[0]
    written = read_safetensors(run / "latest" / "model.safetensors")
    first = {n: t for file in model.glob("*.safetensors") for n, t in read_safetensors(file).items()}
    assert {n: (t.array.shape, t.dtype) for n, t in written.items()} == {
        n: (t.array.shape, t.dtype) for n, t in first.items()
    }
    changed = {n for n in first if not np.array_equal(first[n].array, written[n].array)}
    of_images = {n for n in first if "vision" in n or "multi_modal" in n}
    assert len(changed) > 0.8 * (len(first) - len(of_images)) and not changed & of_images
    for file in ("config.json", "generation_config.json"):
        assert json.loads((run / "latest" / file).read_text()) == json.loads((model / file).read_text())
    with lispgpt.load(run, cache=cache) as loaded:
        assert len(list(loaded.generate([3], max_new_tokens=2, greedy=True))) >= 0
    train(run, cache, resume=True, steps=9)
    assert len(losses(run)) == 9


@pytest.mark.parametrize(
    "name", ["qwen3-bf16", "gpt2-untied-f32", "mixtral-f32", "deepseek-v3-f32", "gemma3-images-f32"]
)
def test_a_folder_that_learnt_nothing_is_the_same(name: str, tmp_path: Path) -> None:
    """Joined, turned, padded and stacked tensors go back to where they came from, bit for bit."""
    folder = FOLDERS[name]
    model = folder.write(tmp_path / "model", shards=3)
    names = find_map(program_for(model))
    assert names is not None
    (tmp_path / "copy").mkdir()
    LikeFolder(model, names).write(tmp_path / "copy", open_weights(model))
    first = {n: t for file in model.glob("*.safetensors") for n, t in read_safetensors(file).items()}
    second = read_safetensors(tmp_path / "copy" / "model.safetensors")
    assert first.keys() == second.keys()
    for tensor, stored in first.items():
        np.testing.assert_array_equal(second[tensor].array, stored.array, err_msg=tensor)


@pytest.mark.parametrize("name", EXACT)
def test_its_gradient_is_that_of_differences(name: str, tmp_path: Path) -> None:
    """Along directions that all weights go at once; of quiet weights and all experts, so that losses have no jumps."""
    folder = FOLDERS[name]
    if name != "mixtral-f32" and "num_experts_per_tok" in folder.config:
        every = next(folder.config[word] for word in EXPERTS if word in folder.config)
        folder = replace(folder, config={**folder.config, "num_experts_per_tok": every})
    model, rng = folder.write(tmp_path / "model"), seeded.rng()
    opened = open_weights(model)
    weights = {}
    for weight in opened.names():
        weights[weight] = np.empty(opened.info(weight).shape, np.float32)
        opened.read_into(weight, weights[weight], "f32")
        if weights[weight].ndim > 1:
            weights[weight] *= np.float32(0.3)
    asked = " ".join(f":d{number} (nth g {number})" for number in range(len(weights)))
    (tmp_path / "probe.lisp").write_text(PROBE.format(program=program_for(model), gradients=asked))
    tokens = rng.integers(0, min(vocabulary(folder.config), 40), (2, 9)).astype(np.int32)
    given = {"tokens": tokens[:, :-1], "targets": tokens[:, 1:]}
    settings = {n: v for n, v in opened.config.items() if isinstance(v, (bool, int, float, str, list))}

    def probed(values: Mapping[str, np.ndarray]) -> dict[str, np.ndarray]:
        save_file(dict(values), tmp_path / "w.safetensors", {"config": json.dumps(settings)})
        with lispgpt.load(tmp_path / "probe.lisp", tmp_path / "w.safetensors", cache=tmp_path / "cache") as loaded:
            return loaded.run("probe", **given)

    found, request = probed(weights), Request(tmp_path / "probe.lisp", "cpu", {}, settings)
    gradient = {weight[0]: found[f"d{number}"] for number, weight in enumerate(declared(request).weights)}
    for _ in range(2):
        way = {n: (w.std() * rng.standard_normal(w.shape)).astype(np.float32) for n, w in weights.items()}
        ends = [float(probed({n: w + s * way[n] for n, w in weights.items()})["loss"]) for s in (3e-4, -3e-4)]
        wanted = sum(float((gradient[n].astype(np.float64) * way[n]).sum()) for n in weights)
        size = np.sqrt(sum(float((gradient[n].astype(np.float64) ** 2 * weights[n].std() ** 2).sum()) for n in weights))
        assert abs((ends[0] - ends[1]) / 6e-4 - wanted) < 0.03 * size, (name, wanted, size)


def test_what_is_no_model_to_train_is_said(tmp_path: Path, cache: Path) -> None:
    """Before anything is compiled, and nothing is left that another run would find in its way."""
    folder = FOLDERS["qwen3-f32"]
    model, shard, quantized = folder.write(tmp_path / "model"), by_heart(tmp_path, folder), tmp_path / "fp8"
    folder.write(quantized)
    config = {**folder.config, "quantization_config": {"quant_method": "fp8"}}
    (quantized / "config.json").write_text(json.dumps(config))
    blocks = write_gguf(wide(FOLDERS["llama-3-f32"]), tmp_path / "q.gguf", "Q8_0")
    for given, message in [
        ({"program": quantized}, "has quantized weights .quantization_config., which are not trained"),
        ({"program": blocks}, "has weights in blocks .qkv-w is q8_0., which are not trained"),
        ({"program": model, "checkpoint": model}, "a tokenizer of its own: --checkpoint is for programs"),
        ({"program": model, "vocab_size": 300}, "a tokenizer of its own: --vocab-size is for programs"),
        ({"program": cache}, "is a folder without config.json: give a model's folder, or a program"),
    ]:
        with pytest.raises(UserError, match=message):
            train(tmp_path / "run", cache, data=shard, **STEPS, **given)
    assert [path.name for path in (tmp_path / "run").iterdir()] == ["lock"]


@pytest.mark.slow
def test_a_gguf_file_of_floats_learns(tmp_path: Path, cache: Path) -> None:
    model = write_gguf(FOLDERS["qwen3-f32"], tmp_path / "m.gguf")
    given = {"program": model, "data": by_heart(tmp_path, FOLDERS["qwen3-f32"]), "val_fraction": 0.0, **STEPS}
    train(tmp_path / "run", cache, steps=8, **given)
    assert min(losses(tmp_path / "run")[-2:]) < 0.97 * losses(tmp_path / "run")[0]
    with lispgpt.load(tmp_path / "run", cache=cache) as loaded:
        assert len(list(loaded.generate([3], max_new_tokens=2, greedy=True))) >= 0
