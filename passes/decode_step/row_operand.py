"""The residual stream as the other side of products of rows in a clustered launch (row_products.py): who has which
columns puts them in a block's memory, and each subgroup takes what its matrix instructions multiply a chunk of 8 rows
by, along both halves of the depth at once.

Weights of BF16 take it in BF16 parts, packed ones as whole numbers, so that matrix instructions multiply both as they
are.  Of 64 neighbouring numbers each is taken as a multiple of 2^-30 of a power of two above the largest, so of more
bits than F32 has for what is not much smaller than that.  It has four digits of base 256 from -128 to 127, which fill
columns of an instruction of a depth of 32, two steps of the weights.  Sums of a digit's products that share a scale are
exact.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from functools import partial

from lispgpt.ir.arithmetic import Number
from lispgpt.ir.threads import fused, greater, if_there, real, when, word
from lispgpt.passes.decode_step.layout import SHARED_UNIT
from lispgpt.passes.decode_step.packed_weights import PackedWeights
from lispgpt.passes.decode_step.products import Products
from lispgpt.passes.decode_step.residual import Residual
from lispgpt.passes.decode_step.weights import Fragment, Scale, ScaledWeights, Weights, total
from lispgpt.passes.targets import ptx

QUAD = 32
"""Bytes of the residual stream's four numbers that a lane has in a step: two words for each part, and two zeros."""
CHAINS = 4
"""Of sums that do not wait for each other, at most."""


