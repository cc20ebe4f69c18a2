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
    if a.dtype != f32:
        return (a.astype(f64) * b + c).astype(a.dtype)
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


def max(a: Array, b: Array) -> Array:
    """The larger number; a NaN gives way to a number, and +0 is above -0."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.fmax(a, b))


def min(a: Array, b: Array) -> Array:
    return -max(-a, -b)


def maximum(a: Array, b: Array) -> Array:
    """As `max`, but a NaN wins."""
    return np.where((a == 0) & (b == 0), np.where(np.signbit(a), b, a), np.maximum(a, b))


def minimum(a: Array, b: Array) -> Array:
    return -maximum(-a, -b)


def exponent(x: Array) -> Array:
    """The biased exponent."""
    kind, mantissa_bits, mask = {f16: (u16, 10, 31), f32: (u32, 23, 255), f64: (u64, 52, 2047)}[x.dtype.type]
    return (x.view(kind) >> kind(mantissa_bits) & kind(mask)).astype(i32)


def signalling(x: Array) -> Array:
    return np.isnan(x) & ((x.view(u32) & QUIET) == 0) if x.dtype == f32 else np.zeros(np.shape(x), bool)


def quieted(x: Array) -> Array:
    return (x.view(u32) | QUIET).view(f32) if x.dtype == f32 else x


def denormal(x: Array, kind: Any) -> Array:
    return (x != 0) & (np.abs(x) < np.finfo(kind).tiny)


def to_integer(x: Array, low: int, high: int, kind: Any) -> Array:
    """Towards zero, held in the integer's range; NaN is 0."""
    wide = np.nan_to_num(np.trunc(x.astype(f64)), nan=0.0, posinf=float(high), neginf=float(low))
    return np.clip(wide, low, high).astype(i64).astype(kind)


def ldexp(x: Array, power: Array | int) -> Array:
    return np.ldexp(x, np.asarray(power).astype(i32)).astype(x.dtype)


def reversed_bits(x: Array) -> Array:
    raw = np.ascontiguousarray(x, u32)
    bits = np.unpackbits(raw.view(np.uint8).reshape(*raw.shape, 4), axis=-1, bitorder="little")
    return np.packbits(bits[..., ::-1], axis=-1, bitorder="little").view(u32)[..., 0]


def permute_bytes(high: Array, low: Array, selector: Array) -> Array:
    """v_perm_b32: each byte of the selector picks one of eight bytes, a sign of one, 0x00 or 0xFF."""
    data, result = high.astype(u64) << u64(32) | low.astype(u64), np.zeros((), u32)
    for byte in (0, 8, 16, 24):
        pick = (selector >> u32(byte) & u32(0xFF)).astype(u64)
        chosen = data >> np.minimum(pick, u64(7)) * u64(8) & u64(0xFF)
        if pick.max() > 7:
            sign = (data >> np.clip(pick, 8, 11) * u64(16) - u64(113) & u64(1)) * u64(0xFF)
            chosen = np.select([pick <= 7, pick <= 11, pick == 12], [chosen, sign, u64(0)], u64(0xFF))
        result = result | chosen.astype(u32) << u32(byte)
    return result


def dot_of_bytes(left: Array, right: Array, start: Array, signs: Array) -> Array:
    """v_dot4_i32_iu8: four products of bytes added to a word; bits 0 and 1 of `signs` say which side's have signs."""
    total = start.astype(u32)
    for byte in (0, 8, 16, 24):
        sides = [value << u32(24 - byte) for value in (left, right)]
        parts = [
            side.view(np.int32) >> np.int32(24)
            if int(np.max(signs)) >> number & 1
            else (side >> u32(24)).view(np.int32)
            for number, side in enumerate(sides)
        ]
        total = total + (parts[0] * parts[1]).view(u32)
    return total


def sign_extend(x: Array, bits: Array) -> Array:
    """The lowest bits of signed integers with their sign; none give 0."""
    size = x.dtype.itemsize * 8
    count = np.clip(bits.astype(i64), 0, size)
    shift = np.minimum(size - count, size - 1).astype(x.dtype)
    return np.where(count == 0, x.dtype.type(0), x << shift >> shift)


TRUTH = ("bool", 1)
FUNCTIONS: dict[str, tuple[str, tuple[str, int] | None]] = {
    # name: (expression with {0} {1} {2} for arguments, (kind, bits) of the result or None for the first argument's)
    "fma": ("fma({0}, {1}, {2})", None), "pow": ("np.power({0}, {1})", None), "sqrt": ("np.sqrt({0})", None),
    "floor": ("np.floor({0})", None), "trunc": ("np.trunc({0})", None), "rint": ("np.rint({0})", None),
    "fract": ("({0} - np.floor({0}))", None), "abs": ("np.abs({0})", None), "sign": ("np.signbit({0})", TRUTH),
    "log2": ("np.log2({0})", None), "sin": ("np.sin({0})", None), "cos": ("np.cos({0})", None),
    "exponent": ("exponent({0})", ("i", 32)), "mantissa": ("np.frexp({0})[0]", None),
    "ldexp": ("ldexp({0}, {1})", None), "isNAN": ("np.isnan({0})", TRUTH), "isSignalNAN": ("signalling({0})", TRUTH),
    "isQuietNAN": ("(np.isnan({0}) & ~signalling({0}))", TRUTH), "cvtToQuietNAN": ("quieted({0})", None),
    "isEven": ("(np.mod({0}, 2) == 0)", TRUTH), "signext": ("({0}).astype(i64)", ("i", 64)),
    "signext_from_bit": ("sign_extend({0}, {1})", None),
    "dot_of_bytes": ("dot_of_bytes({0}, {1}, {2}, {3})", ("u", 32)),
    "permute_bytes": ("permute_bytes({0}, {1}, {2})", ("u", 32)),
}  # fmt: skip
