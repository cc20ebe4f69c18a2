"""What is said of files that stand apart from what they belong to, or are of kinds that are not read."""

from __future__ import annotations

import json
from pathlib import Path

import gguf
import numpy as np
import pytest
import recorded_folders

from lispgpt.base.errors import UserError
from lispgpt.cli.main import main
from lispgpt.compiler.folders import open_weights
from lispgpt.runtime import checkpoints, tokenizers
from lispgpt.runtime.samplers.adjustment import Penalties
from lispgpt.runtime.text import tokens_of

FOLDER = next(folder for folder in recorded_folders.folders() if folder.name == "qwen3-f32")


@pytest.mark.parametrize("name", ["tekken.json", "tokenizer.model"])
def test_tokenizers_of_other_kinds_are_named(name: str, tmp_path: Path) -> None:
    (tmp_path / name).write_text('{"config": {}, "vocab": []}')
    with pytest.raises(UserError, match=r"which is not read here: .* writes tokenizer\.json"):
        tokenizers.open(tmp_path / name)
    assert tokenizers.find(tmp_path, None) is None
    with pytest.raises(UserError, match=f"{name} is a .*, which is not read here"):
        tokens_of("Once", None, None, tmp_path)
    with pytest.raises(UserError, match="no tokenizer was found beside the checkpoint"):
        tokens_of("Once", None, None, tmp_path / "elsewhere" / "model.bin")


def write_part(path: Path, number: int, count: int) -> Path:
    """A part of a split GGUF file, of which all but the first say nothing of the model."""
    writer = gguf.GGUFWriter(str(path), "qwen3")
    if number:
        writer.kv_data[0].pop("general.architecture")
    writer.add_uint16("split.no", number)
    writer.add_uint16("split.count", count)
    writer.add_tensor("token_embd.weight", np.ones((4, 4), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path


def test_parts_of_gguf_files_say_what_they_are(tmp_path: Path) -> None:
    second = write_part(tmp_path / "model-00002-of-00002.gguf", 1, 2)
    with pytest.raises(UserError, match=r"is part 2 of 2 of a model: name its first, …-00001-of-…\.gguf"):
        open_weights(second)
    renamed = write_part(tmp_path / "my model.gguf", 0, 2)
    with pytest.raises(UserError, match=r"is the first of 2 parts, which find each other as NAME-00001-of-00002\.gguf"):
        open_weights(renamed)


def test_parts_without_an_index_are_a_model(tmp_path: Path) -> None:
    path = FOLDER.write(tmp_path / "model", shards=3)
    whole = {name: open_weights(path).tensor(name) for name in ("wte", "down-w")}
    (path / "model.safetensors.index.json").unlink()
    for name, values in whole.items():
        np.testing.assert_array_equal(open_weights(path).tensor(name), values)
    (path / "model-00002-of-00003.safetensors").unlink()
    with pytest.raises(UserError, match=r"model-00002-of-00003\.safetensors is missing, which is a part of the model"):
        open_weights(path)


def test_a_bias_that_no_logit_can_have_is_no_damage() -> None:
    Penalties(logit_bias={5: 1e30, 6: -np.inf})
    for bias in (1e39, -1e39, np.inf, np.nan):
        with pytest.raises(UserError, match=r"the bias of token 5 is .*, which must be a number up to"):
            Penalties(logit_bias={5: bias})


def test_lists_of_what_is_there_are_short(tmp_path: Path) -> None:
    path = FOLDER.write(tmp_path / "model")
    with pytest.raises(UserError) as raised:
        checkpoints.open(path / "model.safetensors").info("none")
    assert len(str(raised.value)) < 1000 and " others" in str(raised.value)
    (tmp_path / "what.xyz").write_bytes(b"what is this file")
    with pytest.raises(UserError, match=r"known are .* safetensors, GGUF files and Hugging Face folders"):
        checkpoints.open(tmp_path / "what.xyz")


def test_info_shows_gguf_files_that_no_program_is_for(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    writer = gguf.GGUFWriter(str(tmp_path / "new.gguf"), "jamba")
    writer.add_block_count(3)
    writer.add_tensor("token_embd.weight", np.ones((4, 8), np.float32))
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    with pytest.raises(SystemExit) as ended:
        main(["checkpoint", "info", str(tmp_path / "new.gguf"), "--json"])
    facts = json.loads(capfd.readouterr().out)
    assert ended.value.code == 0 and facts["config"]["jamba.block_count"] == 3 and facts["parameters"] == 32
    assert facts["tensors"] == {"token_embd.weight": {"shape": [4, 8], "dtype": "f32"}}


def test_names_that_no_file_can_have_are_one_error(
    tmp_path: Path, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path, name = FOLDER.write(tmp_path / "model", shards=2), "long" * 1000
    index = path / "model.safetensors.index.json"
    index.write_text(index.read_text().replace("model-00002-of-00002", name))
    with pytest.raises(UserError, match=r"cannot read .*: File name too long"):
        open_weights(path)
    for words in (
        ("run", name, "--prompt-tokens", "1"),
        ("compile", "p.lisp", "-o", name),
        ("checkpoint", "info", "model"),
        ("train", "--run", name, "--resume"),
        ("train", "p.lisp", "--data", name, "--run", "new"),
        ("bench", name),
    ):
        (tmp_path / "p.lisp").write_text("(entry e [(x [4] f32)] x)")
        with pytest.raises(SystemExit) as ended:
            main(list(words))
        said = capfd.readouterr().err
        assert ended.value.code == 1 and "File name too long" in said and len(said) < 3000, said