class RowOperand:
    """In three parts of BF16, for weights of BF16: four columns of an instruction for each half of the depth.

    words: of the operand that a lane has for a step, at most.  together: steps of a `Fragment`."""

    words, together = 2, 1

    def __init__(self, products: Products, weights: Weights) -> None:
        self.products, self.weights, self.launch = products, weights, products.launch

    def put(self, residual: Residual, values: Sequence[Number]) -> None:
        """By all threads that multiply, each its columns: to be read once they have met."""
        for piece, own in residual.by_pieces(values):
            number = piece.number
            place = self.launch.place("x") + ((number // 8) * 4 + number % 4) * QUAD + ((number // 4) & 1) * 4
            for k, part in enumerate(ptx.split(*own)):
                if_there(piece.works, partial(ptx.store_words, place + 8 * k, [part]))

    def operand(self, first: Number | int, count: int, multiple: int) -> list[Fragment]:
        """What a lane has of so many steps from a step on, whose number is a multiple of such."""
        half, part = self.products.group // 4, self.products.group & 3
        start = self.launch.place("x") + (half * (self.launch.layout.width // 8) + self.products.part) * QUAD + part * 8
        start = start + first * (4 * QUAD)
        return [ptx.load_words(start + 4 * QUAD * step, 2) for step in range(count)]

    def load(self, base: Number, first: Number | int, count: int, multiple: int) -> Iterator[Fragment]:
        """A lane's weights of such steps in a chunk, loaded one by one as they are asked for."""
        return map(self.weights.load, self.weights.row_places(base, first, count, multiple))

    def scales(self, base: Number, first: Number | int, count: int) -> Iterator[Scale]:
        """Its row's scales, each of as many of these steps."""
        return iter(())

    def count_scales(self, steps: int) -> int:
        """How many there are."""
        return 0

    def none(self, steps: int) -> list[Number]:
        """A lane's sums of nothing, to which products of so many steps are to be added."""
        return [w for chain in self.weights.chains(min(CHAINS, steps)) for w in chain]

    def add(
        self,
        weights: Iterable[Fragment],
        operand: Sequence[Fragment],
        scales: Sequence[Scale],
        before: Sequence[Number],
    ) -> list[Number]:
        """A lane's sums with these products."""
        return [w for chain in self.weights.add(_chains(before), weights, operand, ()) for w in chain]

    def whole(self, sums: Sequence[Number]) -> Number:
        """A row's sum, of its lanes': four columns, a part each, of either half's rows."""
        first, other, *later = total(_chains(sums))
        return self.products.across_parts((self.products.part < 2).where(first + other, later[0] + later[1]))


def _chains(sums: Sequence[Number]) -> list[list[Number]]:
    return [list(sums[i : i + 4]) for i in range(0, len(sums), 4)]


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
DEEP = 32
"""Numbers along the depth of an instruction."""


class Int8Digits(RowOperand):
    """A lane's operand has its digit's two words of each instruction's numbers, and what these count as."""

    words, together = 2, 2

    weights: ScaledWeights

    def put(self, residual: Residual, values: Sequence[Number]) -> None:
        launch = self.launch
        for piece, own in residual.by_pieces(values):
            size = greater(*(value.bits() & 0x7FFFFFFF for value in own))
            exponent = greater(ptx.over_lanes("max", size) >> 23, word(LEAST))
            factor = ((2 * BIAS + BITS - 1 - exponent) << 23).bits()
            numbers = [_digits(value * factor) for value in own]
            theirs = [number.from_lane(LATE) for number in numbers]
            late = (piece.number // LATE) & 1
            step, quad = piece.number // 8, piece.number % 4
            to = launch.place("digits") + ((step // 2) * 4 + quad) * OCTET + (step & 1) * 4 + late * 16
            for number, digit in enumerate(_words(late == 1, numbers, theirs)):
                if_there(piece.works, partial(ptx.store_words, to + 8 * number, [digit]))
            unit = (exponent == NEITHER).where(real(float("nan")), ((exponent - (BITS - 1)) << 23).bits())
            first = launch.lane == 0 if piece.works is None else (launch.lane == 0) & piece.works
            place = launch.place("units") + piece.number * 2 // SHARED_UNIT * 4
            when(first, partial(ptx.store_words, place, [unit]))

    def operand(self, first: Number | int, count: int, multiple: int) -> list[Fragment]:
        width = self.launch.layout.width
        half, digit = self.products.group // 4, self.products.group & 3
        start = self.launch.place("digits") + (half * (width // 16) + self.products.part) * OCTET
        start = start + first * (2 * OCTET) + digit * 8
        each = 2 if multiple % 4 == 0 and width % (2 * SHARED_UNIT) == 0 else 1
        found = []
        for i in range(count // 2):
            if i % each == 0:
                column = (self.products.part // 2) * (width // 2) + (first * (DEEP // 2) + i * DEEP)
                (unit,) = ptx.load_reals(self.launch.place("units") + column // SHARED_UNIT * 4, 1)
            found.append([*ptx.load_words(start + i * (4 * OCTET), 2), unit])
        return found

    def load(self, base: Number, first: Number | int, count: int, multiple: int) -> Iterator[Fragment]:
        places = self.weights.row_places(base, first, count, multiple)
        for one, other in zip(places[::2], places[1::2], strict=True):
            yield [*PackedWeights.load_numbers(one), *PackedWeights.load_numbers(other)]

    def scales(self, base: Number, first: Number | int, count: int) -> Iterator[Scale]:
        return self.weights.row_scales(base, first, count)

    def count_scales(self, steps: int) -> int:
        return self.weights.shared(steps, self.launch.layout.width // DEEP)[1]

    def none(self, steps: int) -> list[Number]:
        return [real(0.0)]

    def add(
        self,
        weights: Iterable[Fragment],
        operand: Sequence[Fragment],
        scales: Sequence[Scale],
        before: Sequence[Number],
    ) -> list[Number]:
        (total,), each, sums = before, len(operand) // len(scales), [word(0)] * 4
        for i, (rows, (*digits, unit)) in enumerate(zip(weights, operand, strict=True)):
            sums = ptx.multiply_whole(rows, digits, sums)
            if (i + 1) % each == 0 or operand[i + 1][2] is not unit:
                low, high = ((self.products.part < 2).where(sums[k], sums[2 + k]) for k in (0, 1))
                both = fused(high.as_real("arith.sitofp"), real(BASE), low.as_real("arith.sitofp"))
                total, sums = fused(both, scales[i // each][0] * unit, total), [word(0)] * 4
        return [total]

    def whole(self, sums: Sequence[Number]) -> Number:
        """A lane's columns are the first two digits or the last two."""
        factor = ((self.products.part & 1) == 0).where(real(1.0), BASE * BASE)
        return self.products.across_parts(sums[0] * factor)


def _digits(value: Number) -> Number:
    """A real as a whole number, each byte of which is a digit with a sign."""
    return (ptx.rounded(value, 32) + 0x00808080) ^ 0x00808080


def _words(late: Number, own: Sequence[Number], theirs: Sequence[Number]) -> list[Number]:
    """The first two digits' words of four numbers, or in a thread that has the later two of these the last two's."""
    kind = late.where(word(0x3726), 0x5140)
    first, second = (ptx.bytes_of(a, other, kind) for a, other in zip(own, theirs, strict=True))
    return [ptx.bytes_of(first, second, word(selector)) for selector in (0x5410, 0x7632)]
