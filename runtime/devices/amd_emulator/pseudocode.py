"""AMD's pseudocode, parsed into statements and expressions; what they mean is `translate`'s."""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import Any

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

TOKEN = re.compile(
    r"\s+|//[^\n]*"
    r"|(?P<type>\d+'[UIFB](?![\w(]))"
    r"|(?P<number>(?:\d+')?(?:0x[0-9a-fA-F]+|\d+\.\d+|\d+)(?:ULL|LL|U|F|L)?)(?![\w'])"
    r"|(?P<cast>\d+'[UIFB](?=\())"
    r"|(?P<name>[A-Za-z_]\w*)"
    r"|(?P<mark><<|>>|<=|>=|==|!=|<>|&&|\|\||\*\*|\+=|-=|\|=|&=|[-+*/%&|^~!<>=?:;.,(){}\[\]])"
)
LEVELS = (("||",), ("&&",), ("|",), ("^",), ("&",), ("==", "!=", "<>"), ("<", ">", "<=", ">="), ("<<", ">>"),
          ("+", "-"), ("*", "/", "%"), ("**",))  # fmt: skip
NUMBER = re.compile(r"(?:(\d+)')?(0x[0-9a-fA-F]+|\d+\.\d+|\d+)(ULL|LL|U|F|L)?$")
BLOCK_ENDS = ("elsif", "else", "endif", "endfor", "endwhile")

Node = tuple[Any, ...]
"""("number", text) ("name", text) ("member", node, text) ("bits", node, high, low) ("at", node, index)
("unary", op, node) ("binary", op, left, right) ("choice", condition, yes, no) ("call", name, arguments)
("cast", text, node) ("join", parts)"""


@dataclass(frozen=True)
class Assign:
    """target op= value; op is "" for a plain assignment."""

    target: Node
    op: str
    value: Node


@dataclass(frozen=True)
class If:
    """arms: (condition, statements) in order; a condition of None is `else`."""

    arms: list[tuple[Node | None, list[Any]]]


@dataclass(frozen=True)
class For:
    variable: str
    first: Node
    last: Node
    body: list[Any]


@dataclass(frozen=True)
class Declare:
    name: str
    bits: int
    kind: str


@dataclass(frozen=True)
class Lambda:
    name: str
    parameters: list[str]
    body: Node


class Parser:
    """A text's statements; NotModelled where it says something beyond the language of single lanes."""

    def __init__(self, text: str) -> None:
        self.tokens: list[tuple[str, str]] = []
        at = 0
        while at < len(text):
            match = TOKEN.match(text, at)
            if match is None:
                raise NotModelled(f"pseudocode with {text[at : at + 20]!r}")
            if match.lastgroup:
                self.tokens.append((match.lastgroup, match.group()))
            at = match.end()
        self.tokens.append(("end", ""))
        self.at = 0

    def peek(self) -> str:
        return self.tokens[self.at][1]

    def take(self, wanted: str = "") -> str:
        found = self.tokens[self.at][1]
        if wanted and found != wanted:
            raise NotModelled(f"pseudocode with {found!r} where {wanted!r} belongs")
        self.at += 1
        return found

    def skip(self, wanted: str) -> bool:
        if self.peek() != wanted:
            return False
        self.at += 1
        return True

    def statements(self) -> list[Any]:
        """Up to the end of the text or of the block."""
        found: list[Any] = []
        while True:
            while self.skip(";"):
                pass
            if self.tokens[self.at][0] == "end" or self.peek() in BLOCK_ENDS:
                return found
            found.extend(self.statement())

    def statement(self) -> list[Any]:
        """One statement; an assignment to several targets is one each."""
        if self.skip("if"):
            arms: list[tuple[Node | None, list[Any]]] = [(self._condition(), self.statements())]
            while self.skip("elsif"):
                arms.append((self._condition(), self.statements()))
            if self.skip("else"):
                arms.append((None, self.statements()))
            self.take("endif")
            return [If(arms)]
        if self.skip("for"):
            variable = self.take()
            self.take("in")
            first = self.expression()
            self.take(":")
            last = self.expression()
            self.take("do")
            body = self.statements()
            self.take("endfor")
            return [For(variable, first, last, body)]
        if self.skip("declare"):
            return [self._declaration()]
        target = self.postfix()
        op = self.take()
        if op == "=" and self.skip("lambda"):
            return [self._lambda(target)]
        if op not in ("=", "+=", "-=", "|=", "&="):
            raise NotModelled(f"pseudocode with a statement that has {op!r}")
        value = self.expression()
        targets = [target]
        while self.skip("="):
            targets.append(value)
            value = self.expression()
        return [Assign(to, op[:-1], value) for to in targets]

    def _condition(self) -> Node:
        found = self.expression()
        self.take("then")
        return found

    def _declaration(self) -> Declare:
        name = self.take()
        self.take(":")
        if self.tokens[self.at][0] != "type":
            raise NotModelled("pseudocode with a declaration of no type")
        bits, _, kind = self.take().partition("'")
        if self.peek() == "[":
            raise NotModelled("pseudocode with an array")
        return Declare(name, int(bits), kind)

    def _lambda(self, target: Node) -> Lambda:
        self.take("(")
        parameters = [self.take()]
        while self.skip(","):
            parameters.append(self.take())
        self.take(")")
        self.take("(")
        body = self.expression()
        self.take(")")
        return Lambda(str(target[1]), parameters, body)

    def expression(self) -> Node:
        condition = self.binary(0)
        if not self.skip("?"):
            return condition
        yes = self.expression()
        self.take(":")
        return ("choice", condition, yes, self.expression())

    def binary(self, level: int) -> Node:
        if level == len(LEVELS):
            return self.unary()
        left = self.binary(level + 1)
        while self.peek() in LEVELS[level]:
            op = self.take()
            left = ("binary", op, left, self.binary(level + 1))
        return left

    def unary(self) -> Node:
        if self.peek() in ("-", "~", "!", "+"):
            op = self.take()
            return ("unary", op, self.unary())
        return self.postfix()

    def postfix(self) -> Node:
        node = self.primary()
        while True:
            if self.skip("."):
                node = ("member", node, self.take())
            elif self.skip("["):
                first = self.expression()
                node = ("bits", node, first, self.expression()) if self.skip(":") else ("at", node, first)
                self.take("]")
            else:
                return node

    def primary(self) -> Node:
        kind, text = self.tokens[self.at]
        self.at += 1
        if kind == "number":
            return ("number", text)
        if kind == "cast":
            return ("cast", text, self._parenthesised())
        if kind == "name":
            return ("call", text, self._arguments()) if self.peek() == "(" else ("name", text)
        if text == "(":
            self.at -= 1
            return self._parenthesised()
        if text == "{":
            parts = [self.expression()]
            while self.skip(","):
                parts.append(self.expression())
            self.take("}")
            return ("join", parts)
        raise NotModelled(f"pseudocode with {text!r} where a value belongs")

    def _parenthesised(self) -> Node:
        self.take("(")
        node = self.expression()
        self.take(")")
        return node

    def _arguments(self) -> list[Node]:
        self.take("(")
        found = [self.expression()]
        while self.skip(","):
            found.append(self.expression())
        self.take(")")
        return found


def parse(text: str) -> list[Any]:
    """The statements of an operation's pseudocode."""
    parser = Parser(text)
    found = parser.statements()
    if parser.tokens[parser.at][0] != "end":
        raise NotModelled(f"pseudocode with a stray {parser.peek()!r}")
    return found
