"""The functions that AMD's pseudocode calls, over numpy arrays, and the names that translated code knows."""

from __future__ import annotations

from typing import Any

import numpy as np

Array = np.ndarray
u16, u32, u64, i32, i64 = np.uint16, np.uint32, np.uint64, np.int32, np.int64
f16, f32, f64, boolean = np.float16, np.float32, np.float64, np.bool_

QUIET, ODD_HALF, HALF_BITS = u32(0x00400000), u64(0x10000000), u64(0x1FFFFFFF)


def fma(a: Array, b: Array, c: Array) -> Array:
    """a·b + c rounded once.  In float64 the product of two F32 is exact; only where the sum's rounding lands on the
    middle between two F32 can the second rounding go wrong, and there the lost part decides."""
    if a.dtype == f64:
        return a * b + c
    if a.dtype == f16:
        return (a.astype(f64) * b + c).astype(f16)
    product, addend = a.astype(f64) * b, c.astype(f64)
    total = product + addend
    middle = (total.view(u64) & HALF_BITS) == ODD_HALF
    if middle.any():
        back = total - product
        lost = (product - (total - back)) + (addend - back)
        away = np.where((lost > 0) == (total > 0), u64(1), u64(0xFFFFFFFFFFFFFFFF))
        total = np.where(middle & (lost != 0) & np.isfinite(total), (total.view(u64) + away).view(f64), total)
    return np.asarray(total.astype(f32))


def bf16_bits(x: Array) -> Array:
    """BF16 nearest to F32 values, ties to even, as 32-bit integers; a NaN stays one."""
    raw = np.asarray(x, f32).view(u32)
    rounded = (raw + u32(0x7FFF) + (raw >> u32(16) & u32(1))) >> u32(16)
    return np.where(np.isnan(x), raw >> u32(16) | u32(0x40), rounded)


def larger(a: Array, b: Array) -> Array:
    """The larger number; a NaN gives way to a number, and +0 is above -0."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def smaller(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.fmin(a, b))


def maximum(a: Array, b: Array) -> Array:
    """As `larger`, but a NaN wins."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b))


def minimum(a: Array, b: Array) -> Array:
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), a, b), np.minimum(a, b))


def exponent(x: Array) -> Array:
    """The biased exponent of F32 or F64 values."""
    if x.dtype == f64:
        return (x.view(u64) >> u64(52) & u64(0x7FF)).astype(i32)
    return (x.view(u32) >> u32(23) & u32(0xFF)).view(i32)


def mantissa(x: Array) -> Array:
    return np.frexp(x)[0]


def signalling(x: Array) -> Array:
    return np.isnan(x) & ((x.view(u32) & QUIET) == 0) if x.dtype == f32 else np.zeros(np.shape(x), bool)


def quieted(x: Array) -> Array:
    return (x.view(u32) | QUIET).view(f32) if x.dtype == f32 else x


def to_integer(x: Array, low: int, high: int, kind: Any) -> Array:
    """Towards zero, held in the integer's range; NaN is 0."""
    wide = np.nan_to_num(np.trunc(x.astype(f64)), nan=0.0, posinf=float(high), neginf=float(low))
    return np.clip(wide, low, high).astype(i64).astype(kind)


def ldexp(x: Array, power: Array | int) -> Array:
    return np.ldexp(x, np.asarray(power).astype(i32)).astype(x.dtype)


def bit_reverse(x: Array) -> Array:
    swapped = np.asarray(x, u32)
    for shift, mask in ((1, 0x55555555), (2, 0x33333333), (4, 0x0F0F0F0F), (8, 0x00FF00FF)):
        swapped = (swapped >> u32(shift) & u32(mask)) | (swapped & u32(mask)) << u32(shift)
    return swapped >> u32(16) | swapped << u32(16)


