"""What a GGUF file's metadata comes to, and how rows are counted by it."""

from __future__ import annotations

from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.runtime.checkpoints.gguf_settings import config_of, rows_of
from lispgpt.runtime.gguf.header import Header

SAID = {"general.architecture": "llama", "llama.attention.head_count": 5, "llama.embedding_length": 40}
SHAPES = {"token_embd.weight": (100, 40)}


def test_heads_of_keys_are_as_many_as_heads_where_nothing_is_said() -> None:
    assert config_of(Header(Path("m.gguf"), SAID, ()), SHAPES, None)["num_key_value_heads"] == 5
    fewer = SAID | {"llama.attention.head_count_kv": 1}
    assert config_of(Header(Path("m.gguf"), fewer, ()), SHAPES, None)["num_key_value_heads"] == 1


@pytest.mark.parametrize("value", ["5", 5.0, True, [5, 5], -5])
def test_settings_are_checked_by_their_own_names(value: object) -> None:
    said = SAID | {"llama.attention.head_count": value}
    with pytest.raises(UserError, match=r"^error: m\.gguf: llama\.attention\.head_count is .*, and should be a whole"):
        config_of(Header(Path("m.gguf"), said, ()), SHAPES, None)


def test_rows_are_counted_by_what_is_said_only() -> None:
    assert rows_of({"heads": 5}, ("heads", 2, None), 40, "w") == (5, 2, 4)
    for config in ({}, {"heads": None}, {"heads": 3}):
        with pytest.raises(UserError, match="w has 40 rows, which are not those of heads x 2 x None"):
            rows_of(config, ("heads", 2, None), 40, "w")
