"""A CPU's part of a product of many rows whose operands have k innermost: sums in tiles of vectors of columns.

The right operand's columns are put side by side, in f32, for as many k as a panel of them fits the first-level cache,
by turning squares of it in registers.  The left one's elements are taken as they lie where they are f32 in memory, else
they are put into f32 once for all columns of a block.
"""

from __future__ import annotations

from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.matrices import transposed
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.schedule.cpu.panels import padded
from lispgpt.passes.schedule.cpu.register_tiles import (
    LINE_BYTES,
    PANEL_BYTES,
    Block,
    TileSizes,
    add_products,
    ranges,
    scratch,
    steps,
)

MOST_PARTS = 4
"""Of k that are written out, so that a computed element's place along k is a number."""


class TransposedTiles:
    """sizes: rows of a tile, and columns counted in vectors of so many lanes.  rows: of a block, at most."""

    def __init__(self, product: Product, reader: Reader, sizes: TileSizes, rows: int) -> None:
        self.left, self.right, self.inner = product.left, product.right, product.inner
        self.reader, self.sizes, self.width = reader, sizes, sizes.columns * sizes.lanes
        most = PANEL_BYTES // (4 * self.width) // sizes.lanes * sizes.lanes
        parts = -(-self.inner // most)
        self.depth = min(-(-self.inner // (parts * sizes.lanes)) * sizes.lanes, self.inner)
        plain = self.left.dtype == "f32" and not self.left.is_computed()
        self.rows = None if plain else scratch([rows, self.depth])
        self.panel = scratch([self.depth, self.width])

    def fill(self, block: Block, sums: ir.Value) -> None:
        """Write sums[row, column] of a block; past its last column, up to a whole vector, sums are anything."""
        if self.depth != self.inner:
            zero = b.constant(0.0, b.with_width(b.f32(), self.sizes.lanes))
            vectors = -(-block.columns // self.sizes.lanes)

            def clear(row: Index, _: int) -> None:
                steps(vectors, 1, lambda n, _: b.store(zero, sums, [row, b.mul(n, self.sizes.lanes)]))

            steps(block.rows, 1, clear)

        def part(first: Index, depth: int) -> None:
            if self.rows is not None:
                steps(block.rows, 1, lambda row, _: self._widen(block, row, first, depth))
            steps(
                block.columns, self.width, lambda column, size: self._columns(block, sums, column, size, first, depth)
            )

        parts = ranges(self.inner, self.depth)
        if self.rows is not None and sum(-(-(stop - start) // size) for start, stop, size in parts) <= MOST_PARTS:
            for start, stop, size in parts:
                for first in range(start, stop, size):
                    part(first, size)
        else:
            steps(self.inner, self.depth, part)

    def _widen(self, block: Block, row: Index, first: Index, depth: int) -> None:
        """A row's elements of a part of k, in f32."""

        def some(k: Index, size: int) -> None:
            with self.reader.scope():
                numbers = self._line(self.left, block.batch, b.add(block.row, row), b.add(first, k), size)
                b.store(numbers, self.rows, [row, k], aligned=False)

        whole = depth // self.sizes.lanes * self.sizes.lanes
        if self.left.is_computed() and isinstance(first, int):
            for k in range(0, whole, self.sizes.lanes):  # where elements are from depends on k, which is then known
                some(k, self.sizes.lanes)
        else:
            steps(whole, self.sizes.lanes, some)
        for k in range(whole, depth):
            some(k, 1)

    def _columns(self, block: Block, sums: ir.Value, column: Index, size: int, first: Index, depth: int) -> None:
        """The sums of at most a panel's columns over a part of k."""
        lanes = self.sizes.lanes
        vectors = -(-size // lanes)

        def squares(k: Index, count: int) -> None:
            for vector in range(vectors):
                start = b.add(b.add(block.column, column), vector * lanes)
                self._turn(block.batch, start, min(size - vector * lanes, lanes), b.add(first, k), count, k, vector)

        steps(depth, lanes, squares)

        def tile(row: Index, height: int) -> None:
            self._fetch_next(block, column, first, row)
            self._tile(block, sums, column, vectors, first, depth, row, height)

        steps(block.rows, self.sizes.rows, tile)

    def _fetch_next(self, block: Block, column: Index, first: Index, row: Index) -> None:
        """Fetch a share of what the next panel is made of while the tile from a row on is multiplied."""
        share = -(-self.width * self.sizes.rows // block.rows)
        number = b.mul(b.div(row, self.sizes.rows), share)
        after = b.add(column, self.width)
        here = b.less(after, block.columns)
        start = b.add(b.add(block.column, b.or_zero(here, after)), number)
        k = b.select(here, b.as_value(first), b.as_value(b.add(first, self.depth)))
        line = LINE_BYTES // b.item_bytes(self.right.tensor.type)
        for i in range(share):
            for ahead in range(0, self.depth, line):
                self.right.fetch(block.batch, b.add(start, i), b.add(k, ahead))

    def _turn(self, batch: Index, start: Index, columns: int, k: Index, count: int, row: Index, vector: int) -> None:
        """panel[row + i, vector] = right[start …, k + i] for `count` k; zero past so many columns."""
        lanes = self.sizes.lanes

        def line(column: int) -> ir.Value:
            read = partial(self._line, self.right, batch, b.add(start, column))
            return padded(lambda i, n: read(b.add(k, i), n), count, lanes)

        with self.reader.scope():
            lines = [line(column) for column in range(columns)]
            zero = b.constant(0.0, b.with_width(b.f32(), lanes))
            for i, line in enumerate(transposed([*lines, *[zero] * (lanes - columns)])[:count]):
                b.store(line, self.panel, [b.add(row, i), vector * lanes])

    def _line(self, operand: Operand, batch: Index, outer: Index, k: Index, width: int) -> ir.Value:
        """Neighbours along k of a row or column, f32."""
        return b.extend(operand.read(self.reader, batch, outer, k, width))

    def _tile(
        self,
        block: Block,
        sums: ir.Value,
        column: Index,
        vectors: int,
        first: Index,
        depth: int,
        row: Index,
        height: int,
    ) -> None:
        """Add to the sums of some rows what the panel holds."""
        lanes = self.sizes.lanes
        places = [[b.add(row, i), b.add(column, vector * lanes)] for i in range(height) for vector in range(vectors)]
        zero = b.constant(0.0, b.with_width(b.f32(), lanes))
        alone = self.depth == self.inner
        before = [zero if alone else b.load(sums, place, lanes) for place in places]

        def own(i: Index, k: Index) -> ir.Value:
            return b.splat(self._element(block, b.add(row, i), first, k), lanes)

        def columns(k: Index) -> list[ir.Value]:
            return [b.load(self.panel, [k, vector * lanes], lanes) for vector in range(vectors)]

        totals = add_products(self.reader, (depth, 1), before, range(height), own, columns)
        for total, place in zip(totals, places, strict=True):
            b.store(total, sums, place)

    def _element(self, block: Block, row: Index, first: Index, k: Index) -> ir.Value:
        """Of the left operand, f32."""
        if self.rows is not None:
            return b.load(self.rows, [row, k], 1)
        return self.left.read(self.reader, block.batch, b.add(block.row, row), b.add(first, k))
