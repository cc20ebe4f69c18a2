"""How byte-level tokenizers first cut a text into words: regular expressions of the `tokenizers` library's kind, by the
names that llama.cpp has for them."""

from __future__ import annotations

from typing import Any

from tokenizers import Regex, pre_tokenizers

_CONTRACTIONS = "(?i:'s|'t|'re|'ve|'m|'ll|'d)"
_REST = r" ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
_UPPER, _LOWER = r"[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]", r"[\p{Ll}\p{Lm}\p{Lo}\p{M}]"
_START = r"[^\r\n\p{L}\p{N}]?"
_LLAMA3 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}{{1,3}}|{_REST}"
QWEN2 = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}|{_REST}"
_QWEN35 = rf"{_CONTRACTIONS}|{_START}[\p{{L}}\p{{M}}]+|\p{{N}}|" + (
    r" ?[^\s\p{L}\p{M}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_TEKKEN = rf"{_START}{_UPPER}*{_LOWER}+|{_START}{_UPPER}+{_LOWER}*|\p{{N}}| ?[^\s\p{{L}}\p{{N}}]+[\r\n/]*|" + (
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_GPT2 = r"'s|'t|'re|'ve|'m|'ll|'d| ?\p{L}+| ?\p{N}+| ?[^\s\p{L}\p{N}]+|\s+(?!\S)|\s+"
_GPT4O = rf"{_START}{_UPPER}*{_LOWER}+{_CONTRACTIONS}?|{_START}{_UPPER}+{_LOWER}*{_CONTRACTIONS}?|\p{{N}}{{1,3}}|" + (
    r" ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+"
)
_BAILING = r"'(?i:[sdmt]|ll|ve|re)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]|\s+(?!\S)|\s+"
_SEED = rf"{_CONTRACTIONS}|{_START}\p{{L}}+|\p{{N}}| ?[^\s\p{{L}}\p{{N}}\r\n]+|\s*[\r\n]+|\s+(?!\S)|\s+"
_BLOOM = " ?[^(\\s|.,!?\u2026\u3002\uff0c\u3001\u0964\u06d4\u060c)]+"
_HAN_OR_HANGUL = "[\u4e00-\u9fa5\u0800-\u4e00\uac00-\ud7ff]+"
_CJK = "[\u4e00-\u9fa5\u3040-\u309f\u30a0-\u30ff]+"
_DEEPSEEK3 = (
    r"[!\"#$%&'()*+,\-./:;<=>?@\[\\\]^_`{|}~][A-Za-z]+|[^\r\n\p{L}\p{P}\p{S}]?[\p{L}\p{M}]+| ?[\p{P}\p{S}]+[\r\n]*|"
    r"\s*[\r\n]+|\s+(?!\S)|\s+"
)
_CASED_LETTERS = (
    "A-Za-z\u00b5\u00c0-\u00d6\u00d8-\u00f6\u00f8-\u01ba\u01bc-\u01bf\u01c4-\u0293\u0295-\u02af\u0370-\u0373\u0376"
    "\u0377\u037b-\u037d\u037f\u0386\u0388-\u038a\u038c\u038e-\u03a1\u03a3-\u03f5\u03f7-\u0481\u048a-\u052f"
    "\u0531-\u0556\u10a0-\u10c5\u13a0-\u13f5\u13f8-\u13fd\u1c90-\u1cba\u1cbd-\u1cbf\u1d00-\u1d2b\u1d6b-\u1d77"
    "\u1d79-\u1d9a\u1e00-\u1f15\u1f18-\u1f1d\u1f20-\u1f45\u1f48-\u1f4d\u1f50-\u1f57\u1f59\u1f5b\u1f5d\u1f5f-\u1f7d"
    "\u1f80-\u1fb4\u1fb6-\u1fbc\u1fbe\u1fc2-\u1fc4\u1fc6-\u1fcc\u1fd0-\u1fd3\u1fd6-\u1fdb\u1fe0-\u1fec\u1ff2-\u1ff4"
    "\u1ff6-\u1ffc\u2102\u2107\u210a-\u2113\u2115\u2119-\u211d\u2124\u2126\u2128\u212a-\u212d\u212f-\u2134\u2139"
    "\u213c-\u213f\u2145-\u2149\u214e\u2183\u2184\u2c00-\u2c7b\u2c7e-\u2ce4\u2ceb-\u2cee\u2cf2\u2cf3\ua640-\ua66d"
    "\ua680-\ua69b\ua722-\ua76f\ua771-\ua787\ua78b-\ua78e\uab70-\uabbf\ufb00-\ufb06\ufb13-\ufb17\uff21-\uff3a"
    "\uff41-\uff5a\U00010400-\U0001044f\U000104b0-\U000104d3\U000104d8-\U000104fb\U00010c80-\U00010cb2"
    "\U00010cc0-\U00010cf2\U000118a0-\U000118df\U0001e900-\U0001e943"
)
_MARKS = "!-/:-~\uff01-\uff0f\uff1a-\uff5e\u2018-\u201f\u3000-\u3002"
_RULES: tuple[tuple[str, tuple[str, ...]], ...] = (
    ("default", (r"[\p{P}\$\+<=>\^~\|]+", _GPT2, r"\p{N}+", "[0-9][0-9][0-9]")),
    ("falcon", (r"[\p{P}\$\+<=>\^~\|`]+", _GPT2, "[0-9][0-9][0-9]")),
    ("gpt-2 gpt2 phi-2 mpt olmo jais exaone4 mellum gigachat a.x-4.0 trillion granite-docling", ()),
    ("llama-bpe llama3 llama-v3 smaug-bpe dbrx glm4 glm5 chatglm-bpe falcon3 falcon-h1 lfm2 pixtral", (_LLAMA3,)),
    ("midm-2.0", (_LLAMA3,)),
    ("qwen2 deepseek-r1-qwen stablelm2 megrez hunyuan kormo solar-open grok-2", (QWEN2,)),
    ("qwen35", (_QWEN35,)),
    ("tekken", (_TEKKEN,)),
    ("gpt-4o llama4 kanana2 minimax-m2", (_GPT4O,)),
    ("bloom poro-chat gpt3-finnish", (_BLOOM,)),
    ("viking", (_BLOOM, r"\p{N}")),
    (
        "deepseek-llm",
        ("[\r\n]", rf"\s?[{_CASED_LETTERS}]+", rf"\s?[{_MARKS}]+", r"\s+$", _HAN_OR_HANGUL, r"\p{N}+"),
    ),
    ("deepseek-coder", ("[\r\n]", r"\s?\p{L}+", r"\s?\p{P}+", _HAN_OR_HANGUL, r"\p{N}")),
    ("deepseek-v3 hunyuan-dense joyai-llm", (r"\p{N}{1,3}", _CJK, _DEEPSEEK3)),
    ("bailingmoe bailingmoe2 llada-moe", (_BAILING,)),
    ("seed-coder", (_SEED,)),
    ("minicpm5", (r"\p{N}{1,3}", _LLAMA3.replace("{1,3}", "+"))),
)
RULES = {name: patterns for names, patterns in _RULES for name in names.split()}
"""How words are cut, by one expression after the other; without any it is GPT-2's way."""
DIGITS = ("smollm", "starcoder", "refact", "command-r", "codeshell", "exaone", "minerva-7b", "mellum2")
"""GPT-2's way, after every digit was cut off."""
WHOLE_FIRST = (
    *("llama-bpe", "llama3", "llama-v3", "falcon3", "falcon-h1", "lfm2", "pixtral", "midm-2.0"),
    *("tekken", "glm4", "glm5", "minicpm5"),
)
"""Those that take a word which is a token as that token."""
STARTING = tuple(name for name in WHOLE_FIRST if name not in ("glm4", "glm5", "minicpm5"))
"""Those that begin texts with a token of their own where a file says nothing of it."""


def cutting(patterns: tuple[str, ...], digits: bool = False, space_before: bool = False) -> Any:
    """What cuts a text by these expressions, and what stands between their matches too, and spells its bytes.

    digits: whether each digit is cut off before.  space_before: whether a text without a space before it gets one.
    """
    steps: list[Any] = [pre_tokenizers.Digits(individual_digits=True)] if digits else []
    steps += [pre_tokenizers.Split(Regex(pattern), "isolated") for pattern in patterns]
    steps.append(pre_tokenizers.ByteLevel(add_prefix_space=space_before, use_regex=not patterns))
    return pre_tokenizers.Sequence(steps)
