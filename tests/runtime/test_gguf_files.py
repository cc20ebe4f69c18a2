"""GGUF files' headers and tokenizers: what the gguf package writes is read, and what is damaged is one clear error."""

from __future__ import annotations

import json
import struct
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import pytest
from gguf_files import write_vocabulary
from recorded_folders import folders

from lispgpt.base.dtypes import DTYPES, MIXED, OWN_BLOCKS
from lispgpt.base.errors import UserError
from lispgpt.compiler.folders import open_weights
from lispgpt.runtime import tokenizers
from lispgpt.runtime.checkpoints.blocks import mixed
from lispgpt.runtime.checkpoints.numbers import is_finite, widened
from lispgpt.runtime.gguf.header import read_header
from lispgpt.runtime.tokenizers.base import byte_alphabet

TEXTS = ("", "Hello world", "  two  spaces", "123456 it's", "naïve ✓ 漢字\n\n x", "<|end|>a<|end|>")


@pytest.fixture(scope="module")
def file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A small model with a tokenizer."""
    from gguf_files import write_gguf

    folder = next(f for f in folders() if f.name == "llama-3-f32")
    tokens = [*byte_alphabet()[:100], *(f"t{i}" for i in range(31))]
    about = {"tokenizer_model": "gpt2", "tokenizer_pre": "llama-bpe", "token_list": tokens, "token_merges": ["Ā ā"]}
    return write_gguf(folder, tmp_path_factory.mktemp("gguf") / "model.gguf", tokenizer=about)


def test_a_header_is_read_as_the_package_reads_it(file: Path) -> None:
    ours, theirs = read_header(file), gguf.GGUFReader(file)
    assert set(ours.metadata) == {key for key in theirs.fields if not key.startswith("GGUF.")}
    for key, value in ours.metadata.items():
        assert theirs.fields[key].contents() == value, key
    assert len(ours.tensors) == len(theirs.tensors)
    for place, tensor in zip(ours.tensors, theirs.tensors, strict=True):
        assert (place.name, place.shape) == (tensor.name, tuple(int(n) for n in reversed(tensor.shape)))
        assert (place.offset, place.nbytes) == (tensor.data_offset, tensor.n_bytes)


def test_every_truncation_and_mutation_is_read_or_refused(file: Path, tmp_path: Path, fresh_seed: int) -> None:
    rng = np.random.default_rng(fresh_seed)
    whole, damaged = file.read_bytes(), tmp_path / "damaged.gguf"
    start = min(place.offset for place in read_header(file).tensors)
    trials = [whole[: int(rng.integers(4, start))] for _ in range(60)] + [whole[:-40]]
    for _ in range(200):
        changed = bytearray(whole)
        at = int(rng.integers(4, start - 8))
        changed[at : at + 8] = rng.choice([bytes(rng.bytes(8)), b"\xff" * 8, bytes(8), struct.pack("<Q", 1 << 40)])
        trials.append(bytes(changed))
    for number, content in enumerate(trials):
        damaged.write_bytes(content)
        try:
            open_weights(damaged).check_finite()
            tokenizers.find(damaged, None)
        except UserError as error:
            assert str(damaged) in str(error) or "no program" in str(error) or "tensor" in str(error), str(error)
        else:
            assert number > 60, "a truncated file was read"


def _with(content: bytes, at: int, form: str, value: Any) -> bytes:
    return content[:at] + struct.pack(form, value) + content[at + struct.calcsize(form) :]


@pytest.mark.parametrize(
    ("at", "form", "value", "message"),
    [
        (4, "<I", 1, "of version 1, and those known here are 2 and 3"),
        (4, ">I", 3, "for big-endian machines"),
        (8, "<Q", 1 << 60, r"is damaged: it claims 1,152,\S+ tensors, and has \S+ bytes left; copy or download"),
        (16, "<Q", 1 << 60, "it claims .* settings"),
        (24, "<Q", 1 << 60, "it ends at byte .* in the middle of its header"),
    ],
)
def test_what_a_header_claims_is_held_against_the_file(
    at: int, form: str, value: int, message: str, file: Path, tmp_path: Path
) -> None:
    (tmp_path / "model.gguf").write_bytes(_with(file.read_bytes(), at, form, value))
    with pytest.raises(UserError, match=message):
        read_header(tmp_path / "model.gguf")


def test_types_that_are_not_known_are_named(tmp_path: Path) -> None:
    from gguf_files import write_gguf

    path = write_gguf(next(f for f in folders() if f.name == "llama-3-f32"), tmp_path / "model.gguf")
    content, name = path.read_bytes(), b"blk.0.ffn_up.weight"
    at = content.index(name) + len(name) + 4 + 16
    path.write_bytes(_with(content, at, "<I", 77))
    with pytest.raises(UserError, match=r"'blk\.0\.ffn_up\.weight' is of type 77"):
        open_weights(path)
    path.write_bytes(_with(content, at, "<I", int(gguf.GGMLQuantizationType.I8)))
    with pytest.raises(UserError, match=r"'blk\.0\.ffn_up\.weight' is of type i8; known are f32, f16, bf16, f64, q8_0"):
        open_weights(path)


@pytest.mark.parametrize("kind", [name for name, dtype in DTYPES.items() if dtype.block > 1 and name not in OWN_BLOCKS])
def test_blocks_are_those_of_the_package(kind: str, fresh_seed: int) -> None:
    rng, dtype = np.random.default_rng(fresh_seed), DTYPES[kind]
    assert (dtype.block, dtype.item_bytes) == gguf.GGML_QUANT_SIZES[gguf.GGMLQuantizationType[kind.upper()]]
    blocks = np.frombuffer(rng.bytes(6 * dtype.item_bytes), dtype.numpy).reshape(2, 3).copy()
    for field in dtype.numpy.names or ():
        if dtype.numpy[field] == np.float16:
            blocks[field] = rng.normal(0, 1, (2, 3))
    found = widened(blocks, kind)
    assert found.shape == (2, 3 * dtype.block) and found.dtype == np.float32 and np.isfinite(found).all()
    assert is_finite(blocks, kind)
    if "d" in (dtype.numpy.names or ()):
        blocks["d"][1, 2] = np.inf
        assert not is_finite(blocks, kind)


def _write(path: Path, **about: Any) -> Path:
    writer = gguf.GGUFWriter(str(path), "llama")
    for name, value in about.items():
        getattr(writer, f"add_{name}")(value)
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.close()
    return path


def _trained(texts: Sequence[str]) -> Any:
    """A byte-level tokenizer of the library."""
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    library = Tokenizer(models.BPE())
    library.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    library.decoder = decoders.ByteLevel()
    alphabet = pre_tokenizers.ByteLevel.alphabet()
    trainer = trainers.BpeTrainer(vocab_size=320, initial_alphabet=alphabet, special_tokens=["<|end|>"])
    library.train_from_iterator(texts, trainer)
    return library


@pytest.mark.parametrize("pre", ["gpt-2", "llama-bpe", "qwen2", "smollm", "tekken"])
def test_byte_level_tokenizers_encode_and_decode(pre: str, tmp_path: Path) -> None:
    library = _trained(["Hello world, it's the world of hello", "two spaces and 123456 numbers"] * 3)
    model = json.loads(library.to_str())["model"]
    tokens = sorted(model["vocab"], key=model["vocab"].get)
    merges = [" ".join(pair) for pair in model["merges"]]
    about = {"tokenizer_model": "gpt2", "tokenizer_pre": pre, "token_list": tokens, "token_merges": merges}
    types = [3 if token == "<|end|>" else 1 for token in tokens]
    path = _write(tmp_path / "t.gguf", **about, token_types=types, eos_token_id=0, bos_token_id=0)
    found = tokenizers.find(path, None)
    assert found is not None and found.end_of_text == 0
    assert found.start == ((0,) if pre in ("llama-bpe", "tekken") else ())
    for text in TEXTS:
        assert found.decode(found.encode(text)) == text
        if pre == "gpt-2":
            assert found.encode(text) == library.encode(text).ids
    assert found.encode("<|end|>") == [0]


RECORDED = Path(__file__).parent.parent / "references" / "word_cuts.json"


@pytest.mark.parametrize("rule", json.loads(RECORDED.read_text())["rules"])
def test_words_are_cut_as_llama_cpp_cuts_them(rule: str, tmp_path: Path) -> None:
    """By every rule that it names (see tools/record_word_cuts.py)."""
    recorded = json.loads(RECORDED.read_text())
    path = write_vocabulary(tmp_path / "words.gguf", rule, recorded["tokens"], recorded["merges"])
    found = tokenizers.find(path, None)
    assert found is not None
    for text, tokens in zip(recorded["texts"], recorded["rules"][rule], strict=True):
        assert found.encode(text) == tokens, text


def test_sentence_piece_joins_the_best_scores_first(tmp_path: Path) -> None:
    pieces = {"<unk>": 0.0, "<s>": 0.0, "</s>": 0.0}
    pieces |= {f"<0x{byte:02X}>": 0.0 for byte in range(256)}
    pieces |= {"▁": -10.0, "a": -11.0, "b": -12.0, "c": -13.0, "ab": -3.0, "bc": -1.0, "abc": -2.0, "▁a": -4.0}
    tokens = list(pieces)
    types = [2, 3, 3, *[6] * 256, *[1] * 8]
    about = {"tokenizer_model": "llama", "token_list": tokens, "token_scores": list(pieces.values())}
    ids = {"bos_token_id": 1, "eos_token_id": 2, "unk_token_id": 0}
    path = _write(tmp_path / "t.gguf", **about, token_types=types, **ids)
    found = tokenizers.find(path, None)
    assert found is not None and (found.start, found.end_of_text) == ((1,), 2)
    spell = [tokens[token] for token in found.encode("abc ab é")]
    assert spell == ["▁", "abc", "▁", "ab", "▁", "<0xC3>", "<0xA9>"]
    assert found.prompt("abc") == [1, *found.encode("abc")]
    assert found.decode(found.encode("abc ab é")) == " abc ab é"


@pytest.mark.parametrize(
    ("about", "message"),
    [
        ({"tokenizer_model": "bert", "token_list": ["a"]}, "of the kind 'bert', and those known here are"),
        ({"tokenizer_model": "gpt2", "token_list": ["a"], "tokenizer_pre": "mine"}, "cuts words by 'mine'; known are"),
        ({"tokenizer_model": "llama", "token_list": ["a"], "token_types": [1, 1]}, "1 tokens and 2 of token_type"),
        ({"tokenizer_model": "gpt2", "token_list": ["a"], "token_merges": ["b c"]}, "its tokenizer is none"),
    ],
)
def test_tokenizers_that_are_not_right_are_one_clear_error(about: dict, message: str, tmp_path: Path) -> None:
    path = _write(tmp_path / "t.gguf", **about)
    with pytest.raises(UserError, match=message):
        tokenizers.find(path, None)


@pytest.mark.parametrize("kind", MIXED["k_mix"])
def test_mixed_blocks_stand_for_the_same_numbers(kind: str, fresh_seed: int) -> None:
    """To the last bit: of a Q4_K_M file, matrices that are of Q4_K and Q6_K."""
    rng, dtype = np.random.default_rng(fresh_seed), DTYPES[kind]
    blocks = np.frombuffer(rng.bytes(6 * dtype.item_bytes), dtype.numpy).reshape(2, 3).copy()
    for field in {"d", "dmin"} & set(dtype.numpy.names or ()):
        blocks[field] = rng.normal(0, 1, (2, 3))
    assert np.array_equal(widened(mixed(blocks, kind), "k_mix"), widened(blocks, kind))
