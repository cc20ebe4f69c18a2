"""Expressions of AMD's pseudocode as numpy expressions: what each kind of node of the syntax tree is worth."""

from __future__ import annotations

import ast
import re

import numpy as np

from lispgpt.runtime.devices.amd_emulator import numerics
from lispgpt.runtime.devices.amd_emulator.faults import NotModelled
from lispgpt.runtime.devices.amd_emulator.values import (
    Value,
    bits_of,
    common,
    convert,
    field,
    literal,
    reinterpret,
    storage,
    trim,
)

MEMBER, CONVERSION = re.compile(r"(bf|[uifb])(\d+)$"), re.compile(r"(bf|[uif])(\d+)_to_(bf|[uif])(\d+)$")
EXTREME = re.compile(r"v_(max|min|maximum|minimum)(3?)(?:_num)?_([uif])(\d+)$")
RESULTS = ("D0", "SCC", "VCC", "EXEC", "LANES", "S0", "VDATA", "SDATA", "RETURN_DATA")
OPERANDS = (*RESULTS, "S1", "S2", "DATA", "DATA2", "SIMM16", "SIMM32", "laneId", "OFFSET0", "OFFSET1")
SYMBOLS = {ast.Add: "+", ast.Sub: "-", ast.Mult: "*", ast.Div: "/", ast.Mod: "%", ast.Pow: "**", ast.LShift: "<<",
           ast.RShift: ">>", ast.BitAnd: "&", ast.BitOr: "|", ast.BitXor: "^", ast.Eq: "==", ast.NotEq: "!=",
           ast.Lt: "<", ast.Gt: ">", ast.LtE: "<=", ast.GtE: ">=", ast.USub: "-", ast.Invert: "~"}  # fmt: skip
CONSTANTS = {"INF": float("inf"), "NAN": float("nan"), "PI": np.pi, "UNDERFLOW_F32": 0.0, "OVERFLOW_F32": float("inf"),
             "UNDERFLOW_F64": 0.0, "OVERFLOW_F64": float("inf"),
             "DENORM": 1e-39, "ROUND_MODE": 0, "ROUND_NEAREST_EVEN": 0, "ADDR": 0, "addr": 0, "OFFSET": 0}  # fmt: skip


