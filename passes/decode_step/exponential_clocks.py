"""Exponential clocks of tokens, in a kernel that is written out thread by thread, as lib/chunks.lisp has them.

The numbers are the same bit for bit: of Philox4x32-10 ("Parallel random numbers: as easy as 1, 2, 3", Salmon et al.
2011), by the key of a seed and a counter of token, draw and stream.
"""

from __future__ import annotations

from collections.abc import Sequence

from lispgpt.ir import build as b
from lispgpt.ir.arithmetic import Number
from lispgpt.ir.mlir import create_op
from lispgpt.ir.threads import fused, greater, real, word

FACTORS, KEYS = (0xD2511F53, 0xCD9E8D57), (0x9E3779B9, 0xBB67AE85)
ROUNDS, SERIES = 10, (9, 7, 5, 3, 1)


def philox(counter: Sequence[Number], key: Sequence[Number]) -> list[Number]:
    """Four words of random bits, for a counter of four words and a key of two."""
    a, c, d, e = counter
    k, other = key
    for _ in range(ROUNDS):
        (low, high), (low_d, high_d) = _product(a, FACTORS[0]), _product(d, FACTORS[1])
        a, c, d, e = high_d ^ c ^ k, low_d, high ^ e ^ other, low
        k, other = k + _signed(KEYS[0]), other + _signed(KEYS[1])
    return [a, c, d, e]


def _product(a: Number, factor: int) -> tuple[Number, Number]:
    """(lower, upper word) of a product without signs."""
    op = create_op("arith.mului_extended", [a.value, word(_signed(factor)).value], [b.i32()] * 2)
    return Number(op.results[0]), Number(op.results[1])


def _signed(bits: int) -> int:
    return bits - (1 << 32) if bits >> 31 else bits


def exponential(bits: Number) -> Number:
    """-ln(1 - u) for u = (bits + 1/2) / 2^32, to a few units in the last place."""
    number = Number(b.emit("arith.uitofp", [bits.value], [b.f32()]))
    u = (number + 0.5) * 2.0**-32
    rest = greater(1.0 - u, real(2.0**-33)).bits()
    n = (rest - 0x3F3504F3).signed_shift(23)
    t = (n == 0).where(0.0 - u, (rest - (n << 23)).bits() - 1.0)
    s = t / (t + 2.0)
    z = s * s
    series = real(1.0 / SERIES[0])
    for odd in SERIES[1:]:
        series = fused(series, z, real(1.0 / odd))
    whole = Number(b.emit("arith.sitofp", [n.value], [b.f32()]))
    return 0.0 - fused(whole, real(0.6931471805599453), s * 2.0 * series)
