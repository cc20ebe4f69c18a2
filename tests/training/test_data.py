"""What steps are trained on: shards as llm.c has them, texts in pieces, and batches that take every token once."""

from __future__ import annotations

import json
from pathlib import Path

import numpy as np
import pytest
import seeded
from tokenizers import Regex, pre_tokenizers

from lispgpt.base.errors import UserError
from lispgpt.runtime import tokenizers
from lispgpt.runtime.data.batches import IGNORED, Batches, Stream, sweep
from lispgpt.runtime.data.shards import is_shard, read_shard, write_shard
from lispgpt.runtime.data.texts import PIECE_BYTES, encoded, pieces, text_files
from lispgpt.runtime.tokenizers.training import train_tokenizer

WORDS = ["the", "cat", "sat", "on", "a", "mat", "and", "Élise", "東京", "\n", "\n\n", "\t", "  ", "12", "it's"]


def some_text(count: int) -> str:
    words, gaps = seeded.rng().choice(WORDS, count), seeded.rng().choice([" ", " ", "\n"], count)
    return "".join(word + gap for word, gap in zip(words.tolist(), gaps.tolist(), strict=True))


def shards(folder: Path, counts: list[int]) -> Stream:
    """A stream of the numbers from 0 on, in shards of these sizes."""
    found, start = [], 0
    for number, count in enumerate(counts):
        write_shard(folder / f"{number}.bin", [np.arange(start, start + count)], 1 << 20)
        found.append(read_shard(folder / f"{number}.bin"))
        start += count
    return Stream(found)


@pytest.mark.parametrize(("vocab", "magic", "dtype"), [(50257, 20240520, "<u2"), (70000, 20240801, "<u4")])
def test_a_shard_is_llm_cs_to_the_byte(tmp_path: Path, vocab: int, magic: int, dtype: str) -> None:
    tokens = seeded.rng().integers(0, vocab, 1000)
    assert write_shard(tmp_path / "s.bin", [tokens[:300], tokens[300:]], vocab) == 1000
    data = (tmp_path / "s.bin").read_bytes()
    header = np.frombuffer(data[:1024], "<i4")
    assert list(header[:3]) == [magic, 1 if magic == 20240520 else 7, 1000] and not header[3:].any()
    assert data[1024:] == tokens.astype(dtype).tobytes()
    read = read_shard(tmp_path / "s.bin")
    np.testing.assert_array_equal(read.tokens, tokens)
    assert read.largest() == tokens.max() and is_shard(tmp_path / "s.bin")


def test_damaged_shards_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "s.bin"
    write_shard(path, [np.arange(100)], 200)
    whole = path.read_bytes()
    for damaged, message in [
        (whole[:-2], "cut short"),
        (whole + b"\0\0", "too long"),
        (whole[:900], "header alone"),
        (b"\1\0\0\0" + whole[4:], "no token shard"),
        (whole[:4] + b"\2" + whole[5:], "version 2"),
        (whole[:8] + b"\xff\xff\xff\xff" + whole[12:], "too long"),
    ]:
        path.write_bytes(damaged)
        with pytest.raises(UserError, match=message):
            read_shard(path)
    with pytest.raises(UserError, match="not below 50"):
        write_shard(tmp_path / "t.bin", [np.arange(100)], 50)
    assert not (tmp_path / "t.bin").exists()