def permute_bytes(high: Array, low: Array, selector: Array) -> Array:
    """v_perm_b32: each byte of the selector picks one of eight bytes, a sign of one, 0x00 or 0xFF."""
    data = high.astype(u64) << u64(32) | low.astype(u64)
    result = np.zeros(np.broadcast_shapes(data.shape, selector.shape), u32)
    for byte in range(4):
        pick = selector >> u32(8 * byte) & u32(0xFF)
        plain = data >> (np.minimum(pick, u32(7)).astype(u64) * u64(8)) & u64(0xFF)
        sign = data >> (np.clip(pick, 8, 11).astype(u64) * u64(16) - u64(113)) & u64(1)
        rest = np.where(pick <= 11, sign * u64(0xFF), np.where(pick == 12, u64(0), u64(255)))
        chosen = np.where(pick <= 7, plain, rest)
        result |= chosen.astype(u32) << u32(8 * byte)
    return result


def truth_table(a: Array, b: Array, c: Array, table: int) -> Array:
    """v_bitop3: bit i of the table is the result where a, b and c hold the bits of i, a's the highest."""
    result = np.zeros(np.broadcast_shapes(np.shape(a), np.shape(b), np.shape(c)), u32)
    for i in range(8):
        if table >> i & 1:
            result |= (a if i & 4 else ~a) & (b if i & 2 else ~b) & (c if i & 1 else ~c)
    return result


def sign_extend(x: Array, bits: Array) -> Array:
    """The lowest bits of signed integers with their sign; none give 0."""
    size = x.dtype.itemsize * 8
    count = np.clip(bits.astype(i64), 0, size)
    shift = np.minimum(size - count, size - 1).astype(x.dtype)
    return np.where(count == 0, x.dtype.type(0), x << shift >> shift)


def leading(x: Array, from_low: bool) -> Array:
    """Where the lowest or highest set bit is, -1 if none; from the high end the count of zeros before it."""
    wide = np.asarray(x).astype(u64)
    size = np.asarray(x).dtype.itemsize * 8
    found = np.full(wide.shape, -1, i32)
    for i in reversed(range(size)):
        place = i if from_low else size - 1 - i
        found = np.where(wide >> u64(place) & u64(1), i32(i), found)
    return found


def divide_scale(s0: Array, s1: Array, s2: Array) -> tuple[Array, Array]:
    """v_div_scale_f32: (s0 scaled so that dividing s2 by s1 loses no bits, whether to scale back)."""
    up, down = ldexp(s0, 64), ldexp(s0, -64)
    tiny = np.abs(s1) < np.finfo(f32).tiny
    quotient = np.abs(s2 / s1)
    inverse_tiny = np.abs(1.0 / s1.astype(f64)) < np.finfo(f32).tiny
    quotient_tiny = (quotient < np.finfo(f32).tiny) & (quotient > 0)
    rules = [
        ((s2 == 0) | (s1 == 0), f32(np.nan), False),
        (exponent(s2) - exponent(s1) >= 96, np.where(s0 == s1, up, s0), True),
        (tiny, up, False),
        (inverse_tiny & quotient_tiny, np.where(s0 == s1, up, s0), True),
        (inverse_tiny, down, False),
        (quotient_tiny, np.where(s0 == s2, up, s0), True),
        (exponent(s2) <= 23, up, False),
    ]
    cases = [np.asarray(rule[0]) for rule in rules]
    shape = np.broadcast_shapes(*[np.shape(case) for case in cases], s0.shape)
    cases = [np.broadcast_to(case, shape) for case in cases]
    scaled = np.select(
        cases, [np.broadcast_to(np.asarray(rule[1]), shape) for rule in rules], np.broadcast_to(s0, shape)
    )
    return scaled.astype(f32), np.select(cases, [np.full(shape, rule[2]) for rule in rules], False)


