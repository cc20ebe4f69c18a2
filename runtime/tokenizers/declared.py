"""What the files beside a tokenizer's table declare of it: tokenizer_config.json, special_tokens_map.json and
added_tokens.json, as transformers reads them.

The first says it all where it has `added_tokens_decoder`; without that, as folders of before 2024 lack it, the other
two add to it.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tokenizers import AddedToken

from lispgpt.base.errors import UserError
from lispgpt.base.json_files import read_json
from lispgpt.base.reading import is_there

CONFIG, MAP, ADDED = "tokenizer_config.json", "special_tokens_map.json", "added_tokens.json"
NAMED = ("bos_token", "eos_token", "unk_token", "sep_token", "pad_token", "cls_token", "mask_token")
MORE = ("additional_special_tokens", "extra_special_tokens")
FLAGS = ("single_word", "lstrip", "rstrip", "normalized")
MOST_TOKENS = 1 << 24


@dataclass(frozen=True)
class Declared:
    """tokens: those that a text means whole wherever it has them, by their spelling.  ids: of those whose number is
    said.  named: the spelling of `bos_token`, `eos_token` and others.  settings: all of tokenizer_config.json.
    """

    tokens: Mapping[str, AddedToken] = field(default_factory=dict)
    ids: Mapping[str, int] = field(default_factory=dict)
    named: Mapping[str, str] = field(default_factory=dict)
    settings: Mapping[str, Any] = field(default_factory=dict)

    def flag(self, name: str) -> bool:
        """A setting that is true or false, and false where nothing is said; UserError for anything else."""
        value = self.settings.get(name)
        if not isinstance(value, bool | None):
            raise UserError(f"{CONFIG}: {name} is {str(value)[:60]}, and should be true or false")
        return bool(value)

    @property
    def kind(self) -> str | None:
        """The class of transformers' that the tokenizer is of, without the word Fast; None where none is named."""
        name = self.settings.get("tokenizer_class")
        return name.removesuffix("Fast") if isinstance(name, str) else None


def declared_beside(path: Path) -> Declared:
    """What the files beside a tokenizer's file declare; UserError where they are damaged."""
    settings = _object(path.with_name(CONFIG))
    numbered = settings.get("added_tokens_decoder")
    names, ids = dict(settings), dict[str, int]()
    tokens: dict[str, AddedToken] = {}
    if numbered is None:
        names |= _object(path.with_name(MAP))
    special = {key: _spelled(path, key, names[key]) for key in NAMED if names.get(key) is not None}
    listed = [each for key in MORE for each in _listed(path, key, names.get(key))]
    if numbered is None:
        every = {*special.values(), *(content for content, _ in listed)}
        for content, number in _object(path.with_name(ADDED)).items():
            ids[content] = _number(path.with_name(ADDED), content, number)
            tokens[content] = AddedToken(content, special=content in every, normalized=content not in every)
    else:
        for number, token in _numbered(path.with_name(CONFIG), numbered):
            tokens[token.content], ids[token.content] = token, number
    for content, token in listed:
        tokens.setdefault(content, token)
    for key, content in special.items():
        tokens.setdefault(content, _added(path.with_name(CONFIG), key, names[key], True))
    return Declared(tokens, ids, special, settings)


def _object(path: Path) -> dict[str, Any]:
    return read_json(path) if is_there(path) else {}


def _numbered(path: Path, given: Any) -> Iterator[tuple[int, AddedToken]]:
    if not isinstance(given, dict):
        raise UserError(f"{path}: added_tokens_decoder should be an object of tokens by their numbers")
    for number, token in given.items():
        special = isinstance(token, dict) and token.get("special") is True
        yield _number(path, "added_tokens_decoder", number), _added(path, number, token, special)


def _number(path: Path, what: str, given: Any) -> int:
    number = int(given) if isinstance(given, str) and given.isascii() and given.isdigit() and len(given) < 10 else given
    if type(number) is not int or not 0 <= number < MOST_TOKENS:
        raise UserError(f"{path}: {what[:60]!r} has {str(given)[:60]} where a token's number is wanted")
    return number


def _listed(path: Path, key: str, given: Any) -> Iterator[tuple[str, AddedToken]]:
    """The tokens of a list, or of an object by names of their own."""
    every = given.values() if isinstance(given, dict) else given if isinstance(given, list) else ()
    for each in every:
        yield _spelled(path, key, each), _added(path.with_name(CONFIG), key, each, True)


def _spelled(path: Path, key: str, given: Any) -> str:
    return str(_added(path.with_name(CONFIG), key, given, True).content)


def _added(path: Path, key: str, given: Any, special: bool) -> AddedToken:
    """A token that is given by its spelling, or as an object with that as `content`."""
    content = given.get("content") if isinstance(given, dict) else given
    if not isinstance(content, str) or not content:
        raise UserError(f"{path}: {key} should be a token, and is {str(given)[:60]}")
    flags = {n: given[n] for n in FLAGS if type(given.get(n)) is bool} if isinstance(given, dict) else {}
    return AddedToken(content, special=special, **({"normalized": not special} | flags))
