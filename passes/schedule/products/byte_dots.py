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
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import WORD
from lispgpt.passes.tile.lower.packed import PackedMemory

LARGEST = 127 * 256
"""What the largest of a lane's numbers is as a whole one: its upper byte is one that has a sign."""

MOST = 32
"""Numbers that a lane multiplies at once."""

ROUNDING = 1.5 * 2**23
"""An f32 that has whole numbers of 22 bits and a sign added to it has them in its lowest bits, rounded."""


@dataclass(frozen=True)
class Digits:
    """A lane's numbers.  upper, lower: words of four bytes.  scale: of all.  whole: their sum as whole numbers."""

    upper: list[ir.Value]
    lower: list[ir.Value]
    scale: ir.Value
    whole: ir.Value

    @staticmethod
    def of(numbers: ir.Value) -> Digits:
        """Of a vector of f32."""
        count = b.width_of(numbers)
        words = ir.VectorType.get([count], b.i32())
        # Patterns without their sign are ordered as whole numbers, and NaN is above all.
        sizes = b.binary("arith.andi", b.emit("vector.bitcast", [numbers], [words]), b.constant(0x7FFFFFFF, words))
        largest = tree("arith.maxui", [b.lane_of(sizes, i) for i in range(count)])
        largest = b.emit("arith.bitcast", [largest], [b.f32()])
        zero, most = b.constant(0.0, b.f32()), b.constant(float(LARGEST), b.f32())
        some = b.emit("arith.cmpf", [largest, zero], [b.i1()], predicate=2)
        inverse = b.splat(b.select(some, b.binary("arith.divf", most, largest), zero), count)
        moved = b.fma(numbers, inverse, b.constant(ROUNDING, numbers.type))
        whole = b.emit("vector.bitcast", [moved], [words])
        whole = b.binary("arith.subi", whole, b.constant(0x4B400000, words))
        upper = b.binary("arith.addi", whole, b.constant(128, words))
        upper = b.binary("arith.shrsi", upper, b.constant(8, words))
        lower = b.binary("arith.subi", whole, b.binary("arith.shli", upper, b.constant(8, words)))
        total = tree("arith.addi", [b.lane_of(whole, i) for i in range(count)])
        scale = b.binary("arith.mulf", largest, b.constant(1 / LARGEST, b.f32()))
        return Digits(_bytes(upper), _bytes(lower), scale, total)


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
    def width(self) -> int:
        """How many neighbours a lane multiplies at once: they share a scale, and are neighbours in memory."""
        places = [bits.reach for bits in self.blocks.format.bits if bits.places > 1]
        return min(MOST, self.blocks.scaled, *places)

    @property
    def held(self) -> int:
        """Words that are loaded for as many."""
        across = find_dtype(self.operand.blocks).item_bytes % WORD != 0
        form = self.blocks.format
        return len(form.bits) * (self.width // WORD + across) + form.scales.words

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


def _bytes(numbers: ir.Value) -> list[ir.Value]:
    """Whole numbers of a byte, a vector of i32, four to a word."""
    count = b.width_of(numbers)
    narrow = b.emit("arith.trunci", [numbers], [ir.VectorType.get([count], b.integer(8))])
    words = b.emit("vector.bitcast", [narrow], [ir.VectorType.get([count // 4], b.i32())])
    return [b.lane_of(words, i) for i in range(count // 4)]
