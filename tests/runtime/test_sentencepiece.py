"""Tokenizers with spaces as \u2581 and bytes for what no token spells, as Llama 2's, and where their texts end."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from tokenizers import AddedToken, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from lispgpt.base.errors import UserError
from lispgpt.runtime import tokenizers

texts = st.text("abcdefgh \n", max_size=40) | st.text("ab's12 \n\té東🙂", max_size=80)


@pytest.fixture(scope="module")
def sentencepiece(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tokenizer.json as Llama 2's: spaces as \u2581, bytes for what no token spells, <s> before every text."""
    alphabet = ["<unk>", "<s>", "</s>", *(f"<0x{byte:02X}>" for byte in range(256))]
    pieces = ["\u2581", *"abcdefgh", "\u2581a", "ab", "\u2581ab", "cd", "\u2581abcd", "gh", "é"]
    vocab = {piece: token for token, piece in enumerate([*alphabet, *pieces])}
    merges = [("\u2581", "a"), ("a", "b"), ("\u2581a", "b"), ("c", "d"), ("\u2581ab", "cd"), ("g", "h")]
    library = Library(models.BPE(vocab, merges, unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Sequence([normalizers.Prepend("\u2581"), normalizers.Replace(" ", "\u2581")])
    steps = [decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse(), decoders.Strip(" ", 1, 0)]
    library.decoder = decoders.Sequence(steps)
    library.post_processor = processors.TemplateProcessing("<s> $A", special_tokens=[("<s>", 1)])
    library.add_special_tokens([AddedToken(name, special=True, normalized=False) for name in alphabet[:3]])
    folder = tmp_path_factory.mktemp("sentencepiece")
    library.save(str(folder / "tokenizer.json"))
    return folder


@given(text=texts)
@settings(max_examples=60, deadline=None)
def test_sentencepiece_tokens_spell_the_text(sentencepiece: Path, text: str) -> None:
    tokenizer = tokenizers.open(sentencepiece)
    library = Library.from_file(str(sentencepiece / "tokenizer.json"))
    tokens = tokenizer.encode(text)
    assert tokenizer.prompt(text) == library.encode(text).ids == [1, *tokens]
    decoded = tokenizer.decode(tokens)
    assert decoded == (f" {text}" if text else "")
    assert library.decode(tokens) == decoded[1:]


def test_the_end_of_a_text_is_the_one_in_the_config(sentencepiece: Path, tmp_path: Path) -> None:
    assert tokenizers.open(sentencepiece).end_of_text == 2
    assert tokenizers.open(sentencepiece).prompt("") == [1]
    (tmp_path / "tokenizer.json").write_bytes((sentencepiece / "tokenizer.json").read_bytes())
    (tmp_path / "config.json").write_text('{"eos_token_id": [7, 9]}')
    assert tokenizers.open(tmp_path).end_of_text == 7
    assert tokenizers.open(tmp_path).ends == {7, 9}
    assert tokenizers.open(sentencepiece).ends == {2}


@pytest.mark.parametrize(
    ("config", "generation", "ends"),
    [
        (7, 9, [7, 9]),
        ([7, 9], [11, 9, 13], [7, 9, 11, 13]),
        (None, [9, 7], [9, 7]),
        (7, None, [7]),
        ([7], [-1], [7]),
    ],
)
def test_a_generation_config_adds_ends(
    sentencepiece: Path, tmp_path: Path, config: object, generation: object, ends: list[int]
) -> None:
    (tmp_path / "tokenizer.json").write_bytes((sentencepiece / "tokenizer.json").read_bytes())
    (tmp_path / "config.json").write_text(json.dumps({"eos_token_id": config}))
    (tmp_path / "generation_config.json").write_text(json.dumps({"eos_token_id": generation}))
    tokenizer = tokenizers.open(tmp_path)
    assert [tokenizer.end_of_text, *tokenizer.other_ends] == ends
    (tmp_path / "config.json").unlink()
    (tmp_path / "generation_config.json").write_text("{")
    with pytest.raises(UserError, match=r"generation_config\.json"):
        tokenizers.open(tmp_path)


def test_added_tokens_are_decoded_as_the_library_does(tmp_path: Path) -> None:
    """Gemma's runs of spaces are added tokens that are spelled with \u2581."""
    vocab = {"<unk>": 0, "a": 1, "\u2581": 2, "\u2581\u2581": 3, "b": 4, "<0x41>": 5}
    library = Library(models.BPE(vocab, [], unk_token="<unk>", fuse_unk=True, byte_fallback=True))
    library.normalizer = normalizers.Replace(" ", "\u2581")
    library.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    library.add_special_tokens([AddedToken("<unk>", special=True, normalized=False)])
    library.add_tokens([AddedToken("\u2581\u2581", normalized=False)])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer, tokens = tokenizers.open(tmp_path), [1, 3, 4, 2, 3, 5, 0]
    assert tokenizer.decode(tokens) == library.decode(tokens, skip_special_tokens=False) == "a  b   A<unk>"


def test_added_tokens_of_bytes_are_decoded_as_the_library_does(tmp_path: Path) -> None:
    library = Library(models.BPE({"a": 0, "\u0120b": 1}, []))
    library.pre_tokenizer, library.decoder = pre_tokenizers.ByteLevel(add_prefix_space=False), decoders.ByteLevel()
    library.add_tokens([AddedToken("\u0120\u0120"), AddedToken("two words"), AddedToken("\u65e5\u672c")])
    library.save(str(tmp_path / "tokenizer.json"))
    tokenizer, tokens = tokenizers.open(tmp_path), [0, 2, 3, 1, 4]
    assert tokenizer.decode(tokens) == library.decode(tokens, skip_special_tokens=False) == "a  two words b\u65e5\u672c"
