"""What becomes of a tile's sums, which threads of two warpgroups hold: added up in a cluster, finished and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.bulk_results import BulkResult, staged_bytes
from lispgpt.passes.kernels.epilogue import BATCH, Epilogue, OtherPart, Piece, Placed, Span, places, valued
from lispgpt.passes.kernels.lane_stores import COLUMNS as LANE_COLUMNS
from lispgpt.passes.kernels.lane_stores import LaneStores, area_bytes
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Unrolled, tree
from lispgpt.passes.kernels.tile_stores import ROWS, Line, TileStores
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import STAGING_BYTES, SUMS_AT_ONCE, Tiling

MOST_COLUMNS = 48
"""That a thread finishes at once where all of their lines have room."""
FEWEST_COLUMNS = 32
"""That a thread finishes at once where there are several results, which would else take too many registers."""


MOST_RUNS = 8
"""Of columns, that a warpgroup looks for its own in."""


@dataclass(frozen=True)
class Tile:
    """Where a block's tile starts in which batch, and its part of k."""

    batch: Index
    row: Index
    column: Index
    k: Index


def sums_stride(tiling: Tiling) -> int:
    """f32 from row to row of a tile in shared memory, which put what lanes store together on different banks."""
    return tiling.outputs + (8 - tiling.outputs) % 32


class OtherResult(Protocol):
    """A kernel's result that has another shape than the product."""

    @property
    def own_columns(self) -> Sequence[tuple[int, int]]:
        """Runs of the product's columns, (first, end), that are wanted here alone and not in the product's shape."""

    def start(self, epilogue: Epilogue, pieces: Sequence[Piece]) -> OtherPart:
        """What takes a thread's pieces of one tile, ahead of their sums."""


@dataclass(frozen=True)
class Begun:
    """What finishes a tile.  places: of this thread's sums in it.  asked: the same in the product, where what they are
    finished with is under way; else empty."""

    epilogue: Epilogue
    places: Sequence[Piece]
    asked: list[Placed]


@dataclass(frozen=True)
class TileResults:
    """results: (tensor computed from the product, its buffer), of the product's shape.  others: the other results.
    bulk: how results are stored in bulk, if they are.  staging: address of the subgroups' memory for that.  memory: the
    block's, from its start on free once a tile is summed where the cluster adds up.  rank: the block's in its cluster.
    roomy: whether all of a tile's results have room for themselves in staging, which starts `staged` bytes into
    memory."""

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
        """What finishes a tile, ahead of its sums: what it reads for the rows of this thread is under way, and where a
        cluster adds up, whose sums are short, what it reads for their columns.  Long sums would take 3 us more beside
        such loads."""
        sizes, first = (self.tiling.rows, self.tiling.outputs), (tile.row, tile.column)
        epilogue = Epilogue(Reader(self.target, Unrolled()), self.product, self.results, sizes, first, tile.batch)
        split = self.tiling.splits > 1
        own = [
            Piece(*place, _nothing(SUMS_AT_ONCE if split else 2))
            for place in (self._shared_places if split else self._own_places)
        ]
        epilogue.prepare([piece.row for piece in own])
        epilogue.others.extend(other.start(epilogue, own) for other in self.others)
        asked = epilogue.asked(own) if split else []
        return Begun(epilogue, own, asked if len(asked) == len(own) else [])

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
        epilogue, alone = begun.epilogue, self._alone(tile)
        if begun.asked:
            epilogue.write(valued(begun.asked, values))
            return
        if alone is None:
            wanted = self.results or self.tiling.splits > 1 or self.product.along_columns % 2
            (self._store if wanted else self._hand_on)(epilogue, tile, pieces)
            return
        others = epilogue.without_results()
        b.either(
            alone,
            lambda: self._hand_on(others, tile, pieces),
            lambda: self._store(epilogue, tile, pieces),
        )

    def _alone(self, tile: Tile) -> ir.Value | None:
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

    def _hand_on(self, epilogue: Epilogue, tile: Tile, pieces: Sequence[Piece]) -> None:
        """Have others take all of a warpgroup's pieces."""
        with epilogue.reader.scope():
            asked = epilogue.asked(pieces[:BATCH])
            for first in range(0, len(pieces), BATCH):
                asked, now = epilogue.asked(pieces[first + BATCH : first + 2 * BATCH]), asked
                epilogue.hand_on(now, epilogue.finished(now), self._span(epilogue, 4 * first, 4 * len(now)))

    def _span(self, epilogue: Epilogue, first: int, count: int) -> Span | None:
        """So many of a warpgroup's columns, for others that take them."""
        return Span(b.add(self.first_column, first), count) if epilogue.others and self.tiling.splits == 1 else None

    def _store(self, epilogue: Epilogue, tile: Tile, pieces: Sequence[Piece]) -> None:
        """Store results in bulk, as far as whole boxes go, and have others take theirs."""
        with epilogue.reader.scope():
            done = 0 if self.bulk is None else self._store_in_bulk(self.bulk, epilogue, tile, pieces)
            rest = epilogue.placed(pieces[done:])
            epilogue.write(rest, self._span(epilogue, 4 * done, self.columns - 4 * done))

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
    ) -> int:
        """Finish and store as many pieces as whole boxes take; their number."""
        unit, stores = self.target.warpgroup, self._stores()
        assert unit is not None
        subgroup = b.div(self.member.number, self.target.subgroup)
        row = b.add(tile.row, b.add(b.mul(self.member.row_part, unit.rows), b.mul(subgroup, ROWS)))
        column = b.add(tile.column, self.first_column)
        narrow, done = self._narrow(bulk), self._in_bulk(bulk)
        opened: list[Index] = [0] * len(bulk)
        asked = epilogue.asked(pieces[: narrow // 4])
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
            epilogue.hand_on(now, values, self._span(epilogue, first, narrow))
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
