"""A lane's part of a product of one row with weights in blocks, by instructions that add up four products of bytes.

A lane first makes its numbers of the row whole ones of 16 bits with a scale for as many as it multiplies at once, and
these two bytes each; their error is a 65,000th of the largest of them.  Products with the numbers of a block, which are
bytes, are then added up exactly, and the sums scaled.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Chunk, subgroup_reduce, tree
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD
from lispgpt.passes.tile.lower.packed import PackedMemory, Runs

LARGEST = 127 * 256
"""What the largest of a lane's numbers is as a whole one: its upper byte is one that has a sign."""

MOST = 32
"""Numbers that a lane multiplies at once."""

MOST_TOGETHER = 64
"""Numbers that a lane multiplies of what it has loaded once, as bits of several are in the same bytes."""

ROUNDING, ROUNDING_BITS = 1.5 * 2**23, 0x4B400000
"""An f32 that has whole numbers of 22 bits and a sign added to it has them in its lowest bits, rounded."""

HALF = 128
"""Added to a whole number, so that its upper byte is the nearest one, and its lower byte less as many the rest."""


@dataclass(frozen=True)
class Digits:
    """A lane's numbers.  upper, lower: words of four bytes.  scale: of all.  whole: their sum as whole numbers."""

    upper: list[ir.Value]
    lower: list[ir.Value]
    scale: ir.Value
    whole: ir.Value

    @staticmethod
    def of(numbers: ir.Value, lanes: int = 1, subgroup: int = 0) -> Digits:
        """Of a vector of f32, and so many neighbouring lanes' with the same scale."""
        count = b.width_of(numbers)
        words = ir.VectorType.get([count], b.i32())
        # Patterns without their sign are ordered as whole numbers, and NaN is above all.
        sizes = b.binary("arith.andi", b.emit("vector.bitcast", [numbers], [words]), b.constant(0x7FFFFFFF, words))
        largest = tree("arith.maxui", [b.lane_of(sizes, i) for i in range(count)])
        largest = b.emit("arith.bitcast", [subgroup_reduce("arith.maxui", largest, lanes, subgroup)], [b.f32()])
        zero, most = b.constant(0.0, b.f32()), b.constant(float(LARGEST), b.f32())
        some = b.emit("arith.cmpf", [largest, zero], [b.i1()], predicate=2)
        inverse = b.splat(b.select(some, b.binary("arith.divf", most, largest), zero), count)
        moved = b.fma(numbers, inverse, b.constant(ROUNDING + HALF, numbers.type))
        whole = b.emit("vector.bitcast", [moved], [words])
        total = tree("arith.addi", [b.lane_of(whole, i) for i in range(count)])
        total = b.binary("arith.subi", total, b.constant(_signed(count * (ROUNDING_BITS + HALF)), b.i32()))
        lower = [b.binary("arith.xori", word, b.constant(_signed(0x80808080), b.i32())) for word in _bytes(whole, 0)]
        scale = b.binary("arith.mulf", largest, b.constant(1 / LARGEST, b.f32()))
        return Digits(_bytes(whole, 1), lower, scale, subgroup_reduce("arith.addi", total, lanes, subgroup))


