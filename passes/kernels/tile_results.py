"""What becomes of a tile's sums, which threads of warpgroups hold: added up in a cluster, finished and stored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Protocol

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import operations
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.bulk_stores import BulkStores, TilePlace, span_of
from lispgpt.passes.kernels.epilogue import BATCH, Epilogue, OtherPart, Placed, ResultRun, Span, places, valued
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.team import Neighbours, tree
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import SUMS_AT_ONCE, Tiling

MOST_RUNS = 8
"""Of columns, that a warpgroup looks for its own in."""


def sums_stride(tiling: Tiling) -> int:
    """f32 from row to row of a tile in shared memory, which put what lanes store together on different banks."""
    return tiling.outputs + (8 - tiling.outputs) % 32


class OtherResult(Protocol):
    """A kernel's result that has another shape than the product."""

    @property
    def own_columns(self) -> Sequence[tuple[int, int]]:
        """Runs of the product's columns, (first, end), that are wanted here alone and not in the product's shape."""

    def start(self, epilogue: Epilogue, pieces: Sequence[ResultRun]) -> OtherPart:
        """What takes a thread's pieces of one tile, ahead of their sums."""


@dataclass(frozen=True)
class Begun:
    """What finishes a tile.  places: of this thread's sums in it.  asked: the same in the product, where what they are
    finished with is under way; else empty."""

    epilogue: Epilogue
    places: Sequence[ResultRun]
    asked: list[Placed]


