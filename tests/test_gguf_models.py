"""GGUF files of today's models, by themselves: the tokens of the folder that they were made of."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import recorded_folders
from gguf_files import ARCHITECTURES, write_gguf
from recorded_folders import Folder

import lispgpt
from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import open_weights, programs
from lispgpt.runtime.checkpoints.blocks import in_blocks_of, widened

pytestmark = pytest.mark.drawn

UNSAID = (
    "gpt2-by-layer",
    "phi3-long",
    "qwen2-moe-dense",
    "qwen3-moe-dense",
    "llama-mlp-biased",
    "llama-yarn",
    "qwen2-window",
    "qwen3-biased",
)
UNSAID += ("starcoder-heads", "cohere-f32", "cohere-bf16", "gemma-f32", "gemma-bf16")
"""Folders of what GGUF files have no word for here."""
FOLDERS = {f.name: f for f in recorded_folders.folders() if f.config["model_type"] in ARCHITECTURES}
FOLDERS = {name: folder for name, folder in FOLDERS.items() if not name.startswith(UNSAID)}
QUICK = ("llama-3-f32", "gpt2-untied-bf16", "bloom-f32", "mixtral-window-bf16", "qwen3-f32")
OTHER = {"gemma2": {"query_pre_attn_scalar": 16}, "gemma3_text": {"query_pre_attn_scalar": 16}}
OTHER["qwen3_moe"] = {"norm_topk_prob": True}
"""What files cannot say, and llama.cpp takes for granted."""


def tokens_of(path: Path, folder: Folder, count: int = 24) -> list[list[int]]:
    with lispgpt.load(path) as model:
        texts = [model.generate(case.prompt, max_new_tokens=count, greedy=True) for case in folder.cases]
        for text in texts:
            list(text)
        return [text.tokens for text in texts]


@pytest.mark.parametrize("name", [pytest.param(n, marks=[] if n in QUICK else [pytest.mark.slow]) for n in FOLDERS])
def test_a_file_alone_gives_its_folders_tokens(name: str, tmp_path: Path) -> None:
    folder = FOLDERS[name]
    kind = folder.config["model_type"]
    folder = replace(folder, config={**folder.config, **OTHER.get(kind, {})})
    found = tokens_of(write_gguf(folder, tmp_path / "model.gguf", "BF16" if name.endswith("bf16") else "F32"), folder)
    if kind in OTHER:
        assert found == tokens_of(folder.write(tmp_path / "folder"), folder)
    else:
        assert all(case.accepts(tokens) for case, tokens in zip(folder.cases, found, strict=True)), found


def test_every_program_of_llama_cpps_models_reads_its_files() -> None:
    assert set(programs("gguf")) >= set(ARCHITECTURES.values())


@pytest.mark.slow
def test_an_artifact_reads_files_as_its_program_does(tmp_path: Path) -> None:
    folder = FOLDERS["qwen3-f32"]
    path = write_gguf(folder, tmp_path / "model.gguf")
    lispgpt.compile(path).save(tmp_path / "model.lgpt")
    with lispgpt.load(tmp_path / "model.lgpt", path, trust=True) as model:
        text = model.generate(folder.cases[1].prompt, max_new_tokens=24, greedy=True)
        list(text)
        assert folder.cases[1].accepts(text.tokens)


@pytest.mark.parametrize("kind", ["F32", "F16", "BF16", "Q8_0", "Q4_0"])
def test_weights_are_what_was_written(kind: str, tmp_path: Path) -> None:
    folder = wide(FOLDERS["llama-3-f32"])
    plain = open_weights(folder.write(tmp_path / "folder"))
    opened = open_weights(write_gguf(folder, tmp_path / "model.gguf", kind))
    assert opened.names() == plain.names()
    error = {"F32": 0, "F16": 5e-4, "BF16": 4e-3, "Q8_0": 5e-3, "Q4_0": 0.13}[kind]
    for name in plain.names():
        wanted, found = (np.empty(plain.info(name).shape, np.float32) for _ in range(2))
        plain.read_into(name, wanted, "f32")
        opened.read_into(name, found, "f32")
        assert np.abs(found - wanted).max() <= error * np.abs(wanted).max(), name
    opened.check_finite()


def test_blocks_are_kept_and_followed(tmp_path: Path) -> None:
    folder = wide(FOLDERS["llama-3-f32"])
    path = write_gguf(folder, tmp_path / "model.gguf", "Q8_0")
    opened = open_weights(path)
    assert opened.config["weight-types"] == dict.fromkeys(
        ("wte", "qkv-w", "proj-w", "gate-w", "up-w", "down-w", "head-w"), "q8_0"
    )
    assert opened.notice == ""
    found = []
    for settings in ({}, {"weight-type": "f32"}):
        with lispgpt.load(path, settings=settings) as model:
            texts = [model.generate(case.prompt, max_new_tokens=12, greedy=True) for case in folder.cases]
            found.append([list(text) and text.tokens for text in texts])
            dtypes = {name: about["dtype"] for name, about in model.artifact.weights.items()}
            assert dtypes["up-w"] == settings.get("weight-type", "q8_0") and dtypes["norm1-w"] == "f32"
    assert found[0] == found[1]


@pytest.mark.parametrize("kind", ["Q4_K", "Q5_K", "Q6_K", "IQ4_XS", "MXFP4"])
def test_blocks_stay_as_they_are(kind: str, tmp_path: Path) -> None:
    folder = wide(FOLDERS["llama-3-f32"], 128)
    opened = open_weights(write_gguf(folder, tmp_path / "model.gguf", kind))
    kept = opened.config["weight-types"]
    assert (
        opened.notice == ""
        and {"qkv-w", "up-w", "down-w", "head-w"} <= set(kept)
        and set(kept.values()) == {kind.lower()}
    )
    plain = open_weights(folder.write(tmp_path / "folder"))
    for name in ("up-w", "head-w"):
        wanted = np.empty(plain.info(name).shape, np.float32)
        plain.read_into(name, wanted, "f32")
        found = np.empty(find_dtype(kind.lower()).items(wanted.shape), find_dtype(kind.lower()).numpy)
        opened.read_into(name, found, kind.lower())
        assert np.array_equal(found, in_blocks_of(wanted, kind.lower())), name


MIXED = {"blk.1.attn_v": "Q6_K", "blk.1.ffn_down": "Q6_K", "output.": "Q6_K"}
"""What is in Q6_K where a file is Q4_K_M, all else being in Q4_K."""


def test_matrices_of_several_k_types_keep_their_numbers(tmp_path: Path) -> None:
    """As users download them: tensors of one weight are of Q4_K in some layers and of Q6_K in others."""
    path = write_gguf(wide(FOLDERS["llama-3-f32"], 128), tmp_path / "model.gguf", "Q4_K", others=MIXED)
    opened = open_weights(path)
    assert opened.notice == ""
    kept = opened.config["weight-types"]
    assert {name: kept[name] for name in ("qkv-w", "up-w", "down-w", "head-w")} == {
        "qkv-w": "k_mix", "up-w": "q4_k", "down-w": "k_mix", "head-w": "q6_k"
    }  # fmt: skip
    for name in ("qkv-w", "down-w"):
        info = opened.info(name)
        blocks, wanted = np.empty(find_dtype("k_mix").items(info.shape), find_dtype("k_mix").numpy), opened.tensor(name)
        opened.read_into(name, blocks, "k_mix")
        assert np.array_equal(widened(blocks, "k_mix"), wanted), name


@pytest.mark.slow
def test_models_of_several_k_types_are_followed(tmp_path: Path) -> None:
    folder = wide(FOLDERS["llama-3-f32"], 128)
    path, logits = write_gguf(folder, tmp_path / "model.gguf", "Q4_K", others=MIXED), []
    for settings in ({}, {"weight-type": "f32"}):
        with lispgpt.load(path, settings=settings) as model:
            entry = model.entry("decode-greedy", "this", batch=1, positions=1).name
            steps = enumerate(folder.cases[0].prompt[:4])
            found = [model.session.run(entry, tokens=[[t]], positions=[[n]])["logits"].copy() for n, t in steps]
            logits.append(np.concatenate(found))
    assert np.abs(logits[0] - logits[1]).max() < 5e-4 * np.abs(logits[1]).max()


def test_blocks_that_no_kernel_reads_become_others_and_that_is_said(tmp_path: Path) -> None:
    opened = open_weights(write_gguf(wide(FOLDERS["qwen2-f32"]), tmp_path / "model.gguf", "Q5_0"))
    assert opened.config["weight-types"]["up-w"] == "q8_0"
    assert "loaded as q8_0: " in opened.notice and "up-w (q5_0)" in opened.notice


def test_files_in_parts_are_one_model(tmp_path: Path) -> None:
    import gguf

    folder = FOLDERS["qwen2-f32"]
    whole = write_gguf(folder, tmp_path / "whole.gguf")
    source = gguf.GGUFReader(whole)
    for number in range(2):
        writer = gguf.GGUFWriter(str(tmp_path / f"part-0000{number + 1}-of-00002.gguf"), "qwen2")
        for key, field in source.fields.items():
            if number == 0 and key.startswith("qwen2."):
                writer.add_key_value(key, field.contents(), field.types[0])
        writer.add_uint16("split.no", number)
        writer.add_uint16("split.count", 2)
        for tensor in source.tensors[number::2]:
            writer.add_tensor(tensor.name, tensor.data)
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
    first, plain = open_weights(tmp_path / "part-00001-of-00002.gguf"), open_weights(whole)
    for name in plain.names():
        assert np.array_equal(first.tensor(name), plain.tensor(name))
    with pytest.raises(UserError, match="is part 2 of 2 of a model: name its first"):
        open_weights(tmp_path / "part-00002-of-00002.gguf")


def test_a_file_for_another_program_names_the_right_one(tmp_path: Path) -> None:
    path = write_gguf(FOLDERS["qwen3-f32"], tmp_path / "model.gguf")
    with pytest.raises(UserError, match=r"type 'qwen3', and .*qwen2\.lisp is for qwen2; qwen3\.lisp is the program"):
        lispgpt.load(programs()["qwen2"], path)


def wide(folder: Folder, head: int = 16) -> Folder:
    """The same model with six heads of so many numbers, 16 or 128, and rows of whole blocks of twice as many."""
    sizes = {60: 6 * head, 77: 160 if head == 16 else 256}
    rows = {20: 2 * head} | sizes
    tensors = {n: [rows.get(e, e) for e in shape] for n, shape in folder.tensors.items()}
    config = {k: sizes.get(v, v) if isinstance(v, int) else v for k, v in folder.config.items()}
    config["head_dim"] = head
    return replace(folder, config=json.loads(json.dumps(config)), tensors=tensors)
