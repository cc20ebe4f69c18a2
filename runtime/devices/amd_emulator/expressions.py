"""Expressions of AMD's pseudocode as numpy expressions: what each kind of node is worth."""

from __future__ import annotations

import re

from lispgpt.runtime.devices.amd_emulator import numerics
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.pseudocode import NUMBER, Lambda, Node
from lispgpt.runtime.devices.amd_emulator.values import (
    BOOL,
    F32,
    F64,
    I32,
    KINDS,
    LITERAL,
    U32,
    U64,
    Type,
    Value,
    as_type,
    bits_of,
    common,
    field,
    literal,
    reinterpret,
)

MEMBER = re.compile(r"(bf|[uifb])(\d+)$")
CAST = re.compile(r"(\d+)'([UIFB])")
OPERANDS = ("S0", "S1", "S2", "D0", "MEM", "DATA", "DATA2", "SIMM16", "EXEC", "SCC", "VCC", "laneId", "SIMM32")
CONSTANTS = {
    "PI": Value("f64(np.pi)", F64, 3.141592653589793), "INF": Value("infinity", LITERAL, float("inf")),
    "NAN": Value("not_a_number", LITERAL, float("nan")), "UNDERFLOW_F32": Value("f32(0)", F32),
    "OVERFLOW_F32": Value("f32(infinity)", F32), "WAVE_MODE": Value("WAVE_MODE", LITERAL),
    "DENORM": Value("1e-39", LITERAL, 1e-39),
}  # fmt: skip