class Expressions:
    """Gives the values of expressions.

    widths: bits of operands that have more or fewer than 32.  numbers: names with a known number.  values: what each
    name holds now; a variable's code is its own name.  inputs: the operands that were read.
    """

    def __init__(self, widths: dict[str, int], constants: dict[str, int]) -> None:
        self.widths, self.numbers = {"EXEC": 64, **widths}, {**CONSTANTS, **constants}
        self.values: dict[str, Value] = {}
        self.lambdas: dict[str, ast.Lambda] = {}
        self.inputs: list[str] = []

    def value(self, node: ast.expr) -> Value:
        found: Value = getattr(self, f"_{type(node).__name__}", self._unknown)(node)
        return found

    def _unknown(self, node: ast.expr) -> Value:
        raise NotModelled(f"pseudocode with {ast.unparse(node)}")

    def number(self, node: ast.expr) -> int:
        found = self.value(node).number
        if not isinstance(found, int):
            raise NotModelled("pseudocode with bits at a place that is not constant")
        return found

    def ends(self, index: ast.expr) -> tuple[int, int]:
        """(highest, lowest) bit that an index names."""
        if not isinstance(index, ast.Slice):
            return (self.number(index),) * 2
        if index.lower is None or index.upper is None or isinstance(index.upper, ast.UnaryOp):
            raise NotModelled("pseudocode with an open field")
        return self.number(index.lower), self.number(index.upper)

    @staticmethod
    def is_lane(index: ast.expr) -> bool:
        return isinstance(index, ast.Name) and index.id == "laneId"

    @staticmethod
    def member(text: str) -> tuple[str, int]:
        match = MEMBER.match(text)
        if match is None:
            raise NotModelled(f"pseudocode with .{text}")
        kind, bits = match[1].replace("b", "u") if match[1] == "b" else match[1], int(match[2])
        return ("bool", 1) if (kind, bits) == ("u", 1) else (kind, bits)

    def read(self, name: str) -> Value:
        """An operand of the function."""
        if name not in self.inputs:
            self.inputs.append(name)
        if name.startswith("OFFSET"):
            return Value(name, "number", 32)
        return (
            Value(name, "bool", 1)
            if name in ("VCC", "SCC")
            else Value(name, "u", 64 if self.widths.get(name, 32) > 32 else 32)
        )

    def _Constant(self, node: ast.Constant) -> Value:
        if not isinstance(node.value, int | float):
            self._unknown(node)
        return literal(node.value)  # type: ignore[arg-type]

    def _Name(self, node: ast.Name) -> Value:
        if node.id in self.values:
            return self.values[node.id]
        if node.id in self.numbers:
            return literal(self.numbers[node.id])
        return self.read(node.id) if node.id in OPERANDS else self._unknown(node)

    def _Attribute(self, node: ast.Attribute) -> Value:
        match node.value:
            case ast.Name(id="WAVE_MODE"):
                return literal(int(node.attr == "IEEE"))
            case ast.Name(id="INST"):
                return literal(self.numbers[node.attr])
            case ast.Subscript(value=ast.Name(id="MEM"), slice=at):
                kind, bits = self.member(node.attr)
                raw = Value(f"MEM.load({self.value(at).code}, {bits})", "u", 64 if bits > 32 else 32)
                return reinterpret(raw if bits in (32, 64) else raw._replace(bits=bits), kind, bits)
        value = self.value(node.value)
        if node.attr == "b" or (value.kind == "number" and value.number is None):
            return value if node.attr != "b" else bits_of(value)
        kind, bits = self.member(node.attr)
        return reinterpret(value, kind, bits)

    def _Subscript(self, node: ast.Subscript) -> Value:
        base = node.value
        if isinstance(base, ast.Name) and base.id == "MEM":
            return self._Attribute(ast.Attribute(node, "b32"))
        if self.is_lane(node.slice):
            return self.value(base.value if isinstance(base, ast.Attribute) else base)
        if isinstance(base, ast.Name) and self.widths.get(base.id, 32) > 64:
            high, low = self.ends(node.slice)
            words = [self.read(f"{base.id}_{word}") for word in range(low // 32, high // 32 + 1)]
            return field(words[0] if len(words) == 1 else self.joined(words), high - low // 32 * 32, low % 32)
        value = self.value(base)
        if isinstance(node.slice, ast.Slice):
            return field(value, *self.ends(node.slice))
        place = self.value(node.slice)
        if isinstance(place.number, int):
            return convert(field(value, place.number, place.number), "bool", 1)
        raw = bits_of(value)
        one = f"{storage('u', raw.bits)}(1)"
        return Value(f"(({raw.code} >> {convert(place, 'u', raw.bits).code} & {one}) != 0)", "bool", 1)

    def _List(self, node: ast.List) -> Value:
        return self.joined([self.value(part) for part in reversed(node.elts)])

    @staticmethod
    def joined(parts: list[Value]) -> Value:
        """Values side by side, the lowest bits first."""
        total, codes, number = 0, [], 0
        for part in parts:
            if part.number is not None:
                number |= int(part.number) << total
            else:
                codes.append(f"({convert(bits_of(part), 'u', 64).code} << u64({total}))")
            total += part.bits
        if not codes:
            return Value(repr(number), "number", total, number)
        result = Value(f"({' | '.join([*codes, f'u64({number})'])})", "u", 64)
        return result if total > 32 else convert(result, "u", total)

    def _Call(self, node: ast.Call) -> Value:
        if not isinstance(node.func, ast.Name):
            return self._unknown(node)
        name, arguments = node.func.id, node.args
        if name in ("cast", "typed", "declared"):
            return self._typed(name, arguments)
        values = [self.value(argument) for argument in arguments]
        if name in self.lambdas:
            function, outer = self.lambdas[name], self.values
            self.values = {**outer, **{a.arg: v for a, v in zip(function.args.args, values, strict=True)}}
            result, self.values = self.value(function.body), outer
            return result
        if match := CONVERSION.match(name):
            return self._converted(values[0], match[1], match[3], int(match[4]))
        if match := EXTREME.match(name):
            function_name = match[1] if match[3] == "f" else f"np.{match[1]}imum"
            codes = [convert(v, match[3], int(match[4])).code for v in values]
            code = f"{function_name}({codes[0]}, {codes[1]})"
            return Value(f"{function_name}({code}, {codes[2]})" if match[2] else code, match[3], int(match[4]))
        if name not in numerics.FUNCTIONS:
            return self._unknown(node)
        template, kind = numerics.FUNCTIONS[name]
        values = [v.narrow if v.narrow and name.endswith("NAN") and name.startswith("is") else v for v in values]
        if name in ("fma", "pow"):
            values = [common(values[0], v)[1] for v in values]
        return Value(template.format(*[v.code for v in values]), *(kind or values[0][1:3]))

    def _typed(self, name: str, arguments: list[ast.expr]) -> Value:
        """A number with a suffix, a cast, or a variable's first value; numbers of one bit stay numbers."""
        given = [a.value for a in arguments if isinstance(a, ast.Constant)]
        if name == "typed":
            size = 64 if "LL" in str(given[1]) else 32
            kind = {"F": "f", "L": "i", "LL": "i"}.get(str(given[1]), "u")
            return literal(given[0]) if given[1] in ("U", "L") else convert(literal(given[0]), kind, size)  # type: ignore[arg-type]
        bits, kind = int(str(given[0])), {"B": "u", "": "i"}.get(str(given[1]), str(given[1]).lower())
        value = self.value(arguments[2])
        if bits == 1:
            return convert(value, "bool", 1) if name == "declared" else value
        return convert(bits_of(value) if value.kind == "bool" else value, kind, bits)

    def _converted(self, value: Value, was: str, kind: str, bits: int) -> Value:
        if kind == "bf":
            return Value(f"(bf16_bits({value.code}) << u32(16)).view(f32)", kind, bits)
        if was in ("f", "bf") and kind in ("u", "i"):
            low, high = (-(1 << bits - 1), (1 << bits - 1) - 1) if kind == "i" else (0, (1 << bits) - 1)
            return Value(f"to_integer({value.code}, {low}, {high}, {storage(kind, bits)})", kind, bits)
        return convert(value, kind, bits)

    def _IfExp(self, node: ast.IfExp) -> Value:
        test = self.value(node.test)
        left, right = common(self.value(node.body), self.value(node.orelse))
        if left.kind == "number":
            kind = ("f", 64) if isinstance(left.number, float) or isinstance(right.number, float) else ("u", 32)
            left, right = convert(left, *kind), convert(right, *kind)
        return Value(f"np.where({convert(test, 'bool', 1).code}, {left.code}, {right.code})", left.kind, left.bits)

    def _UnaryOp(self, node: ast.UnaryOp) -> Value:
        value = self.value(node.operand)
        if isinstance(node.op, ast.UAdd):
            return value
        if isinstance(node.op, ast.Not):
            return Value(f"(~{convert(value, 'bool', 1).code})", "bool", 1)
        if value.kind == "number" and value.number is not None:
            return literal(-value.number if isinstance(node.op, ast.USub) else ~int(value.number))
        value = bits_of(value) if isinstance(node.op, ast.Invert) else value
        return _held(f"({SYMBOLS[type(node.op)]}{value.code})", value)

    def _BoolOp(self, node: ast.BoolOp) -> Value:
        codes = [convert(self.value(value), "bool", 1).code for value in node.values]
        return Value(f"({(' | ' if isinstance(node.op, ast.Or) else ' & ').join(codes)})", "bool", 1)

    def _Compare(self, node: ast.Compare) -> Value:
        right = node.comparators[0]
        if isinstance(right, ast.Attribute) and isinstance(right.value, ast.Name) and right.value.id == "DENORM":
            return Value(f"denormal({self.value(node.left).code}, {right.attr})", "bool", 1)
        return self.operate(SYMBOLS[type(node.ops[0])], self.value(node.left), self.value(right))

    def _BinOp(self, node: ast.BinOp) -> Value:
        return self.operate(SYMBOLS[type(node.op)], self.value(node.left), self.value(node.right))

    def operate(self, op: str, left: Value, right: Value) -> Value:
        python = "//" if op == "/" and not {left.kind, right.kind} & {"f", "bf"} else op
        if left.number is not None and right.number is not None and "f" not in left.kind + right.kind:
            return literal(eval(f"({left.number!r}) {python} ({right.number!r})", {"inf": np.inf, "nan": np.nan}))
        if left.kind == "number" and (right.kind == "number" or (left.number is None and right.number is not None)):
            return Value(f"({left.code} {op} {right.code if right.number is None else right.number})", "number", 32)
        if op == "**":
            if left.number != 2.0:
                raise NotModelled("pseudocode with a power of something else than 2")
            return Value(f"ldexp(f32(1), {convert(right, 'i', 32).code})", "f", 32)
        if op in ("<<", ">>"):
            left = convert(left, "u", 32) if left.kind == "number" else left
            shift = right if right.kind == "number" else bits_of(right)
            return _held(f"({left.code} {op} {convert(shift, left.kind, left.bits).code})", left)
        left, right = common(left, right)
        if op in ("==", "!=", "<", ">", "<=", ">="):
            return Value(f"({left.code} {op} {right.code})", "bool", 1)
        return _held(f"({left.code} {python} {right.code})", left)


def _held(code: str, like: Value) -> Value:
    """What an operation gives, in the bits that its type has."""
    return trim(code, like.kind, like.bits) if like.kind in ("u", "i") else Value(code, like.kind, like.bits)
