"""Damaged, foreign and hostile checkpoint files: one clear error each, before anything large is allocated."""

from __future__ import annotations

import json
import os
import struct
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import seeded
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from lispgpt.base.errors import UserError
from lispgpt.runtime import checkpoints
from lispgpt.runtime.checkpoints.gpt2 import Gpt2Shape
from lispgpt.runtime.checkpoints.make import make

SHAPE = Gpt2Shape.unpadded(50, 8, 2, 2, 4)
FIELDS = ("magic", "version", "context", "vocab", "layers", "heads", "width", "padded-vocab")


@pytest.fixture(scope="module")
def llmc(tmp_path_factory: pytest.TempPathFactory) -> bytes:
    path = tmp_path_factory.mktemp("llmc") / "model.bin"
    make(path, SHAPE, "llmc", "bf16", 1)
    return path.read_bytes()


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    make(tmp_path / "hf", SHAPE, "huggingface", "bf16", 1)
    return tmp_path / "hf"


def error_of(path: Path) -> str:
    with pytest.raises(UserError) as caught:
        checkpoints.open(path)
    assert "\n" not in caught.value.message
    return caught.value.message


def with_field(data: bytes, field: str, value: int) -> bytes:
    offset = 4 * FIELDS.index(field)
    return data[:offset] + struct.pack("<i", value) + data[offset + 4 :]


@pytest.mark.parametrize("version", [-1, 0, 1, 2, 4, 6, 99])
def test_llmc_versions(tmp_path: Path, llmc: bytes, version: int) -> None:
    (tmp_path / "m").write_bytes(with_field(llmc, "version", version))
    assert f"version {version}, and only 3 (F32) and 5 (BF16) can be read" in error_of(tmp_path / "m")


@pytest.mark.parametrize("field", FIELDS[2:])
@pytest.mark.parametrize("value", [-1, 0, -(1 << 31), (1 << 31) - 1, 1 << 16])
def test_llmc_counts(tmp_path: Path, llmc: bytes, field: str, value: int) -> None:
    (tmp_path / "m").write_bytes(with_field(llmc, field, value))
    message = error_of(tmp_path / "m")
    if value < 1:
        assert "the header is damaged" in message
        assert ("padded vocabulary" if field == "padded-vocab" else f"{field} is {value}") in message


def test_llmc_all_counts_as_large_as_they_can_be(tmp_path: Path, llmc: bytes) -> None:
    for field in FIELDS[2:]:
        llmc = with_field(llmc, field, (1 << 31) - 1)
    (tmp_path / "m").write_bytes(llmc)
    assert "is cut short" in error_of(tmp_path / "m")


def test_llmc_heads_must_divide_the_width(tmp_path: Path, llmc: bytes) -> None:
    (tmp_path / "m").write_bytes(with_field(llmc, "heads", 3))
    assert "the width (4) is not a multiple of the number of heads (3)" in error_of(tmp_path / "m")


@pytest.mark.parametrize("length", [1, 3, *range(4, 36, 4), 1000, 1023, 1024, 1025, -2, -1])
def test_llmc_cut_short(tmp_path: Path, llmc: bytes, length: int) -> None:
    (tmp_path / "m").write_bytes(llmc[:length])
    message = error_of(tmp_path / "m")
    assert "is cut short" in message or "is no checkpoint" in message


def test_llmc_too_long(tmp_path: Path, llmc: bytes) -> None:
    (tmp_path / "m").write_bytes(llmc + b"\0")
    assert f"is too long: {len(llmc) + 1} bytes, where its header's sizes need {len(llmc)}" in error_of(tmp_path / "m")


