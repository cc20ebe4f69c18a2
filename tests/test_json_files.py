"""JSON is read by one reader, which bounds it; what files say is shown in letters that no terminal obeys."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError, visible
from lispgpt.base.json_files import COUNT, NAME, Fields, json_value, parse_json, read_json
from lispgpt.runtime.gguf.kinds import check_metadata


@pytest.mark.parametrize(
    "text, said",
    [
        ("[" * 101 + "]" * 101, "nested deeper than 100"),
        ("[" * 100_000, "nested deeper than 100"),
        ('{"a": ' + "1" * 400 + "}", "the number 11111111111111111111… is larger"),
        ('{"a": 18446744073709551616}', "is larger"),
        ('{"a": 1e400}', "the number 1e400 is larger"),
        ('{"a": ' + "1" * 5000 + "}", "is larger"),
        ('{"a": 1, "b": {"c": 1, "c": 2}}', "the key 'c' is there twice"),
        ('{"a": 1', r"damaged at line 1, column 8"),
    ],
)
def test_what_is_out_of_bounds_is_damage(text: str, said: str) -> None:
    with pytest.raises(UserError, match=said) as error:
        json_value("f.json", text.encode())
    assert len(str(error.value)) < 300


def test_what_models_have_is_read() -> None:
    assert json_value("f", "[" * 99 + "]" * 99)
    found = parse_json(Path("f"), b'{"n": 18446744073709551615, "limit": [0.0, Infinity], "e": 1e-400}')
    assert found == {"n": (1 << 64) - 1, "limit": [0.0, float("inf")], "e": 0.0}


def test_fields_say_which_is_wrong() -> None:
    fields = Fields({"a": COUNT, "b": NAME}, frozenset({"b"}))
    fields.check("f", {"a": 0})
    for data, said in (
        ({}, "f is damaged: it has no x.a"),
        ({"a": -1}, "f is damaged: x.a is -1, and should be a whole"),
    ):
        with pytest.raises(UserError, match=said):
            fields.check("f", data, "x.")
    with pytest.raises(UserError, match=r"b is .*, and should be a name"):
        fields.check("f", {"a": 1, "b": "\ud800"})


def test_messages_hold_no_commands_for_terminals(tmp_path: Path) -> None:
    assert visible("a\tb\r\nc\x1b[31m\x07\x9b\u202ed\re") == "a\tb\r\nc\\x1b[31m\\x07\\x9b\\u202ed\\re"
    (tmp_path / "config.json").write_text(json.dumps({"model_type": "\x1b]0;owned\x07"}))
    command = [sys.executable, "-m", "lispgpt", "run", str(tmp_path)]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=tmp_path)
    assert done.returncode == 1 and "owned" in done.stderr and "\x1b" not in done.stderr, done.stderr


def test_what_python_warns_of_is_told_without_our_code(tmp_path: Path) -> None:
    text = "from lispgpt.cli.terminal import tell_warnings; tell_warnings(); import numpy; numpy.float32(1e30) * 1e30"
    done = subprocess.run([sys.executable, "-c", text], capture_output=True, text=True, check=True)
    assert done.stderr.startswith("warning: overflow") and done.stderr.count("\n") == 1


def test_a_file_that_is_none_is_one_error(tmp_path: Path) -> None:
    (tmp_path / "f.json").mkdir()
    with pytest.raises(UserError, match="it is a folder"):
        read_json(tmp_path / "f.json")


@pytest.mark.parametrize(
    "key, value",
    [
        ("tokenizer.ggml.bos_token_id", [1]),
        ("tokenizer.ggml.add_bos_token", "yes"),
        ("tokenizer.ggml.merges", 5),
        ("tokenizer.ggml.tokens", ["a" * 5000]),
        ("tokenizer.ggml.token_type", ["a"]),
        ("tokenizer.ggml.scores", [float("nan")]),
        ("llama.rope.freq_base", "high"),
        ("llama.rope.dimension_count", [4]),
        ("split.count", True),
    ],
)
def test_metadata_of_another_type_is_one_error(key: str, value: object) -> None:
    with pytest.raises(UserError, match=f"{key} is .*, and should be"):
        check_metadata(Path("m.gguf"), {"general.architecture": "llama", key: value})
