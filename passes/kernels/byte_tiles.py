"""A CPU's part of a product of few rows with weights in blocks of bytes or of halves of bytes, by whole numbers.

The other operand's rows are first made numbers of 16 bits, with a scale for each block of 32: two bytes each, whose
error is a 65,000th of the block's largest number.  Then a block of the weights takes two instructions that multiply
bytes and add (`target.vnni`), and its sum of whole numbers, exact, is scaled once.  Those multiply unsigned bytes by
signed ones: weights are taken as their distance from the least number that they can be, and the sums corrected.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import defining_op, shape_of
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.register_tiles import Block, scratch, steps
from lispgpt.passes.targets import Cpu

BLOCK, LANES = 32, 8
"""Numbers in a block, and sums of four of their products each that an instruction adds to."""

LARGEST = 127 * 256
"""What a block's largest number is as a whole one: its upper byte is one that has a sign."""

MOST_ROWS, UNROLL = 4, 4


@dataclass(frozen=True)
class Weights:
    """An operand in blocks.  blocks: its bytes, [columns blocks bytes].  scale: of each block, [columns blocks] in f32.

    halves: whether a byte has two numbers.
    """

    blocks: ir.Value
    scale: ir.Value
    halves: bool

    @property
    def least(self) -> int:
        """The least number, which the weights' bytes are counted from."""
        return -8 if self.halves else -128

    @staticmethod
    def of(product: Product, target: Cpu) -> Weights | None:
        """The right operand's, where these instructions multiply it: by few rows, in blocks that they know."""
        op = defining_op(product.right.tensor)
        while op is not None and op.name in ("tensor.collapse_shape", "tensor.expand_shape"):
            op = defining_op(op.operands[0])
        kind = ir.StringAttr(op.attributes["blocks"]).value if op is not None and "blocks" in op.attributes else ""
        plain = product.right.along_k == product.inner and len(shape_of(product.right.tensor)) == 2
        if not target.vnni or kind not in ("q8_0", "q4_0") or product.rows > MOST_ROWS or not plain:
            return None
        numbers, scale = op.operands[0], op.operands[1]
        return Weights(defining_op(numbers).operands[0], scale, kind == "q4_0")


