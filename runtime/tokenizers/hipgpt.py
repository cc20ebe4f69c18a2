"""HipGPT's tokenizer.json: `stoi_to_token`, each id's text, and `merge_rank`, triples of left, right and rank.

Words are what stands between white space; the last character of a word carries the suffix `</w>`, which reads as a
space when decoded.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

from tokenizers import Tokenizer as Library
from tokenizers import models, pre_tokenizers

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import read_json
from lispgpt.runtime.tokenizers.base import UNKNOWN, Tokenizer
from lispgpt.runtime.tokenizers.calls import call

_SUFFIX = "</w>"


def recognises(path: Path, head: bytes) -> bool:
    return b'"stoi_to_token"' in head or b'"merge_rank"' in head


def open_tokenizer(path: Path) -> Tokenizer:
    """Read the table and its merges, whose sides may be ids or texts."""
    data = read_json(path)
    texts, merges = data.get("stoi_to_token"), data.get("merge_rank")
    if not isinstance(texts, list) or not all(isinstance(text, str) for text in texts):
        raise UserError(f"{path} is damaged: stoi_to_token must be a list of texts")
    if not isinstance(merges, list) or not all(_is_merge(merge, len(texts)) for merge in merges):
        raise UserError(f"{path} is damaged: merge_rank must be a list of [left, right, rank]")
    vocab = {text: token for token, text in reversed(list(enumerate(texts)))}
    pairs = []
    for left, right, _ in sorted(merges, key=lambda merge: merge[2]):
        pair = tuple(texts[side] if isinstance(side, int) else side for side in (left, right))
        if any(text not in vocab for text in (*pair, "".join(pair))):
            raise UserError(
                f"{path} is damaged: merge_rank joins {pair[0]!r} and {pair[1]!r}, not all in stoi_to_token"
            )
        pairs.append(pair)
    library = call(lambda: Library(models.BPE(vocab, pairs, end_of_word_suffix=_SUFFIX)), f"{path} is damaged")
    return HipgptTokenizer(texts, library)


class HipgptTokenizer(Tokenizer):
    """Words of characters, joined by rank."""

    def __init__(self, texts: list[str], library: Library) -> None:
        library.pre_tokenizer = pre_tokenizers.WhitespaceSplit()
        self._texts, self._library = texts, library
        self.size = len(texts)
        self.end_of_text = None

    def encode_valid(self, text: str) -> list[int]:
        tokens: list[int] = call(lambda: self._library.encode(text).ids, "the tokenizer cannot encode this text")
        return tokens

    def decode_bytes(self, token: int) -> bytes:
        return self._texts[token].replace(_SUFFIX, " ").encode() if 0 <= token < self.size else UNKNOWN


def _is_merge(merge: Any, size: int) -> bool:
    if not isinstance(merge, list) or len(merge) != 3 or type(merge[2]) is not int:
        return False
    return all(isinstance(side, str) or (type(side) is int and 0 <= side < size) for side in merge[:2])
