"""What becomes of a tile's sums, which threads of two warpgroups hold: added up in a cluster, finished and stored."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import is_elementwise, operations, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.epilogue import Epilogue, Piece, places, valued
from lispgpt.passes.kernels.lane_stores import COLUMNS as LANE_COLUMNS
from lispgpt.passes.kernels.lane_stores import LaneStores, area_bytes
from lispgpt.passes.kernels.moment_sums import MomentSums
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Unrolled, tree
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, whole
from lispgpt.passes.kernels.tile_stores import ROWS, Line, TileStores
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.model.row_moments import Moments
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup_tiles import STAGING_BYTES, SUMS_AT_ONCE, Tiling

BULK_DTYPES = ("f32", "bf16")
LINE = TensorCopies.line
MOST_COLUMNS = 48
"""That a thread finishes at once where all of their lines have room."""
FEWEST_COLUMNS = 32
"""That a thread finishes at once where there are several results, which would else take too many registers."""


Seen = Callable[[Piece, list[ir.Value]], None]
"""Takes a piece in the product, and what becomes of it in each result."""


@dataclass(frozen=True)
class Tile:
    """Where a block's tile starts in which batch, and its part of k."""

    batch: Index
    row: Index
    column: Index
    k: Index


@dataclass(frozen=True)
class BulkResult:
    """How a result is stored in boxes of ROWS rows and one line of `width` columns, or without a map by lanes."""

    boxes: Boxes
    map: ir.Value | None
    width: int


def bulk_boxes(
    product: Product, results: Sequence[tuple[ir.Value, ir.Value]], copies: TensorCopies
) -> list[Boxes] | None:
    """How each result is stored in bulk; None where one cannot be."""
    layout, found = product.layout, []
    for _, buffer in results:
        boxes = find_boxes(whole(buffer), layout, layout.result, (layout.batch, layout.rows, layout.columns), copies)
        if boxes is None or not boxes.is_along(2) or str(buffer.type.element_type) not in BULK_DTYPES:
            return None
        found.append(boxes)
    return None if product.along_columns % 2 else found


def lanes_store(boxes: Boxes, product: Product, columns: int, copies: TensorCopies) -> bool:
    """Whether a warpgroup's columns of a result are better stored by lanes: they are not whole lines of boxes, but
    whole vectors of rows that lie in memory as the product has them."""
    line = copies.line // b.item_bytes(boxes.argument.type)
    plain = len(boxes.argument.type.shape) == 2 and product.along_columns % LANE_COLUMNS == 0 and product.batches == 1
    return plain and columns % line != 0 == columns % LANE_COLUMNS


