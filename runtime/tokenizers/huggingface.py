"""Hugging Face's BPE: tokenizer.json, or GPT-2's own vocab.json beside merges.txt.

Tokens are spelled in one of two ways: byte-level ones (GPT-2, Llama 3) have a character for each byte, and
SentencePiece's (Llama 1 and 2) are text with ▁ for spaces, and `<0x0A>` for bytes that no token spells.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import decoders, models

from lispgpt.base.config_json import read_setting
from lispgpt.base.errors import UserError
from lispgpt.base.files import replacing
from lispgpt.base.json_files import json_value
from lispgpt.base.reading import is_there, read_ordinary
from lispgpt.runtime.tokenizers.base import END_OF_TEXT, UNKNOWN, Tokenizer, byte_alphabet
from lispgpt.runtime.tokenizers.calls import call
from lispgpt.runtime.tokenizers.declared import Declared, declared_beside
from lispgpt.runtime.tokenizers.merging import check_merges, merges_of, ranks_of
from lispgpt.runtime.tokenizers.pair import add_declared, byte_level_library, library_of_pair

JSON, VOCAB, MERGES = "tokenizer.json", "vocab.json", "merges.txt"
CONFIGS = ("config.json", "generation_config.json")

_ENDS = (END_OF_TEXT, "<|end_of_text|>", "</s>")
_BEFORE = "a"
"""A token that decoders leave as it is."""
TOGETHER = 256
"""Tokens that are decoded together, where one of them is asked for: a call costs more than some of its tokens."""
_BYTE = re.compile(r"<0x([0-9A-Fa-f]{2})>")


def recognises(path: Path, head: bytes) -> bool:
    if path.is_dir():
        return (path / JSON).exists() or (path / VOCAB).exists() or (path / MERGES).exists()
    return path.suffix == ".json" or path.name == MERGES


def open_tokenizer(path: Path) -> Tokenizer:
    """Read a tokenizer.json, or the pair of files if path is their folder or one of them."""
    if path.is_dir():
        path = path / JSON if (path / JSON).exists() else path / VOCAB
    pair = (path.with_name(VOCAB), path.with_name(MERGES)) if path.name in (VOCAB, MERGES) else None
    for file in pair or (path,):
        if not is_there(file):
            raise UserError(f"{file} is missing: a GPT-2 tokenizer is {JSON}, or {VOCAB} with {MERGES}")
    return call(lambda: _opened(path, pair), f"{path} is damaged")


def _opened(path: Path, pair: tuple[Path, Path] | None) -> Tokenizer:
    declared = declared_beside(path) if path.name in (JSON, VOCAB, MERGES) else Declared()
    library = library_of_pair(*pair, declared) if pair else _from_json(path, declared)
    byte_level = isinstance(library.decoder, decoders.ByteLevel)
    tokenizer = HuggingFaceTokenizer(library, byte_level, _ends_beside(path) or _declared_end(library, declared))
    if tokenizer.size > 2 * library.get_vocab_size() + 1024:  # asked first: to_str goes through every id below the last
        raise UserError(f"{path} is damaged: ids go up to {tokenizer.size - 1} for {library.get_vocab_size()} tokens")
    decoder = json.dumps(json.loads(library.to_str())["decoder"])
    if not byte_level and '"ByteFallback"' not in decoder and '"Metaspace"' not in decoder:
        raise UserError(
            f"{path} is no byte-level tokenizer such as GPT-2's, nor one of SentencePiece's, such as Llama 2's"
        )
    return tokenizer


def write(path: Path, pieces: Sequence[bytes], end_of_text: int | None) -> None:
    """Write a tokenizer.json, with the merges that the ids as ranks amount to; UserError where they amount to none."""
    alphabet = byte_alphabet()
    ranks = ranks_of(pieces, end_of_text)

    def spell(piece: bytes) -> str:
        return "".join(alphabet[byte] for byte in piece)

    vocab = {spell(piece): token for piece, token in ranks.items()}
    if end_of_text is not None:
        vocab[END_OF_TEXT] = end_of_text
    merges = [(spell(left), spell(right)) for left, right in merges_of(ranks)]
    try:
        library = byte_level_library(models.BPE(vocab, merges), Declared())
    except Exception as error:  # the library raises nothing narrower for a token that is missing
        raise UserError(f"cannot write {path}: the tokens are no byte-pair encoding ({str(error)[:200]})") from error
    with replacing(path) as file:
        file.write(library.to_str().encode("utf-8"))


class HuggingFaceTokenizer(Tokenizer):
    """A tokenizer of the `tokenizers` library; byte_level: else tokens are spelled as SentencePiece does."""

    def __init__(self, library: Library, byte_level: bool, ends: Sequence[int] = ()) -> None:
        library.no_truncation()
        library.no_padding()
        self._library, self._decoder = library, library.decoder
        self._decoded: dict[int, str] = {}
        added = library.get_added_tokens_decoder().values()
        self.special = tuple(each.content for each in added if each.special)
        self.added = tuple(each.content for each in added if not each.special)
        self._bytes = {character: byte for byte, character in enumerate(byte_alphabet())}
        self.size = max(library.get_vocab().values(), default=-1) + 1
        self._byte_level = byte_level
        self.parts = byte_level and library.encode("a", add_special_tokens=False).tokens == ["a"]  # and no space before
        named = [token for name in _ENDS if (token := library.token_to_id(name)) is not None]
        ends = tuple(ends or named[:1])
        self.end_of_text = ends[0] if ends else None
        self.other_ends = ends[1:]
        self.start = _start(library)

    def to_json(self) -> str | None:
        return self._library.to_str()

    def encode_valid(self, text: str) -> list[int]:
        tokens: list[int] = call(
            lambda: self._library.encode(text, add_special_tokens=False).ids, "the tokenizer cannot encode this text"
        )
        return tokens

    def decode_bytes(self, token: int) -> bytes:
        spelled = self._library.id_to_token(token) if 0 <= token < self.size else None
        if spelled is None:
            return UNKNOWN
        if not self._byte_level:
            byte = _BYTE.fullmatch(spelled)
            return bytes([int(byte[1], 16)]) if byte else self._behind_another(token).encode()
        if all(character in self._bytes for character in spelled):
            return bytes(self._bytes[character] for character in spelled)
        return spelled.encode()

    def _behind_another(self, token: int) -> str:
        """What the library's decoder makes of a token that does not begin a text: at its start a space is lost."""
        if token not in self._decoded:
            first = token - token % TOGETHER
            failure = f"the tokenizer cannot decode token {token}"
            try:
                self._decoded |= call(lambda: self._behind(range(first, first + TOGETHER)), failure)
            except UserError:  # by another token, perhaps
                self._decoded |= call(lambda: self._behind([token]), failure)
        return self._decoded[token]

    def _behind(self, tokens: Iterable[int]) -> dict[int, str]:
        spelled = {token: self._library.id_to_token(token) for token in tokens if token < self.size}
        return {
            token: self._decoder.decode([_BEFORE, text]).removeprefix(_BEFORE)
            for token, text in spelled.items()
            if text is not None
        }