@pytest.mark.parametrize(("batch", "length", "world"), [(3, 7, 1), (2, 16, 1), (2, 5, 2), (1, 90, 1)])
def test_an_epoch_takes_every_window_once(tmp_path: Path, batch: int, length: int, world: int) -> None:
    stream, seed = shards(tmp_path, [101, 3, 57, 240]), seeded.fresh_seed()
    ranks = [Batches(stream, batch, length, seed, rank, world) for rank in range(world)]
    windows, seen, starts = ranks[0].windows, [], []
    epochs = 3
    for number in range(-(-epochs * windows // (batch * world))):
        for reader in ranks:
            tokens, targets = reader.at(number)
            assert tokens.shape == targets.shape == (batch, length) and tokens.dtype == np.int32
            np.testing.assert_array_equal(tokens + 1, targets)
            seen += list(tokens)
    for epoch in range(epochs):
        rows = seen[epoch * windows : (epoch + 1) * windows]
        found = np.concatenate(rows)
        assert len(set(found)) == len(found), f"seed {seed}: a token twice in epoch {epoch}"
        assert len(found) > 401 - 2 * length - 1
        starts.append([int(row[0]) for row in rows])
    if windows > 8:
        assert starts[0] != sorted(starts[0]) and starts[0] != starts[1]


def test_any_step_can_be_asked_for_and_ranks_read_what_one_would(tmp_path: Path) -> None:
    stream, seed = shards(tmp_path, [997]), seeded.fresh_seed()
    alone = Batches(stream, 4, 8, seed)
    expected = {number: alone.at(number) for number in range(80)}
    for number in seeded.rng().permutation(80):
        again = Batches(stream, 4, 8, seed).at(int(number))
        np.testing.assert_array_equal(again, expected[int(number)])
        halves = [Batches(stream, 2, 8, seed, rank, 2).at(int(number)) for rank in range(2)]
        np.testing.assert_array_equal(np.concatenate(halves, 1), expected[int(number)])
    assert not np.array_equal(Batches(stream, 4, 8, seed + 1).at(0), expected[0])


def test_a_sweep_has_every_target_once(tmp_path: Path) -> None:
    stream = shards(tmp_path, [50, 61]).part(10, 105)
    for batch, length in [(3, 8), (2, 94), (4, 200)]:
        found = []
        for tokens, targets in sweep(stream, batch, length):
            real = targets != IGNORED
            np.testing.assert_array_equal(tokens[real] + 1, targets[real])
            found += list(targets[real])
        assert found == list(range(11, 105))
    assert len(list(sweep(stream, 3, 4, most=2))) == 2


def test_too_little_data_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="has 9 tokens to train on, and a window of 9 needs 10"):
        Batches(shards(tmp_path, [9]), 1, 9, 0)
    assert Batches(shards(tmp_path, [10]), 2, 9, 0).at(5)[0].tolist() == [list(range(9))] * 2


def test_pieces_of_a_text_have_the_tokens_of_the_whole(tmp_path: Path) -> None:
    text = some_text(PIECE_BYTES // 3)
    (tmp_path / "a.txt").write_text(text, encoding="utf-8")
    found = list(pieces([tmp_path / "a.txt"]))
    assert "".join(piece for piece, _ in found) == text and len(found) > 1
    assert [begins for _, begins in found] == [True] + [False] * (len(found) - 1)
    train_tokenizer([text], 300, tmp_path / "tokenizer.json")
    tokenizer = tokenizers.open(tmp_path / "tokenizer.json")
    tokens = np.concatenate(list(encoded([tmp_path / "a.txt"], tokenizer)))
    assert tokens.tolist() == [tokenizer.end_of_text, *tokenizer.encode(text)]


# The patterns by which GPT-2, Llama 3 and GPT-4o part a text before they merge bytes.
GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
LLAMA3 = (
    r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+"
    r"|\s+(?!\S)|\s+"
)
GPT4O = LLAMA3.replace(r"[\r\n]*", r"[\r\n/]*")


@pytest.mark.parametrize("pattern", [GPT2, LLAMA3, GPT4O], ids=["gpt2", "llama3", "gpt4o"])
@pytest.mark.parametrize(
    "marked",
    [
        "a mat\na mat\n|the cat",
        "a mat!\na mat!\n|the cat\n",
        "a mat\na mat\n|the cat\n\nsat",  # of two, GPT-2's pattern leaves the second to what follows
        "a mat\n|the cat \nsat\n on it",
        "a mat\n|the cat!\n/sat",
        "the cat \nsat on a| mat\n",
        "the cat\r\nsat on a| mat.\r\nIt 12 's",
        "the\u3000 cat   sat \t12 's\r\n",
    ],
)
def test_pieces_end_where_patterns_part_a_text(tmp_path: Path, pattern: str, marked: str) -> None:
    text = marked.replace("|", "")
    (tmp_path / "a.txt").write_bytes(text.encode())
    found = [piece for piece, _ in pieces([tmp_path / "a.txt"])]
    assert found == marked.split("|")
    split = pre_tokenizers.Split(Regex(pattern), "isolated").pre_tokenize_str
    assert [part for piece in found for part, _ in split(piece)] == [part for part, _ in split(text)]


def test_documents_of_folders_and_json_lines(tmp_path: Path) -> None:
    (tmp_path / "in" / "deep").mkdir(parents=True)
    (tmp_path / "in" / "b.txt").write_text("second")
    (tmp_path / "in" / "a.md").write_text("first\n")
    (tmp_path / "in" / "no.py").write_text("not this")
    lines = [json.dumps({"text": "third\nline", "id": 3}), json.dumps("fourth"), ""]
    (tmp_path / "in" / "deep" / "c.jsonl").write_text("\n".join(lines))
    files = text_files([tmp_path / "in"])
    assert list(pieces(files)) == [("first\n", True), ("second", True), ("third\nline", True), ("fourth", True)]


@pytest.mark.parametrize(
    ("name", "data", "message"),
    [
        ("x.txt", b"abc\xff", "not UTF-8"),
        ("x.jsonl", b'{"text": "a"}\n{"text": 3}\n', "line 2: neither a string"),
        ("x.jsonl", b'"a"\n{"tex', "line 2, is no JSON"),
        ("x.jsonl", b'{"title": "a"}', "line 1: neither"),
    ],
)
def test_bad_texts_are_refused(tmp_path: Path, name: str, data: bytes, message: str) -> None:
    (tmp_path / name).write_bytes(data)
    with pytest.raises(UserError, match=message):
        list(pieces(text_files([tmp_path / name])))


def test_a_path_without_text_is_refused(tmp_path: Path) -> None:
    with pytest.raises(UserError, match="no file to train on"):
        text_files([tmp_path])
    with pytest.raises(UserError, match="there is no file or folder"):
        text_files([tmp_path / "missing.txt"])


def test_a_trained_vocabulary_spells_everything_and_joins_what_occurs(tmp_path: Path) -> None:
    text = "the cat sat on the mat. " * 20
    size = train_tokenizer([text], 270, tmp_path / "tokenizer.json")
    tokenizer = tokenizers.open(tmp_path)
    assert size == tokenizer.size <= 270 and tokenizer.end_of_text == size - 1
    strange = "Größe \0 東京 🙂\n\n"
    assert tokenizer.decode(tokenizer.encode(strange)) == strange
    assert len(tokenizer.encode(text)) < len(text) / 2
    assert tokenizer.encode("a<|endoftext|>")[-1] == size - 1
    with pytest.raises(UserError, match="at least 257"):
        train_tokenizer([text], 256, tmp_path / "tokenizer.json")
