"""Columns of a product that its kernel puts into a cache, each row at a position of its own.

A thread has neighbouring columns of some rows.  Where in the cache an element goes is the sum of where its row does,
which the thread finds once for each row of its tile, and of where its column does in a row.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from math import gcd, prod

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.attention import place_of_row, read_row
from lispgpt.passes.kernels.epilogue import Epilogue, ResultRun, Span
from lispgpt.passes.kernels.joined_pairs import joined_pairs
from lispgpt.passes.kernels.read import Reader, outputs_of
from lispgpt.passes.model.product_rows import CACHED_ONLY
from lispgpt.passes.model.row_columns import RowColumns, row_columns
from lispgpt.passes.model.row_moments import moment_of
from lispgpt.passes.recognise.cache_writes import CacheWrite, is_cache_write
from lispgpt.passes.targets import Gpu


def is_cached(kernel: ir.Operation, tensor: ir.Value) -> bool:
    """Whether a kernel's result is one of its arguments with rows put into it that are columns of its product."""
    writes = _writes_of(tensor)
    buffer = next(buffer for result, buffer in outputs_of(kernel) if result == tensor)
    start = defining_op(writes[0].loop.operands[3]) if writes else None
    if start is None or start.name != "bufferization.to_tensor" or start.operands[0] != buffer:
        return False
    columns = [row_columns(write) for write in writes]
    return all(one is not None and one.short for one in columns)


def cached_results(kernel: ir.Operation, target: Gpu) -> list[CachedRows]:
    """The results of a kernel that `is_cached` lets through, those that go to one cache in their order."""
    found = []
    for tensor, buffer in outputs_of(kernel):
        for write in _writes_of(tensor):
            columns = row_columns(write)
            assert columns is not None
            found.append(CachedRows(write, buffer, columns, CACHED_ONLY in kernel.attributes, target))
    return found


def _writes_of(tensor: ir.Value) -> list[CacheWrite]:
    """The chain of cache writes that makes a value, the first one first."""
    found: list[CacheWrite] = []
    op = defining_op(tensor)
    while op is not None and is_cache_write(op):
        found.insert(0, CacheWrite(op))
        op = defining_op(op.operands[3])
    return found


@dataclass(frozen=True)
class CachedRows:
    """What one cache write takes of a product's columns, and the buffer that it puts them into.  apart: whether nobody
    reads these columns where the kernel's other results have them."""

    write: CacheWrite
    buffer: ir.Value
    columns: RowColumns
    apart: bool
    target: Gpu

    @property
    def own_columns(self) -> Sequence[tuple[int, int]]:
        return self.columns.runs if self.apart else ()

    @property
    def strides(self) -> list[int]:
        """Of the cache's dimensions, in elements."""
        shape = list(self.buffer.type.shape)
        return [prod(shape[i + 1 :]) for i in range(len(shape))]

    @property
    def row_strides(self) -> list[int]:
        """Of a row's dimensions in the cache."""
        return [stride for stride, kept in zip(self.strides, self.write.kept(), strict=True) if kept]

    @property
    def neighbours(self) -> int:
        """How many columns lie side by side in the cache, aligned, from each multiple of that many on."""
        columns, strides = self.columns, self.row_strides
        if not strides or strides[-1] != 1 or columns.strides[-1] != 1:
            return 1
        others = [stride for stride in self.strides if stride > 1]
        return gcd(columns.first, columns.extents[-1], *columns.strides[:-1], *others)

    def start(self, epilogue: Epilogue, pieces: Sequence[ResultRun]) -> CachedTile:
        """Find where the rows of a tile go that a thread has pieces of."""
        reader, product = Reader(self.target), epilogue.product
        ragged = product.rows % epilogue.tile[0] != 0
        rows = {}
        for row in dict.fromkeys(epilogue.row(piece.row) for piece in pieces):
            live = b.less(row, product.rows) if ragged else None
            number = b.at_most(row, product.rows - 1) if ragged else row
            place = place_of_row(self.write, reader, number, [0] * len(self.write.shape))
            rows[row] = _Row(number, self._linear(place, self.strides), live)
        return CachedTile(self, epilogue, rows)

    def offset(self, index: Sequence[Index]) -> Index:
        """How far from where its row starts in the cache an element lies."""
        return self._linear(index, self.row_strides)

    def flat(self) -> ir.Value:
        """The cache as one dimension."""
        return b.flattened(self.buffer)

    def place(self, column: Index) -> tuple[list[Index], ir.Value | None]:
        """Which element of a row a column is, and whether it is any."""
        columns, rest = self.columns, b.sub(column, self.columns.first)
        wide = [number for number, extent in enumerate(columns.extents) if extent > 1]
        live, index = [b.less(rest, columns.end - columns.first)], [0] * len(columns.extents)  # unsigned: not below 0
        covered = None
        for number in wide:
            extent, stride = columns.extents[number], columns.strides[number]
            index[number] = b.div(rest, stride)
            if covered is not None and covered > extent * stride:
                live.append(b.less(index[number], extent))
            rest, covered = b.mod(rest, stride), stride
        if covered is not None and covered > 1:
            live.append(b.equal(rest, 0))
        return index, b.both(*live)

    @staticmethod
    def _linear(index: Sequence[Index], strides: Sequence[int]) -> Index:
        total: Index = 0
        for place, stride in zip(index, strides, strict=True):
            total = b.add(total, b.mul(place, stride))
        return total


