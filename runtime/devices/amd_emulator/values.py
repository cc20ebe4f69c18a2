"""Values of AMD's pseudocode as numpy expressions: source text, a type, and what conversions make of them."""

from __future__ import annotations

from typing import NamedTuple

from lispgpt.runtime.devices.amd_emulator.faults import NotModelled


class Value(NamedTuple):
    """code: a Python expression.  kind: u, i, f, bf (a bfloat16, held as float32), bool, or number (one of Python's,
    the same for all lanes).  number: its value where it is known while translating.  narrow: what was widened."""

    code: str
    kind: str
    bits: int
    number: int | float | None = None
    narrow: Value | None = None


def storage(kind: str, bits: int) -> str:
    """The numpy dtype that holds a type, by the name that generated code knows."""
    fixed = {"bool": "boolean", "bf": "f32", "f": f"f{bits}"}
    return fixed.get(kind) or f"{kind}{32 if bits <= 32 else 64}"


def literal(number: float) -> Value:
    return Value(repr(number), "number", 32, number)


def convert(value: Value, kind: str, bits: int) -> Value:
    """The value converted by its number, as assignment and casts do."""
    to = storage(kind, bits)
    if (value.kind, value.bits) == (kind, bits):
        return value
    if value.kind == "number":
        return _constant(value, kind, bits)
    if kind == "bool":
        return Value(f"({value.code} != 0)", kind, 1)
    floating = kind in ("f", "bf"), value.kind in ("f", "bf")
    code = value.code if to == storage(value.kind, value.bits) else f"({value.code}).astype({to})"
    if any(floating):
        return Value(code, kind, bits, narrow=value if all(floating) and bits > value.bits else None)
    found = trim(code, kind, bits) if bits < value.bits or kind != value.kind else Value(code, kind, bits)
    return found if value.number is None else found._replace(number=_wrapped(int(value.number), kind, bits))


def _constant(value: Value, kind: str, bits: int) -> Value:
    to, number = storage(kind, bits), value.number
    if number is None:
        return Value(f"{to}({value.code})", kind, bits)
    if kind == "bool":
        return Value(f"boolean({bool(number)})", kind, 1, number)
    if kind not in ("f", "bf"):
        number = _wrapped(int(number), kind, bits)
    elif isinstance(number, int) and number > 1 << 30:  # the bits of a number rather than the number
        return Value(f"u{bits}({number}).view({to})", kind, bits)
    return Value(f"{to}({number!r})", kind, bits, number)


def _wrapped(number: int, kind: str, bits: int) -> int:
    number &= (1 << bits) - 1
    return number - (1 << bits) if kind == "i" and number >> (bits - 1) else number


def trim(code: str, kind: str, bits: int) -> Value:
    """Integer bits in storage of their size, cut to the wanted width and extended by its kind."""
    size, to = 32 if bits <= 32 else 64, storage(kind, bits)
    if bits == size:
        return Value(code, kind, bits)
    if kind == "i":
        return Value(f"(({code}) << {to}({size - bits}) >> {to}({size - bits}))", kind, bits)
    return Value(f"(({code}) & {to}({(1 << bits) - 1}))", kind, bits)


def bits_of(value: Value) -> Value:
    """The same bits as an unsigned integer."""
    match value.kind:
        case "u":
            return value
        case "number":
            return convert(value, "f" if isinstance(value.number, float) else "u", 32)
        case "bool":
            return convert(value, "u", 32)
        case "bf":
            return Value(f"bf16_bits({value.code})", "u", 16)
        case "f" if value.bits == 16:
            return Value(f"({value.code}).view(u16).astype(u32)", "u", 16)
    return trim(f"({value.code}).view({storage('u', value.bits)})", "u", value.bits)


def reinterpret(value: Value, kind: str, bits: int) -> Value:
    """The value's lowest bits as another type, as `.f32` and the like read them."""
    if (value.kind, value.bits) == (kind, bits):
        return value
    if value.kind == "number":
        return convert(value, kind, bits)
    raw = bits_of(value)
    unsigned = convert(raw._replace(number=None), "u", 32 if bits <= 32 else 64).code
    if kind == "bf":
        return Value(f"(({unsigned}) << u32(16)).view(f32)", kind, bits)
    if kind == "f":
        return Value(f"({unsigned}).{'astype(u16).' if bits == 16 else ''}view(f{bits})", kind, bits)
    code = unsigned if kind == "u" else f"({unsigned}).view({storage(kind, bits)})"
    return trim(code, kind, bits) if bits < raw.bits or kind == "i" else Value(code, kind, bits)


def field(value: Value, high: int, low: int) -> Value:
    """Bits high to low, counted from 0, as an unsigned integer."""
    if value.kind == "number" and value.number is not None:
        return literal(int(value.number) >> low & (1 << high - low + 1) - 1)._replace(bits=high - low + 1)
    raw = bits_of(value)
    if (high, low) == (0, 31):
        return Value(f"reversed_bits({raw.code})", "u", 32)
    if high < low:
        raise NotModelled("pseudocode with a field of bits in reverse")
    code = f"({raw.code} >> {storage('u', raw.bits)}({low}))" if low else raw.code
    wanted, left = high - low + 1, raw.bits - low
    if raw.bits > 32 and wanted <= 32:
        code, left = f"{code}.astype(u32)", min(left, 32)
    return trim(code, "u", wanted) if wanted < left else Value(code, "u", wanted)


def common(left: Value, right: Value) -> tuple[Value, Value]:
    """Two operands in one type: a number takes the other's, the narrower the wider's."""
    left, right = (bits_of(v) if v.kind == "bool" and (v.kind, v.bits) != (w.kind, w.bits) else v
                   for v, w in ((left, right), (right, left)))  # fmt: skip
    typed = [v for v in (left, right) if v.kind != "number"]
    if not typed:
        return left, right
    wanted = max([v for v in typed if v.kind in ("f", "bf")] or typed, key=lambda v: v.bits)
    return convert(left, wanted.kind, wanted.bits), convert(right, wanted.kind, wanted.bits)
