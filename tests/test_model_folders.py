"""Hugging Face folders of today's models, by themselves: transformers' tokens, or clear words for what is not right."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
from recorded_folders import Folder

import lispgpt
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import programs
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

FOLDERS = {folder.name: folder for folder in recorded_folders.folders()}
SLOW = [name for name in FOLDERS if name.endswith("bf16") and not name.startswith(("qwen3-bf16", "mixtral", "gemma3"))]
SLOW += [f"{name}-f32" for name in ("smollm3", "granite", "olmo2", "phi", "stablelm", "falcon-groups")]
SLOW += [f"{name}-f32" for name in ("qwen2-moe-dense", "deepseek-v2", "deepseek-v2-lite", "mamba2", "falcon-mamba")]
SLOW += ["glm4-moe-f32", "rwkv-f32"]
"""Run them after a change of the library's layers or of what reads folders."""


def check(folder: Folder, path: Path) -> None:
    """The folder alone gives the recorded tokens."""
    with lispgpt.load(path) as model:
        for case in folder.cases:
            text = model.generate(case.prompt, max_new_tokens=len(case.tokens), greedy=True)
            assert list(text) is not None
            assert case.accepts(text.tokens), f"{folder.name}: {text.tokens} is not {case.tokens}"


@pytest.mark.parametrize("name", [pytest.param(n, marks=[pytest.mark.slow] if n in SLOW else []) for n in FOLDERS])
def test_a_folder_alone_gives_transformers_tokens(name: str, tmp_path: Path) -> None:
    check(FOLDERS[name], FOLDERS[name].write(tmp_path / name, shards=3 if "qwen" in name else 1))


@pytest.mark.slow
def test_long_factors_are_those_of_long_texts(tmp_path: Path) -> None:
    """From where short ones end, which may be the start, they do what short ones would do there."""
    folder, found = FOLDERS["phi3-long-f32"], {}
    short, long = (folder.config["rope_parameters"][f"{name}_factor"] for name in ("short", "long"))
    for name, factors, settings in (
        ("short", (short, long), {}),
        ("long", (short, long), {"rope-short-until": 0}),
        ("exchanged", (long, short), {}),
        ("from 20 on", (short, long), {"rope-short-until": 20}),
    ):
        path = folder.write(tmp_path / name)
        config = dict(folder.config)
        config["rope_parameters"] = {**config["rope_parameters"], "short_factor": factors[0], "long_factor": factors[1]}
        (path / "config.json").write_text(json.dumps(config))
        with lispgpt.load(path, settings=settings) as model:
            found[name] = model.logits(folder.cases[2].prompt)
    np.testing.assert_allclose(found["long"], found["exchanged"], atol=1e-5)
    np.testing.assert_allclose(found["from 20 on"][:20], found["short"][:20], atol=1e-5)
    for name in ("long", "from 20 on"):
        assert np.abs(found[name] - found["short"])[20:].max() > 0.01


def test_every_kind_has_a_program_of_at_most_sixty_lines() -> None:
    assert {folder.config["model_type"] for folder in FOLDERS.values()} == set(programs())
    for path in programs().values():
        assert len(path.read_text().splitlines()) <= 60


def test_what_runs_by_itself_no_more_than_this_is_said(tmp_path: Path) -> None:
    """Checkpoints, folders of other things, files that are called GGUF, and a run of a program of one's own."""
    checkpoint = tmp_path / "m.bin"
    make(checkpoint, Gpt2Shape.unpadded(vocab=300, context=20, layers=1, heads=3, width=12), "llmc")
    (tmp_path / "empty.gguf").touch()
    (tmp_path / "run" / "checkpoints" / "1").mkdir(parents=True)
    (tmp_path / "run" / "latest").symlink_to("checkpoints/1")
    for path, said in {
        "m.bin": "is a checkpoint, which a program runs",
        "empty.gguf": "is no GGUF file",
        ".": "is a folder without config.json, as models have, and manifest.json",
        "run": "is the folder of a run: give the program that was trained",
    }.items():
        with pytest.raises(UserError, match=said):
            lispgpt.load(tmp_path / path)
    (tmp_path / "a.lgpt").write_bytes(b"PK\3\4")
    with pytest.raises(UserError, match="is a compiled program, and no checkpoint"):
        checkpoints.open(tmp_path / "a.lgpt")


def test_a_program_for_another_model_names_the_right_one(tmp_path: Path, examples: Path) -> None:
    path = FOLDERS["qwen3-f32"].write(tmp_path / "model")
    with pytest.raises(UserError, match=r"'qwen3', and .*qwen2\.lisp is for qwen2; qwen3\.lisp is the program for it"):
        lispgpt.load(examples / "qwen2.lisp", path)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"model_type": "jamba"}, "no program is known for model_type 'jamba'; there are programs for .*qwen3"),
        ({"hidden_act": "relu"}, "hidden_act is 'relu', and the program is for 'silu' alone"),
        ({"hidden_size": None}, "lacks hidden_size, by which the program sets width"),
        ({"rms_norm_eps": float("nan")}, "is nan, by which epsilon is set"),
        ({"vocab_size": 1 << 40}, "is 1099511627776, by which vocab is set"),
        ({"num_hidden_layers": 3}, r"layers\.2\.\S+' is missing; config.json asks for 3 layers"),
        ({"num_hidden_layers": 1}, r"the program has no weight for tensor 'layers\.1\."),
        ({"rope_parameters": {"rope_type": "dynamic"}}, "rope_type is 'dynamic', and the program is for"),
    ],
)
def test_a_folder_that_is_not_right_is_one_clear_error(change: dict, message: str, tmp_path: Path) -> None:
    path = FOLDERS["qwen3-f32"].write(tmp_path / "model")
    config = dict(FOLDERS["qwen3-f32"].config) | change
    (path / "config.json").write_text(json.dumps({key: value for key, value in config.items() if value is not None}))
    with pytest.raises(UserError, match=message):
        lispgpt.load(path)


def test_an_artifact_reads_folders_as_its_program_does(tmp_path: Path) -> None:
    folder = FOLDERS["qwen3-f32"]
    path = folder.write(tmp_path / "model")
    lispgpt.compile(path).save(tmp_path / "model.lgpt")
    with lispgpt.load(tmp_path / "model.lgpt", path, trust=True) as model:
        text = model.generate(folder.cases[1].prompt, max_new_tokens=24, greedy=True)
        list(text)
        assert folder.cases[1].accepts(text.tokens)
