"""A CPU's part of a product on instructions that multiply pairs of bf16: both operands are packed as these want them.

A block's operands are put, for some k after the other, into panels of tiles that are small enough for the second-level
cache.  f32 numbers become three bf16 ones that add up to them, f16 ones two; products of two parts that lie below
what an f32 sum keeps are left out.  An infinite f32 gives NaN where it would give infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.matrices import split
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.register_tiles import Block, scratch, steps, vector_ranges
from lispgpt.passes.targets.pairs import LINES, Pairs

PARTS = {"bf16": 1, "f16": 2, "f32": 3}
"""bf16 numbers that add up to one of a type."""

DEPTH = 2 * LINES
"""Steps of k in a tile."""

MOST_OF_A_BLOCK = 384
"""Rows and columns."""


def pairs_of_parts(left: int, right: int) -> list[tuple[int, int]]:
    """The parts of two operands whose products count: a part is 2^-8 of the one before it, and f32 keeps 2^-24."""
    most = max(left, right)
    return [(i, j) for i in range(left) for j in range(right) if i + j < most]


@dataclass(frozen=True)
class Packing:
    """A block's rows and columns, and the k that are packed at once."""

    rows: int
    columns: int
    depth: int

    @classmethod
    def of(cls, product: Product, unit: Pairs, cores: int, panel_bytes: int) -> Packing:
        """What takes least time on so many cores; panels of a block have at most so many bytes."""
        parts = [PARTS[operand.dtype] for operand in (product.left, product.right)]
        multiplying = len(pairs_of_parts(*parts)) / unit.speed
        packing = [_cycles(product.left, by_pairs=False), _cycles(product.right, by_pairs=True)]

        def time(sizes: tuple[int, int]) -> float:
            rows, columns = (-(-size // LINES) * LINES for size in sizes)
            blocks = -(-product.rows // sizes[0]) * -(-product.columns // sizes[1]) * product.batches
            return -(-blocks // cores) * (rows * columns * multiplying + rows * packing[0] + columns * packing[1])

        sizes = ((rows, columns) for rows in _sizes(product.rows) for columns in _sizes(product.columns))
        rows, columns = min(sizes, key=time)
        most = max(panel_bytes // (2 * (rows * parts[0] + columns * parts[1])) // DEPTH, 1) * DEPTH
        chunks = -(-product.inner // most)
        return cls(rows, columns, min(-(-product.inner // chunks // DEPTH) * DEPTH, product.inner))


def _sizes(extent: int) -> list[int]:
    """Of blocks that share an extent evenly, in whole tiles but for the last."""
    counts = range(1, -(-extent // LINES) + 1)
    return sorted({min(-(-extent // n // LINES) * LINES, extent) for n in counts if -(-extent // n) <= MOST_OF_A_BLOCK})


def _cycles(operand: Operand, by_pairs: bool) -> float:
    """That packing an element takes, nearly."""
    across = operand.along_outer > 1
    parts = PARTS[operand.dtype]
    apart = 3.0 if not across and operand.along_k == 1 else 0.0
    return apart + 0.12 * parts + (0.15 * parts if across != by_pairs else 0.0)


class Panel:
    """An operand's part of a block: [part, tile of rows or columns, tile of k, line, word].

    by_pairs: whether a line is a pair along k, as of right operands.
    """

    def __init__(self, operand: Operand, reader: Reader, extent: int, depth: int, by_pairs: bool) -> None:
        self.operand, self.reader, self.by_pairs = operand, reader, by_pairs
        self.parts = PARTS[operand.dtype]
        shape = [self.parts, -(-extent // LINES), -(-depth // DEPTH), LINES, LINES]
        self.memory = scratch(shape, b.i32())

    def pack(self, batch: Index, start: Index, extent: int, first: Index, depth: int) -> None:
        """Fill it from a row or column and a k on; what a tile lacks of k is 0, what it lacks else is anything."""

        def tile(at: Index, size: int, k: Index, length: int) -> None:
            with self.reader.scope():
                place = [b.div(at, LINES), b.div(k, DEPTH)]
                self._tile(place, batch, b.add(start, at), size, b.add(first, k), length)

        steps(extent, LINES, lambda at, size: steps(depth, DEPTH, partial(tile, at, size)))

    def _tile(self, place: list[Index], batch: Index, at: Index, size: int, k: Index, length: int) -> None:
        across = self.operand.along_outer > 1
        count = -(-length // 2) if across else size

        def line(number: Index, width: int = 2) -> list[ir.Value]:
            if across:
                return self._pair(batch, at, size, b.add(k, b.mul(number, 2)), width)
            read = partial(self.operand.read, self.reader, batch, b.add(at, number), width=1)
            return self._parts(_padded(lambda i, n: read(k=b.add(k, i), width=n), length, DEPTH))

        if across != self.by_pairs:
            odd = across and length % 2
            lines = [line(i, 1 if odd and i == count - 1 else 2) for i in range(count)]
            self._store_turned(place, lines)
        else:
            self._store_lines(place, line, count, length if across else 2 * count)

    def _store_lines(self, place: list[Index], line: Callable[..., list[ir.Value]], count: int, numbers: int) -> None:
        def store(number: Index, width: int) -> None:
            with self.reader.scope():
                for part, words in enumerate(line(number, width)):
                    b.store(words, self.memory, [part, *place, number, 0])

        steps(numbers // 2, 1, lambda number, _: store(number, 2))
        if numbers % 2:
            store(count - 1, 1)
        for number in range(count, LINES if self.by_pairs else count):
            for part in range(self.parts):
                b.store(b.constant(0, _words()), self.memory, [part, *place, number, 0])

    def _store_turned(self, place: list[Index], lines: list[list[ir.Value]]) -> None:
        zero = b.constant(0, _words())
        for part in range(self.parts):
            words = [line[part] for line in lines] + [zero] * (LINES - len(lines))
            for number, value in enumerate(turned(words)):
                b.store(value, self.memory, [part, *place, number, 0])

    def _pair(self, batch: Index, at: Index, size: int, k: Index, width: int) -> list[ir.Value]:
        """The words of 16 neighbouring rows or columns at one pair, of which width are there, part by part."""

        def numbers(k: Index) -> list[ir.Value]:
            read = partial(self.operand.read_across, self.reader, batch, k=k)
            return self._split(_padded(lambda i, n: read(outer=b.add(at, i), width=n), size, LINES))

        first = numbers(k)
        second = numbers(b.add(k, 1)) if width == 2 else [b.constant(0.0, v.type) for v in first]
        type_ = b.with_width(ir.BF16Type.get(), DEPTH)
        both = zip(first, second, strict=True)
        return [_as_words(b.emit("vector.interleave", list(pair), [type_])) for pair in both]

    def _parts(self, numbers: ir.Value) -> list[ir.Value]:
        return [_as_words(part) for part in self._split(numbers)]

    def _split(self, numbers: ir.Value) -> list[ir.Value]:
        return [numbers] if self.parts == 1 else split(b.extend(numbers), self.parts, b.extend)


class PackedTiles:
    """Sums in a unit's registers."""

    def __init__(self, product: Product, reader: Reader, unit: Pairs, packing: Packing) -> None:
        self.product, self.unit, self.depth = product, unit, packing.depth
        self.left = Panel(product.left, reader, packing.rows, self.depth, by_pairs=False)
        self.right = Panel(product.right, reader, packing.columns, self.depth, by_pairs=True)
        self.parts = pairs_of_parts(self.left.parts, self.right.parts)

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block; past its last row and column, up to whole tiles, they are anything."""
        whole = self.depth == self.product.inner
        tiles, lines = -(-block.columns // LINES), -(-block.rows // self.unit.rows)
        if not whole:
            zero = b.constant(0.0, b.with_width(b.f32(), LINES))
            clear = lambda row, _: steps(tiles, 1, lambda n, _: b.store(zero, sums, [row, b.mul(n, LINES)]))  # noqa: E731
            steps(lines * self.unit.rows, 1, clear)

        def part(first: Index, depth: int) -> None:
            self.left.pack(block.batch, block.row, block.rows, first, depth)
            self.right.pack(block.batch, block.column, block.columns, first, depth)

            def columns(column: Index, width: int) -> None:
                tile = partial(self._tile, sums, -(-depth // DEPTH), not whole)
                steps(lines, self.unit.row_tiles, lambda row, height: tile(row, height, column, width))

            steps(tiles, self.unit.column_tiles, columns)

        steps(self.product.inner, self.depth, part)

    def _tile(self, sums: ir.Value, depth: int, adds: bool, row: Index, height: int, column: Index, width: int) -> None:
        """Add to, or write, height by width of a unit's sums, from such a row and column of them on."""
        unit = self.unit
        places = [
            (b.mul(b.add(row, i), unit.rows), b.mul(b.add(column, j), LINES))
            for i in range(height)
            for j in range(width)
        ]
        before = [unit.sums(sums, *place) if adds else unit.zero() for place in places]

        def step(at: Index, *carried: ir.Value) -> list[ir.Value]:
            tile, pair = b.div(b.mul(at, unit.pairs), LINES), b.mod(b.mul(at, unit.pairs), LINES)
            totals = list(carried)
            for i, lefts, rights in self._operands(row, height, column, width, tile, pair):
                for j, right in enumerate(rights):
                    totals[i * width + j] = unit.multiply(lefts, right, totals[i * width + j])
            return totals

        totals = b.loop(0, depth * (LINES // unit.pairs), 1, before, step)
        for total, place in zip(totals, places, strict=True):
            unit.store(total, sums, *place)

    def _operands(
        self, row: Index, height: int, column: Index, width: int, tile: Index, pair: Index
    ) -> Iterator[tuple[int, ir.Value, Sequence[ir.Value]]]:
        """(number of the row's tile, left, rights) of all parts: those of the right operand are loaded once each where
        the left one alone has several."""
        unit = self.unit
        loaded: tuple[int, list[ir.Value]] = (-1, [])
        lefts: tuple[int, list[ir.Value]] = (-1, [])
        for left_part, right_part in self.parts:
            if loaded[0] != right_part:
                columns = [[right_part, b.add(column, j), tile] for j in range(width)]
                loaded = right_part, [unit.right(self.right.memory, place, pair) for place in columns]
            if lefts[0] != left_part:
                lines = [b.mul(b.add(row, i), unit.rows) for i in range(height)]
                places = [([left_part, b.div(at, LINES), tile], b.mod(at, LINES)) for at in lines]
                lefts = left_part, [unit.left(self.left.memory, place, at, pair) for place, at in places]
            for i, left in enumerate(lefts[1]):
                yield i, left, loaded[1]


def turned(lines: Sequence[ir.Value]) -> list[ir.Value]:
    """Vectors as the rows of a square of words: its columns.  Halves, quarters and so on change places."""
    lines, size = list(lines), len(lines)
    distance = size // 2
    while distance:
        for i in range(size):
            if not i & distance:
                lines[i], lines[i + distance] = _exchanged(lines[i], lines[i + distance], distance)
        distance //= 2
    return lines


def _exchanged(upper: ir.Value, lower: ir.Value, distance: int) -> tuple[ir.Value, ir.Value]:
    """Two lines of a square with the upper one's odd groups of so many words in place of the lower one's even ones."""
    size = b.width_of(upper)
    even = [i if not i & distance else size + i - distance for i in range(size)]
    odd = [i + distance if not i & distance else size + i for i in range(size)]
    found = [
        b.emit("vector.shuffle", [upper, lower], [upper.type], mask=ir.DenseI64ArrayAttr.get(m)) for m in (even, odd)
    ]
    return found[0], found[1]


def _words() -> ir.Type:
    return b.with_width(b.i32(), LINES)


def _as_words(numbers: ir.Value) -> ir.Value:
    return b.emit("vector.bitcast", [numbers], [_words()])


def _padded(read: Callable[[int, int], ir.Value], size: int, width: int) -> ir.Value:
    """A vector of `width` whose first `size` are read(start, count), and the others 0."""
    if size == width:
        return read(0, width)
    total = None
    for start, count in vector_ranges(size, width):
        value = read(start, count)
        if total is None:
            total = b.constant(0.0, b.with_width(value.type, width))
        if count == 1:
            where = ir.DenseI64ArrayAttr.get([start])
            total = b.emit("vector.insert", [value, total], [total.type], static_position=where)
        else:
            i64 = ir.IntegerType.get_signless(64)
            offsets, strides = (ir.ArrayAttr.get([ir.IntegerAttr.get(i64, n)]) for n in (start, 1))
            attributes = {"offsets": offsets, "strides": strides}
            total = create_op("vector.insert_strided_slice", [value, total], [total.type], attributes).results[0]
    assert total is not None
    return total