@pytest.mark.parametrize("bits", [0x7F80, 0xFF80, 0x7FC0, 0xFFFF])
def test_nan_and_infinity_are_found_and_named(tmp_path: Path, llmc: bytes, bits: int) -> None:
    place = int(seeded.rng().integers(1024, len(llmc)) // 2 * 2)
    (tmp_path / "m").write_bytes(llmc[:place] + struct.pack("<H", bits) + llmc[place + 2 :])
    opened = checkpoints.open(tmp_path / "m")
    offset = 1024
    for name in opened.names():
        info = opened.info(name)
        offset += 2 * int(np.prod(info.shape))
        if place < offset:
            break
    with pytest.raises(UserError, match=f"tensor '{name}' holds NaN or infinity"):
        opened.check_finite()
    with pytest.raises(UserError, match=f"tensor '{name}' holds NaN or infinity"):
        opened.read_into(name, np.empty(info.shape, np.float32), "f32")
    opened.check_finite(other for other in opened.names() if other != name)


@pytest.mark.parametrize(
    ("content", "hint"),
    [
        (b"", "is empty"),
        (b"GGUF\3\0\0\0", "GGUF"),
        (b"PK\3\4rest", "save_pretrained"),
        (b"\x80\x02}q", "pickle"),
        (b"\0" * 2000, "is no checkpoint known here: it begins with 00 00 00 00"),
        (struct.pack("<2i", 20240328, 2), "is cut short"),
        (struct.pack("<2i", 20240328, 2).ljust(1024), "an llm.c tokenizer"),
    ],
)
def test_other_files(tmp_path: Path, content: bytes, hint: str) -> None:
    (tmp_path / "m").write_bytes(content)
    assert hint in error_of(tmp_path / "m")


def test_other_paths(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "pipe")
    assert "neither a file nor a folder" in error_of(tmp_path / "pipe")
    assert "without config.json" in error_of(tmp_path)
    assert "there is no checkpoint" in error_of(tmp_path / "gone")
    assert "checkpoint" in error_of(Path("a\0b"))
    assert "checkpoint" in error_of(tmp_path / ("x" * 5000))


def edit_config(**changes: Any) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        data = json.loads((folder / "config.json").read_text()) | changes
        (folder / "config.json").write_text(json.dumps({k: v for k, v in data.items() if v is not ...}))

    return edit


def edit_header(change: Callable[[dict[str, Any]], object]) -> Callable[[Path], None]:
    def edit(folder: Path) -> None:
        header, rest = split(folder)
        change(header)
        join(folder, json.dumps(header).encode(), rest)

    return edit


def split(folder: Path) -> tuple[dict[str, Any], bytes]:
    data = (folder / "model.safetensors").read_bytes()
    length = struct.unpack_from("<Q", data)[0]
    return json.loads(data[8 : 8 + length]), data[8 + length :]


def join(folder: Path, header: bytes, rest: bytes) -> None:
    (folder / "model.safetensors").write_bytes(struct.pack("<Q", len(header)) + header + rest)


def file_with(name: str, content: bytes) -> Callable[[Path], None]:
    return lambda folder: (folder / name).write_bytes(content) and None


def index_alone(content: bytes) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / "model.safetensors").unlink()
        (folder / "model.safetensors.index.json").write_bytes(content)

    return damage


def rename(old: str, new: str) -> Callable[[dict[str, Any]], object]:
    return lambda header: header.update({new: header.pop(old)})


BAD_FOLDERS: dict[str, tuple[Callable[[Path], Any], str]] = {
    "no layers": (edit_config(n_layer=0), "n_layer is 0"),
    "negative": (edit_config(n_head=-1), "n_head is -1"),
    "not a number": (edit_config(n_embd="4"), 'n_embd is "4", and should be a whole number from 1 on'),
    "a bool": (edit_config(n_head=True), "n_head is true, and should be a whole number from 1 on"),
    "overflowing": (edit_config(vocab_size=1 << 62), "vocab_size is"),
    "missing": (edit_config(n_positions=..., n_ctx=...), "lacks n_positions or n_ctx"),
    "heads": (edit_config(n_head=3), "not a multiple"),
    "too many layers": (edit_config(n_layer=3), "tensor 'h.2.ln_1.weight' is missing"),
    "too few layers": (edit_config(n_layer=1), "tensor 'h.1."),
    "width": (edit_config(n_embd=6), "tensor 'wte.weight' has shape (50, 4), where config.json's sizes need (50, 6)"),
    "activation": (edit_config(activation_function="relu"), "activation_function is 'relu'"),
    "another model": (edit_config(model_type="bert"), "model_type is 'bert'"),
    "inner": (edit_config(n_inner=17), "n_inner is 17"),
    "epsilon": (edit_config(layer_norm_epsilon=-1.0), "layer_norm_epsilon"),
    "config no JSON": (
        file_with("config.json", b"{"),
        "config.json is damaged at line 1, column 2: Expecting property name",
    ),
    "config a list": (file_with("config.json", b"[]"), "a JSON object"),
    "config cut off": (file_with("config.json", b'{\n  "n_embd": 4\n'), "config.json is damaged at line 3, column 1: "),
    "config not UTF-8": (
        file_with("config.json", b'{\n"a": "\xff"}'),
        "config.json is damaged at line 2, column 7: no UTF-8",
    ),
    "index no JSON": (
        index_alone(b'{"a":\n x}'),
        "model.safetensors.index.json is damaged at line 2, column 2: Expecting",
    ),
    "config nested": (file_with("config.json", b'{"a":' * 100_000), "config.json is damaged"),
    "config duplicate": (file_with("config.json", b'{"n_embd": 4, "n_embd": 5}'), "'n_embd' is there twice"),
    "no config": (lambda folder: (folder / "config.json").unlink(), "config.json"),
    "no weights": (lambda folder: (folder / "model.safetensors").unlink(), "model.safetensors is missing"),
    "empty": (file_with("model.safetensors", b""), "is damaged"),
    "no header": (file_with("model.safetensors", b"\0" * 7), "is damaged"),
    "huge header": (file_with("model.safetensors", b"\xff" * 8 + b"{}"), "is damaged"),
    "header no JSON": (file_with("model.safetensors", struct.pack("<Q", 2) + b"{["), "is damaged"),
    "missing tensor": (edit_header(rename("ln_f.bias", "extra")), "tensor 'ln_f.bias' is missing"),
    "negative shape": (edit_header(lambda h: h["ln_f.bias"].update(shape=[-4])), "is damaged"),
    "huge shape": (edit_header(lambda h: h["ln_f.bias"].update(shape=[1 << 40, 1 << 40])), "is damaged"),
    "wrong type": (edit_header(lambda h: h["ln_f.bias"].update(dtype="F32")), "is damaged"),
    "integers": (edit_header(lambda h: h["ln_f.bias"].update(dtype="I16")), "'ln_f.bias'"),
    "offset beyond": (edit_header(lambda h: h["ln_f.bias"].update(data_offsets=[0, 1 << 50])), "is damaged"),
    "overlap": (edit_header(lambda h: h["ln_f.bias"].update(data_offsets=h["ln_f.weight"]["data_offsets"])), "damaged"),
    "backwards": (edit_header(lambda h: h["ln_f.bias"]["data_offsets"].reverse()), "is damaged"),
}


