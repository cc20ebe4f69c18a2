"""Panels: operands of products packed in tiles as instructions that multiply pairs of bf16 want them.

f32 and f16 numbers become several bf16 ones that add up to them; products of two parts that lie below what an f32 sum
keeps are left out.  An infinite f32 gives NaN where it would give infinity.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Protocol

from lispgpt.base.dtypes import BLOCK_DTYPES
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir, numbers
from lispgpt.passes.kernels.matrices import split, transposed
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.schedule.cpu.register_tiles import scratch, steps, vector_ranges
from lispgpt.passes.targets.pairs import LINES, Pairs

DEPTH = 2 * LINES
"""Steps of k in a tile."""


def parts_of_types(left: str, right: str, mixed: int) -> tuple[int, int]:
    """How many bf16 numbers add up to one of either of two types; `mixed` of an f32 beside a shorter one."""
    most = 2 if {left, right} & set(BLOCK_DTYPES) else 3 if left == right == "f32" else mixed
    of = {"bf16": 1, "f16": 2, "f32": most} | dict.fromkeys(BLOCK_DTYPES, 2)
    return of[left], of[right]


def pairs_of_parts(left: int, right: int) -> list[tuple[int, int]]:
    """The parts of two operands whose products count: each is 2^-8 of the one before it."""
    most = max(left, right)
    return [(i, j) for i in range(left) for j in range(right) if i + j < most]


class Vectors(Protocol):
    """What a panel asks of an operand: see `Operand`."""

    @property
    def along_outer(self) -> int: ...

    def read(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int = 1) -> ir.Value: ...

    def read_across(self, reader: Reader, batch: Index, outer: Index, k: Index, width: int) -> ir.Value: ...


class Panel:
    """An operand's part of a block: [tile of rows or columns, tile of k, part, line, word].

    by_pairs: whether a line is a pair along k, as of right operands.  across: whether neighbours in memory are rows or
    columns, so that what is read at once are pairs, too; where the two differ, tiles are transposed.
    """

    def __init__(self, operand: Vectors, reader: Reader, extents: tuple[int, int], parts: int, by_pairs: bool) -> None:
        self.operand, self.reader, self.parts, self.by_pairs = operand, reader, parts, by_pairs
        self.across = operand.along_outer > 1
        shape = [-(-extents[0] // LINES), -(-extents[1] // DEPTH), parts, LINES, LINES]
        self.memory = scratch(shape, b.i32())

    def pack(self, batch: Index, start: Index, extent: int, first: Index, depth: int) -> None:
        """Fill it from a row or column and a k on, as they lie in memory.

        What a tile lacks of k is 0, what it lacks else is anything.
        """
        count = -(-depth // 2) if self.across else extent
        halved = self.across and depth % 2 == 1
        along, width = (extent, LINES) if self.across else (depth, DEPTH)

        def words(line: Index, at: Index, size: int, half: bool = False) -> list[ir.Value]:
            if self.across:
                return self._pairs(batch, b.add(start, at), size, b.add(first, b.mul(line, 2)), half)
            read = partial(self.operand.read, self.reader, batch, b.add(start, line))
            numbers = padded(lambda i, n: read(k=b.add(b.add(first, at), i), width=n), size, DEPTH)
            return [as_words(part) for part in self._split(numbers)]

        def store(line: Index, half: bool, at: Index, size: int) -> None:
            with self.reader.scope():
                self._store(line, b.div(at, width), words(line, at, size, half))

        def turn(line: Index, lines: int, half: bool, at: Index, size: int) -> None:
            with self.reader.scope():
                read = [words(b.add(line, i), at, size, half and i == lines - 1) for i in range(lines)]
                self._store_transposed(line, b.div(at, width), read)

        def clear(line: Index, tile: Index, _: int) -> None:
            self._store(line, tile, [b.constant(0, _words())] * self.parts)

        whole = count - halved
        if self.across != self.by_pairs:
            whole = whole // LINES * LINES
            steps(whole, LINES, lambda line, n: steps(along, width, partial(turn, line, n, False)))
            if whole < count:
                steps(along, width, partial(turn, whole, count - whole, halved))
            return
        steps(whole, 1, lambda line, _: steps(along, width, partial(store, line, False)))
        if halved:
            steps(along, width, partial(store, whole, True))
        if self.by_pairs:
            for line in range(count, -(-depth // DEPTH) * LINES):
                steps(-(-along // width), 1, partial(clear, line))

    def _store(self, line: Index, tile: Index, words: Sequence[ir.Value]) -> None:
        """Words of a line, part by part; tile: along the line."""
        place = [tile, b.div(line, LINES)] if self.across else [b.div(line, LINES), tile]
        for part, value in enumerate(words):
            b.store(value, self.memory, [*place, part, b.mod(line, LINES), 0])

    def _store_transposed(self, line: Index, tile: Index, lines: list[list[ir.Value]]) -> None:
        """The same of all lines of a tile, each word of which becomes a line."""
        zeros = [[b.constant(0, _words())] * self.parts] * (LINES - len(lines))
        parts = [transposed(words) for words in zip(*lines, *zeros, strict=True)]
        for number, words in enumerate(zip(*parts, strict=True)):
            self._store(b.add(line, number), tile, words)

    def _pairs(self, batch: Index, at: Index, size: int, k: Index, half: bool) -> list[ir.Value]:
        """The words of 16 neighbouring rows or columns at one pair, part by part; half: there is only its first."""

        def numbers(k: Index) -> list[ir.Value]:
            read = partial(self.operand.read_across, self.reader, batch, k=k)
            with self.reader.stepping():
                return self._split(padded(lambda i, n: read(outer=b.add(at, i), width=n), size, LINES))

        first = numbers(k)
        second = [b.constant(0.0, v.type) for v in first] if half else numbers(b.add(k, 1))
        type_ = b.with_width(ir.BF16Type.get(), DEPTH)
        both = zip(first, second, strict=True)
        return [as_words(b.emit("vector.interleave", list(pair), [type_])) for pair in both]

    def _split(self, numbers: ir.Value) -> list[ir.Value]:
        return [numbers] if self.parts == 1 else split(b.extend(numbers), self.parts, b.extend)


@dataclass(frozen=True)
class PanelProduct:
    """Multiplies what panels hold.  left, right: their memory; parts: whose products count."""

    unit: Pairs
    left: ir.Value
    right: ir.Value
    parts: Sequence[tuple[int, int]]

    def tile(
        self, sums: ir.Value, depth: Index, adds: bool, row: Index, height: int, column: Index, width: int
    ) -> None:
        """Add to, or write, height by width of a unit's sums, from such a row and column of them on.

        depth: how many tiles of k there are.
        """
        unit = self.unit
        places = [
            (b.mul(b.add(row, i), unit.rows), b.mul(b.add(column, j), LINES))
            for i in range(height)
            for j in range(width)
        ]
        before = [unit.sums(sums, *place) if adds else unit.zero() for place in places]

        def tiles(tile: Index, *carried: ir.Value) -> list[ir.Value]:
            if unit.pairs == LINES:
                return self._multiplied(row, height, column, width, tile, 0, carried)
            along = partial(self._multiplied, row, height, column, width, tile)
            return b.loop(0, LINES, unit.pairs, list(carried), lambda pair, *sums: along(pair, sums))

        for total, place in zip(b.loop(0, depth, 1, before, tiles), places, strict=True):
            unit.store(total, sums, *place)

    def _multiplied(
        self, row: Index, height: int, column: Index, width: int, tile: Index, pair: Index, sums: Sequence[ir.Value]
    ) -> list[ir.Value]:
        """Sums with the products of all parts at a tile's pair."""
        totals = list(sums)
        for i, left, rights in self._operands(row, height, column, width, tile, pair):
            for j, right in enumerate(rights):
                totals[i * width + j] = self.unit.multiply(left, right, totals[i * width + j])
        return totals

    def _operands(
        self, row: Index, height: int, column: Index, width: int, tile: Index, pair: Index
    ) -> Iterator[tuple[int, ir.Value, Sequence[ir.Value]]]:
        """(number of the row's tile, left, rights) of all parts: those of the right operand are loaded once each where
        the left one alone has several.  Each of the left one's is loaded where it is first multiplied: all of them at
        once, beside the sums, are more than registers hold."""
        unit = self.unit
        loaded: tuple[int, list[ir.Value]] = (-1, [])
        lefts: tuple[int, dict[int, ir.Value]] = (-1, {})
        for left_part, right_part in self.parts:
            if loaded[0] != right_part:
                columns = [[b.add(column, j), tile, right_part] for j in range(width)]
                loaded = right_part, [unit.right(self.right, place, pair) for place in columns]
            if lefts[0] != left_part:
                lefts = left_part, {}
            for i in range(height):
                if i not in lefts[1]:
                    lines, line = self._lines(row, i)
                    lefts[1][i] = unit.left(self.left, [lines, tile, left_part], line, pair)
                yield i, lefts[1][i], loaded[1]

    def _lines(self, row: Index, number: int) -> tuple[Index, Index]:
        """The tile of lines that a row of sums is in, and the line there; `row` is the first of as many as registers
        hold, which is in one tile with them where that has so many lines."""
        unit = self.unit
        if LINES % (unit.row_tiles * unit.rows) == 0:
            first = b.mul(row, unit.rows)
            return b.div(first, LINES), b.add(b.mod(first, LINES), number * unit.rows)
        line = b.mul(b.add(row, number), unit.rows)
        return b.div(line, LINES), b.mod(line, LINES)


def _words() -> ir.Type:
    return b.with_width(b.i32(), LINES)


def as_words(numbers: ir.Value) -> ir.Value:
    """32 bf16 as 16 pairs."""
    return b.emit("vector.bitcast", [numbers], [_words()])


def padded(read: Callable[[int, int], ir.Value], size: int, width: int) -> ir.Value:
    """A vector of `width` whose first `size` are read(start, count), and the others 0."""
    if size == width:
        return read(0, width)
    total = None
    for start, count in vector_ranges(size, width):
        value = read(start, count)
        if total is None:
            total = b.constant(0.0, b.with_width(value.type, width))
        if count == 1:
            total = b.emit("vector.insert", [value, total], [total.type], static_position=[start])
        else:
            place = {"offsets": numbers([start]), "strides": numbers([1])}
            total = b.emit("vector.insert_strided_slice", [value, total], [total.type], **place)
    assert total is not None
    return total
