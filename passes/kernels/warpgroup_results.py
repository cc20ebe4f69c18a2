"""What becomes of a tile's sums, which threads of two warpgroups hold: added up in a cluster, finished and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import is_elementwise, operations, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.epilogue import BATCH, Epilogue, OtherPart, Piece, Span, places
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import tree
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, whole
from lispgpt.passes.kernels.tile_stores import ROWS, TileStores
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup_tiles import STAGING_BYTES, Tiling

BULK_DTYPES = ("f32", "bf16")
FEWEST_COLUMNS = 32
"""That a thread finishes at once where there are several results, which would else take too many registers."""

MOST_RUNS = 8
"""Of columns, that a warpgroup looks for its own in."""

SUMS_AT_ONCE = 4
"""Neighbours that a thread adds up for a cluster."""


@dataclass(frozen=True)
class Tile:
    """Where a block's tile starts in which batch, and its part of k."""

    batch: Index
    row: Index
    column: Index
    k: Index


@dataclass(frozen=True)
class BulkResult:
    """How a result is stored in boxes of ROWS rows and one line of columns."""

    boxes: Boxes
    map: ir.Value
    width: int


def bulk_boxes(
    product: Product, results: Sequence[tuple[ir.Value, ir.Value]], copies: TensorCopies
) -> list[Boxes] | None:
    """How each result is stored in bulk; None where one cannot be, or there is none."""
    layout, found = product.layout, []
    for _, buffer in results:
        boxes = find_boxes(whole(buffer), layout, layout.result, (layout.batch, layout.rows, layout.columns), copies)
        if boxes is None or not boxes.is_along(2) or str(buffer.type.element_type) not in BULK_DTYPES:
            return None
        found.append(boxes)
    return None if product.along_columns % 2 or not found else found


def boxes_read(kernel: ir.Operation, product: Product, copies: TensorCopies) -> list[Boxes]:
    """How what results are made of beside the sums is copied: arguments that are read where a result is written."""
    layout, found = product.layout, []
    shape = shape_of(product.result)
    for op in operations(kernel.regions[0].blocks[0]):
        if op.name != "bufferization.to_tensor" or shape_of(op.results[0]) != shape:
            continue
        if all(is_elementwise(use.owner.operation) for use in op.results[0].uses):
            boxes = find_boxes(
                whole(op.operands[0]), layout, layout.result, (layout.batch, layout.rows, layout.columns), copies
            )
            found += [boxes] if boxes is not None and boxes.is_along(2) else []
    return found


def sums_stride(tiling: Tiling) -> int:
    """f32 from row to row of a tile in shared memory, which put what lanes store together on different banks."""
    return tiling.outputs + (8 - tiling.outputs) % 32


class OtherResult(Protocol):
    """A kernel's result that has another shape than the product."""

    @property
    def own_columns(self) -> Sequence[tuple[int, int]]:
        """Runs of the product's columns, (first, end), that are wanted here alone and not in the product's shape."""

    def start(self, epilogue: Epilogue, pieces: Sequence[Piece]) -> OtherPart:
        """What takes a thread's pieces of one tile, whose finishing is about to begin."""


