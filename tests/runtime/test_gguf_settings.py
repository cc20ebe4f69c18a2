"""What a GGUF file's metadata comes to, and how rows are counted by it."""

from __future__ import annotations

import math
import re
from pathlib import Path

import numpy as np
import pytest

from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import PROGRAMS
from lispgpt.language.model.folders import find_map
from lispgpt.runtime.checkpoints.gguf_settings import config_of, rows_of
from lispgpt.runtime.gguf.header import Header

SAID = {"general.architecture": "llama", "llama.attention.head_count": 5, "llama.embedding_length": 40}
SHAPES = {"token_embd.weight": (100, 40)}


def test_heads_of_keys_are_as_many_as_heads_where_nothing_is_said() -> None:
    assert config_of(Header(Path("m.gguf"), SAID, ()), SHAPES)["num_key_value_heads"] == 5
    fewer = SAID | {"llama.attention.head_count_kv": 1}
    assert config_of(Header(Path("m.gguf"), fewer, ()), SHAPES)["num_key_value_heads"] == 1


@pytest.mark.parametrize("value", ["5", 5.0, True, [5, 6], -5])
def test_settings_are_checked_by_their_own_names(value: object) -> None:
    said = SAID | {"llama.attention.head_count": value}
    with pytest.raises(UserError, match=r"^error: m\.gguf: llama\.attention\.head_count is .*, and should be a whole"):
        config_of(Header(Path("m.gguf"), said, ()), SHAPES)


def test_rows_are_counted_by_what_is_said_only() -> None:
    assert rows_of({"heads": 5}, ("heads", 2, None), 40, "w") == (5, 2, 4)
    for config in ({}, {"heads": None}, {"heads": 3}):
        with pytest.raises(UserError, match="w has 40 rows, which are not those of heads x 2 x None"):
            rows_of(config, ("heads", 2, None), 40, "w")


def config(
    program: str = "llama_tiny", architecture: str = "llama", tensors: dict | None = None, **more: object
) -> dict:
    """What a file of two layers comes to for one of the package's programs, by further settings."""
    said = {f"{architecture}.{key.removeprefix('llama.')}": value for key, value in SAID.items() if "llama." in key}
    said |= {"general.architecture": architecture, f"{architecture}.block_count": 2}
    said |= {f"{architecture}.{key.replace('__', '.')}": value for key, value in more.items()}
    names = find_map(PROGRAMS / f"{program}.lisp")
    divisors = {name: np.array(values) for name, values in (tensors or {}).items()}
    return config_of(Header(Path("m.gguf"), said, ()), SHAPES, divisors, names)


def test_positions_are_scaled_as_files_of_any_year_say() -> None:
    linear = {"rope_type": "linear", "factor": 2.0}
    assert config(rope__scale_linear=2.0)["rope_scaling"] == linear
    assert config(rope__scaling__factor=2.0)["rope_scaling"] == linear  # which llama.cpp takes for this
    assert config(rope__scaling__factor=2.0, rope__scaling__type="linear")["rope_scaling"] == linear
    assert "rope_scaling" not in config(rope__scaling__factor=2.0, rope__scaling__type="none")
    share = config(rope__scaling__attn_factor=1.5)["rope_scaling"]
    assert share == {"rope_type": "default", "attention_factor": 1.5}
    yarn = config(rope__scaling__type="yarn", rope__scaling__factor=4.0, rope__scaling__attn_factor=2.0)["rope_scaling"]
    assert yarn["attention_factor"] == pytest.approx(2 * (1 + 0.1 * math.log(4)))
    with pytest.raises(UserError, match=r"llama\.rope\.scaling\.type is 'longrope', without what it goes by"):
        config(rope__scaling__type="longrope")
    assert config()["rope_theta"] == 10000.0


def test_factors_of_short_and_long_texts_are_read() -> None:
    tensors = {"rope_factors_long.weight": [2.0, 3.0], "rope_factors_short.weight": [1.0, 1.5]}
    more = {"rope__scaling__attn_factor": 1.25, "rope__scaling__original_context_length": 20}
    found = config("phi3", "phi3", tensors, **more)["rope_scaling"]
    assert found == {
        "rope_type": "longrope",
        "long_factor": [2.0, 3.0],
        "short_factor": [1.0, 1.5],
        "attention_factor": 1.25,
        "original_max_position_embeddings": 20,
    }


def test_windows_and_their_layers() -> None:
    more = {"attention__sliding_window": 9, "rope__freq_base": 5000.0}
    found = config("olmo2", "olmo2", attention__sliding_window_pattern=[True, False], rope__freq_base_swa=70.0, **more)
    assert (found["model_type"], found["sliding_window"]) == ("olmo3", 9)
    assert found["layer_types"] == ["sliding_attention", "full_attention"]
    assert found["rope_parameters"]["sliding_attention"] == {"rope_theta": 70.0}
    assert (
        config("gemma3", "gemma3", attention__sliding_window_pattern=2, **more)["layer_types"] == found["layer_types"]
    )
    assert config("olmo2", "olmo2")["model_type"] == "olmo2" and config("olmo2", "olmo2")["sliding_window"] is None
    with pytest.raises(UserError, match="pattern is not one word for each of its layers"):
        config("gemma3", "gemma3", attention__sliding_window_pattern=[True], **more)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("final_logit_softcapping", 30.0),
        ("attention.causal", False),
        ("attention.temperature_length", 8192),
        ("rope.freq_base_swa", 1000.0),
        ("rope.scaling.yarn_log_multiplier", 0.1),
        ("expert_weights_scale", 2.5),
        ("what_comes_tomorrow", 1),
    ],
)
def test_settings_that_the_program_does_not_account_for_are_refused(key: str, value: object) -> None:
    with pytest.raises(
        UserError, match=rf"llama\.{re.escape(key)} is {value}, which changes the model, and the program"
    ):
        config(**{key.replace(".", "__"): value})


def test_settings_that_change_nothing_are_let_be() -> None:
    config(
        vocab_size=100, tensor_data_layout="Meta AI original pth", rope__scaling__finetuned=True, attention__causal=True
    )
    config(what_comes_tomorrow=0, expert_gating_func=1, expert_weights_scale=1.0, n_deepstack_layers=0)
    config("olmo", "olmo", attention__layer_norm_epsilon=float(np.float32(1e-5)))
    with pytest.raises(UserError, match=r"layer_norm_epsilon is 0\.001, which changes"):
        config("olmo", "olmo", attention__layer_norm_epsilon=1e-3)
