"""Tokenizers: both file formats agree with the library on trained BPEs, and streaming gives whole characters."""

from __future__ import annotations

import json
import random
import struct
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from own_tables import need_own_tables
from tokenizers import AddedToken, Regex, decoders, models, pre_tokenizers, trainers
from tokenizers import Tokenizer as Library

from lispgpt.base.errors import UserError
from lispgpt.runtime import tokenizers
from lispgpt.runtime.tokenizers import StreamDecoder
from lispgpt.runtime.tokenizers.base import END_OF_TEXT, byte_alphabet
from lispgpt.runtime.tokenizers.calls import call
from lispgpt.runtime.tokenizers.huggingface import write as write_huggingface
from lispgpt.runtime.tokenizers.llmc import LlmcTokenizer
from lispgpt.runtime.tokenizers.llmc import write as write_llmc
from lispgpt.runtime.tokenizers.merging import merge
from lispgpt.runtime.tokenizers.synthetic import synthetic_pieces

CORPUS = [
    "It's a bright cold day in April, and the clocks are striking thirteen; they've struck 12 before.",
    "Ärger über Öl: größer, schöner, weißer. Ça va? L'été à Orléans, où naît l'œuvre.",
    "東京の空は青い。 Москва слезам не верит! 🙂🙃 naïve café 12345 0x1f   \n\n\t def f(x):\n    return x**2",
] * 4

texts = st.text(st.characters(exclude_categories=["Cs"]), max_size=80) | st.text("ab's12 \n\té東🙂", max_size=80)


@pytest.fixture(scope="module")
def library() -> Library:
    """A byte-level BPE as GPT-2's, trained on a few sentences."""
    trained = Library(models.BPE())
    trained.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    trained.decoder = decoders.ByteLevel()
    alphabet = sorted(pre_tokenizers.ByteLevel.alphabet())
    trained.train_from_iterator(CORPUS, trainers.BpeTrainer(vocab_size=600, initial_alphabet=alphabet))
    trained.add_special_tokens([AddedToken(END_OF_TEXT, special=True, normalized=False)])
    return trained


def pieces_of(library: Library) -> list[bytes]:
    alphabet = {character: byte for byte, character in enumerate(byte_alphabet())}
    size = library.get_vocab_size()
    spelled = [library.id_to_token(token) for token in range(size)]
    return [text.encode() if text == END_OF_TEXT else bytes(alphabet[c] for c in text) for text in spelled]


@pytest.fixture(scope="module")
def opened(library: Library, tmp_path_factory: pytest.TempPathFactory) -> dict[str, tokenizers.Tokenizer]:
    """The trained tokenizer through every file format."""
    folder = tmp_path_factory.mktemp("tokenizers")
    library.save(str(folder / "tokenizer.json"))
    library.model.save(str(folder))  # vocab.json, merges.txt
    vocab = json.loads((folder / "vocab.json").read_text()) | {END_OF_TEXT: library.token_to_id(END_OF_TEXT)}
    (folder / "vocab.json").write_text(json.dumps(vocab))
    write_llmc(folder / "tokenizer.bin", pieces_of(library), library.token_to_id(END_OF_TEXT))
    write_huggingface(folder / "rewritten.json", pieces_of(library), library.token_to_id(END_OF_TEXT))
    names = ("tokenizer.json", "merges.txt", "tokenizer.bin", "rewritten.json")
    return {name: tokenizers.open(folder / name) for name in names}


def test_the_corpus_is_encoded_alike_by_all(library: Library, opened: dict[str, tokenizers.Tokenizer]) -> None:
    for text in CORPUS[:3]:
        expected = library.encode(text).ids
        assert len(expected) < len(text.encode())
        for name, tokenizer in opened.items():
            assert tokenizer.encode(text) == expected, name


@settings(max_examples=200, deadline=None)
@given(text=texts)
def test_any_text_is_encoded_as_by_the_library(
    library: Library, opened: dict[str, tokenizers.Tokenizer], text: str
) -> None:
    expected = library.encode(text).ids
    for name, tokenizer in opened.items():
        assert tokenizer.encode(text) == expected, name
        assert tokenizer.decode(expected) == text, name


