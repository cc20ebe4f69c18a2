"""Settings of config.json that are not what they should be are one error that names the file, the key and what is
expected, whoever reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lispgpt.base.config_json import KINDS
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import names_in, open_weights, programs
from lispgpt.runtime import checkpoints, tokenizers
from lispgpt.runtime.checkpoints.llama import LlamaShape
from lispgpt.runtime.checkpoints.make import make

SIZE, LAYERS, FLAG = "a whole number from 1 on", "a whole number from 1 to 4096", "true or false"
WRONG = [
    ({"rope_scaling": 5}, "rope_scaling is 5, and should be an object"),
    ({"rope_scaling": {"rope_type": "linear", "factor": "2"}}, 'factor is "2", and should be a number above 0'),
    ({"rope_parameters": ["linear"]}, r'rope_parameters is \["linear"\], and should be an object'),
    ({"rope_theta": -1}, "rope_theta is -1, and should be a number above 0"),
    ({"num_hidden_layers": -1}, f"num_hidden_layers is -1, and should be {LAYERS}"),
    ({"num_hidden_layers": 2000000000}, f"num_hidden_layers is 2000000000, and should be {LAYERS}"),
    ({"hidden_size": "x"}, f'hidden_size is "x", and should be {SIZE}'),
    ({"hidden_size": 8.0}, f"hidden_size is 8.0, and should be {SIZE}"),
    ({"vocab_size": True}, f"vocab_size is true, and should be {SIZE}"),
    ({"vocab_size": 1 << 31}, f"vocab_size is 2147483648, and should be {SIZE}"),
    ({"num_attention_heads": [2, 2]}, rf"num_attention_heads is \[2, 2\], and should be {SIZE}"),
    ({"num_attention_heads": {}}, rf"num_attention_heads is \{{\}}, and should be {SIZE}"),
    ({"rms_norm_eps": True}, "rms_norm_eps is true, and should be a number above 0 and below 1"),
    ({"rms_norm_eps": float("nan")}, "rms_norm_eps is NaN, and should be a number above 0 and below 1"),
    ({"tie_word_embeddings": 1}, f"tie_word_embeddings is 1, and should be {FLAG}"),
    ({"tie_word_embeddings": "false"}, f'tie_word_embeddings is "false", and should be {FLAG}'),
    ({"model_type": 5}, "model_type is 5, and should be a name"),
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    path = tmp_path / "llama"
    make(path, LlamaShape(50, 32, 2, 2, 1, 8, 12, 4), "huggingface", "f32", 1)
    config = json.loads((path / "config.json").read_text())
    del config["rope_theta"]
    (path / "config.json").write_text(json.dumps(config))
    return path


def changed(folder: Path, change: dict[str, Any]) -> str:
    """Make config.json another; how errors name it."""
    config = json.loads((folder / "config.json").read_text()) | change
    (folder / "config.json").write_text(json.dumps(config))
    return r".*/llama/config\.json"


@pytest.mark.parametrize("change", [{}, {"eos_token_id": [3, 4]}, {"rope_scaling": None}, {"eos_token_id": None}])
@pytest.mark.parametrize("open_model", [checkpoints.open, open_weights])
def test_settings_that_are_right_are_read(open_model: Any, change: dict[str, Any], folder: Path) -> None:
    changed(folder, change)
    assert open_model(folder).config["width"] == 8


@pytest.mark.parametrize(("change", "said"), WRONG)
@pytest.mark.parametrize("open_model", [checkpoints.open, open_weights])
def test_a_setting_that_is_wrong_is_named(open_model: Any, change: dict[str, Any], said: str, folder: Path) -> None:
    place = changed(folder, change)
    with pytest.raises(UserError, match=f"^error: {place}: (rope_scaling.|rope_parameters.)?{said}"):
        open_model(folder)


@pytest.mark.parametrize(
    ("kind", "change", "said"),
    [
        ("qwen3", {"layer_types": [1, 2]}, r"layer_types is \[1, 2\], and should be a list of names"),
        ("qwen3", {"layer_types": "full"}, 'layer_types is "full", and should be a list of names'),
        ("qwen3", {"hidden_size": None}, "hidden_size is null, by which the program sets width"),
        ("phi3", {"rope_scaling": {"short_factor": [1, "x"]}}, r'rope_scaling\.short_factor is \[1, "x"\], and should'),
        ("gemma3", {"text_config": [1]}, r"text_config is \[1\], and should be an object"),
        ("gemma3", {"rope_parameters": {"full_attention": 3}}, "rope_parameters.full_attention is 3, and should be an"),
        ("mixtral", {"num_local_experts": -3}, "num_local_experts is -3, and should be a whole number from 0 on"),
        ("deepseek_v3", {"num_nextn_predict_layers": "1"}, 'num_nextn_predict_layers is "1", and should be a whole'),
    ],
)
def test_settings_of_other_models_are_checked(kind: str, change: dict[str, Any], said: str, folder: Path) -> None:
    place = changed(folder, {"model_type": kind} | change)
    with pytest.raises(UserError, match=f"^error: {place}: {said}"):
        open_weights(folder)


@pytest.mark.parametrize("name", ["config.json", "generation_config.json"])
@pytest.mark.parametrize("value", ["a", [3, "a"], 1.5, True, {}, -2])
def test_ends_of_texts_are_tokens(name: str, value: Any, folder: Path) -> None:
    made = tokenizers.formats()["huggingface"]
    made.write(folder / "tokenizer.json", [bytes([byte]) for byte in range(256)], None)
    (folder / name).write_text(json.dumps({"eos_token_id": value}))
    with pytest.raises(UserError, match=rf"/{name}: eos_token_id is .+, and should be a token's number or a list of"):
        tokenizers.open(folder)


def test_every_setting_that_a_program_reads_is_in_the_table() -> None:
    """By its last name, or by that of the list that it is of."""
    for program in programs().values():
        names = names_in(program)
        assert names is not None
        keys = {key for setting in names.config.values() for key in setting.keys}
        parts = {part for key in keys for part in key.split(".") if part != "length" and not part.isdigit()}
        assert parts - KINDS.keys() == set(), program
