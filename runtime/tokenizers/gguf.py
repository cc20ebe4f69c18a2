"""The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama").

Byte-level ones name the rule by which a text is first cut into words (`tokenizer.ggml.pre`).  SentencePiece's have no
merges but a score for each token: of two tokens that stand together, those are joined first whose joint has the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, decoders, models, normalizers, processors
from tokenizers import Tokenizer as Library

from lispgpt.base.errors import UserError
from lispgpt.runtime.gguf.header import MAGIC, read_header
from lispgpt.runtime.tokenizers.base import Tokenizer
from lispgpt.runtime.tokenizers.calls import call
from lispgpt.runtime.tokenizers.huggingface import HuggingFaceTokenizer
from lispgpt.runtime.tokenizers.merging import check_merges
from lispgpt.runtime.tokenizers.words import DIGITS, RULES, STARTING, WHOLE_FIRST, cutting

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
KEY = "tokenizer.ggml."

LONGEST, MOST_MERGES = 256, 1 << 21
"""Characters of a token that SentencePiece's ways join, and of these ways: Gemma's have 31, and 580,000."""

_ENDS = ("<|im_end|>", "<|eot_id|>", "<|eom_id|>", "<end_of_turn>", "<|end|>", "<|endoftext|>", "</s>")


def recognises(path: Path, head: bytes) -> bool:
    return head.startswith(MAGIC)


def open_tokenizer(path: Path) -> Tokenizer:
    """Make the tokenizer that a file's metadata describes; UserError where it is of another kind or damaged."""
    data = {k.removeprefix(KEY): v for k, v in read_header(path).metadata.items() if k.startswith(KEY)}
    kind, tokens = data.get("model"), data.get("tokens")
    if kind not in ("gpt2", "llama"):
        raise UserError(f"{path}: its tokenizer is of the kind {kind!r}, and those known here are 'gpt2' and 'llama'")
    if not isinstance(tokens, list) or not all(isinstance(token, str) for token in tokens):
        raise UserError(f"{path} is damaged: its tokenizer has no list of tokens")
    for name in ("token_type", "scores"):
        if len(data.get(name, tokens)) != len(tokens):
            raise UserError(f"{path} is damaged: it has {len(tokens)} tokens and {len(data[name])} of {name}")
    return call(lambda: _made(path, data), f"{path} is damaged: its tokenizer is none")


def _made(path: Path, data: Mapping[str, Any]) -> Tokenizer:
    byte_level = data["model"] == "gpt2"
    library = _byte_level(path, data) if byte_level else _sentence_piece(data)
    _add_special(library, data)
    _add_start(library, data)
    return HuggingFaceTokenizer(library, byte_level, _ends(data))


def _byte_level(path: Path, data: Mapping[str, Any]) -> Library:
    rule = data.get("pre", "default")
    if rule not in RULES and rule not in DIGITS:
        known = ", ".join([*RULES, *DIGITS])
        raise UserError(f"{path}: its tokenizer cuts words by {rule!r}; known are {known}; or give --tokenizer FILE")
    merges = [tuple(merge.split(" ", 1)) for merge in data.get("merges", ())]
    vocabulary = _vocabulary(data)
    check_merges(merges, vocabulary)
    library = Library(models.BPE(vocabulary, merges, ignore_merges=rule in WHOLE_FIRST))
    library.pre_tokenizer = cutting(RULES.get(rule, ()), digits=rule in DIGITS)
    library.decoder = decoders.ByteLevel()
    return library


def _sentence_piece(data: Mapping[str, Any]) -> Library:
    vocabulary, tokens = _vocabulary(data), data["tokens"]
    unknown = data.get("unknown_token_id", 0)
    library = Library(
        models.BPE(vocabulary, _merges(data), unk_token=tokens[unknown], fuse_unk=True, byte_fallback=True)
    )
    spaces = [normalizers.Replace(" ", "\u2581")]
    library.normalizer = normalizers.Sequence(
        [normalizers.Prepend("\u2581"), *spaces] if data.get("add_space_prefix", True) else spaces
    )
    library.decoder = decoders.Sequence([decoders.Replace("\u2581", " "), decoders.ByteFallback(), decoders.Fuse()])
    return library


def _vocabulary(data: Mapping[str, Any]) -> dict[str, int]:
    found: dict[str, int] = {}
    for number, token in enumerate(data["tokens"]):
        found.setdefault(token, number)
    return found


def _merges(data: Mapping[str, Any]) -> list[tuple[str, str]]:
    """What joins to each token, the tokens of the best scores first, and of each the joints of the first tokens."""
    kinds = data.get("token_type") or [NORMAL] * len(data["tokens"])
    ids = {t: n for n, t in enumerate(data["tokens"]) if kinds[n] in (NORMAL, USER_DEFINED)}
    longest = max((len(token) for token in ids if kinds[ids[token]] == NORMAL), default=0)
    if longest > LONGEST:
        raise ValueError(f"a token has {longest:,} characters, and at most {LONGEST} are joined to one")
    scores = data.get("scores") or [-float(number) for number in range(len(data["tokens"]))]
    spelled, lengths = {token: token for token in ids}, sorted(set(map(len, ids)))
    merges: list[tuple[str, str]] = []
    for token in sorted(ids, key=lambda token: (-scores[ids[token]], ids[token])):
        if len(token) <= LONGEST:  # a longer one that users defined is found whole
            merges += sorted(_pairs(token, spelled, lengths), key=lambda p: (ids[p[0]], ids[p[1]]))
        if len(merges) > MOST_MERGES:
            raise ValueError(f"its tokens can be joined in more than {MOST_MERGES:,} ways")
    return merges


def _pairs(token: str, spelled: Mapping[str, str], lengths: Sequence[int]) -> Iterator[tuple[str, str]]:
    """spelled: each token as the one text that all merges share.  lengths: of the tokens that there are."""
    for cut in lengths:
        if cut >= len(token):
            return
        left, right = spelled.get(token[:cut]), spelled.get(token[cut:])
        if left is not None and right is not None:
            yield left, right


def _add_special(library: Library, data: Mapping[str, Any]) -> None:
    """Tokens that a text means whole wherever it has them."""
    kinds = data.get("token_type", ())
    for token, kind in zip(data["tokens"], kinds, strict=False):
        if kind in (CONTROL, USER_DEFINED) and token:
            added = AddedToken(token, special=kind == CONTROL, normalized=False)
            (library.add_special_tokens if kind == CONTROL else library.add_tokens)([added])


def _add_start(library: Library, data: Mapping[str, Any]) -> None:
    """The token that every text begins with, where there is one."""
    begins = data["model"] == "llama" or data.get("pre") in STARTING
    first = data.get("bos_token_id")
    if data.get("add_bos_token", begins) and first is not None and 0 <= first < len(data["tokens"]):
        token = data["tokens"][first]
        library.post_processor = processors.TemplateProcessing(single=[token, "$A"], special_tokens=[(token, first)])


def _ends(data: Mapping[str, Any]) -> Sequence[int]:
    """The tokens that end a text: those the file names, and those that are known to."""
    named = [data.get(f"{name}_token_id") for name in ("eos", "eot", "eom")]
    places = {token: number for number, token in enumerate(data["tokens"]) if token in _ENDS}
    found = [*named, *(places[token] for token in _ENDS if token in places)]
    return list(dict.fromkeys(token for token in found if type(token) is int and 0 <= token < len(data["tokens"])))