FUNCTIONS: dict[str, tuple[str, str]] = {
    # name: (expression with {0} {1} {2} for arguments, result: a type's name, or the number of the argument it is like)
    "fma": ("fma({0}, {1}, {2})", "0"), "pow": ("np.power({0}, {1})", "0"), "sqrt": ("np.sqrt({0})", "0"),
    "floor": ("np.floor({0})", "0"), "trunc": ("np.trunc({0})", "0"), "ceil": ("np.ceil({0})", "0"),
    "fract": ("({0} - np.floor({0}))", "0"), "abs": ("np.abs({0})", "0"), "sign": ("np.signbit({0})", "bool"),
    "log2": ("np.log2({0})", "0"), "sin": ("np.sin({0})", "0"), "cos": ("np.cos({0})", "0"),
    "exponent": ("exponent({0})", "i32"), "mantissa": ("mantissa({0})", "0"), "ldexp": ("ldexp({0}, {1})", "0"),
    "isNAN": ("np.isnan({0})", "bool"), "isSignalNAN": ("signalling({0})", "bool"),
    "isQuietNAN": ("(np.isnan({0}) & ~signalling({0}))", "bool"), "cvtToQuietNAN": ("quieted({0})", "0"),
    "isEven": ("(np.mod({0}, 2) == 0)", "bool"),
    "i32_to_f32": ("({0}).astype(f32)", "f32"), "u32_to_f32": ("({0}).astype(f32)", "f32"),
    "i32_to_f64": ("({0}).astype(f64)", "f64"), "u32_to_f64": ("({0}).astype(f64)", "f64"),
    "f32_to_f64": ("({0}).astype(f64)", "f64"), "f64_to_f32": ("({0}).astype(f32)", "f32"),
    "f32_to_f16": ("({0}).astype(f16)", "f16"), "f16_to_f32": ("({0}).astype(f32)", "f32"),
    "u16_to_f16": ("({0}).astype(f16)", "f16"), "i16_to_f16": ("({0}).astype(f16)", "f16"),
    "f32_to_bf16": ("(bf16_bits({0}) << u32(16)).view(f32)", "bf16"), "bf16_to_f32": ("{0}", "f32"),
    "f32_to_i32": ("to_integer({0}, -(1 << 31), (1 << 31) - 1, i32)", "i32"),
    "f32_to_u32": ("to_integer({0}, 0, (1 << 32) - 1, u32)", "u32"),
    "f64_to_i32": ("to_integer({0}, -(1 << 31), (1 << 31) - 1, i32)", "i32"),
    "f64_to_u32": ("to_integer({0}, 0, (1 << 32) - 1, u32)", "u32"),
    "signext_from_bit": ("sign_extend({0}, {1})", "0"), "signext": ("({0}).astype(i64)", "i64"),
    "v_max_f32": ("larger({0}, {1})", "f32"), "v_min_f32": ("smaller({0}, {1})", "f32"),
    "v_max_num_f32": ("larger({0}, {1})", "f32"), "v_min_num_f32": ("smaller({0}, {1})", "f32"),
    "v_maximum_f32": ("maximum({0}, {1})", "f32"), "v_minimum_f32": ("minimum({0}, {1})", "f32"),
    "v_max_f16": ("larger({0}, {1})", "f16"), "v_min_f16": ("smaller({0}, {1})", "f16"),
    "v_max_i32": ("np.maximum({0}, {1})", "i32"), "v_min_i32": ("np.minimum({0}, {1})", "i32"),
    "v_max3_i32": ("np.maximum(np.maximum({0}, {1}), {2})", "i32"),
    "v_min3_i32": ("np.minimum(np.minimum({0}, {1}), {2})", "i32"),
    "v_max3_u32": ("np.maximum(np.maximum({0}, {1}), {2})", "u32"),
    "v_min3_u32": ("np.minimum(np.minimum({0}, {1}), {2})", "u32"),
    "v_max3_f32": ("larger(larger({0}, {1}), {2})", "f32"), "v_min3_f32": ("smaller(smaller({0}, {1}), {2})", "f32"),
    "v_max3_num_f32": ("larger(larger({0}, {1}), {2})", "f32"),
    "v_min3_num_f32": ("smaller(smaller({0}, {1}), {2})", "f32"),
    "v_max_u32": ("np.maximum({0}, {1})", "u32"), "v_min_u32": ("np.minimum({0}, {1})", "u32"),
}  # fmt: skip