def _start(library: Library) -> tuple[int, ...]:
    """What a template puts before every text; what it puts behind one is no part of a text that goes on."""
    made = library.encode("a", add_special_tokens=True)
    own = [place for place, special in enumerate(made.special_tokens_mask) if not special]
    ids: list[int] = made.ids[: own[0]] if own else library.encode("", add_special_tokens=True).ids
    return tuple(ids)


def _declared_end(library: Library, declared: Declared) -> list[int]:
    token = library.token_to_id(declared.named.get("eos_token", ""))
    return [] if token is None else [token]


def _ends_beside(path: Path) -> list[int]:
    """The end-of-text ids that a model's configs give, one or a list in each: chat models add theirs in the second."""
    found: list[int] = []
    for config in map(path.with_name, CONFIGS):
        given = read_setting(config, "eos_token_id") if is_there(config) else None
        found += given if isinstance(given, list) else [] if given is None else [given]
    return list(dict.fromkeys(token for token in found if token >= 0))


def _check_templates(path: Path, processor: Any) -> None:
    """UserError where a template of a post-processor, or of one within, names a special token that it does not list:
    the library finds that out when a text is encoded, and panics."""
    if not isinstance(processor, dict):
        return
    for inner in processor.get("processors") or ():
        _check_templates(path, inner)
    known = processor.get("special_tokens") or {}
    for piece in (*(processor.get("single") or ()), *(processor.get("pair") or ())):
        token = piece.get("SpecialToken") if isinstance(piece, dict) else None
        if isinstance(token, dict) and token.get("id") not in known:
            raise UserError(f"{path} is damaged: its template has the token {token.get('id')!r:.60}, which it lacks")


def _from_json(path: Path, declared: Declared) -> Library:
    data = read_ordinary(path)
    value = json_value(path, data)
    model = value.get("model") if isinstance(value, dict) else None
    if not isinstance(model, dict):
        raise UserError(f"{path} is damaged: it should hold an object whose `model` is one")
    if model.get("type") == "BPE":
        merges = (merge.split(" ", 1) if isinstance(merge, str) else merge for merge in model["merges"])
        check_merges(merges, model["vocab"], model.get("continuing_subword_prefix") or "")
    _check_templates(path, value.get("post_processor"))
    library = Library.from_buffer(data)
    add_declared(library, declared)
    return library