@dataclass(frozen=True)
class TileResults:
    """results: (tensor computed from the product, its buffer), of the product's shape.  others: the other results.
    bulk: how results are stored in bulk, if they are.
    staging: address of the subgroups' memory for that.  memory: the block's, from its start on free once a tile is
    summed where the cluster adds up.  rank: the block's in its cluster."""

    target: Gpu
    product: Product
    tiling: Tiling
    results: Sequence[tuple[ir.Value, ir.Value]]
    others: Sequence[OtherResult]
    bulk: Sequence[BulkResult] | None
    staging: Index
    memory: BlockMemory
    rank: Index
    member: Member

    @property
    def columns(self) -> int:
        """Of a warpgroup."""
        return self.tiling.outputs // self.tiling.output_parts

    @property
    def first_column(self) -> Index:
        """Of the warpgroup, in the tile."""
        return b.mul(self.member.output_part, self.columns)

    def finish(self, tile: Tile, sums: list[ir.Value]) -> None:
        """By all threads that have multiplied."""
        column = b.add(self.first_column, b.mul(self.member.pair, 2))
        rows = [self.member.row, b.add(self.member.row, 8)]
        pieces = [
            Piece(row, b.add(column, 8 * n), b.vector_of(sums[4 * n + 2 * half : 4 * n + 2 * half + 2]))
            for n in range(self.columns // 8)
            for half, row in enumerate(rows)
        ]
        if self.tiling.splits > 1:
            pieces = self._add_splits(pieces)
        sizes, first = (self.tiling.rows, self.tiling.outputs), (tile.row, tile.column)
        epilogue = Epilogue(Reader(self.target), self.product, self.results, sizes, first, tile.batch)
        epilogue = replace(epilogue, others=[other.start(epilogue, pieces) for other in self.others])
        alone = self._have_no_place(tile)
        if alone is None:
            wanted = self.results or self.tiling.splits > 1 or self.product.along_columns % 2
            self._store(epilogue, tile, pieces) if wanted else self._hand_on(epilogue, pieces)
            return
        others = replace(epilogue, results=())
        b.either(alone, lambda: self._hand_on(others, pieces), lambda: self._store(epilogue, tile, pieces))

    def _have_no_place(self, tile: Tile) -> ir.Value | None:
        """Whether others alone want the warpgroup's columns; None where it does not have all of some run of them."""
        width, end = self.tiling.outputs, self.product.columns
        runs: list[tuple[int, int]] = []
        for first, last in sorted(run for other in self.others for run in other.own_columns):
            joined = runs.pop()[0] if runs and runs[-1][1] == first else first
            runs.append((joined, -(-end // width) * width if last == end else last))
        runs = [(first, last) for first, last in runs if last - first >= self.columns]
        if not runs or len(runs) > MOST_RUNS or self.tiling.splits > 1 or self.product.along_columns % 2:
            return None
        column = b.add(tile.column, self.first_column)
        found = [b.less(b.sub(column, first), last - first - self.columns + 1) for first, last in runs]
        return tree("arith.ori", found)

    def _hand_on(self, epilogue: Epilogue, pieces: Sequence[Piece]) -> None:
        """Have others take all of a warpgroup's pieces."""
        with epilogue.reader.scope():
            asked = epilogue.asked(pieces[:BATCH])
            for first in range(0, len(pieces), BATCH):
                asked, now = epilogue.asked(pieces[first + BATCH : first + 2 * BATCH]), asked
                span = self._span(epilogue, 4 * first, 4 * len(now))
                epilogue.hand_on(pieces[first : first + BATCH], epilogue.finished(now), span)

    def _span(self, epilogue: Epilogue, first: int, count: int) -> Span | None:
        """So many of a warpgroup's columns, for others that take them."""
        return Span(b.add(self.first_column, first), count) if epilogue.others and self.tiling.splits == 1 else None

    def _store(self, epilogue: Epilogue, tile: Tile, pieces: Sequence[Piece]) -> None:
        """Store results in bulk, as far as whole boxes go, and have others take theirs."""
        with epilogue.reader.scope():
            done = 0 if self.bulk is None else self._store_in_bulk(self.bulk, epilogue, tile, pieces)
            if pieces[done:]:
                epilogue.write(pieces[done:], self._span(epilogue, 4 * done, self.columns - 4 * done))

    def end(self) -> None:
        """By the same threads, ahead of the block's end."""
        if self.bulk is not None:
            self._stores().finish()

    def _stores(self) -> TileStores:
        target, unit, copies = self.target, self.target.warpgroup, self.target.copies
        assert unit is not None and copies is not None
        group = b.add(self.member.row_part, b.mul(self.member.output_part, self.tiling.row_parts))
        subgroup = b.add(b.mul(group, unit.threads // target.subgroup), b.div(self.member.number, target.subgroup))
        results = len(self.results)
        memory = b.add(self.staging, b.mul(subgroup, results * STAGING_BYTES))
        lane = b.mod(self.member.number, target.subgroup)
        return TileStores(copies, unit, memory, results * STAGING_BYTES // (ROWS * copies.line), lane, results)

    def _store_in_bulk(
        self, bulk: Sequence[BulkResult], epilogue: Epilogue, tile: Tile, pieces: Sequence[Piece]
    ) -> int:
        """Finish and store as many pieces as whole boxes take; their number."""
        unit, stores = self.target.warpgroup, self._stores()
        assert unit is not None
        subgroup = b.div(self.member.number, self.target.subgroup)
        row = b.add(tile.row, b.add(b.mul(self.member.row_part, unit.rows), b.mul(subgroup, ROWS)))
        column = b.add(tile.column, self.first_column)
        widths = [result.width for result in bulk]
        narrow = min(widths) if len(bulk) == 1 else FEWEST_COLUMNS
        done = self.columns // max(widths) * max(widths)
        opened: list[Index] = [0] * len(bulk)
        asked = epilogue.asked(pieces[: narrow // 4])
        for first in range(0, done, narrow):
            following = range(first + narrow, min(first + 2 * narrow, done))
            asked, now = epilogue.asked(pieces[following.start // 4 : following.stop // 4]), asked
            values = epilogue.finished(now)
            span = self._span(epilogue, first, narrow)
            epilogue.hand_on(pieces[first // 4 : (first + narrow) // 4], values, span)
            for number, result in enumerate(bulk):
                within = first % result.width
                if within == 0:
                    opened[number] = stores.open()
                stores.put(opened[number], within, [each[number] for each in values])
                if within + narrow == result.width:
                    at = (tile.batch, row, b.add(column, first - within))
                    stores.close(opened[number], result.map, result.boxes, at)
        return done // 4

    def _add_splits(self, pieces: list[Piece]) -> list[Piece]:
        """Add what the blocks of a cluster have summed over their parts of k, in their order; each gets some of it."""
        t, width, stride, unit = self.tiling, SUMS_AT_ONCE, sums_stride(self.tiling), self.target.warpgroup
        assert unit is not None
        threads = t.row_parts * t.output_parts * unit.threads
        self.target.team_barrier(0, threads)  # which may still multiply from where sums go
        partial = self.memory.view(0, [t.rows, stride], b.f32())
        for piece in pieces:
            b.store(piece.value, partial, [piece.row, piece.output])
        self.target.cluster_barrier()
        vectors = t.rows * t.outputs // width
        count = -(-vectors // t.splits)
        thread, first = b.sub(b.thread_id(), unit.threads), b.mul(self.rank, count)
        found = []
        for row, column in places(thread, threads, count, t.outputs, width, first):
            row = b.at_most(row, t.rows - 1) if vectors % t.splits else row
            at = b.add(b.mul(row, stride), column)
            shares = [self.target.cluster_load(partial, at, rank, width) for rank in range(t.splits)]
            found.append(Piece(row, column, tree("arith.addf", shares)))
        self.target.cluster_barrier()
        return found
