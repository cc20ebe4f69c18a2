"""Weights in blocks as whole numbers with scales, a vector of numbers at a time, for products that a CPU adds up so;
and in f32 for the lanes of a GPU, which load them in words.

The formats are those of lib/blocks.lisp, which says what each byte of a block is.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from math import gcd
from typing import Protocol

from lispgpt.base.dtypes import find_dtype
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op, shape_of, viewed
from lispgpt.passes.kernels.products import Operand
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import tree

PART, UNIT = 32, 16
"""Numbers of the other operand that share a scale, and those that stay neighbours in a vector."""

EXCESS = 256.0
"""How many times the f16 with E4M3's bits for exponent and mantissa an E4M3 number is: its exponents lack 8."""


class Reads(Protocol):
    """What reads blocks' bytes: a Reader from memory."""

    def read(self, tensor: ir.Value, index: Sequence[Index], width: int = 1) -> ir.Value: ...


@dataclass(frozen=True)
class Format:
    """first: the byte of a block where its numbers start.  signed: whether a byte is a number with a sign; otherwise
    half a byte is one without.  reach: how many bytes' lower halves are neighbours, their upper halves being the next
    as many.  least: what half a byte of 0 stands for."""

    first: int
    signed: bool = False
    reach: int = 0
    least: int = 0


