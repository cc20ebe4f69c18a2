"""A CPU's part of a product of few rows with weights in blocks, by whole numbers.

The rows are first made numbers of 16 bits, with a scale for each 32: their error is a 65,000th of the largest of them.
Their products with a block's numbers, which have 4 or 8 bits, are then added up as whole numbers, exactly, and the
sums scaled.
"""

from __future__ import annotations

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_formats import PART, Format
from lispgpt.passes.kernels.block_weights import UNIT, BlockWeights
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.schedule.cpu.register_tiles import Block, scratch, steps
from lispgpt.passes.targets import Cpu

LARGEST = 127 * 256
"""What the largest of the numbers that share a scale is as a whole one: its upper byte is one that has a sign."""

MOST_ROWS, SUMS = 4, 4
"""Rows that are multiplied so, and vectors of sums, at least one for each."""

UNROLLED = 8
"""The most steps along k, of all rows, that are written out in place of a loop."""


class Bytes:
    """Rows as two bytes each, for instructions that add up four products of an unsigned byte and a signed one each.

    Weights are taken as their distance from the least number that they can be, and the sums corrected.
    """

    def __init__(self, weights: BlockWeights, rows: int, inner: int, width: int) -> None:
        self.width, self.lanes = width, width // 4
        self.format, self.least = weights.format, weights.format.least
        self.parts = [scratch([rows, inner], b.integer(8)) for _ in range(2)]
        self.start = scratch([rows, inner // width, self.lanes], b.i32()) if self.least else None

    def put(self, row: Index, at: Index, numbers: ir.Value) -> None:
        """Write 16 whole numbers of a row."""
        upper = b.binary("arith.shrsi", b.binary("arith.addi", numbers, _all(128, UNIT, 32)), _all(8, UNIT, 32))
        lower = b.binary("arith.subi", numbers, b.binary("arith.shli", upper, _all(8, UNIT, 32)))
        for value, memory in zip((upper, lower), self.parts, strict=True):
            b.store(b.emit("arith.trunci", [value], [_vector(UNIT, 8)]), memory, [row, at], aligned=False)

    def finish(self, row: Index, number: Index) -> None:
        """Prepare a vector of a row whose numbers have been written: its sums start with the correction."""
        if self.start is not None:
            sums = self._sums(_all(1, self.width, 8), row, number, None)
            sums = b.binary("arith.muli", sums, _all(self.least, self.lanes, 32))
            b.store(sums, self.start, [row, number, 0], aligned=False)

    def weights(self, numbers: ir.Value) -> ir.Value:
        """A vector of a format's numbers as `sums` wants them."""
        if self.format.values:
            return looked_up(self.format, numbers)
        return b.binary("arith.xori", numbers, _all(-128, self.width, 8)) if self.format.signed else numbers

    def sums(self, weights: ir.Value, row: Index, number: Index) -> ir.Value:
        """Sums of products with a vector of a row, in lanes of 32 bits."""
        start = b.load(self.start, [row, number, 0], self.lanes, aligned=False) if self.start is not None else None
        return self._sums(weights, row, number, start)

    def _sums(self, weights: ir.Value, row: Index, number: Index, start: ir.Value | None) -> ir.Value:
        place = [row, b.mul(number, self.width)]
        upper, lower = (b.load(memory, place, self.width, aligned=False) for memory in self.parts)
        sums = self._dot(_all(0, self.lanes, 32), weights, upper)
        sums = b.binary("arith.shli", sums, _all(8, self.lanes, 32))
        return self._dot(b.binary("arith.addi", sums, start) if start is not None else sums, weights, lower)

    def _dot(self, start: ir.Value, unsigned: ir.Value, signed: ir.Value) -> ir.Value:
        name = f"llvm.x86.avx512.vpdpbusd.{8 * self.width}"
        return b.instruction(name, [start, unsigned, signed], start.type)


class Words:
    """Rows as words, for AVX2's instruction that adds up two products of words each."""

    def __init__(self, weights: BlockWeights, rows: int, inner: int) -> None:
        self.width, self.lanes = PART, PART // 4
        self.format = weights.format
        self.memory = scratch([rows, inner], b.integer(16))

    def put(self, row: Index, at: Index, numbers: ir.Value) -> None:
        b.store(b.emit("arith.trunci", [numbers], [_vector(UNIT, 16)]), self.memory, [row, at], aligned=False)

    def finish(self, row: Index, number: Index) -> None:
        """Words have signs: there is nothing to correct."""

    def weights(self, numbers: ir.Value) -> ir.Value:
        numbers, least = looked_up(self.format, numbers), 0 if self.format.signed else self.format.least
        return b.binary("arith.addi", numbers, _all(least, self.width, 8)) if least else numbers

    def sums(self, weights: ir.Value, row: Index, number: Index) -> ir.Value:
        halves = []
        for start in range(0, self.width, UNIT):
            half = b.shuffled(weights, weights, range(start, start + UNIT))
            half = b.emit("arith.extsi", [half], [_vector(UNIT, 16)])
            own = b.load(self.memory, [row, b.add(b.mul(number, self.width), start)], UNIT, aligned=False)
            halves.append(b.instruction("llvm.x86.avx2.pmadd.wd", [half, own], _vector(self.lanes, 32)))
        if self.format.scales.part == UNIT:  # a lane's numbers share a scale
            halves = [b.shuffled(halves[0], halves[1], range(first, 2 * self.lanes, 2)) for first in range(2)]
        return b.binary("arith.addi", *halves)


class ByteTiles:
    """Sums that run along k in vectors."""

    def __init__(self, product: Product, reader: Reader, weights: BlockWeights, target: Cpu) -> None:
        self.product, self.reader, self.weights = product, reader, weights
        rows, inner = min(product.rows, MOST_ROWS), product.inner
        width = target.vector_bytes if target.vnni and inner % target.vector_bytes == 0 else PART
        self.unit = Bytes(weights, rows, inner, width) if target.vnni else Words(weights, rows, inner)
        self.step = weights.at_once(inner, width)
        self.scale = scratch([rows, inner // width, self.unit.lanes])
        self.total = scratch([rows, inner // PART]) if weights.has_least else None

    @staticmethod
    def can_multiply(product: Product, target: Cpu) -> bool:
        """Whether the target has instructions for it, and rows are so few that they pay."""
        return product.rows <= MOST_ROWS and (target.vnni or "avx2" in target.features)

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block."""
        vectors = self.product.inner // self.unit.width
        steps(block.rows, 1, lambda row, _: steps(vectors, 1, lambda number, _: self._take(block, row, number)))
        steps(block.columns, 1, lambda column, _: self._column(block, sums, column))

    def _take(self, block: Block, row: Index, number: Index) -> None:
        """Make a vector of the left operand's row whole numbers."""
        width, lanes = self.unit.width, self.unit.lanes
        order = self.weights.order(width)
        scales: list[ir.Value] = [b.constant(0.0, b.f32())] * (width // UNIT)
        for part in range(width // PART):
            start = b.add(b.mul(number, width), part * PART)
            scale, wholes = self._rounded(block, row, start)
            for half, whole in enumerate(wholes):
                place = order[part * PART // UNIT + half]
                self.unit.put(row, b.add(b.mul(number, width), place * UNIT), whole)
                scales[place] = scale
            if self.total is not None:
                total = b.reduce_vector("add", b.binary("arith.addi", *wholes))
                total = b.binary("arith.mulf", b.emit("arith.sitofp", [total], [b.f32()]), scale)
                b.store(total, self.total, [row, b.div(start, PART)])
        spread = b.vector_of([scales[4 * lane // UNIT] for lane in range(lanes)])
        b.store(spread, self.scale, [row, number, 0], aligned=False)
        self.unit.finish(row, number)

    def _rounded(self, block: Block, row: Index, start: Index) -> tuple[ir.Value, list[ir.Value]]:
        """The scale of 32 numbers of the left operand, and they as whole numbers, in two vectors."""
        at, left = b.add(block.row, row), self.product.left
        with self.reader.scope():
            parts = [
                b.extend(left.read(self.reader, block.batch, at, b.add(start, i), UNIT)) for i in range(0, PART, UNIT)
            ]
        # Patterns without their sign are ordered as whole numbers, and NaN is above all.
        patterns = [b.emit("vector.bitcast", [part], [_vector(UNIT, 32)]) for part in parts]
        sizes = [b.binary("arith.andi", pattern, _all(0x7FFFFFFF, UNIT, 32)) for pattern in patterns]
        largest = b.reduce_vector("maxui", b.binary("arith.maxui", *sizes))
        largest = b.emit("arith.bitcast", [largest], [b.f32()])
        zero, most = b.constant(0.0, b.f32()), b.constant(float(LARGEST), b.f32())
        some = b.emit("arith.cmpf", [largest, zero], [b.i1()], predicate=2)
        inverse = b.splat(b.select(some, b.binary("arith.divf", most, largest), zero), UNIT)
        nearest = [b.emit("math.roundeven", [b.binary("arith.mulf", part, inverse)], [part.type]) for part in parts]
        wholes = [b.emit("arith.fptosi", [value], [_vector(UNIT, 32)]) for value in nearest]
        return b.binary("arith.mulf", largest, b.constant(1 / LARGEST, b.f32())), wholes

    def _column(self, block: Block, sums: ir.Value, column: Index) -> None:
        """Write a column's sums, of all rows."""
        apart = max(min(self.step // self.unit.width, SUMS // block.rows), 1)
        counts = [self.unit.lanes] * apart + ([self.step // PART] if self.total is not None else [])
        zeros = [b.constant(0.0, b.with_width(b.f32(), n)) for n in counts]
        place = b.add(block.column, column)

        def step(number: Index, *carried: ir.Value) -> list[ir.Value]:
            rows = [list(carried[row * len(zeros) : (row + 1) * len(zeros)]) for row in range(block.rows)]
            with self.reader.scope():
                self._add(rows, apart, place, number)
            return [total for row in rows for total in row]

        rounds, found = self.product.inner // self.step, zeros * block.rows
        if rounds * block.rows <= UNROLLED:
            for number in range(rounds):
                found = step(number, *found)
        else:
            found = b.loop(0, rounds, 1, found, step)
        for row in range(block.rows):
            totals = found[row * len(zeros) : (row + 1) * len(zeros)]
            total = b.reduce_vector("add", tree("arith.addf", totals[:apart]))
            if self.total is not None:
                total = b.binary("arith.subf", total, b.reduce_vector("add", totals[apart]))
            b.store(total, sums, [row, column])

    def _add(self, rows: list[list[ir.Value]], apart: int, column: Index, number: Index) -> None:
        """Add a step's products to each row's sums, `apart` of them, and after those what the weights' minima take."""
        at = b.mul(number, self.step // self.weights.block)
        vectors = self.weights.read(self.reader, column, at, self.step, self.unit.width)
        minima = self.weights.minima(self.reader, column, at)
        for i, vector in enumerate(vectors):
            numbers, place = self.unit.weights(vector.numbers), b.add(b.mul(number, len(vectors)), i)
            for row, totals in enumerate(rows):
                found = b.emit("arith.sitofp", [self.unit.sums(numbers, row, place)], [vector.scale.type])
                own = b.load(self.scale, [row, place, 0], self.unit.lanes, aligned=False)
                scale = b.binary("arith.mulf", vector.scale, own)
                totals[i % apart] = b.fma(found, scale, totals[i % apart])
        for row, totals in enumerate(rows if minima is not None else ()):
            own = b.load(self.total, [row, b.mul(number, self.step // PART)], b.width_of(minima), aligned=False)
            totals[apart] = b.fma(own, minima, totals[apart])


def looked_up(form: Format, numbers: ir.Value) -> ir.Value:
    """A vector of bytes as a format's table has them; as they are where it has none."""
    if not form.values:
        return numbers
    table = b.vector_of([b.constant(value, b.integer(8)) for value in 2 * form.values])
    parts = [b.shuffled(numbers, numbers, range(i, i + PART)) for i in range(0, b.width_of(numbers), PART)]
    return b.joined([b.instruction("llvm.x86.avx2.pshuf.b", [table, part], table.type) for part in parts])


def _vector(width: int, bits: int) -> ir.Type:
    return ir.VectorType.get([width], b.integer(bits))


def _all(value: int, width: int, bits: int) -> ir.Value:
    return b.constant(value, _vector(width, bits))
