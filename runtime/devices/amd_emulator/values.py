"""Values of AMD's pseudocode as numpy expressions: a type, the source text that computes it, and conversions."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled

KINDS = {"u": "u", "b": "u", "B": "u", "U": "u", "i": "i", "I": "i", "f": "f", "F": "f", "bf": "bf"}


@dataclass(frozen=True)
class Type:
    """kind: u, i, f, bf (a bfloat16, held as float32), bool, or literal (a Python number).  bits: of the value."""

    kind: str
    bits: int

    @property
    def storage(self) -> str:
        """The numpy dtype that holds it, by the name that generated code knows."""
        if self.kind == "bool":
            return "boolean"
        if self.kind in ("f", "bf"):
            return {"f16": "f16", "f32": "f32", "f64": "f64", "bf16": "f32"}[f"{self.kind}{self.bits}"]
        return f"{self.kind}{32 if self.bits <= 32 else 64}"


BOOL, LITERAL = Type("bool", 1), Type("literal", 32)
U32, U64, I32, F32, F64 = Type("u", 32), Type("u", 64), Type("i", 32), Type("f", 32), Type("f", 64)


@dataclass(frozen=True)
class Value:
    """code: a Python expression.  number: its value where it is known while translating.  narrow: what was widened."""

    code: str
    type: Type
    number: int | float | None = None
    narrow: Value | None = None


def literal(number: int | float) -> Value:
    return Value(repr(number), LITERAL, number)


def as_type(value: Value, wanted: Type) -> Value:
    """The value converted by its number, as assignment and casts do."""
    kind = value.type.kind
    if value.type == wanted:
        return value
    if kind == "literal":
        return _typed_literal(value, wanted)
    if wanted.kind == "bool":
        return Value(f"({value.code} != 0)", BOOL)
    if wanted.kind in ("f", "bf") or kind in ("f", "bf"):
        code = f"({value.code}).astype({wanted.storage})"
        return Value(code, wanted, narrow=value if kind == "f" and wanted.bits > value.type.bits else None)
    wide = f"({value.code}).astype({wanted.storage})" if value.type.storage != wanted.storage else value.code
    return trim(wide, wanted) if wanted.bits < value.type.bits or kind != wanted.kind else Value(wide, wanted)


def _typed_literal(value: Value, wanted: Type) -> Value:
    number = value.number
    assert number is not None
    if wanted.kind == "bool":
        return Value(f"boolean({bool(number)})", BOOL, number)
    if wanted.kind in ("f", "bf"):
        if isinstance(number, int) and number > 1 << 30:  # the bits of a number rather than the number
            return Value(f"u{wanted.bits}({number}).view({wanted.storage})", wanted)
        return Value(f"{wanted.storage}({number!r})".replace("inf", "infinity").replace("nan", "not_a_number"), wanted)
    number = int(number) & (1 << wanted.bits) - 1
    if wanted.kind == "i" and number >> (wanted.bits - 1):
        number -= 1 << wanted.bits
    return Value(f"{wanted.storage}({number})", wanted, number)


def trim(code: str, wanted: Type) -> Value:
    """Integer bits in storage of their size, cut to the wanted width and extended by its kind."""
    size = 32 if wanted.bits <= 32 else 64
    if wanted.bits == size:
        return Value(code, wanted)
    if wanted.kind == "i":
        shift = f"{wanted.storage}({size - wanted.bits})"
        return Value(f"(({code}) << {shift} >> {shift})", wanted)
    return Value(f"(({code}) & {wanted.storage}({(1 << wanted.bits) - 1}))", wanted)


def bits_of(value: Value) -> Value:
    """The same bits as an unsigned integer."""
    kind, bits = value.type.kind, value.type.bits
    if kind == "u":
        return value
    if kind == "literal":
        number = value.number
        return as_type(value, F32) if isinstance(number, float) else as_type(value, U32)
    if kind == "bool":
        return Value(f"({value.code}).astype(u32)", U32)
    if kind == "bf":
        return Value(f"bf16_bits({value.code})", Type("u", 16))
    if kind == "f" and bits == 16:
        return Value(f"({value.code}).view(u16).astype(u32)", Type("u", 16))
    unsigned = Type("u", bits)
    return trim(f"({value.code}).view({unsigned.storage})", unsigned)


def reinterpret(value: Value, wanted: Type) -> Value:
    """The value's lowest bits as another type, as `.f32` and the like read them."""
    if value.type == wanted:
        return value
    if value.type.kind == "literal":
        return as_type(value, wanted)
    raw = bits_of(value)
    have = "u32" if raw.type.bits <= 32 else "u64"
    need = "u32" if wanted.bits <= 32 else "u64"
    code = raw.code if have == need else f"({raw.code}).astype({need})"
    if wanted.kind == "bf":
        return Value(f"(({code}) << u32(16)).view(f32)", wanted)
    if wanted.kind == "f":
        return Value(
            f"({code}).astype(u16).view(f16)" if wanted.bits == 16 else f"({code}).view(f{wanted.bits})", wanted
        )
    if wanted.kind == "u":
        return trim(code, wanted) if wanted.bits < raw.type.bits else Value(code, wanted)
    return trim(f"({code}).view({wanted.storage})", wanted)


def field(value: Value, high: int, low: int) -> Value:
    """Bits high to low, counted from 0, as an unsigned integer."""
    raw = bits_of(value)
    wanted = Type("u", high - low + 1)
    if high < low:
        raise NotModelled("a field of bits in reverse")
    code = f"({raw.code}) >> {raw.type.storage}({low})" if low else raw.code
    if raw.type.bits > 32 and wanted.bits <= 32:
        code = f"({code}).astype(u32)"
    return (
        trim(f"({code})", wanted)
        if high + 1 < max(32, raw.type.bits) or wanted.bits not in (32, 64)
        else Value(f"({code})", wanted)
    )


def common(left: Value, right: Value) -> tuple[Value, Value]:
    """Two operands in one type: a literal takes the other's, the narrower the wider's."""
    if left.type == right.type:
        return left, right
    if left.type.kind == "literal":
        return (left if right.type.kind == "literal" else as_type(left, _number_type(right))), _number(right)
    if right.type.kind == "literal":
        return _number(left), as_type(right, _number_type(left))
    left, right = _number(left), _number(right)
    floats = [v.type for v in (left, right) if v.type.kind in ("f", "bf")]
    wanted = max(floats or [left.type, right.type], key=lambda t: t.bits)
    return as_type(left, wanted), as_type(right, wanted)


def _number_type(value: Value) -> Type:
    return U32 if value.type.kind == "bool" else value.type


def _number(value: Value) -> Value:
    return bits_of(value) if value.type.kind == "bool" else value