FORMATS = {
    "q8_0": Format(2, signed=True),
    "int8": Format(4, signed=True),
    "fp8": Format(4, signed=True),
    "q4_0": Format(2, reach=16, least=-8),
    "q4_k": Format(16, reach=32),
}


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
        blocks = _bytes_behind(op, (operand.extent, inner // dtype.block, dtype.item_bytes))
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
    def scaled(self) -> int:
        """Numbers that share a scale."""
        return PART if self.kind == "q4_k" else self.block

    def at_once(self, inner: int, width: int) -> int:
        """How many of a row's numbers `read` takes in vectors of such a width: whole blocks, up to 256 numbers."""
        return max(n for n in (width, 128, 256) if inner % n == 0 and n % self.block == 0)

    def order(self, width: int) -> list[int]:
        """Where the units of a vector's numbers lie in it."""
        if self.format.reach != UNIT or width == PART:
            return list(range(width // UNIT))
        return [half * (width // PART) + part for part in range(width // PART) for half in range(2)]

    def read(self, reader: Reader, column: Index, block: Index, count: int, width: int) -> list[Numbers]:
        """`count` numbers of a column from a block on, in vectors."""
        places = [[column, b.add(block, i)] for i in range(count // self.block)]
        scales = self._scales(reader, places)
        each = count // b.width_of(scales)
        of_unit = [unit * UNIT for unit in _inverse(self.order(width))]
        found = []
        for start in range(0, count, width):
            of_lane = [(start + of_unit[4 * lane // UNIT]) // each for lane in range(width // 4)]
            scale = b.shuffled(scales, scales, of_lane) if each < count else b.splat(scales, width // 4)
            found.append(Numbers(self._numbers(reader, places, start, width), scale))
        return found

    def minima(self, reader: Reader, column: Index, block: Index) -> ir.Value | None:
        """What a block's parts have less, each, in f32."""
        return self._sub_scales(reader, [column, block])[1] if self.kind == "q4_k" else None

    def words(self, reader: Reads, column: Index, k: Index, width: int) -> list[ir.Value]:
        """What a GPU's lane loads for `width` neighbours of a column, from k, a multiple of it, on: the bytes that they
        are in, as a vector of i32, and the block's bytes ahead of its numbers.  width: 4, 8 or 16."""
        return [self.bytes_at(reader, column, k, width), self.head_at(reader, column, k)]

    def byte_of(self, k: Index) -> Index:
        """The byte of its block in which the k-th number of a column is."""
        form, within = self.format, b.mod(k, self.block)
        if not form.signed:
            within = b.add(b.mul(b.div(within, 2 * form.reach), form.reach), b.mod(within, form.reach))
        return b.add(form.first, within)

    def bytes_at(self, reader: Reads, column: Index, k: Index, width: int) -> ir.Value:
        within = self.byte_of(k)
        return self._loaded(reader, [column, b.div(k, self.block)], within, width)

    def head_at(self, reader: Reads, column: Index, k: Index) -> ir.Value:
        return self._loaded(reader, [column, b.div(k, self.block)], 0, self.format.first)

    def widened(self, words: Sequence[ir.Value], k: Index) -> ir.Value:
        """What such words stand for, in f32."""
        (numbers, head), width = words, 4 * b.width_of(words[0])
        numbers, (scale, least) = self.whole(numbers, k), self.scale(head, k)
        numbers = b.binary("arith.mulf", numbers, b.splat(scale, width))
        return numbers if least is None else b.binary("arith.subf", numbers, b.splat(least, width))

    def whole(self, numbers: ir.Value, k: Index) -> ir.Value:
        """The numbers in such words from k on, without their scale, in f32; of floats an EXCESS-th of them."""
        form = self.format
        if self.has_floats:
            return _as_floats(numbers)
        if form.signed:
            numbers = b.binary("arith.xori", numbers, b.constant(0x80808080, numbers.type))
        else:
            half = b.mul(b.mod(b.div(k, form.reach), 2), 4)
            shift = b.splat(_narrow(half), b.width_of(numbers))
            numbers = b.binary("arith.shrui", numbers, shift)
            numbers = b.binary("arith.andi", numbers, b.constant(0x0F0F0F0F, numbers.type))
        return _as_real(numbers, -128 if form.signed else form.least)

    def _loaded(self, reader: Reads, place: list[Index], start: Index, count: int) -> ir.Value:
        """`count` of a block's bytes, in loads as wide as its alignment allows: a vector of i32, or of one i16."""
        size = gcd(self.format.first, find_dtype(self.kind).item_bytes, count)
        bits = 8 * min(size, 4)
        parts = ir.VectorType.get([8 * size // bits], b.integer(bits))
        loads = [reader.read(self.blocks, [*place, b.add(start, i)], size) for i in range(0, count, size)]
        found = [b.emit("vector.bitcast", [v], [parts]) for v in loads]
        joined = _as_vector([b.lane_of(v, i) for v in found for i in range(b.width_of(v))])
        if count % 4:
            return joined
        return b.emit("vector.bitcast", [joined], [ir.VectorType.get([count // 4], b.i32())])

    def scale(self, head: ir.Value, k: Index) -> tuple[ir.Value, ir.Value | None]:
        """The scale of a block's part with k, and what it has less, from the bytes ahead of the numbers."""
        if self.kind != "q4_k":
            real = b.f32() if self.format.first == 4 else ir.F16Type.get()
            scale = b.extend(b.emit("arith.bitcast", [b.lane_of(head, 0)], [real]))
            return b.binary("arith.mulf", scale, b.constant(EXCESS, b.f32())) if self.has_floats else scale, None
        part = b.mod(b.div(k, PART), 8)
        place, early = _narrow(b.mul(b.mod(part, 4), 8)), b.less(part, 4)
        scales, minima, late = (b.binary("arith.shrui", b.lane_of(head, 1 + i), place) for i in range(3))

        def six(first: ir.Value, shift: int) -> ir.Value:
            upper = _masked(first, 2, 0x30)
            number = b.select(early, _masked(first, 0, 0x3F), b.binary("arith.ori", _masked(late, shift, 0x0F), upper))
            return b.emit("arith.uitofp", [number], [b.f32()])

        halves = b.emit("vector.bitcast", [head], [ir.VectorType.get([8], ir.F16Type.get())])
        scale, least = (b.extend(b.lane_of(halves, i)) for i in range(2))
        return b.binary("arith.mulf", scale, six(scales, 0)), b.binary("arith.mulf", least, six(minima, 4))

    def _numbers(self, reader: Reader, places: list[list[Index]], start: int, width: int) -> ir.Value:
        """A vector of those that places' blocks have."""
        first, reach = self.format.first, self.format.reach
        number, within = divmod(start, self.block)
        here = places[number : number + max(width // self.block, 1)]
        if self.format.signed:
            size = width // len(here)
            return b.joined([reader.read(self.blocks, [*at, first + within], size) for at in here])
        together = 2 * reach * len(here)
        both = b.joined([reader.read(self.blocks, [*at, first + within // together * reach], reach) for at in here])
        low = b.binary("arith.andi", both, b.constant(15, both.type))
        high = b.binary("arith.shrui", both, b.constant(4, both.type))
        return b.joined([low, high]) if width == together else (low, high)[start // width % 2]

    def _scales(self, reader: Reader, places: list[list[Index]]) -> ir.Value:
        """Those of some blocks, of all their parts that have one, in f32."""
        if self.kind == "q4_k":
            return self._sub_scales(reader, places[0])[0]
        if self.kind == "int8":
            return b.vector_of([_word(reader.read(self.blocks, [*at, 0], 4), b.f32()) for at in places])
        i64, halves = b.i64(), [_word(reader.read(self.blocks, [*at, 0], 2), b.integer(16)) for at in places]
        if len(halves) % 4:
            scales = b.vector_of([b.emit("arith.bitcast", [half], [ir.F16Type.get()]) for half in halves])
            return b.extend(scales)
        # Four at a time go from a register of 64 bits to vectors, whose ports have the most to do.
        words = []
        for start in range(0, len(halves), 4):
            wide = [b.emit("arith.extui", [half], [i64]) for half in halves[start : start + 4]]
            moved = [b.binary("arith.shli", v, b.constant(16 * i, i64)) if i else v for i, v in enumerate(wide)]
            words.append(tree("arith.ori", moved))
        pairs = b.emit("vector.bitcast", [_as_vector(words)], [ir.VectorType.get([len(halves)], ir.F16Type.get())])
        return b.extend(pairs)

    def _sub_scales(self, reader: Reader, place: list[Index]) -> tuple[ir.Value, ir.Value]:
        """Of a block's eight parts the scales and the minima: six bits each, times a scale that all of them share.

        Of the first four parts' they are in four bytes each; of the others', the lower four bits of both are in a byte
        and the upper two above the first parts'.
        """
        i32 = b.i32()
        early, minima, late = (_word(reader.read(self.blocks, [*place, 4 + 4 * i], 4), i32) for i in range(3))

        def joint(first: ir.Value, shift: int) -> ir.Value:
            upper = _masked(first, 2, 0x30303030)
            last = b.binary("arith.ori", _masked(late, shift, 0x0F0F0F0F), upper)
            words = b.vector_of([_masked(first, 0, 0x3F3F3F3F), last])
            sixes = b.emit("vector.bitcast", [words], [ir.VectorType.get([8], b.integer(8))])
            return b.emit("arith.uitofp", [sixes], [ir.VectorType.get([8], b.f32())])

        shared = b.emit(
            "vector.bitcast", [reader.read(self.blocks, [*place, 0], 4)], [ir.VectorType.get([2], ir.F16Type.get())]
        )
        scale, least = (b.splat(b.lane_of(b.extend(shared), i), 8) for i in range(2))
        return b.binary("arith.mulf", joint(early, 0), scale), b.binary("arith.mulf", joint(minima, 4), least)


def kind_of_blocks(tensor: ir.Value) -> str:
    """The type of the blocks whose numbers a tensor is; "" where it is something else."""
    op = defining_op(viewed(tensor))
    return ir.StringAttr(op.attributes["blocks"]).value if op is not None and "blocks" in op.attributes else ""


def bytes_of_blocks(tensor: ir.Value) -> ir.Value | None:
    """The bytes that a tensor [rows, numbers] of numbers in blocks is computed from; None where it is none."""
    kind = kind_of_blocks(tensor)
    if not kind:
        return None
    (rows, numbers), dtype = shape_of(tensor), find_dtype(kind)
    return _bytes_behind(defining_op(viewed(tensor)), (rows, numbers // dtype.block, dtype.item_bytes))


def _bytes_behind(op: ir.Operation | None, shape: tuple[int, ...]) -> ir.Value | None:
    """The bytes of such a shape that an op's result is computed from."""
    for operand in op.operands if op is not None else ():
        if isinstance(operand.type, ir.RankedTensorType):
            if shape_of(operand) == shape:
                return operand
            found = _bytes_behind(defining_op(operand), shape)
            if found is not None:
                return found
    return None


def _word(vector: ir.Value, type_: ir.Type) -> ir.Value:
    """A vector of bytes as one number."""
    return b.lane_of(b.emit("vector.bitcast", [vector], [ir.VectorType.get([1], type_)]), 0)


def _masked(value: ir.Value, shift: int, mask: int) -> ir.Value:
    """Some bits of an i32."""
    value = b.binary("arith.shrui", value, b.constant(shift, b.i32())) if shift else value
    return b.binary("arith.andi", value, b.constant(mask, b.i32()))


def _as_real(words: ir.Value, least: int) -> ir.Value:
    """The bytes of a vector of i32, each plus what a byte of 0 stands for, in f32.

    A byte is put below the exponent of 2^23, which a subtraction takes away: chips convert fewer numbers in a cycle
    than they permute bytes and subtract.
    """
    four, one = ir.VectorType.get([4], b.integer(8)), ir.VectorType.get([1], b.f32())
    exponent = b.emit("vector.bitcast", [b.constant(0x4B000000, ir.VectorType.get([1], b.i32()))], [four])
    lanes = []
    for number in range(b.width_of(words)):
        word = b.emit("vector.bitcast", [b.shuffled(words, words, [number])], [four])
        found = [b.shuffled(word, exponent, [place, 4, 5, 7]) for place in range(4)]
        lanes += [b.lane_of(b.emit("vector.bitcast", [v], [one]), 0) for v in found]
    real = b.vector_of(lanes)
    return b.binary("arith.subf", real, b.constant(float(2**23 - least), real.type))


def _as_floats(words: ir.Value) -> ir.Value:
    """An EXCESS-th of the E4M3 numbers that are the bytes of a vector of i32, in f32: by f16, which has all of them."""
    count = 4 * b.width_of(words)
    own = b.emit("vector.bitcast", [words], [ir.VectorType.get([count], b.integer(8))])
    nothing = b.constant(0, own.type)
    wide = b.shuffled(own, nothing, [place for i in range(count) for place in (count, i)])
    wide = b.emit("vector.bitcast", [wide], [ir.VectorType.get([count // 2], b.i32())])
    sizes = b.binary("arith.shrui", wide, b.constant(1, wide.type))
    sizes = b.binary("arith.andi", sizes, b.constant(0x3F803F80, wide.type))
    signs = b.binary("arith.andi", wide, b.constant(0x80008000, wide.type))
    found = b.binary("arith.ori", sizes, signs)
    return b.extend(b.emit("vector.bitcast", [found], [ir.VectorType.get([count], ir.F16Type.get())]))


def _narrow(index: Index) -> ir.Value:
    return b.emit("arith.index_cast", [b.as_value(index)], [b.i32()])


def _as_vector(values: Sequence[ir.Value]) -> ir.Value:
    return b.emit("vector.from_elements", list(values), [ir.VectorType.get([len(values)], values[0].type)])


def _inverse(order: Sequence[int]) -> list[int]:
    return [list(order).index(i) for i in range(len(order))]
