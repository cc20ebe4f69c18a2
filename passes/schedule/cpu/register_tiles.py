"""A CPU's part of a product: tiles of sums in vector registers, for operands of any layout.

Where both operands have k innermost, a tile's sums are vectors along k, added up at its end (DotTiles).  Where one has
its columns innermost, they are vectors of columns, to each of which goes an element of the other operand times such a
vector (OuterTiles); with many rows, its vectors are first put side by side, in f32, for as many k as fit the cache.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.matrices import sums_of_lines
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import tree

PANEL_BYTES = 36 * 1024
"""Of the vectors that OuterTiles puts side by side: three quarters of a first-level cache of 48 KiB."""

LINE_BYTES = 64
"""Of a cache."""

SUMS_AT_ONCE = 4
"""Neighbouring columns, at most, whose sums along k are added up together."""


@dataclass(frozen=True)
class Block:
    """What one call computes: `rows` by `columns` sums of a batch, from these on."""

    batch: Index
    row: Index
    column: Index
    rows: int
    columns: int


@dataclass(frozen=True)
class TileSizes:
    """rows, columns: sums of a tile, columns counted in vectors where those run along them.  lanes: of a vector.
    unroll: steps of k at once where a tile has fewer sums than hide the time of an addition."""

    rows: int
    columns: int
    lanes: int
    unroll: int = 1


def scratch(shape: list[int], element: ir.Type | None = None) -> ir.Value:
    """Memory on the stack of this call of the kernel, f32 if nothing else is said."""
    attributes = {"operandSegmentSizes": ir.DenseI32ArrayAttr.get([0, 0]), "alignment": 64}
    return create_op("memref.alloca", [], [ir.MemRefType.get(shape, element or b.f32())], attributes).results[0]


def ranges(extent: int, step: int) -> list[tuple[int, int, int]]:
    """(start, stop, step) of loops that cover an extent: whole steps, then what is left at once."""
    whole = extent // step * step
    return [r for r in ((0, whole, step), (whole, extent, extent - whole)) if r[0] < r[1]]


def steps(extent: int, step: int, body: Callable[[Index, int], None]) -> None:
    """body(start, size) for each part of an extent; a loop of one round is none."""
    for start, stop, size in ranges(extent, step):
        if stop - start == size:
            body(start, size)
        else:
            b.each(start, stop, size, partial(_sized, body, size))


def _sized(body: Callable[[Index, int], None], size: int, index: Index) -> None:
    body(index, size)


def vector_ranges(extent: int, lanes: int) -> list[tuple[int, int]]:
    """(start, lanes) of the vectors that cover an extent, the last ones narrower: powers of two."""
    found, start = [], 0
    while start < extent:
        while lanes > extent - start:
            lanes //= 2
        found.append((start, lanes))
        start += lanes
    return found


def divisor(extent: int, limit: int) -> int:
    """The largest divisor of an extent up to a limit."""
    return max(d for d in range(1, min(extent, limit) + 1) if extent % d == 0)


def tiles_of(rows: int, most: int, step: int) -> tuple[int, int]:
    """How many tiles there are, and how many rows each has: less than `step` or a multiple of it, at most about `most`;
    the last may reach past the end."""
    each = -(-rows // -(-rows // most))
    each = -(-each // step) * step if each >= step else each
    each = each if each <= rows else rows - rows % step
    return -(-rows // each), each


def add_products(
    reader: Reader,
    span: tuple[Index, int],
    start: list[ir.Value],
    rows: Sequence[Index],
    own: Callable[[Index, Index], ir.Value],
    others: Callable[[Index], list[ir.Value]],
) -> list[ir.Value]:
    """Sums, row by row: `start` and what own(row, i) makes times each of others(i), for all i of a span, which is its
    end and the step to it."""

    def step(i: Index, *sums: ir.Value) -> list[ir.Value]:
        with reader.scope():
            wide = others(i)
            totals, so_far = [], iter(sums)
            for row in rows:
                mine = own(row, i)
                totals += [b.fma(mine, other, next(so_far)) for other in wide]
        return totals

    return b.loop(0, *span, start, step)


class DotTiles:
    """Sums that run along k in vectors."""

    def __init__(self, product: Product, reader: Reader, sizes: TileSizes) -> None:
        self.product, self.reader, self.sizes = product, reader, sizes
        self.left, self.right = product.left, product.right

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block."""

        def columns(column: Index, width: int) -> None:
            steps(block.rows, self.sizes.rows, lambda row, height: self._tile(block, sums, row, column, height, width))

        steps(block.columns, self.sizes.columns, columns)

    def _tile(self, block: Block, sums: ir.Value, row: Index, column: Index, height: int, width: int) -> None:
        rows = [b.add(row, i) for i in range(height)]
        columns = [b.add(column, j) for j in range(width)]
        inner = self.product.inner
        whole = inner // self.sizes.lanes * self.sizes.lanes
        parts = [
            self._along(block, rows, columns, first, last, lanes)
            for first, last, lanes in ((0, whole, self.sizes.lanes), (whole, inner, 1))
            if first < last
        ]
        for start, count in vector_ranges(width, SUMS_AT_ONCE):
            each = max(1, self.sizes.lanes // count)
            for first in range(0, height, each):
                mine = range(first, min(first + each, height))
                found = [[part[i * width + start + j] for i in mine for j in range(count)] for part in parts]
                total = tree("arith.addf", [_added_up(lines) for lines in found])
                for i in mine:
                    place = [(i - first) * count + j for j in range(count)]
                    value = b.shuffled(total, total, place) if b.width_of(total) > count else total
                    b.store(value if count > 1 else b.lane_of(value, 0), sums, [rows[i], columns[start]], aligned=False)

    def _along(
        self, block: Block, rows: list[Index], columns: list[Index], first: int, last: int, lanes: int
    ) -> list[ir.Value]:
        """The tile's sums over first ≤ k < last, in vectors of so many lanes whose numbers are to be added up."""
        count, unroll = len(rows) * len(columns), 1
        while count < 4 and unroll < self.sizes.unroll and (last - first) % (2 * unroll * lanes) == 0:
            unroll *= 2
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))

        def step(k: Index, *carried: ir.Value) -> list[ir.Value]:
            before, after = iter(carried), []
            with self.reader.scope():
                for number in range(unroll):
                    at = b.add(k, number * lanes)
                    ws = [self._right(block, column, at, lanes) for column in columns]
                    for row in rows:
                        x = self._left(block, row, at, lanes)
                        after += [b.fma(x, w, next(before)) for w in ws]
            return after

        results = b.loop(first, last, lanes * unroll, [zero] * (count * unroll), step)
        return [tree("arith.addf", results[i::count]) for i in range(count)]

    def _left(self, block: Block, row: Index, k: Index, lanes: int) -> ir.Value:
        return b.extend(self.left.read(self.reader, block.batch, b.add(block.row, row), k, lanes))

    def _right(self, block: Block, column: Index, k: Index, lanes: int) -> ir.Value:
        return b.extend(self.right.read(self.reader, block.batch, b.add(block.column, column), k, lanes))


