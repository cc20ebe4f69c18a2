"""Grammars by llguidance: which tokens may come next for a text to be JSON of a schema, or match an expression."""

from __future__ import annotations

import json
import threading
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import llguidance
import llguidance.numpy
import numpy as np

from lispgpt.base.errors import UserError
from lispgpt.runtime.tokenizers import Tokenizer

LIMITS: dict[str, Any] = {
    **{"max_items_in_row": 2000, "step_max_items": 50_000, "max_grammar_size": 200_000},
    **{"initial_lexer_fuel": 1_000_000, "step_lexer_fuel": 200_000, "max_lexer_states": 100_000},
    "verbose_errors": False,
}
"""What a grammar may take, in llguidance's own terms, before it is refused."""
OPTIONS = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}


class Grammars:
    """Grammars over the tokens of a tokenizer; vocab: columns of the model's logits."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer, self._vocab = tokenizer, vocab
        self._lock = threading.Lock()
        self._made: llguidance.LLTokenizer | None = None

    def of_schema(self, schema: Mapping[str, Any]) -> Callable[[], Matcher]:
        """What makes a matcher of JSON that a schema allows; UserError for a schema that is none, or too large."""
        try:
            grammar = llguidance.LLMatcher.grammar_from_json_schema(json.dumps(schema), defaults=OPTIONS)  # type: ignore[arg-type]
        except (ValueError, TypeError, RecursionError) as error:
            raise UserError(f"the JSON schema is none: {_first_line(error)}") from None
        return self._checked(grammar, "the JSON schema")

    def of_regex(self, expression: str) -> Callable[[], Matcher]:
        return self._checked(llguidance.LLMatcher.grammar_from_regex(expression), "the expression")

    def of_choices(self, texts: list[str]) -> Callable[[], Matcher]:
        """What makes a matcher of one of some texts."""
        quoted = " | ".join(json.dumps(text) for text in texts)
        return self._checked(llguidance.LLMatcher.grammar_from_lark(f"start: {quoted}"), "the choice")

    def of_calls(self, functions: Sequence[Mapping[str, Any]]) -> Callable[[], Matcher]:
        """What makes a matcher of a call of one of some functions, {"name", "parameters"}, as JSON."""
        calls = [_call_of(function) for function in functions]
        return self.of_schema({"anyOf": calls} if len(calls) > 1 else calls[0])

    def of_form(self, form: Mapping[str, Any]) -> Callable[[], Matcher]:
        """What makes a matcher of {"schema"}, {"pattern"} or {"choices"}, and of any JSON object of {}."""
        match form:
            case {"schema": schema}:
                return self.of_schema(schema)
            case {"pattern": pattern}:
                return self.of_regex(pattern)
            case {"choices": choices}:
                return self.of_choices(choices)
        return self.of_schema({"type": "object"})

    def _checked(self, grammar: str, what: str) -> Callable[[], Matcher]:
        tokens, limits = self._tokens(), llguidance.LLParserLimits(**LIMITS)
        first = llguidance.LLMatcher(tokens, grammar, log_level=0, limits=limits)
        if first.is_error():
            raise UserError(f"{what} cannot be followed: {_first_line(first.get_error())}")
        return lambda: Matcher(first.deep_copy(), self._vocab)

    def _tokens(self) -> llguidance.LLTokenizer:
        with self._lock:
            if self._made is None:
                wrapped = llguidance.TokenizerWrapper(_Tokens(self._tokenizer, self._vocab))
                ends = sorted(end for end in self._tokenizer.ends if end < self._vocab)
                self._made = llguidance.LLTokenizer(wrapped, n_vocab=self._vocab, eos_token=ends or None)
            return self._made


class _Tokens:
    """A tokenizer as llguidance wants one."""

    def __init__(self, tokenizer: Tokenizer, vocab: int) -> None:
        self._tokenizer = tokenizer
        special = {tokenizer.encode(text)[0] for text in tokenizer.special if len(tokenizer.encode(text)) == 1}
        self.special_token_ids = sorted(special | tokenizer.ends)
        self.tokens = [tokenizer.decode_bytes(token) if token < tokenizer.size else b"" for token in range(vocab)]
        self.eos_token_id = min(tokenizer.ends, default=vocab - 1)
        self.bos_token_id = None

    def __call__(self, text: str) -> list[int]:
        return self._tokenizer.encode(text)


class Matcher:
    """What came of a text so far, and what may come next."""

    def __init__(self, matcher: llguidance.LLMatcher, vocab: int) -> None:
        self._matcher, self._vocab = matcher, vocab
        self._bits = llguidance.numpy.allocate_token_bitmask(1, vocab)

    def words(self) -> np.ndarray:
        """i32 [words]: which tokens may come, a bit for each, the lowest of each word first."""
        llguidance.numpy.fill_next_token_bitmask(self._matcher, self._bits, 0)
        if self._matcher.is_error():
            raise UserError(f"the grammar cannot be followed any further: {_first_line(self._matcher.get_error())}")
        return self._bits[0]

    def allowed(self) -> np.ndarray:
        """bool [vocab]"""
        bits = np.unpackbits(self.words().view(np.uint8), bitorder="little")
        return bits[: self._vocab].astype(bool)

    def wrote(self, token: int) -> None:
        self._matcher.consume_token(token)

    def done(self) -> bool:
        return bool(self._matcher.is_stopped())


def _call_of(function: Mapping[str, Any]) -> dict[str, Any]:
    """The schema of a call of a function."""
    properties = {"name": {"const": function["name"]}, "arguments": function.get("parameters") or {"type": "object"}}
    return {"type": "object", "properties": properties, "required": [*properties], "additionalProperties": False}


def _first_line(error: object) -> str:
    return (str(error).strip().splitlines() or ["it is refused"])[0][:200]