def test_end_of_text_is_one_token(library: Library, opened: dict[str, tokenizers.Tokenizer]) -> None:
    text = f"one{END_OF_TEXT}two{END_OF_TEXT}{END_OF_TEXT}"
    for name, tokenizer in opened.items():
        assert tokenizer.end_of_text == library.token_to_id(END_OF_TEXT), name
        assert tokenizer.size == library.get_vocab_size(), name
        assert tokenizer.encode(text) == library.encode(text).ids, name
        assert tokenizer.encode(text).count(tokenizer.end_of_text) == 3, name
        assert tokenizer.decode(tokenizer.encode(text)) == text, name


@settings(max_examples=100, deadline=None)
@given(tokens=st.lists(st.integers(-2, 700), max_size=40))
def test_streaming_gives_whole_characters(opened: dict[str, tokenizers.Tokenizer], tokens: list[int]) -> None:
    for tokenizer in opened.values():
        decoder = StreamDecoder(tokenizer)
        shown = "".join(map(decoder.push, tokens)) + decoder.finish()
        assert shown == tokenizer.decode(tokens)


def test_a_character_appears_when_its_last_byte_does() -> None:
    tokenizer = LlmcTokenizer([bytes([byte]) for byte in range(256)], None)
    decoder = StreamDecoder(tokenizer)
    assert [decoder.push(byte) for byte in "é🙂".encode()] == ["", "é", "", "", "", "🙂"]
    assert decoder.push(0xE6) + decoder.push(0x9D) == "" and decoder.finish() == "\ufffd"
    assert StreamDecoder(tokenizer).push(0xFF) == "\ufffd"
    assert StreamDecoder(tokenizer).push(256) == "\ufffd"


def test_the_alphabet_is_gpt2s() -> None:
    alphabet = byte_alphabet()
    assert sorted(alphabet) == sorted(pre_tokenizers.ByteLevel.alphabet())
    assert (alphabet[0x20], alphabet[0x0A], alphabet[0xAD], alphabet[ord("a")]) == ("Ġ", "Ċ", "Ń", "a")


def test_a_very_long_word_is_merged_in_time() -> None:
    pieces = synthetic_pieces(3000)
    assert pieces is not None
    tokenizer = LlmcTokenizer(pieces, 2999)
    word = "".join(random.choice("etaoinzq") for _ in range(100_000))
    assert tokenizer.decode(tokenizer.encode(word)) == word


def test_merging_takes_the_lowest_rank_first_and_the_leftmost_of_equals() -> None:
    ranks = {b"a": 0, b"b": 1, b"c": 2, b"bc": 3, b"ab": 4, b"aa": 5, b"abc": 6}
    assert merge(b"abc", ranks) == [b"abc"] and merge(b"aaa", ranks) == [b"aa", b"a"]
    assert merge(b"abab", ranks) == [b"ab", b"ab"] and merge(b"abc", ranks, below=6) == [b"a", b"bc"]
    assert merge(b"", ranks) == [] and merge(b"z", ranks) == [b"z"]


@pytest.mark.parametrize("size", [257, 258, 300, 1000])
def test_made_up_tables_are_complete(size: int, tmp_path: Path) -> None:
    pieces = synthetic_pieces(size)
    assert pieces is not None and len(set(pieces)) == len(pieces) == size
    assert {bytes([byte]) for byte in range(256)} <= set(pieces)
    write_huggingface(tmp_path / "tokenizer.json", pieces, size - 1)
    write_llmc(tmp_path / "t.bin", pieces, size - 1)
    ours, theirs = tokenizers.open(tmp_path / "t.bin"), tokenizers.open(tmp_path)
    text = "the rain in spain, stays mainly\n"
    assert ours.encode(text) == theirs.encode(text) and theirs.decode(ours.encode(text)) == text
    merged = [token for token, piece in enumerate(pieces[:-1]) if len(piece) > 1]
    assert [merge(pieces[token], {p: i for i, p in enumerate(pieces[:-1])}) for token in merged] == [
        [pieces[token]] for token in merged
    ]
    assert synthetic_pieces(256) is None