def _added_up(lines: list[ir.Value]) -> ir.Value:
    """What each line's numbers add up to, as a vector (a number of one), which may be longer."""
    if len(lines) == 1:
        return b.reduce_vector("add", lines[0])
    if b.width_of(lines[0]) == 1:
        return b.vector_of(lines + lines[-1:] * (whole_power(len(lines)) - len(lines)))
    return sums_of_lines(lines + lines[-1:] * (whole_power(len(lines)) - len(lines)))


def whole_power(count: int) -> int:
    """The least power of two that is no less."""
    return 1 << (count - 1).bit_length()


class OuterTiles:
    """Sums that are vectors of columns.  packs: whether the right operand's vectors are first put side by side."""

    def __init__(self, product: Product, reader: Reader, sizes: TileSizes, packs: bool) -> None:
        self.product, self.reader, self.sizes, self.packs = product, reader, sizes, packs
        self.left, self.right = product.left, product.right
        self.depth = max(1, min(product.inner, PANEL_BYTES // (4 * sizes.columns * sizes.lanes)))

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block; past its last column, up to a whole vector, sums are anything."""
        width = self.sizes.columns * self.sizes.lanes
        if self.packs:
            self._packed(block, sums, width)
        else:
            steps(block.columns, width, lambda column, size: self._direct(block, sums, column, size))

    def _direct(self, block: Block, sums: ir.Value, column: Index, size: int) -> None:
        """Straight from the operands, over all k."""
        vectors = [(b.add(column, start), lanes) for start, lanes in vector_ranges(size, self.sizes.lanes)]

        def right(k: Index, at: Index, lanes: int) -> ir.Value:
            return b.extend(self.right.read_across(self.reader, block.batch, b.add(block.column, at), k, lanes))

        def rows(row: Index, height: int) -> None:
            zeros = [b.constant(0.0, b.with_width(b.f32(), lanes)) for _ in range(height) for _, lanes in vectors]
            totals = self._tile(block, vectors, row, height, (0, self.product.inner), zeros, right)
            self._store(totals, sums, vectors, row, height)

        steps(block.rows, self.sizes.rows, rows)

    def _packed(self, block: Block, sums: ir.Value, width: int) -> None:
        """From panels of `width` of the right operand's columns each, for some k after the other, which all columns
        read while they are near."""
        lanes = self.sizes.lanes
        panel = scratch([self.depth, width])
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))
        count = -(-block.columns // lanes)

        def clear(row: Index, _: int) -> None:
            steps(count, 1, lambda n, _: b.store(zero, sums, [row, b.mul(n, lanes)], aligned=False))

        def part(first: Index, depth: int) -> None:
            steps(block.columns, width, lambda c, n: self._of_panel(block, sums, panel, (c, n), (first, depth)))

        steps(block.rows, 1, clear)
        steps(self.product.inner, self.depth, part)

    def _of_panel(
        self, block: Block, sums: ir.Value, panel: ir.Value, columns: tuple[Index, int], span: tuple[Index, int]
    ) -> None:
        """Add to the sums of some columns, from one on so many, what they get from a span of k."""
        lanes = self.sizes.lanes
        column, size = columns
        vectors = [(i * lanes, lanes) for i in range(-(-size // lanes))]
        places = self._moved(vectors, column)
        self._pack(block, panel, column, size, *span)

        def rows(row: Index, height: int) -> None:
            before = [b.load(sums, [b.add(row, i), c], n) for i in range(height) for c, n in places]

            def right(k: Index, at: Index, n: int) -> ir.Value:
                return b.load(panel, [k, at], n)

            totals = self._tile(block, vectors, row, height, span, before, right)
            self._store(totals, sums, places, row, height)

        steps(block.rows, self.sizes.rows, rows)

    @staticmethod
    def _moved(vectors: list[tuple[int, int]], column: Index) -> list[tuple[Index, int]]:
        return [(b.add(column, start), lanes) for start, lanes in vectors]

    def _pack(self, block: Block, panel: ir.Value, column: Index, size: int, first: Index, depth: int) -> None:
        """panel[k, i] = right[column + i, first + k], zero past the last column."""
        lanes = self.sizes.lanes

        def at_k(k: Index, _: int) -> None:
            with self.reader.scope():
                if size % lanes:
                    zero = b.constant(0.0, b.with_width(b.f32(), lanes))
                    b.store(zero, panel, [k, size // lanes * lanes], aligned=False)
                for start, width in vector_ranges(size, lanes):
                    at = b.add(b.add(block.column, column), start)
                    with self.reader.stepping():
                        value = self.right.read_across(self.reader, block.batch, at, b.add(first, k), width)
                    b.store(b.extend(value), panel, [k, start], aligned=False)

        steps(depth, 1, at_k)

    def _tile(
        self,
        block: Block,
        vectors: list[tuple[Index, int]],
        row: Index,
        height: int,
        span: tuple[Index, int],
        before: list[ir.Value],
        right: Callable[[Index, Index, int], ir.Value],
    ) -> list[ir.Value]:
        """before + the sums over span, its first k and their number, of some rows times right(k, column, lanes)."""
        first, depth = span

        def step(k: Index, *carried: ir.Value) -> list[ir.Value]:
            totals = iter(carried)
            after = []
            with self.reader.scope():
                ws = [right(k, column, lanes) for column, lanes in vectors]
                for i in range(height):
                    at = b.add(b.add(block.row, row), i)
                    x = b.extend(self.left.read(self.reader, block.batch, at, b.add(first, k)))
                    after += [b.fma(b.splat(x, b.width_of(w)), w, next(totals)) for w in ws]
            return after

        return b.loop(0, depth, 1, before, step)

    @staticmethod
    def _store(
        totals: list[ir.Value], sums: ir.Value, vectors: list[tuple[Index, int]], row: Index, height: int
    ) -> None:
        values = iter(totals)
        for i in range(height):
            for column, _ in vectors:
                b.store(next(values), sums, [b.add(row, i), column], aligned=False)
