"""The other side of packed weights as whole numbers, so that matrix instructions multiply both as they are.

A number is taken as a multiple of 2^-30 of a power of two above the largest, so of more bits than F32 has for what is
not much smaller than that.  It has four digits of base 256 from -128 to 127, which fill columns of an instruction of a
depth of 32, two steps of the weights.  Sums of a digit's products that share a scale are exact: those of 1,024 numbers
at most are below 2^24.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial, reduce

from lispgpt.passes.kernels import cluster as c
from lispgpt.passes.kernels.words import Word, assembly, fused, greater, if_there, real, when, word
from lispgpt.passes.plan.packed_weights import PackedWeights
from lispgpt.passes.plan.sharded_layout import MULTIPLIERS
from lispgpt.passes.plan.sharded_products import Products
from lispgpt.passes.plan.sharded_residual import Residual
from lispgpt.passes.plan.sharded_sharing import WARPS
from lispgpt.passes.plan.sharded_side import Side
from lispgpt.passes.plan.sharded_weights import Fragment, ScaledWeights

OCTET = 32
"""Bytes of eight numbers, four of either step: two words for each digit."""
BASE = 256.0
BITS, BIAS, LEAST = 30, 127, 30
"""How many bits below the largest number's power of two numbers have; of a real's exponent; and the least exponent of
the largest number with which neither factor leaves a real's range."""
NEITHER = 255
"""The exponent of what is no number, or infinite."""
LATE = 4
"""Lanes from the one that has two numbers to the one that has those 8 further, in the same step."""


class Digits(Side):
    words = 1

    def __init__(self, products: Products, weights: ScaledWeights) -> None:
        self.products, self.launch, self.weights = products, products.launch, weights

    def put(self, residual: Residual, values: Sequence[Word]) -> None:
        launch = self.launch
        exponent = self._exponent(residual, values)
        factor = ((2 * BIAS + BITS - 1 - exponent) << 23).bits()
        for i, pair in enumerate(residual.pairs):
            own = [_digits(value * factor) for value in values[2 * i : 2 * i + 2]]
            theirs = [number.from_lane(LATE) for number in own]
            late = (pair.number // LATE) & 1
            step, quad = pair.number // 8, pair.number % 4
            to = launch.place("digits") + ((step // 2) * 4 + quad) * OCTET + (step & 1) * 4 + late * 16
            for number, digit in enumerate(_words(late == 1, own, theirs)):
                if_there(pair.works, partial(c.store_words, to + 8 * number, [digit]))
        self.unit = self._unit(exponent)
        c.meet(MULTIPLIERS, 32 * WARPS)

    def _exponent(self, residual: Residual, values: Sequence[Word]) -> Word:
        """The largest number's, of all threads'."""
        launch = self.launch
        sizes = []
        for i, pair in enumerate(residual.pairs):
            size = reduce(greater, [value.bits() & 0x7FFFFFFF for value in values[2 * i : 2 * i + 2]])
            sizes.append(size if pair.works is None else pair.works.where(size, 0))
        top, place = c.over_lanes("max", reduce(greater, sizes)), launch.place("digits") + 4 * launch.layout.width
        when(launch.lane == 0, lambda: c.store_words(place + launch.warp * 4, [top]))
        c.meet(MULTIPLIERS, 32 * WARPS)
        tops = [one for first in range(0, WARPS, 4) for one in c.load_words(place + first * 4, 4)]
        return greater(reduce(greater, tops) >> 23, word(LEAST))

    def _unit(self, exponent: Word) -> Word:
        """What a lane's first digit's sums count as: its columns are the first two digits or the last two."""
        bits = (exponent - (BITS - 1) + (self.products.part & 1) * 16) << 23
        return (exponent == NEITHER).where(real(float("nan")), bits.bits())

    def operand(self, first: int, count: int) -> list[Fragment]:
        half, digit = self.products.group // 4, self.products.group & 3
        start = self.launch.place("digits") + (half * (self.launch.layout.width // 16) + self.products.part) * OCTET
        return [c.load_words(start + (first // 2 + i) * (4 * OCTET) + digit * 8, 2) for i in range(count // 2)]

    def of_steps(self, operand: list[Fragment], first: int, count: int) -> list[Fragment]:
        return operand[first // 2 : (first + count) // 2]

    def none(self) -> list[Word]:
        return [real(0.0)]

    def add(self, base: Word, operand: list[Fragment], first: int, before: Sequence[Word]) -> list[Word]:
        (total,), part, pairs = before, self.products.part, len(operand)
        places = self.weights.row_places(base, first, 2 * pairs)
        scales = [scale for (scale,) in self.weights.row_scales(base, first, 2 * pairs)]
        each = pairs // len(scales)
        for number, scale in enumerate(scales):
            found = [word(0)] * 4
            for i in range(number * each, (number + 1) * each):
                rows = [PackedWeights.load_numbers(place) for place in places[2 * i : 2 * i + 2]]
                found = c.multiply_whole([*rows[0], *rows[1]], operand[i], found)
            low, high = ((part < 2).where(found[i], found[2 + i]).as_real("arith.sitofp") for i in (0, 1))
            total = fused(fused(high, real(BASE), low), scale, total)
        return [total]

    def whole(self, sums: Sequence[Word]) -> Word:
        return self.products.across_parts(sums[0] * self.unit)


def _digits(value: Word) -> Word:
    """A real as a whole number, each byte of which is a digit with a sign."""
    whole = assembly("cvt.rni.s32.f32 $0, $1;", [value], "r", pure=True)[0]
    return (whole + 0x00808080) ^ 0x00808080


def _words(late: Word, own: Sequence[Word], theirs: Sequence[Word]) -> list[Word]:
    """The first two digits' words of four numbers, or in a thread that has the later two of these the last two's."""
    kind = late.where(word(0x3726), 0x5140)
    first, second = (_bytes(a, other, kind) for a, other in zip(own, theirs, strict=True))
    return [_bytes(first, second, word(selector)) for selector in (0x5410, 0x7632)]


def _bytes(a: Word, other: Word, selector: Word) -> Word:
    """Four bytes of two words, those of the second being 4 to 7, as the selector's digits say."""
    return assembly("prmt.b32 $0, $1, $2, $3;", [a, other, selector], "r", pure=True)[0]