def test_what_is_found_beside_a_checkpoint(tmp_path: Path) -> None:
    pieces = synthetic_pieces(300)
    assert pieces is not None
    assert tokenizers.find(tmp_path / "gpt2.bin", None) is None and tokenizers.find(None, None) is None
    for size, name in enumerate(("gpt2_tokenizer.bin", "tokenizer.bin", "gpt2.tokenizer.bin"), start=257):
        table = synthetic_pieces(size)
        assert table is not None
        write_llmc(tmp_path / name, table, size - 1)
        found = tokenizers.find(tmp_path / "gpt2.bin", None)
        assert found is not None and found.size == size, name
    write_huggingface(tmp_path / "tokenizer.json", pieces, 299)
    explicit = tokenizers.find(tmp_path / "gpt2.bin", tmp_path / "tokenizer.json")
    inside = tokenizers.find(tmp_path, None)
    assert explicit is not None and inside is not None and explicit.size == inside.size == 300


def test_version_1_knows_gpt2s_end_of_text(tmp_path: Path) -> None:
    write_llmc(tmp_path / "small.bin", [b"a", b"b"], None)
    assert tokenizers.open(tmp_path / "small.bin").end_of_text is None
    write_llmc(tmp_path / "large.bin", [b"x"] * 50257, None)
    assert tokenizers.open(tmp_path / "large.bin").end_of_text == 50256


def header(*fields: int) -> bytes:
    return struct.pack(f"<{len(fields)}i", *fields).ljust(1024, b"\0")


SPARSE = b'{"decoder": {"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}, '
SPARSE += b'"model": {"type": "BPE", "vocab": {"a": 4000000000}, "merges": []}}'
LONG_JOINT = b'{"model": {"type": "BPE", "vocab": {"a": 0, "b": 1, "ab": 2}, "merges": ["a b", ["ab", "ab"]]}}'


