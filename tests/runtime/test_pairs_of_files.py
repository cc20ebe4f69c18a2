"""vocab.json beside merges.txt, with what tokenizer_config.json and others declare: as transformers 5.24 reads them."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from lispgpt.base.errors import UserError
from lispgpt.runtime import tokenizers
from lispgpt.runtime.tokenizers.base import byte_alphabet

MERGES = ("t h", "th e", "\u0120 the", "u s", "us er", "e r", "\u0120 \u0120", "c l", "1 2", "\u00c3 \u00a9", "t o")
TEXTS = (
    "<|im_start|>user\nIt's 123 the DON'T",
    "e\u0301te <tool>the clocks<x> <s>a</s>",
    "  user\n\n",
)


def write_pair(folder: Path, settings: dict[str, Any] | None, **more: dict[str, Any]) -> Path:
    """A folder with a small table, its settings, and other files of settings."""
    tokens = [*byte_alphabet(), *("".join(merge.split(" ")) for merge in MERGES)]
    folder.mkdir()
    (folder / "vocab.json").write_text(json.dumps({token: n for n, token in enumerate(tokens)}), encoding="utf-8")
    (folder / "merges.txt").write_text("\n".join(["#version: 0.2", *MERGES, ""]), encoding="utf-8")
    for name, value in ({} if settings is None else {"tokenizer_config": settings} | more).items():
        (folder / f"{name}.json").write_text(json.dumps(value))
    return folder


def token(content: str, special: bool = True) -> dict[str, Any]:
    flags = dict.fromkeys(("lstrip", "rstrip", "normalized", "single_word"), False)
    return {"content": content, "special": special} | flags


QWEN = {
    "tokenizer_class": "Qwen2Tokenizer",
    "bos_token": None,
    "eos_token": "<|im_end|>",
    "added_tokens_decoder": {
        "267": token("<|endoftext|>"),
        "268": token("<|im_start|>"),
        "269": token("<|im_end|>"),
        "270": token("<tool>", special=False),
    },
}
GPT2 = {"tokenizer_class": "GPT2Tokenizer", "add_bos_token": True, "add_prefix_space": True}
NAMED = {"bos_token": "<s>", "eos_token": {"content": "</s>"}, "additional_special_tokens": ["<x>"]}
ADDED = {"<s>": 267, "</s>": 268, "<x>": 269}
OF_QWEN = [
    [268, 260, 10, 73, 116, 39, 115, 32, 49, 50, 51, 258, 32, 68, 79, 78, 39, 84],
    [265, 116, 101, 32, 270, 257, 32, 263, 111, 99, 107, 115, 60, 120, 62, 32, 60, 115, 62, 97, 60, 47, 115, 62],
    [32, 32, 260, 10, 10],
]
OF_GPT2 = [
    [
        267,
        32,
        60,
        124,
        105,
        109,
        95,
        115,
        116,
        97,
        114,
        116,
        124,
        62,
        260,
        10,
        73,
        116,
        39,
        115,
        32,
        264,
        51,
        258,
        32,
        68,
        79,
        78,
        39,
        84,
    ],
    [
        267,
        32,
        101,
        204,
        129,
        116,
        101,
        32,
        60,
        266,
        111,
        108,
        62,
        257,
        32,
        263,
        111,
        99,
        107,
        115,
        269,
        32,
        267,
        32,
        97,
        268,
    ],
    [267, 32, 32, 260, 10, 10],
]


def test_declared_tokens_are_whole_and_words_are_cut_as_the_class_cuts_them(tmp_path: Path) -> None:
    tokenizer = tokenizers.open(write_pair(tmp_path / "qwen", QWEN))
    assert [tokenizer.prompt(text) for text in TEXTS] == OF_QWEN
    assert (tokenizer.ends, tokenizer.start) == ({269}, ())
    assert tokenizer.decode([268, 260, 270]) == "<|im_start|>user<tool>"


def test_older_files_declare_tokens_and_the_start(tmp_path: Path) -> None:
    folder = write_pair(tmp_path / "gpt2", GPT2, special_tokens_map=NAMED, added_tokens=ADDED)
    tokenizer = tokenizers.open(folder)
    assert [tokenizer.prompt(text) for text in TEXTS] == OF_GPT2
    assert (tokenizer.ends, tokenizer.start) == ({268}, (267,))


def test_settings_that_are_not_known_are_refused(tmp_path: Path) -> None:
    for number, (settings, more, message) in enumerate(
        (
            ({"tokenizer_class": "BartTokenizer"}, {}, "tokenizer_class is BartTokenizer, and of vocab.json with"),
            ({"add_bos_token": "yes"}, {}, "add_bos_token is yes, and should be true or false"),
            ({"add_bos_token": True, "bos_token": "<no>"}, {}, "the bos_token '<no>', which is no token"),
            ({"added_tokens_decoder": {"3": token("<x>")}}, {}, "token 3 is declared as '<x>', and is another"),
            ({"added_tokens_decoder": [1]}, {}, "added_tokens_decoder should be an object"),
            ({"eos_token": 3}, {}, "eos_token should be a token, and is 3"),
            ({}, {"added_tokens": {"<x>": -1}}, "'<x>' has -1 where a token's number is wanted"),
        )
    ):
        with pytest.raises(UserError, match=message):
            tokenizers.open(write_pair(tmp_path / str(number), settings, **more))


def test_a_template_that_ends_texts_does_not_end_prompts(tmp_path: Path) -> None:
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, processors

    library = Tokenizer(models.BPE({"a": 0, "<s>": 1, "</s>": 2}, []))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.post_processor = processors.TemplateProcessing("<s> $A </s>", special_tokens=[("<s>", 1), ("</s>", 2)])
    library.save(str(tmp_path / "tokenizer.json"))
    assert tokenizers.open(tmp_path).prompt("aa") == [1, 0, 0]


def test_tokens_that_are_named_beside_tokenizer_json_are_whole(tmp_path: Path) -> None:
    """As transformers does, in whose words a table's token is a special one where tokenizer_config.json says so."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers

    library = Tokenizer(models.BPE({"<": 0, "s": 1, ">": 2, "<s>": 3}, []))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.save(str(tmp_path / "tokenizer.json"))
    assert tokenizers.open(tmp_path).encode("s<s>") == [1, 0, 1, 2]
    (tmp_path / "tokenizer_config.json").write_text(json.dumps({"bos_token": "<s>", "eos_token": "<s>"}))
    assert tokenizers.open(tmp_path).encode("s<s>") == [1, 3]
    assert tokenizers.open(tmp_path).ends == {3}
