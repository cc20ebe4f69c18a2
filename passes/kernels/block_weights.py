"""Weights in blocks as whole numbers with scales, a vector of numbers at a time, for products that a CPU adds up so;
and in f32 for the lanes of a GPU, which load them in words.

The formats are those of lib/blocks.lisp, which says what each byte of a block is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd
from typing import Protocol

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of, tensor_behind, viewed
from lispgpt.passes.kernels.block_formats import (
    FORMATS,
    PART,
    Both,
    Format,
    Load,
    as_floats,
    joined,
    raised,
    words_of,
)
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.in_blocks import kind_of_blocks
from lispgpt.passes.targets import Gpu

UNIT = 16
"""Numbers that stay neighbours in a vector."""

WHOLE = 3
"""BF16 numbers that an f32 one is the sum of."""


class Reads(Protocol):
    """What reads blocks' bytes: a Reader from memory."""

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value: ...


@dataclass(frozen=True)
class Numbers:
    """numbers: a vector of bytes as the format has them.  scale: of each lane of their sums, in f32."""

    numbers: ir.Value
    scale: ir.Value


@dataclass(frozen=True)
class BlockWeights:
    """A product's operand.  blocks: its bytes, [columns blocks bytes]."""

    blocks: ir.Value
    kind: str

    @staticmethod
    def of(operand: Operand) -> BlockWeights | None:
        """None where the operand is not in blocks along k."""
        op, kind = defining_op(viewed(operand.tensor)), kind_of_blocks(operand.tensor)
        inner = operand.layout.extent(operand.layout.sums)
        plain = operand.along_k == inner and len(shape_of(operand.tensor)) == 2
        if kind not in FORMATS or not plain:
            return None
        dtype = find_dtype(kind)
        blocks = tensor_behind(op, (operand.extent, inner // dtype.block, dtype.item_bytes))
        return BlockWeights(blocks, kind) if blocks is not None else None

    @property
    def format(self) -> Format:
        return FORMATS[self.kind]

    @property
    def block(self) -> int:
        """Numbers in a block."""
        return find_dtype(self.kind).block

    @property
    def has_floats(self) -> bool:
        """Whether the numbers are floats, of which there are no sums of whole numbers."""
        return bool(find_dtype(self.kind).floats)

    @property
    def has_least(self) -> bool:
        """Whether something is taken away from the numbers of each part, once they are scaled."""
        return self.format.scales.least

    @property
    def scaled(self) -> int:
        """Numbers that share a scale."""
        return self.format.scales.part or self.block

    def at_once(self, inner: int, width: int) -> int:
        """How many of a row's numbers `read` takes in vectors of such a width: whole blocks, up to 256 numbers."""
        return max(n for n in (width, 128, 256) if inner % n == 0 and n % self.block == 0)

    def order(self, width: int) -> list[int]:
        """Where the units of a vector's numbers lie in it."""
        if self.format.bits[0].reach != UNIT or width == PART:
            return list(range(width // UNIT))
        return [half * (width // PART) + part for part in range(width // PART) for half in range(2)]

    def read(self, reader: Reader, column: Index, block: Index, count: int, width: int) -> list[Numbers]:
        """`count` numbers of a column from a block on, in vectors."""
        loads = [self._of_block(reader, [column, b.add(block, i)]) for i in range(count // self.block)]
        scales = self.format.scales.of_blocks(loads)
        each = count // b.width_of(scales)
        of_unit = [unit * UNIT for unit in _inverse(self.order(width))]
        found = []
        for start in range(0, count, width):
            of_lane = [(start + of_unit[4 * lane // UNIT]) // each for lane in range(width // 4)]
            scale = b.shuffled(scales, scales, of_lane) if each < count else b.splat(scales, width // 4)
            number, within = divmod(start, self.block)
            here = loads[number : number + max(width // self.block, 1)]
            found.append(Numbers(self.format.read(here, within, width // len(here)), scale))
        return found

    def minima(self, reader: Reader, column: Index, block: Index) -> ir.Value | None:
        """What a block's parts have less, each, in f32."""
        return self.format.scales.minima(self._of_block(reader, [column, block]))

    def words(self, reader: Reads, column: Index, k: Index, width: int) -> list[ir.Value]:
        """What a GPU's lane loads for `width` neighbours of a column, from k, a multiple of it, on: the bytes that they
        are in, as a vector of i32, and what scales them.  width: 4, 8 or 16."""
        return [self.bytes_at(reader, column, k, width), self.head_at(reader, column, k)]

    def bytes_of(self, k: Index) -> list[Index]:
        """The bytes of its block in which the k-th number of a column is, that with its lowest bits first."""
        within = b.mod(k, self.block)
        return [bits.byte_of(within) for bits in self.format.bits]

    def bytes_at(self, reader: Reads, column: Index, k: Index, width: int) -> ir.Value:
        starts, place = self.bytes_of(k), [column, b.div(k, self.block)]
        found = [
            self.loaded(reader, place, bits.first, start, width)
            for start, bits in zip(starts, self.format.bits, strict=True)
        ]
        return joined(found)

    def head_at(self, reader: Reads, column: Index, k: Index) -> ir.Value:
        return self.format.scales.head(self.head_loads(reader, column, k))

    def head_loads(self, reader: Reads, column: Index, k: Index) -> list[ir.Value]:
        """What the head is made of, as it is loaded."""
        place = [column, b.div(k, self.block)]
        return self.format.scales.loads(lambda start, count: self.loaded(reader, place, count, start, count), k)

    def widened(self, words: Sequence[ir.Value], k: Index, target: Gpu, parts: int) -> ir.Value:
        """What such words stand for, in f32, of which so many BF16 parts are wanted.

        Where what numbers are less than is no more than these parts have room for, one instruction takes it away and
        scales: what is rounded then is below the last part.
        """
        (numbers, head), width = words, 4 * b.width_of(words[0]) // len(self.format.bits)
        (scale, less), power = self.scale(head, k), self._exponent(parts)
        if power is None:
            numbers = b.binary("arith.mulf", self.whole(numbers, k, target), b.splat(scale, width))
            return numbers if less is None else b.binary("arith.subf", numbers, b.splat(less, width))
        above = b.binary("arith.mulf", scale, b.constant(float(self.format.least - 2**power), b.f32()))
        above = above if less is None else b.binary("arith.subf", above, less)
        return b.fma(raised(self._bytes(numbers, k, target), power), b.splat(scale, width), b.splat(above, width))

    def _exponent(self, parts: int) -> int | None:
        """Of the power of two that numbers are put above to be scaled; None where they are not."""
        if self.has_floats or parts > 2:
            return None
        if max(self.format.values, default=2 ** sum(bits.count for bits in self.format.bits) - 1) < 128:
            return 7
        return 15 if parts == 1 else None

    def whole(self, words: ir.Value, k: Index, target: Gpu) -> ir.Value:
        """The numbers in such words from k on, without their scale, in f32; of floats an EXCESS-th of them.

        Chips convert fewer numbers in a cycle than they permute bytes and subtract.
        """
        if self.has_floats:
            return as_floats(self.format.numbers(words, k))
        real = raised(self._bytes(words, k, target), 23)
        return b.binary("arith.subf", real, b.constant(float(2**23 - self.format.least), real.type))

    def short(self, words: ir.Value, k: Index, target: Gpu) -> ir.Value:
        """As `whole`, in BF16, which has all of these numbers."""
        if target.adds_short_pairs and self._exponent(2) == 7:
            return _short_of(self._bytes(words, k, target), self.format.least, target)
        whole = self.whole(words, k, target)
        count = b.width_of(whole)
        halves = b.emit("vector.bitcast", [whole], [ir.VectorType.get([2 * count], b.integer(16))])
        upper = b.shuffled(halves, halves, range(1, 2 * count, 2))
        return b.emit("vector.bitcast", [upper], [b.with_width(ir.BF16Type.get(), count)])

    def _bytes(self, words: ir.Value, k: Index, target: Gpu) -> ir.Value:
        """The whole numbers in such words from k on, each less what a number of 0 stands for: bytes without a sign."""
        form, numbers = self.format, self.format.numbers(words, k)
        if form.signed:
            numbers = b.binary("arith.xori", numbers, b.constant(0x80808080, numbers.type))
        return target.looked_up(form.values, numbers) if form.values else numbers

    def signed_bytes(self, words: ir.Value, k: Index, target: Gpu) -> tuple[ir.Value, int]:
        """(the numbers in such words from k on, a byte with a sign each, as a vector of i32; what all of them are more
        by than these); they are no floats."""
        form, numbers = self.format, self.format.numbers(words, k)
        if form.values:
            return target.looked_up([value + form.least & 255 for value in form.values], numbers), 0
        return numbers, 0 if form.signed else form.least

    def scale(self, head: ir.Value, k: Index) -> Both:
        """The scale of the k-th number, and what it has less."""
        return self.format.scales.scale(head, k)

    def _of_block(self, reader: Reader, place: list[Index]) -> Load:
        return partial(_read, reader, self.blocks, place)

    def loaded(self, reader: Reads, place: list[Index], first: int, start: Index, count: int) -> ir.Value:
        """`count` of a block's bytes, in loads as wide as its alignment allows: a vector of i32, or of one i16.  first:
        what `start` is a multiple of as `count` is."""
        size = gcd(first, find_dtype(self.kind).item_bytes, count)
        return words_of(lambda at, wide: reader.read(self.blocks, [*place, at], wide), start, count, size)


def _read(reader: Reader, blocks: ir.Value, place: list[Index], start: Index, count: int) -> ir.Value:
    return reader.read(blocks, [*place, start], count)


def _short_of(words: ir.Value, least: int, target: Gpu) -> ir.Value:
    """The bytes of a vector of i32, below 128, each plus what a byte of 0 stands for, in BF16: two at once become more
    by 128, which is then taken away."""
    four, one = ir.VectorType.get([4], b.integer(8)), ir.VectorType.get([1], b.i32())
    pair = b.with_width(ir.BF16Type.get(), 2)
    exponent = b.emit("vector.bitcast", [b.constant(0x43000000, one)], [four])
    lanes = []
    for number in range(b.width_of(words)):
        word = b.emit("vector.bitcast", [b.shuffled(words, words, [number])], [four])
        for first in (0, 2):
            above = b.emit("vector.bitcast", [b.shuffled(word, exponent, [first, 7, first + 1, 7])], [pair])
            found = target.add_short_pair(above, b.constant(float(least - 128), pair))
            lanes.append(b.lane_of(b.emit("vector.bitcast", [found], [one]), 0))
    return b.emit("vector.bitcast", [b.vector_of(lanes)], [b.with_width(ir.BF16Type.get(), 2 * len(lanes))])


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(i) for i in range(len(order))]