@pytest.mark.parametrize("case", BAD_FOLDERS)
def test_bad_huggingface_folders(folder: Path, case: str) -> None:
    damage, hint = BAD_FOLDERS[case]
    damage(folder)
    assert hint in error_of(folder)


def test_huggingface_duplicate_tensor(folder: Path) -> None:
    header, rest = split(folder)
    text = json.dumps(header)
    twice = text[:-1] + ', "ln_f.bias": ' + json.dumps(header["ln_f.bias"]) + "}"
    join(folder, twice.encode(), rest)
    assert "'ln_f.bias' is there twice" in error_of(folder)


def test_huggingface_surplus_tensor(folder: Path) -> None:
    header, rest = split(folder)
    header["score.weight"] = {"dtype": "BF16", "shape": [2], "data_offsets": [len(rest), len(rest) + 4]}
    join(folder, json.dumps(header).encode(), rest + b"\0" * 4)
    assert "tensor 'score.weight' is no part of the GPT-2" in error_of(folder)


def test_huggingface_untied_head(folder: Path) -> None:
    header, rest = split(folder)
    begin, end = header["wte.weight"]["data_offsets"]
    header["lm_head.weight"] = header["wte.weight"] | {"data_offsets": [len(rest), len(rest) + end - begin]}
    join(folder, json.dumps(header).encode(), rest + rest[begin:end])
    assert checkpoints.open(folder).format == "huggingface"
    join(folder, json.dumps(header).encode(), rest + rest[begin : end - 2] + b"\0\0")
    assert "'lm_head.weight' differs from 'wte.weight'" in error_of(folder)


@pytest.mark.parametrize("length", [1, 8, 9, 100, -1])
def test_huggingface_cut_short(folder: Path, length: int) -> None:
    path = folder / "model.safetensors"
    path.write_bytes(path.read_bytes()[:length])
    assert "is damaged" in error_of(folder)


def test_huggingface_bad_index(folder: Path) -> None:
    (folder / "model.safetensors").rename(folder / "a.safetensors")
    for index in ({}, {"weight_map": []}, {"weight_map": {"wte.weight": "../a.safetensors"}}, {"weight_map": {"a": 1}}):
        (folder / "model.safetensors.index.json").write_text(json.dumps(index))
        assert "weight_map" in error_of(folder)
    (folder / "model.safetensors.index.json").write_text(json.dumps({"weight_map": {"wte.weight": "b.safetensors"}}))
    assert "b.safetensors is missing" in error_of(folder)


@settings(max_examples=150, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_any_damage_to_a_header_is_an_error_or_harmless(tmp_path: Path, llmc: bytes, data: st.DataObject) -> None:
    damaged = bytearray(llmc)
    for _ in range(data.draw(st.integers(1, 4))):
        damaged[data.draw(st.integers(0, 40))] = data.draw(st.integers(0, 255))
    (tmp_path / "fuzzed").write_bytes(damaged)
    try:
        opened = checkpoints.open(tmp_path / "fuzzed")
    except UserError:
        return
    for name in opened.names():
        assert opened.tensor(name).shape == opened.info(name).shape
