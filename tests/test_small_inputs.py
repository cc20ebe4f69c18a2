"""Inputs of a few megabytes that once took gigabytes or minutes: each is read, or refused, within little memory."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source
from lispgpt.language.reader import reader
from lispgpt.runtime import tokenizers
from lispgpt.runtime.tokenizers import gguf, pieces
from lispgpt.runtime.tokenizers.training import train_tokenizer

AUSTEN = Path(__file__).parents[1] / "examples" / "models" / "austen"
MEMORY = 1_500_000_000
READING = """
from lispgpt.base.source import Source
from lispgpt.language.reader.reader import read
for text in ('"' + "a" * N + '"', '"' + "\\\\n" * N + '"', "a" * N, "a<" + "b" * N + ">"):
    (form,) = read(Source("t", text))
    assert len(getattr(form, "value", None) or form.name) >= N
"""
ENCODING = """
from lispgpt.base.errors import UserError
from lispgpt.runtime import tokenizers
try:
    tokenizers.open(FOLDER).encode("a" * N)
    raise SystemExit("it was encoded")
except UserError as error:
    assert "the text has a word of 20,000,000 characters" in str(error.message), error.message
"""


@pytest.mark.parametrize("code", [f"N = 4_000_000{READING}", f"N, FOLDER = 20_000_000, {str(AUSTEN)!r}{ENCODING}"])
def test_long_words_take_little_memory(code: str) -> None:
    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_AS, (MEMORY, MEMORY))

    done = subprocess.run([sys.executable, "-c", code], preexec_fn=limit, capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stdout + done.stderr


def test_a_file_of_too_many_forms_is_refused_where_they_begin(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(reader, "MOST_TOKENS", 100)
    assert len(reader.read(Source("t", "(" + "1 " * 98 + ")"))) == 1
    with pytest.raises(UserError, match="a file has at most 100 names, numbers and brackets") as caught:
        reader.read(Source("t", "(" + "1 " * 99 + ")"))
    assert caught.value.span is not None and str(caught.value.span) == "t:1:200"


def test_names_that_may_be_read_in_many_ways_are_read_at_once() -> None:
    texts = ("a<" + "<=" * 2000, "a<" + ">=" * 2000, "a" + "<b" * 7 + ">=" * 2000, "a" + "<b>" * 20_000)
    for text in (*texts, "a" + "<>=>" * 2000 + "<"):
        with pytest.raises(UserError, match="angle brackets"):
            reader.read(Source("t", text))


@pytest.mark.parametrize("name", ["huggingface", "llmc"])
def test_long_texts_have_the_tokens_of_the_whole(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = "".join(f"Line {number} of the text,  and it's\n" + "\n" * (number % 3) for number in range(400))
    train_tokenizer([text], 300, tmp_path / "tokenizer.json")
    tokenizer = tokenizers.open(tmp_path / "tokenizer.json")
    if name == "llmc":
        table = [tokenizer.decode_bytes(token) for token in range(tokenizer.size)]
        tokenizer = tokenizers.open(tokenizers.write_beside(tmp_path / "m.bin", name, table, tokenizer.end_of_text))
    whole = tokenizer.encode(text)
    for module in (pieces, tokenizers.base):
        monkeypatch.setattr(module, "MOST_AT_ONCE", 400)
    monkeypatch.setattr(pieces, "PIECE", 100)
    assert tokenizer.encode(text) == whole
    assert len(list(pieces.pieces_of(text))) > 50 and "".join(pieces.pieces_of(text)) == text
    with pytest.raises(UserError, match=r"the text has a word of 1,0.. characters, and at most 400"):
        tokenizer.encode("It is " + "a" * 1000 + " and so on.\n" + text)


def test_tokens_that_can_be_joined_in_too_many_ways_are_refused(monkeypatch: pytest.MonkeyPatch) -> None:
    runs = [letter * count for letter in "abc" for count in range(1, gguf.LONGEST + 1)]
    monkeypatch.setattr(gguf, "MOST_MERGES", 2 * len(runs))
    data = {"tokens": ["<unk>", *runs], "model": "llama"}
    with pytest.raises(ValueError, match="can be joined in more than 1,536 ways"):
        gguf._sentence_piece(data)
    with pytest.raises(ValueError, match="a token has 200,000 characters"):
        gguf._sentence_piece(data | {"tokens": ["<unk>", "a", "b", "ab" * 100_000]})