def staged_bytes(boxes: Boxes, columns: int, by_lanes: bool) -> int:
    """What a subgroup's rows of so many columns of a result take on their way to memory: whole lines, or all of them
    where lanes store them."""
    item = b.item_bytes(boxes.argument.type)
    return area_bytes(columns, item) if by_lanes else ROWS * (columns * item // LINE * LINE)


def boxes_read(
    kernel: ir.Operation, product: Product, results: Sequence[tuple[ir.Value, ir.Value]], copies: TensorCopies
) -> list[Boxes]:
    """How what results are made of beside the sums is copied: arguments that are read where a result is written."""
    layout, found = product.layout, []
    shape = shape_of(results[0][0])
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


@dataclass(frozen=True)
class Begun:
    """What finishes a tile.  places: of this thread's sums in it.  asked: the first of them, in the product."""

    epilogue: Epilogue
    places: Sequence[Piece]
    asked: list[tuple[Piece, list[Index]]]


@dataclass(frozen=True)
class TileResults:
    """results: (tensor computed from the product, its buffer).  moments: of the rows of one of these, where they are to
    be made (see row_moments).  bulk: how they are stored in bulk, if they are.  staging: address of the subgroups'
    memory for that.  memory: the block's, from its start on free once a tile is summed where the cluster adds up.
    rank: the block's in its cluster.  roomy: whether all of a tile's results have room for themselves in staging, which
    starts `staged` bytes into memory."""

    target: Gpu
    product: Product
    tiling: Tiling
    results: Sequence[tuple[ir.Value, ir.Value]]
    moments: Moments | None
    bulk: Sequence[BulkResult] | None
    staging: Index
    memory: BlockMemory
    rank: Index
    member: Member
    roomy: bool
    staged: int

    @property
    def columns(self) -> int:
        """Of a warpgroup."""
        return self.tiling.outputs // self.tiling.output_parts

    @property
    def first_column(self) -> Index:
        """Of the warpgroup, in the tile."""
        return b.mul(self.member.output_part, self.columns)

    def begin(self, tile: Tile) -> Begun:
        """What finishes a tile, ahead of its sums: what it reads for the rows and the first columns of this thread is
        under way."""
        sizes, first = (self.tiling.rows, self.tiling.outputs), (tile.row, tile.column)
        epilogue = Epilogue(Reader(self.target, Unrolled()), self.product, self.results, sizes, first, tile.batch)
        if self.tiling.splits > 1:
            own = [Piece(*place, _nothing(SUMS_AT_ONCE)) for place in self._shared_places]
            early = len(own)
        else:
            own = [Piece(*place, _nothing(2)) for place in self._own_places]
            early = 0 if self.bulk is None else min(self._in_bulk(self.bulk), self._narrow(self.bulk)) // 4
        epilogue.prepare([piece.row for piece in own])
        asked = epilogue.asked(own[:early])
        return Begun(epilogue, own, asked if len(asked) == early else [])

    @cached_property
    def _own_places(self) -> list[tuple[Index, Index]]:
        """Where in the tile this thread's sums are, two neighbours each."""
        rows = [self.member.row, b.add(self.member.row, 8)]
        column = b.add(self.first_column, b.mul(self.member.pair, 2))
        return [(row, b.add(column, 8 * n)) for n in range(self.columns // 8) for row in rows]

    @cached_property
    def _shared_places(self) -> list[tuple[Index, Index]]:
        """Where in the tile those sums are that this thread adds up for the cluster, SUMS_AT_ONCE neighbours each."""
        t, unit = self.tiling, self.target.warpgroup
        assert unit is not None
        vectors, threads = t.rows * t.outputs // SUMS_AT_ONCE, t.row_parts * t.output_parts * unit.threads
        count = -(-vectors // t.splits)
        thread, first = b.sub(b.thread_id(), unit.threads), b.mul(self.rank, count)
        found = places(thread, threads, count, t.outputs, SUMS_AT_ONCE, first)
        return [(b.at_most(row, t.rows - 1) if vectors % t.splits else row, column) for row, column in found]

    def finish(self, tile: Tile, sums: list[ir.Value], begun: Begun) -> None:
        """By all threads that have multiplied."""
        values = [b.vector_of(sums[first : first + 2]) for first in range(0, len(sums), 2)]
        if self.tiling.splits > 1:
            values = self._add_splits(values)
        pieces = [replace(place, value=value) for place, value in zip(begun.places, values, strict=True)]
        seen, epilogue, early = self._seen(), begun.epilogue, len(begun.asked)
        asked = valued(begun.asked, values[:early])
        with epilogue.reader.scope():
            if self.bulk is not None:
                early = self._store_in_bulk(self.bulk, epilogue, tile, pieces, asked, seen)
                asked = []
            epilogue.write([*asked, *epilogue.placed(pieces[early:])], seen)

    def _seen(self) -> Seen:
        """What takes pieces of a tile beside their stores."""
        if self.moments is None:
            return lambda piece, values: None
        split, group = self.tiling.splits > 1, self.moments.group
        shape = (group // SUMS_AT_ONCE, 1) if split else (4, group // 8)
        extents, tile = (self.product.rows, self.product.columns), (self.tiling.rows, self.tiling.outputs)
        ragged = (extents[0] % tile[0] != 0, extents[1] % tile[1] != 0)
        sums = MomentSums(self.target, self.product, self.moments, *shape, ragged)
        source = [tensor for tensor, _ in self.results].index(self.moments.source)
        return lambda piece, values: sums.take(piece, values[source])

    def end(self) -> None:
        """By the same threads, ahead of the block's end: no block of a cluster may end while another adds up."""
        if self.bulk is not None:
            self._stores().finish()
        if self.tiling.splits > 1:
            self.target.cluster_leave()

    def _stores(self) -> TileStores:
        target, unit, copies = self.target, self.target.warpgroup, self.target.copies
        assert unit is not None and copies is not None
        results, lane = len(self.results), b.mod(self.member.number, target.subgroup)
        each = results * STAGING_BYTES
        if self.roomy:
            each = sum(self._bytes(result) for result in self.bulk or () if result.map is not None)
        memory = b.add(self.staging, b.mul(self._subgroup, each))
        return TileStores(copies, unit, memory, each // (ROWS * copies.line), lane, results, not self.roomy)

    @property
    def _subgroup(self) -> Index:
        """The subgroup's number among those that multiply."""
        target, unit = self.target, self.target.warpgroup
        assert unit is not None
        group = b.add(self.member.row_part, b.mul(self.member.output_part, self.tiling.row_parts))
        return b.add(b.mul(group, unit.threads // target.subgroup), b.div(self.member.number, target.subgroup))

    def _bytes(self, result: BulkResult) -> int:
        """What a subgroup's rows of a result take on their way to memory."""
        return staged_bytes(result.boxes, self.columns, result.map is None)

    def _lane_stores(self, bulk: Sequence[BulkResult], narrow: int) -> list[list[LaneStores]]:
        """What stores each result by lanes, so many columns at a time; nothing for those that boxes store."""
        copies, unit = self.target.copies, self.target.warpgroup
        assert copies is not None and unit is not None
        subgroups = self.tiling.row_parts * self.tiling.output_parts * unit.threads // self.target.subgroup
        start = subgroups * sum(self._bytes(result) for result in bulk if result.map is not None)
        extents, tile = (self.product.rows, self.product.columns), (self.tiling.rows, self.tiling.outputs)
        ends = tuple(n if n % size else None for n, size in zip(extents, tile, strict=True))
        lane, found = b.mod(self.member.number, self.target.subgroup), []
        for result in bulk:
            buffer, stores = result.boxes.argument, []
            each = area_bytes(narrow, b.item_bytes(buffer.type))
            for _ in range(self.columns // narrow if result.map is None else 0):
                place = b.add(self.staged + start, b.mul(self._subgroup, each))
                stores.append(LaneStores(copies, self.memory, place, narrow, buffer, lane, (ends[0], ends[1])))
                start += subgroups * each
            found.append(stores)
        return found

    def _store_in_bulk(
        self,
        bulk: Sequence[BulkResult],
        epilogue: Epilogue,
        tile: Tile,
        pieces: Sequence[Piece],
        asked: list[tuple[Piece, list[Index]]],
        seen: Seen,
    ) -> int:
        """Finish and store as many pieces as whole boxes take; their number.  asked: the first of them, if they have
        been asked for."""
        unit, stores = self.target.warpgroup, self._stores()
        assert unit is not None
        subgroup = b.div(self.member.number, self.target.subgroup)
        row = b.add(tile.row, b.add(b.mul(self.member.row_part, unit.rows), b.mul(subgroup, ROWS)))
        column = b.add(tile.column, self.first_column)
        narrow, done = self._narrow(bulk), self._in_bulk(bulk)
        opened: list[Index] = [0] * len(bulk)
        by_lanes = self._lane_stores(bulk, narrow) if self.roomy else [[]] * len(bulk)
        for first in range(0, done, narrow):
            following = range(first + narrow, min(first + 2 * narrow, done))
            asked, now = epilogue.asked(pieces[following.start // 4 : following.stop // 4]), asked
            values, filled = epilogue.finished(now), []
            for number, result in enumerate(bulk):
                own, within = [each[number] for each in values], first % result.width
                if result.map is None:
                    by_lanes[number][first // narrow].put(own)
                    continue
                if within == 0:
                    opened[number] = stores.open()
                stores.put(opened[number], within, own)
                if within + narrow == result.width:
                    filled.append(
                        Line(opened[number], result.map, result.boxes, (tile.batch, row, b.add(column, first - within)))
                    )
            stores.close(filled)
            for own_stores in by_lanes:
                for each in own_stores[first // narrow : first // narrow + 1]:
                    each.store(row, b.add(column, first))
            for (piece, _), found in zip(now, values, strict=True):
                seen(piece, found)
        return done // 4

    def _narrow(self, bulk: Sequence[BulkResult]) -> int:
        """Columns that are finished together: of several results no more than registers hold."""
        widths = [result.width for result in bulk if result.map is not None]
        if not widths:
            steps = range(LANE_COLUMNS, MOST_COLUMNS + 1, LANE_COLUMNS)
            return max(n for n in steps if self.columns % n == 0)
        return widths[0] if len(bulk) == 1 else min(*widths, FEWEST_COLUMNS)

    def _in_bulk(self, bulk: Sequence[BulkResult]) -> int:
        """Columns of a warpgroup that are stored in bulk, or by lanes out of shared memory."""
        widest = max((result.width for result in bulk if result.map is not None), default=LANE_COLUMNS)
        return self.columns // widest * widest

    def _add_splits(self, values: list[ir.Value]) -> list[ir.Value]:
        """Add what the blocks of a cluster have summed over their parts of k, in their order; each gets some of it."""
        t, stride, unit = self.tiling, sums_stride(self.tiling), self.target.warpgroup
        assert unit is not None
        self.target.team_barrier(0, t.row_parts * t.output_parts * unit.threads)  # which may still multiply there
        partial = self.memory.view(0, [t.rows, stride], b.f32())
        for (row, column), value in zip(self._own_places, values, strict=True):
            b.store(value, partial, [row, column])
        self.target.cluster_barrier()
        found = []
        for row, column in self._shared_places:
            at = b.add(b.mul(row, stride), column)
            shares = [self.target.cluster_load(partial, at, rank, SUMS_AT_ONCE) for rank in range(t.splits)]
            found.append(tree("arith.addf", shares))
        return found


def _nothing(width: int) -> ir.Value:
    return b.constant(0.0, b.with_width(b.f32(), width))