@dataclass(frozen=True)
class TileResults:
    """results: (tensor computed from the product, its buffer), of the product's shape.  others: the other results.
    bulk: what stores results in bulk, if they are stored so.  memory: the block's, from its start on free once a tile
    is summed where the cluster adds up.  rank: the block's in its cluster."""

    target: Gpu
    product: Product
    tiling: Tiling
    results: Sequence[tuple[ir.Value, ir.Value]]
    others: Sequence[OtherResult]
    bulk: BulkStores | None
    memory: BlockMemory
    rank: Index
    member: Member

    @property
    def first_column(self) -> Index:
        """Of the warpgroup, in the tile."""
        return b.mul(self.member.output_part, self.tiling.columns)

    def begin(self, tile: TilePlace) -> Begun:
        """What finishes a tile, ahead of its sums: what it reads for the rows of this thread is under way, and where a
        cluster adds up, whose sums are short, what it reads for their columns.  Long sums would take 3 us more beside
        such loads."""
        sizes, first = (self.tiling.rows, self.tiling.outputs), (tile.row, tile.column)
        reader = Reader(self.target, Neighbours(self._lane, self._lanes_of_a_row, self.target.subgroup))
        epilogue = Epilogue(reader, self.product, self.results, sizes, first, tile.batch)
        split = self.tiling.splits > 1
        own = [
            ResultRun(*place, _nothing(SUMS_AT_ONCE if split else 2))
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
        return [(row, b.add(column, 8 * n)) for n in range(self.tiling.columns // 8) for row in rows]

    @cached_property
    def _shared_places(self) -> list[tuple[Index, Index]]:
        """Where in the tile those sums are that this thread adds up for the cluster, SUMS_AT_ONCE neighbours each."""
        t, unit = self.tiling, self.target.warpgroup
        assert unit is not None
        each, threads = self._vectors_of_a_row, t.warpgroups * unit.threads
        vectors, last = t.rows * each, t.outputs - SUMS_AT_ONCE
        count = -(-vectors // t.splits)
        thread, first = b.sub(b.thread_id(), unit.threads), b.mul(self.rank, count)
        found = places(thread, threads, count, each * SUMS_AT_ONCE, SUMS_AT_ONCE, first)
        ragged, past = vectors % t.splits, each * SUMS_AT_ONCE > t.outputs
        return [
            (b.at_most(row, t.rows - 1) if ragged else row, b.at_most(column, last) if past else column)
            for row, column in found
        ]

    @cached_property
    def _vectors_of_a_row(self) -> int:
        """How many vectors of SUMS_AT_ONCE stand for a row where a cluster's threads share them out.  Where results are
        made of sums over rows beside the product's, it is a power of two, if no thread takes more for it: so many
        neighbours then add up one row between them.  Those past the row's end take its last vector."""
        t, unit = self.tiling, self.target.warpgroup
        assert unit is not None
        each, threads = t.outputs // SUMS_AT_ONCE, t.splits * t.warpgroups * unit.threads
        among = 1 << (each - 1).bit_length()
        more = -(-t.rows * among // threads) > -(-t.rows * each // threads)
        return each if self.others or more or not self._sums_rows else among

    @property
    def _sums_rows(self) -> bool:
        """Whether a kernel's results are made of sums over rows, beside those of the product."""
        kernel = self.product.result.owner.parent
        return any(op.name == "linalg.reduce" for op in operations(kernel.regions[0].blocks[0]))

    @property
    def _lane(self) -> Index:
        return b.mod(self.member.number, self.target.subgroup)

    @property
    def _lanes_of_a_row(self) -> int:
        """How many neighbours have pieces of the same row, whichever number of them a thread is asked for."""
        t, unit = self.tiling, self.target.warpgroup
        assert unit is not None
        if t.splits == 1:
            return 4
        each, threads = self._vectors_of_a_row, t.warpgroups * unit.threads
        whole = t.rows * each % (t.splits * threads) == 0 == t.outputs % SUMS_AT_ONCE
        return each if whole and each in (2, 4, 8, 16, 32) else 1

    def finish(self, tile: TilePlace, sums: list[ir.Value], begun: Begun) -> None:
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

    def _alone(self, tile: TilePlace) -> ir.Value | None:
        """Whether others alone want the warpgroup's columns; None where it does not have all of some run of them."""
        width, end = self.tiling.outputs, self.product.columns
        runs: list[tuple[int, int]] = []
        for first, last in sorted(run for other in self.others for run in other.own_columns):
            joined = runs.pop()[0] if runs and runs[-1][1] == first else first
            runs.append((joined, -(-end // width) * width if last == end else last))
        runs = [(first, last) for first, last in runs if last - first >= self.tiling.columns]
        if not runs or len(runs) > MOST_RUNS or self.tiling.splits > 1 or self.product.along_columns % 2:
            return None
        column = b.add(tile.column, self.first_column)
        found = [b.less(b.sub(column, first), last - first - self.tiling.columns + 1) for first, last in runs]
        return tree("arith.ori", found)

    def _hand_on(self, epilogue: Epilogue, tile: TilePlace, pieces: Sequence[ResultRun]) -> None:
        """Have others take all of a warpgroup's pieces."""
        with epilogue.reader.scope():
            asked = epilogue.asked(pieces[:BATCH])
            for first in range(0, len(pieces), BATCH):
                asked, now = epilogue.asked(pieces[first + BATCH : first + 2 * BATCH]), asked
                epilogue.hand_on(now, epilogue.finished(now), self._span(epilogue, 4 * first, 4 * len(now)))

    def _span(self, epilogue: Epilogue, first: int, count: int) -> Span | None:
        """So many of a warpgroup's columns, for others that take them."""
        return None if self.tiling.splits > 1 else span_of(epilogue, b.add(self.first_column, first), count)

    def _store(self, epilogue: Epilogue, tile: TilePlace, pieces: Sequence[ResultRun]) -> None:
        """Store results in bulk, as far as whole boxes go, and have others take theirs."""
        with epilogue.reader.scope():
            done = 0 if self.bulk is None else self.bulk.store(epilogue, tile, pieces)
            rest = epilogue.placed(pieces[done:])
            epilogue.write(rest, self._span(epilogue, 4 * done, self.tiling.columns - 4 * done))

    def end(self) -> None:
        """By the same threads, ahead of the block's end: no block of a cluster may end while another adds up."""
        if self.bulk is not None:
            self.bulk.end()
        if self.tiling.splits > 1:
            self.target.cluster_leave()

    def _add_splits(self, values: list[ir.Value]) -> list[ir.Value]:
        """Add what the blocks of a cluster have summed over their parts of k, in their order; each gets some of it."""
        t, stride, unit = self.tiling, sums_stride(self.tiling), self.target.warpgroup
        assert unit is not None
        self.target.team_barrier(t.warpgroups * unit.threads)  # which may still multiply there
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
