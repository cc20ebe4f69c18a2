"""Text to forms: lark tokenises and parses, one clear error for whatever does not read.

Brackets are matched on the token stream before the parser sees it, so that a missing one is reported where it was
opened, and nothing here recurses into the input.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Iterator
from functools import cache, lru_cache, partial
from itertools import pairwise
from pathlib import Path

import lark

from lispgpt.base.errors import UserError
from lispgpt.base.source import Source, Span
from lispgpt.language.reader.forms import Form, Keyword, Later, List, Literal, Map, Symbol, Vector

DEEPEST_NESTING = 200
MOST_TOKENS = 1_000_000
"""Names, numbers, texts and brackets of one file; more are data, and belong into arrays and weights."""

_CLOSERS = {"LPAR": "RPAR", "LSQB": "RSQB", "LBRACE": "RBRACE"}
_BRACKETS = {"LPAR": "(", "LSQB": "[", "LBRACE": "{", "RPAR": ")", "RSQB": "]", "RBRACE": "}"}
_SEQUENCES = {"list": List, "vector": Vector, "map": Map}
_CONSTANTS: dict[str, bool | None] = {"true": True, "false": False, "nil": None}
_ESCAPES = {"n": "\n", "r": "\r", "t": "\t", "0": "\0"}

_NAME = r"""[^\s()\[\]{}"';`~:^]+"""
_NAMES = re.compile(_NAME)
_FUNCTION = re.compile(
    rf"\((?P<head>defn|defmacro|defgradient)\s+(?P<name>{_NAME})\s+(?P<parameters>\[{_NAME}(?:\s+{_NAME})*\])\s+(?!->|\[->)"
)
"""A function, a macro or a gradient rule up to its body, where it has parameters, all of them names."""
_LAST_BRACKET = re.compile(r"^[^;\n]*\)", re.MULTILINE)
_IRREGULAR = re.compile(r"^(?:[^\s(;]|[ \t]+\((?:defn|defmacro|require))", re.MULTILINE)
"""What a file has where a top-level form may not begin its line."""

TEXTS_KEPT = 32
"""The library's files and the pipelines are read again for every program that a process compiles."""


def read(source: Source) -> tuple[Form, ...]:
    """All top-level forms of a source; UserError for text that does not read."""
    return _read(source.name, source.text)


@lru_cache(TEXTS_KEPT)
def read_library(name: str, text: str) -> tuple[Form, ...]:
    """All top-level forms of a file of the library: most of its functions are not called by a program, and the body of
    each is read when it first is.  That takes each top-level form to begin a line; other files are read whole."""
    starts = [*(found.start() for found in re.finditer(r"^\(", text, re.MULTILINE)), len(text)]
    in_strings = any(text.count('"', start, end) % 2 for start, end in pairwise(starts))
    if in_strings or _IRREGULAR.search(text):
        return _read(name, text)
    source = Source(name, text)
    forms: list[Form] = []
    for start, end in pairwise(starts):
        found = _FUNCTION.match(text, start, end)
        forms += _forms(source, start, end) if found is None else [_function(source, found, end)]
    return tuple(forms)


def read_bodies(forms: Iterable[Form]) -> Iterator[None]:
    """Read what of top-level forms is read when it is first evaluated, one body before each step."""
    for form in forms:
        for item in form.items if isinstance(form, List) else ():
            if isinstance(item, Later):
                item.read()
                yield


def _function(source: Source, found: re.Match[str], end: int) -> List:
    """The form of a function, with what is behind its parameters to be read later."""
    *_, last = _LAST_BRACKET.finditer(source.text, found.start(), end)
    inside = found.span("parameters")
    names = (Symbol(Span(source, *name.span()), name[0]) for name in _NAMES.finditer(source.text, *inside))
    body = Later(Span(source, found.end(), last.end() - 1), cache(partial(_forms, source, found.end(), last.end() - 1)))
    head, name = (Symbol(Span(source, *found.span(part)), found[part]) for part in ("head", "name"))
    parameters = Vector(Span(source, *inside), tuple(names))
    return List(Span(source, found.start(), last.end()), (head, name, parameters, body))


@lru_cache(TEXTS_KEPT)
def _read(name: str, text: str) -> tuple[Form, ...]:
    return _forms(Source(name, text), 0, len(text))


def _forms(source: Source, start: int, end: int) -> tuple[Form, ...]:
    """The forms in a part of a source."""
    try:
        tree = _parser().parse(lark.TextSlice(source.text, start, end))
    except _TokenError as error:
        raise UserError(error.message, Span(source, error.start, error.start + 1)) from None
    except lark.exceptions.UnexpectedCharacters as error:
        raise _bad_character(source, error.pos_in_stream or 0) from None
    except lark.exceptions.UnexpectedToken as error:
        raise _bad_token(source, error.token) from None
    built: dict[int, Form] = {}
    for subtree in tree.iter_subtrees():
        children = [_atom(source, c) if isinstance(c, lark.Token) else built[id(c)] for c in subtree.children]
        if subtree is tree:
            return tuple(children)
        built[id(subtree)] = _compound(source, subtree.data, children)
    return ()


class _TokenError(Exception):
    def __init__(self, message: str, start: int) -> None:
        super().__init__(message)
        self.message = message
        self.start = start


class _MatchBrackets:
    """Passes tokens on while their brackets match."""

    always_accept = ()

    def process(self, tokens: Iterable[lark.Token]) -> Iterator[lark.Token]:
        open_brackets: list[lark.Token] = []
        prefixes = 0
        for number, token in enumerate(tokens):
            if number >= MOST_TOKENS:
                raise _TokenError(
                    f"a file has at most {MOST_TOKENS:,} names, numbers and brackets", token.start_pos or 0
                )
            prefixes = prefixes + 1 if token.type in ("QUOTE", "QUASIQUOTE", "UNQUOTE", "SPLICE") else 0
            if token.type in _CLOSERS:
                open_brackets.append(token)
            elif token.type in ("RPAR", "RSQB", "RBRACE"):
                _close(open_brackets, token)
            if len(open_brackets) + prefixes > DEEPEST_NESTING:
                message = f"brackets are nested deeper than {DEEPEST_NESTING} levels; split this up with `def` or `let`"
                raise _TokenError(message, token.start_pos or 0)
            yield token
        if open_brackets:
            opened = open_brackets[-1]
            raise _TokenError(f"this `{opened}` is never closed", opened.start_pos or 0)


def _close(open_brackets: list[lark.Token], token: lark.Token) -> None:
    if not open_brackets:
        raise _TokenError(f"this `{token}` closes nothing", token.start_pos or 0)
    opened = open_brackets.pop()
    wanted = _CLOSERS[opened.type]
    if token.type != wanted:
        raise _TokenError(
            f"this `{token}` meets the `{opened}` of line {opened.line}, which wants `{_BRACKETS[wanted]}`",
            token.start_pos or 0,
        )


@cache
def _parser() -> lark.Lark:
    grammar = Path(__file__).with_name("grammar.lark").read_text(encoding="utf-8")
    return lark.Lark(grammar, parser="lalr", lexer="basic", postlex=_MatchBrackets())


def _atom(source: Source, token: lark.Token) -> Form:
    text = str(token)
    span = Span(source, token.start_pos or 0, token.end_pos or 0)
    match token.type:
        case "SYMBOL" if text in _CONSTANTS:
            return Literal(span, _CONSTANTS[text])
        case "KEYWORD":
            return Keyword(span, text[1:])
        case "STRING":
            return Literal(span, _unescape(text[1:-1]))
        case "INTEGER":
            return Literal(span, _integer(text, span))
        case "HEX":
            return Literal(span, int(text, 16))
        case "FLOAT":
            return Literal(span, _float(text, span))
        case _:
            return Symbol(span, text)


def _integer(text: str, span: Span) -> int:
    if len(text) > 4000:
        raise UserError(f"a number of {len(text)} digits is longer than any type here holds", span)
    return int(text)


def _float(text: str, span: Span) -> float:
    if math.isinf(number := float(text)):
        raise UserError("this number is larger than any type here holds; infinity is `inf`", span)
    return number


def _unescape(text: str) -> str:
    if "\\" not in text:
        return text
    characters = iter(text)
    return "".join(_ESCAPES.get(e := next(characters), e) if c == "\\" else c for c in characters)


def _compound(source: Source, kind: str, children: list[Form]) -> Form:
    first, last = children[0].span, children[-1].span
    span = Span(source, first.start, last.end)
    if kind in _SEQUENCES:
        return _SEQUENCES[kind](span, tuple(children[1:-1]))
    return List(span, (Symbol(first, str(kind)), children[1]))


def _bad_character(source: Source, position: int) -> UserError:
    character = source.text[position]
    span = Span(source, position, position + 1)
    if character == '"':
        return UserError("this string is never closed", span)
    if character.isdigit() or (character == "-" and source.text[position + 1 : position + 2].isdigit()):
        return UserError("this starts like a number and goes on like a name; put a space between them", span)
    angle = source.text.find("<", position)
    if angle >= 0 and not source.text[position].isspace() and source.text[position:angle].isprintable():
        span = Span(source, angle, angle + 1)
        return UserError("this `<` opens angle brackets that never close, or that go on after they close", span)
    if character == ",":
        return UserError("no comma between forms: a space separates them", span)
    return UserError(f"`{character}` ({character!r}) cannot start a form", span)


def _bad_token(source: Source, token: lark.Token) -> UserError:
    start = token.start_pos if token.start_pos is not None else len(source.text)
    if token.type == "$END":
        return UserError(
            "the text ends after a quote mark with nothing to quote", Span(source, max(0, start - 1), start)
        )
    return UserError(
        f"`{token}` after a quote mark: there is nothing to quote", Span(source, start, start + len(token))
    )