@dataclass(frozen=True)
class _Row:
    """number: in the product, of one that is there.  start: where it starts in the cache.  live: None: it is one."""

    number: Index
    start: Index
    live: ir.Value | None


@dataclass(frozen=True)
class CachedTile:
    """One thread's part of what goes to a cache of one tile.  rows: by rows of its pieces."""

    result: CachedRows
    epilogue: Epilogue
    rows: dict[Index, _Row]

    @property
    def tensor(self) -> ir.Value:
        """The tensor of the product's shape of which elements are wanted."""
        return self.result.columns.tensor

    def put(self, pieces: Sequence[ResultRun], values: Sequence[ir.Value], span: Span | None) -> None:
        """Store what goes to the cache.  pieces: in the product, where `tensor` has these values."""
        if span is None:
            self._put(pieces, values)
            return
        columns, first = self.result.columns, b.add(self.epilogue.first[1], span.first)
        overlaps = b.both(b.less(first, columns.end), b.less(columns.first, b.add(first, span.count)))
        b.if_live(overlaps, lambda: self._put(*self._joined(pieces, values)))

    def _joined(
        self, pieces: Sequence[ResultRun], values: Sequence[ir.Value]
    ) -> tuple[Sequence[ResultRun], Sequence[ir.Value]]:
        """By fours, where these are neighbours in the cache."""
        if self.result.neighbours % 4 or b.width_of(values[0]) != 2:
            return pieces, values
        return joined_pairs(pieces, values, b.thread_id(), self.result.target.subgroup)

    def _put(self, pieces: Sequence[ResultRun], values: Sequence[ir.Value]) -> None:
        result, flat = self.result, self.result.flat()
        reader = Reader(result.target)
        for piece, value in zip(pieces, values, strict=True):
            width, row = b.width_of(value), self.rows[piece.row]
            parts = [(0, value)] if result.neighbours % width == 0 else [(i, b.lane_of(value, i)) for i in range(width)]
            for lane, part in parts:
                index, live = result.place(b.add(piece.output, lane))
                b.if_live(b.both(row.live, live), partial(self._store, reader, flat, index, part, row))

    def _store(self, reader: Reader, flat: ir.Value, index: list[Index], value: ir.Value, row: _Row) -> None:
        with reader.scope():
            reader.hold(self.tensor, value)
            stored = read_row(self.result.write, reader, row.number, index, b.width_of(value))
        b.store(stored, flat, [b.add(row.start, self.result.offset(index))])


def is_made(kernel: ir.Operation, tensor: ir.Value) -> bool:
    """Whether a result that is not computed from the product point by point is one that these kernels make."""
    return moment_of(tensor) is not None or is_cached(kernel, tensor)
