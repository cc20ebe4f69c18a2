"""The tokenizer in a GGUF file's metadata: byte-level BPE ("gpt2") or SentencePiece's BPE ("llama").

Byte-level ones name the rule by which a text is first cut into words (`tokenizer.ggml.pre`).  SentencePiece's have no
merges but a score for each token: of two tokens that stand together, those are joined first whose joint has the best.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from tokenizers import AddedToken, Regex, decoders, models, normalizers, pre_tokenizers, processors
from tokenizers import Tokenizer as Library

from lispgpt.base.errors import UserError
from lispgpt.runtime.gguf.header import MAGIC, read_header
from lispgpt.runtime.tokenizers.base import Tokenizer
from lispgpt.runtime.tokenizers.huggingface import HuggingFaceTokenizer
from lispgpt.runtime.tokenizers.merging import check_merges

NORMAL, UNKNOWN, CONTROL, USER_DEFINED, UNUSED, BYTE = range(1, 7)
KEY = "tokenizer.ggml."

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_LLAMA3 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
_QWEN2 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}|{_REST}"
_TEKKEN = rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + (
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4O = rf"{_START}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_START}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|" + (
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_WORDS: dict[str, tuple[str, ...]] = {
    "default": (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]"),
    "falcon": (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]"),
    **dict.fromkeys(("gpt-2", "gpt2", "phi-2", "mpt", "olmo", "jais", "exaone4", "mellum"), ()),
    **dict.fromkeys(
        ("llama-bpe", "llama3", "llama-v3", "smaug-bpe", "dbrx", "glm4", "falcon3", "lfm2", "pixtral"), (_LLAMA3,)
    ),
    **dict.fromkeys(("qwen2", "deepseek-r1-qwen", "stablelm2", "megrez", "hunyuan"), (_QWEN2,)),
    "tekken": (_TEKKEN,),
    **dict.fromkeys(("gpt-4o", "llama4"), (_GPT4O,)),
    "bloom": (" ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+",),
}
"""How words are cut, by one expression after the other; without any it is GPT-2's way."""
_DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b")
"""GPT-2's way, after every digit was cut off."""
_WHOLE_FIRST = ("llama-bpe", "llama3", "llama-v3", "falcon3", "lfm2", "pixtral", "tekken")
"""Those that take a word which is a token as that token, and begin texts with a token of their own."""
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
    try:
        library = _byte_level(path, data) if kind == "gpt2" else _sentence_piece(data)
        _add_special(library, data)
        _add_start(library, data)
    except UserError:
        raise
    except Exception as error:  # the library raises nothing narrower for tokens that do not fit
        raise UserError(f"{path} is damaged: its tokenizer is none ({str(error)[:200]})") from error
    return HuggingFaceTokenizer(library, kind == "gpt2", _ends(data))


def _byte_level(path: Path, data: Mapping[str, Any]) -> Library:
    rule = data.get("pre", "default")
    if rule not in _WORDS and rule not in _DIGITS:
        known = ", ".join([*_WORDS, *_DIGITS])
        raise UserError(f"{path}: its tokenizer cuts words by {rule!r}; known are {known}; or give --tokenizer FILE")
    merges = [tuple(merge.split(" ", 1)) for merge in data.get("merges", ())]
    vocabulary = _vocabulary(data)
    check_merges(merges, vocabulary)
    library = Library(models.BPE(vocabulary, merges, ignore_merges=rule in _WHOLE_FIRST))
    patterns = _WORDS.get(rule, ())
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if rule in _DIGITS else []
    steps += [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=not patterns))
    library.pre_tokenizer = pre_tokenizers.Sequence(steps)
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
    scores = data.get("scores") or [-float(number) for number in range(len(data["tokens"]))]
    ranked = sorted(ids, key=lambda token: (-scores[ids[token]], ids[token]))
    return [pair for token in ranked for pair in sorted(_pairs(token, ids), key=lambda p: (ids[p[0]], ids[p[1]]))]


def _pairs(token: str, ids: Mapping[str, int]) -> Iterator[tuple[str, str]]:
    for cut in range(1, len(token)):
        if token[:cut] in ids and token[cut:] in ids:
            yield token[:cut], token[cut:]


def _add_special(library: Library, data: Mapping[str, Any]) -> None:
    """Tokens that a text means whole wherever it has them."""
    kinds = data.get("token_type", ())
    for token, kind in zip(data["tokens"], kinds, strict=False):
        if kind in (CONTROL, USER_DEFINED) and token:
            added = AddedToken(token, special=kind == CONTROL, normalized=False)
            (library.add_special_tokens if kind == CONTROL else library.add_tokens)([added])


def _add_start(library: Library, data: Mapping[str, Any]) -> None:
    """The token that every text begins with, where there is one."""
    begins = data["model"] == "llama" or data.get("pre") in _WHOLE_FIRST
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