@dataclass(frozen=True)
class StagedDigits:
    """Those of all of a row in shared memory, a scale for each `unit` numbers."""

    unit: int
    upper: ir.Value
    lower: ir.Value
    scale: ir.Value
    whole: ir.Value

    @staticmethod
    def bytes_of(inner: int, unit: int) -> int:
        return 2 * inner + 8 * (inner // unit)

    @staticmethod
    def of(inner: int, unit: int) -> StagedDigits:
        words, scales = [inner // WORD], [inner // unit]
        i32, f32 = b.i32(), b.f32()
        return StagedDigits(
            unit, b.shared(words, i32), b.shared(words, i32), b.shared(scales, f32), b.shared(scales, i32)
        )

    def store(self, chunk: Chunk, numbers: ir.Value, subgroup: int) -> None:
        """By all lanes: WORD of them each."""
        own = Digits.of(b.masked(chunk.live, numbers), self.unit // WORD, subgroup)
        place, group = b.div(chunk.start, WORD), b.div(chunk.start, self.unit)

        def words() -> None:
            b.store(own.upper[0], self.upper, [place])
            b.store(own.lower[0], self.lower, [place])

        def scales() -> None:
            b.store(own.scale, self.scale, [group])
            b.store(own.whole, self.whole, [group])

        b.if_live(chunk.live, words)
        b.if_live(b.both(chunk.live, b.equal(b.mod(chunk.start, self.unit), 0)), scales)

    def at(self, chunk: Chunk) -> Digits:
        """Those of the numbers that share a scale from a place on; a scale of 0 where there are none."""
        place, group, count = b.div(chunk.start, WORD), b.div(chunk.start, self.unit), self.unit // WORD
        upper, lower = (b.load(memory, [place], count) for memory in (self.upper, self.lower))
        scale, whole = (b.load(memory, [group], 1) for memory in (self.scale, self.whole))
        words = [[b.lane_of(v, i) for i in range(count)] for v in (upper, lower)]
        return Digits(words[0], words[1], b.masked(chunk.live, scale), whole)


@dataclass(frozen=True)
class ByteDots(PackedMemory):
    """Of weights in blocks that a reader reads as words."""

    @staticmethod
    def of(operand: Operand, reader: Reader, target: Gpu) -> ByteDots | None:
        """None where weights are in no blocks of whole numbers, or the target has no such instruction."""
        own = PackedMemory.operand_of(operand)
        if not target.adds_bytes or own is None or find_dtype(own.blocks).floats:
            return None
        return ByteDots(own, reader, target)

    @property
    def runs(self) -> Runs:
        """What a lane multiplies at once."""
        places = [bits.reach for bits in self.blocks.format.bits if bits.places > 1]
        return Runs(self.blocks, min(MOST, self.blocks.scaled, *places), MOST_TOGETHER)

    def total(self, loads: Sequence[ir.Value], k: Index, digits: Sequence[Digits]) -> ir.Value:
        """The sum of products of all runs, of which a lane's numbers of the row are these digits, in f32."""
        runs = zip(self.made(loads, k, self.runs), self.runs.starts, digits, strict=True)
        return tree("arith.addf", [self.product(words, b.add(k, start), each) for words, start, each in runs])

    def product(self, words: Sequence[ir.Value], k: Index, digits: Digits) -> ir.Value:
        """The sum of products of what was loaded from k on, in f32."""
        numbers, more = self.blocks.signed_bytes(words[0], k, self.target)
        count = b.width_of(numbers)
        start = b.binary("arith.muli", digits.whole, b.constant(more, b.i32())) if more else b.constant(0, b.i32())
        upper = b.constant(0, b.i32())
        for i in range(count):
            upper = self.target.add_bytes(b.lane_of(numbers, i), digits.upper[i], upper)
            start = self.target.add_bytes(b.lane_of(numbers, i), digits.lower[i], start)
        total = b.binary("arith.addi", b.binary("arith.shli", upper, b.constant(8, b.i32())), start)
        scale, least = self.blocks.scale(words[1], k)
        found = b.binary("arith.mulf", _real(total), scale)
        if least is not None:
            found = b.binary("arith.subf", found, b.binary("arith.mulf", _real(digits.whole), least))
        return b.binary("arith.mulf", found, digits.scale)


def _real(whole: ir.Value) -> ir.Value:
    return b.emit("arith.sitofp", [whole], [b.f32()])


def _bytes(words: ir.Value, place: int) -> list[ir.Value]:
    """The bytes at a place of a vector of i32, four to a word."""
    count = b.width_of(words)
    own = b.emit("vector.bitcast", [words], [ir.VectorType.get([4 * count], b.integer(8))])
    some = b.shuffled(own, own, range(place, 4 * count, 4))
    found = b.emit("vector.bitcast", [some], [ir.VectorType.get([count // 4], b.i32())])
    return [b.lane_of(found, i) for i in range(count // 4)]


def _signed(word: int) -> int:
    """A word of 32 bits as a number with a sign."""
    return (word + 2**31) % 2**32 - 2**31