class Expressions:
    """Gives the values of expressions.

    widths: bits of operands that have more or fewer than 32.  constants: names with a known number.  values: what each
    name holds now; a variable's code is its own name.  inputs: the operands that were read.
    """

    def __init__(self, widths: dict[str, int], constants: dict[str, int]) -> None:
        self.widths, self.constants = widths, constants
        self.values: dict[str, Value] = {}
        self.lambdas: dict[str, Lambda] = {}
        self.inputs: list[str] = []

    def value(self, node: Node) -> Value:
        return getattr(self, f"_{node[0]}")(*node[1:])

    def number(self, node: Node) -> int:
        found = self.value(node).number
        if not isinstance(found, int):
            raise NotModelled("pseudocode with bits at a place that is not constant")
        return found

    def is_lane(self, node: Node) -> bool:
        return node in (("name", "laneId"), ("member", ("name", "laneId"), "u32"))

    def member(self, text: str) -> Type:
        match = MEMBER.match(text)
        if match is None:
            raise NotModelled(f"pseudocode with .{text}")
        kind, bits = KINDS[match[1]], int(match[2])
        return BOOL if (kind, bits) == ("u", 1) else Type(kind, bits)

    def read(self, name: str) -> Value:
        """An operand of the function."""
        if name not in self.inputs:
            self.inputs.append(name)
        if name in ("VCC", "SCC"):
            return Value(name, BOOL)
        return Value(name, U64 if self.widths.get(name, 32) > 32 else U32)

    def _number(self, text: str) -> Value:
        match = NUMBER.match(text)
        assert match is not None
        size, digits, suffix = match.groups()
        number = float(digits) if "." in digits else int(digits, 0)
        if size and size != "1":
            return as_type(literal(number), Type("i" if suffix is None else "u", int(size)))
        if suffix in ("ULL", "LL"):
            return as_type(literal(number), Type("u" if suffix == "ULL" else "i", 64))
        return as_type(literal(number), F32) if suffix == "F" else literal(number)

    def _name(self, name: str) -> Value:
        if name in self.values:
            return self.values[name]
        if name in self.constants:
            return literal(self.constants[name])
        if name in CONSTANTS:
            return CONSTANTS[name]
        if name not in OPERANDS:
            raise NotModelled(f"pseudocode with {name}")
        return self.read(name)

    def _member(self, node: Node, text: str) -> Value:
        if node == ("name", "WAVE_MODE"):
            return literal(1 if text == "IEEE" else 0)
        value = self.value(node)
        if text == "b":
            return bits_of(value)
        wanted = self.member(text)
        if wanted == BOOL and value.type != BOOL:
            return as_type(field(value, 0, 0), BOOL)
        return reinterpret(value, wanted)

    def _bits(self, node: Node, high: Node, low: Node) -> Value:
        value = self.value(node)
        if value.number is not None and value.type == LITERAL:
            top, bottom = self.number(high), self.number(low)
            return literal(int(value.number) >> bottom & (1 << top - bottom + 1) - 1)
        return field(value, self.number(high), self.number(low))

    def _at(self, node: Node, index: Node) -> Value:
        if node == ("name", "MEM"):
            return self.values.get("MEM") or self.read("MEM")
        if self.is_lane(index):
            base = node[1] if node[0] == "member" else node
            return self.value(base)
        value, place = self.value(node), self.value(index)
        if isinstance(place.number, int):
            return as_type(field(value, place.number, place.number), BOOL)
        raw = bits_of(value)
        return Value(f"(({raw.code} >> {as_type(place, raw.type).code} & {raw.type.storage}(1)) != 0)", BOOL)

    def _cast(self, text: str, node: Node) -> Value:
        match = CAST.match(text)
        assert match is not None
        wanted = Type(KINDS[match[2]], int(match[1]))
        value = self.value(node)
        return as_type(bits_of(value) if value.type == BOOL else value, wanted)

    def _join(self, parts: list[Node]) -> Value:
        values = [self.value(part) for part in parts]
        if all(v.number is not None for v in values):
            raise NotModelled("pseudocode that joins constants")
        total, result = 0, Value("u64(0)", U64)
        for value in reversed(values):
            raw = bits_of(value)
            wide = as_type(raw, U64)
            result = Value(f"({result.code} | ({wide.code} << u64({total})))", U64)
            total += value.type.bits
        return result if total > 32 else as_type(result, Type("u", total))

    def _call(self, name: str, arguments: list[Node]) -> Value:
        if name in self.lambdas:
            found = self.lambdas[name]
            before = {p: self.values.get(p) for p in found.parameters}
            self.values.update(zip(found.parameters, map(self.value, arguments), strict=True))
            result = self.value(found.body)
            for parameter, value in before.items():
                if value is None:
                    del self.values[parameter]
                else:
                    self.values[parameter] = value
            return result
        if name not in numerics.FUNCTIONS:
            raise NotModelled(f"pseudocode that calls {name}")
        template, like = numerics.FUNCTIONS[name]
        values = [self.value(node) for node in arguments]
        values = [v.narrow if v.narrow and name in ("isNAN", "isSignalNAN", "isQuietNAN") else v for v in values]
        if name in ("fma", "pow"):
            values = [common(values[0], v)[1] for v in values]
        codes = [v.code for v in values]
        kind = values[int(like)].type if like.isdigit() else BOOL if like == "bool" else self.member(like)
        return Value(template.format(*codes), kind)

    def _choice(self, condition: Node, yes: Node, no: Node) -> Value:
        test = self.value(condition)
        if test.number is not None:
            return self.value(yes if test.number else no)
        left, right = common(self.value(yes), self.value(no))
        if left.type == LITERAL:
            left, right = as_type(left, U32), as_type(right, U32)
        return Value(f"np.where({as_type(test, BOOL).code}, {left.code}, {right.code})", left.type)

    def _unary(self, op: str, node: Node) -> Value:
        value = self.value(node)
        if op == "+":
            return value
        if op == "!":
            if value.number is not None:
                return literal(int(not value.number))
            return Value(f"(~{as_type(value, BOOL).code})", BOOL)
        if value.type == LITERAL and value.number is not None:
            return literal(-value.number if op == "-" else ~int(value.number))
        if op == "~" and value.type.kind not in ("bool",):
            value = bits_of(value)
        return Value(f"({op}{value.code})", value.type)

    def _binary(self, op: str, left: Node, right: Node) -> Value:
        return self.operate(op, self.value(left), self.value(right))

    def operate(self, op: str, left: Value, right: Value) -> Value:
        if op in ("&&", "||"):
            return self._logic(op, left, right)
        if left.type == LITERAL and right.type == LITERAL and None not in (left.number, right.number):
            python = {"<>": "!=", "/": "//"}.get(op, op)
            return literal(eval(f"({left.number!r}) {python} ({right.number!r})"))
        if op == "**":
            if left.number == 2.0:
                return Value(f"ldexp({as_type(left, F32).code}, {as_type(right, I32).code})", F32)
            return Value(f"np.power({left.code}, {right.code})", left.type)
        if op in ("<<", ">>"):
            left = as_type(left, U32) if left.type == LITERAL else left
            shift = right if right.type == LITERAL else bits_of(right)
            return Value(f"({left.code} {op} {as_type(shift, left.type).code})", left.type)
        left, right = common(left, right)
        if op in ("==", "!=", "<>", "<", ">", "<=", ">="):
            return Value(f"({left.code} {'!=' if op == '<>' else op} {right.code})", BOOL)
        return Value(f"({left.code} {'//' if op == '/' and left.type.kind in 'ui' else op} {right.code})", left.type)

    def _logic(self, op: str, left: Value, right: Value) -> Value:
        for one, other in ((left, right), (right, left)):
            if one.number is not None:
                decided = bool(one.number) == (op == "||")
                return literal(int(op == "||")) if decided else other
        return Value(f"({as_type(left, BOOL).code} {op[0]} {as_type(right, BOOL).code})", BOOL)