@pytest.mark.parametrize(
    ("name", "content", "hint"),
    [
        ("t.bin", b"", "is cut short"),
        ("t.bin", header(20240326, 1, 1) + b"\1a", "its magic number is 20240326"),
        ("t.bin", header(20240328, 0, 1) + b"\1a", "version 0"),
        ("t.bin", header(20240328, 3, 1) + b"\1a", "version 3"),
        ("t.bin", header(20240328, 1, -1), "the table's size is -1"),
        ("t.bin", header(20240328, 1, (1 << 31) - 1) + b"\1a", "it ends in token 1 of 2147483647"),
        ("t.bin", header(20240328, 1, 2) + b"\1a\5bc", "it ends in token 1 of 2"),
        ("t.bin", header(20240328, 1, 1) + b"\1ab", "is too long: 1 bytes follow"),
        ("t.bin", header(20240328, 2, 1, 1) + b"\1a", "the end-of-text id is 1"),
        ("t.bin", header(20240328, 2, 1, -1) + b"\1a", "the end-of-text id is -1"),
        ("tokenizer.json", b"{", "tokenizer.json is damaged at line 1, column 2: Expecting property name"),
        ("tokenizer.json", b'{\n"model": 5', "tokenizer.json is damaged at line 2, column 11: Expecting ',' delimiter"),
        ("tokenizer.json", b"[]", "is damaged: it should hold an object whose `model` is one"),
        ("tokenizer.json", b'{"model": 5}', "is damaged: it should hold an object whose `model` is one"),
        ("tokenizer.json", b"\xff\xfe", "is damaged"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": ["a b"]}}', "is damaged"),
        ("tokenizer.json", b'{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}', "no byte-level tokenizer"),
        ("tokenizer.json", SPARSE, "ids go up to 4000000000 for 1 tokens"),
        ("tokenizer.json", LONG_JOINT, "the merge 'ab ab' wants 'abab', which is no token"),
        ("vocab.json", b"{}", "merges.txt is missing"),
        ("other.txt", b"hello", "is no tokenizer known here"),
    ],
)
def test_bad_files(tmp_path: Path, name: str, content: bytes, hint: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(UserError) as caught:
        tokenizers.open(tmp_path / name)
    assert hint in caught.value.message and "\n" not in caught.value.message


def test_bad_text(opened: dict[str, tokenizers.Tokenizer]) -> None:
    for tokenizer in opened.values():
        with pytest.raises(UserError, match="not valid UTF-8 at character 2"):
            tokenizer.encode("ab\udcff")
    with pytest.raises(UserError, match="none for the byte 0x62"):
        LlmcTokenizer([b"a"], None).encode("ab")
    with pytest.raises(UserError, match="there is no tokenizer"):
        tokenizers.find(None, "/nowhere/tokenizer.json")
    with pytest.raises(UserError, match="ends at 255"):
        write_llmc(Path("never"), [b"a" * 256], None)


def test_hipgpt(tmp_path: Path) -> None:
    texts = ["a", "b", "b</w>", "ab</w>", "a</w>", "ba", "é</w>"]
    path = tmp_path / "tokenizer.json"
    path.write_text(json.dumps({"stoi_to_token": texts, "merge_rank": [[1, 0, 1], ["a", "b</w>", 0]]}))
    tokenizer = tokenizers.open(path)
    assert tokenizer.encode(" ab  a\nbab é") == [3, 4, 1, 3, 6]
    assert tokenizer.decode([3, 4, 1, 3, 6, 7]) == "ab a bab é \ufffd" and tokenizer.size == 7
    for damage in ({"merge_rank": [[0, 9, 1]]}, {"merge_rank": [[0, 0, 0]]}, {"merge_rank": 1}, {"stoi_to_token": [1]}):
        path.write_text(json.dumps({"stoi_to_token": texts, "merge_rank": []} | damage))
        with pytest.raises(UserError, match="is damaged"):
            tokenizers.open(path)


def test_tokens_that_lack_single_bytes_are_not_written_as_merges(tmp_path: Path) -> None:
    pieces = [piece for piece in synthetic_pieces(300) if piece != b"o"] + [b"o-", b"-o"]
    with pytest.raises(UserError, match="no byte-pair encoding"):
        write_huggingface(tmp_path / "tokenizer.json", pieces, None)
    assert not list(tmp_path.iterdir())


def hostile(change: str) -> Library:
    """A tokenizer at whose load, or for some text or token, the library panics."""
    library = Library(models.BPE({"a": 0, "b": 1, "ab": 2, "<0x61>": 3}, [("a", "b")]))
    library.decoder = decoders.ByteFallback()
    if change == "expression":
        library.pre_tokenizer = pre_tokenizers.Split(Regex("(a+)+b"), "isolated")
    elif change == "decoder":
        library.decoder = decoders.Sequence([decoders.ByteFallback(), decoders.Strip("b", 0, 5)])
    return library


def test_merges_may_go_on_with_a_prefix_and_others_are_refused(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    path = tmp_path / "tokenizer.json"
    value = json.loads(hostile("prefix").to_str())
    value["model"] |= {"vocab": {"a": 0, "##b": 1, "ab": 2}, "continuing_subword_prefix": "##"}
    value["model"] |= {"merges": [["a", "##b"]]}
    path.write_text(json.dumps(value))
    assert tokenizers.open(path).encode("ab") == [2]
    for merge_of in (["a", "b"], ["##b", "a"]):
        value["model"] |= {"vocab": {"a": 0, "b": 1, "ab": 2, "##b": 3}, "merges": [merge_of]}
        path.write_text(json.dumps(value))
        with pytest.raises(UserError, match=r"is damaged: the merge .* goes on with no token that begins with '##'"):
            tokenizers.open(path)
    assert capfd.readouterr().err == ""


def test_a_panic_of_the_library_is_one_error_and_nothing_else(
    tmp_path: Path, capfd: pytest.CaptureFixture[str]
) -> None:
    need_own_tables()
    path = tmp_path / "tokenizer.json"
    hostile("expression").save(str(path))
    slow = tokenizers.open(path)
    assert slow.encode("ab") == [2]
    with pytest.raises(UserError, match=r"cannot encode this text: .*retry-limit"):
        slow.encode("a" * 60)
    hostile("decoder").save(str(path))
    stripping = tokenizers.open(path)
    assert stripping.decode([0]) == "a"
    with pytest.raises(UserError, match="cannot decode token 1: index out of bounds"):
        stripping.decode([1])
    table = {"a": 0}
    with pytest.raises(UserError, match="made of nothing: range end index"):
        call(lambda: models.BPE(table, [("a", "a")], continuing_subword_prefix="long"), "made of nothing")
    assert capfd.readouterr().err == ""