class ByteTiles:
    """Sums of products of whole numbers, of a vector's blocks at once."""

    def __init__(self, product: Product, reader: Reader, weights: Weights, target: Cpu) -> None:
        self.product, self.reader, self.weights = product, reader, weights
        blocks = product.inner // BLOCK
        self.each = target.vector_bytes // BLOCK if blocks % (target.vector_bytes // BLOCK) == 0 else 1
        self.count, self.width, self.lanes = blocks // self.each, BLOCK * self.each, LANES * self.each
        rows, byte = min(product.rows, MOST_ROWS), ir.IntegerType.get_signless(8)
        self.upper = scratch([rows, product.inner], byte)
        self.lower = scratch([rows, product.inner], byte)
        self.start = scratch([rows, self.count, self.lanes], ir.IntegerType.get_signless(32))
        self.scale = scratch([rows, blocks])

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block."""
        steps(block.rows, 1, lambda row, _: steps(self.count, 1, lambda k, _: self._take(block, row, k)))
        steps(block.columns, 1, lambda column, _: self._column(block, sums, column))

    def _take(self, block: Block, row: Index, k: Index) -> None:
        """Make a vector's blocks of the left operand whole numbers, and least times their sums."""
        for number in range(self.each):
            self._round(block, row, b.add(b.mul(k, self.each), number), b.mul(k, self.width), number)
        upper, lower = self._taken(row, k)
        ones = _all(1, self.width, 8)
        sums = b.binary("arith.shli", self._dot(self._zero(), ones, upper), _all(8, self.lanes, 32))
        sums = b.binary("arith.muli", self._dot(sums, ones, lower), _all(self.weights.least, self.lanes, 32))
        b.store(sums, self.start, [row, k, 0], aligned=False)

    def _round(self, block: Block, row: Index, k: Index, first: Index, number: int) -> None:
        """Make the k-th block whole numbers of two bytes, those of the vector that starts at `first`."""
        with self.reader.scope():
            at, start = b.add(block.row, row), b.mul(k, BLOCK)
            left = self.product.left
            parts = [b.extend(left.read(self.reader, block.batch, at, b.add(start, i), 16)) for i in (0, 16)]
        sizes = [b.emit("math.absf", [part], [part.type]) for part in parts]
        largest = _reduced("maximumf", b.binary("arith.maximumf", *sizes))
        zero, most = b.constant(0.0, b.f32()), b.constant(float(LARGEST), b.f32())
        some = b.emit("arith.cmpf", [largest, zero], [_i(1)], predicate=ir.IntegerAttr.get(_i(64), 2))
        inverse = b.select(some, b.binary("arith.divf", most, largest), zero)
        b.store(b.binary("arith.mulf", largest, b.constant(1 / LARGEST, b.f32())), self.scale, [row, k])
        for half, part in enumerate(parts):
            nearest = b.emit("math.roundeven", [b.binary("arith.mulf", part, b.splat(inverse, 16))], [part.type])
            whole = b.emit("arith.fptosi", [nearest], [_vector(16, 32)])
            upper = b.binary("arith.shrsi", b.binary("arith.addi", whole, _all(128, 16, 32)), _all(8, 16, 32))
            lower = b.binary("arith.subi", whole, b.binary("arith.shli", upper, _all(8, 16, 32)))
            place = 16 * (half * self.each + number if self.weights.halves else 2 * number + half)
            for value, memory in ((upper, self.upper), (lower, self.lower)):
                value = b.emit("arith.trunci", [value], [_vector(16, 8)])
                b.store(value, memory, [row, b.add(first, place)], aligned=False)

    def _column(self, block: Block, sums: ir.Value, column: Index) -> None:
        unroll = next(n for n in (UNROLL // self.each, 2, 1) if self.count % n == 0)
        zero = b.constant(0.0, b.with_width(b.f32(), self.lanes))

        def step(k: Index, *before: ir.Value) -> list[ir.Value]:
            after = []
            with self.reader.scope():
                for number in range(unroll):
                    at = b.add(k, number)
                    places = [[b.add(block.column, column), b.add(b.mul(at, self.each), i)] for i in range(self.each)]
                    weights = self._bytes(places)
                    scales = [self.reader.read(self.weights.scale, place) for place in places]
                    for row in range(block.rows):
                        after.append(self._add(before[number * block.rows + row], weights, scales, row, at))
            return after

        found = b.loop(0, self.count, unroll, [zero] * (unroll * block.rows), step)
        for row in range(block.rows):
            total = found[row]
            for more in found[row + block.rows :: block.rows]:
                total = b.binary("arith.addf", total, more)
            b.store(_reduced("add", total), sums, [row, column])

    def _bytes(self, places: list[list[Index]]) -> ir.Value:
        """Some blocks' numbers, from the least one on: the lower halves of all, then the upper ones."""
        size = BLOCK // 2 if self.weights.halves else BLOCK
        both = _joined([self.reader.read(self.weights.blocks, [*place, 2], size) for place in places])
        if not self.weights.halves:
            return b.binary("arith.xori", both, _all(-128, self.width, 8))
        low = b.binary("arith.andi", both, _all(15, self.width // 2, 8))
        return _joined([low, b.binary("arith.shrui", both, _all(4, self.width // 2, 8))])

    def _add(self, total: ir.Value, weights: ir.Value, scales: list[ir.Value], row: int, k: Index) -> ir.Value:
        """total + some blocks' products, in eight parts each."""
        upper, lower = self._taken(row, k)
        sums = b.binary("arith.shli", self._dot(self._zero(), weights, upper), _all(8, self.lanes, 32))
        sums = b.binary("arith.addi", sums, b.load(self.start, [row, k, 0], self.lanes, aligned=False))
        sums = self._dot(sums, weights, lower)
        own = b.load(self.scale, [row, b.mul(k, self.each)], self.each, aligned=False)
        scale = b.binary("arith.mulf", b.vector_of(scales), own)
        if self.each == 1:
            scale = b.splat(scale, self.lanes)
        else:
            spread = [i // 4 % self.each if self.weights.halves else i // LANES for i in range(self.lanes)]
            scale = _shuffled(scale, scale, spread)
        return b.fma(b.emit("arith.sitofp", [sums], [total.type]), scale, total)

    def _taken(self, row: Index, k: Index) -> tuple[ir.Value, ir.Value]:
        """The upper and lower bytes of a vector's blocks of the left operand."""
        where = [row, b.mul(k, self.width)]
        upper, lower = (b.load(memory, where, self.width, aligned=False) for memory in (self.upper, self.lower))
        return upper, lower

    def _zero(self) -> ir.Value:
        return _all(0, self.lanes, 32)

    def _dot(self, start: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
        """start + the sums of four products of bytes each."""
        attributes = {
            "intrin": ir.StringAttr.get(f"llvm.x86.avx512.vpdpbusd.{8 * self.width}"),
            "op_bundle_sizes": ir.DenseI32ArrayAttr.get([]),
            "operandSegmentSizes": ir.DenseI32ArrayAttr.get([3, 0]),
        }
        return create_op("llvm.call_intrinsic", [start, unsigned, signed], [start.type], attributes).results[0]


def _joined(parts: list[ir.Value]) -> ir.Value:
    """One or two vectors, one behind the other."""
    return parts[0] if len(parts) == 1 else _shuffled(parts[0], parts[1], range(2 * b.width_of(parts[0])))


def _shuffled(first: ir.Value, second: ir.Value, order: Sequence[int]) -> ir.Value:
    type_ = ir.VectorType.get([len(order)], first.type.element_type)
    return b.emit("vector.shuffle", [first, second], [type_], mask=ir.DenseI64ArrayAttr.get(list(order)))


def _reduced(kind: str, vector: ir.Value) -> ir.Value:
    attributes = {"kind": ir.Attribute.parse(f"#vector.kind<{kind}>")}
    attributes["fastmath"] = ir.Attribute.parse("#arith.fastmath<reassoc>")
    return b.emit("vector.reduction", [vector], [vector.type.element_type], **attributes)


def _i(bits: int) -> ir.Type:
    return ir.IntegerType.get_signless(bits)


def _vector(width: int, bits: int) -> ir.Type:
    return ir.VectorType.get([width], _i(bits))


def _all(value: int, width: int, bits: int) -> ir.Value:
    return b.constant(value, _vector(width, bits))
