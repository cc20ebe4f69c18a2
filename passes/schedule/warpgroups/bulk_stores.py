"""Stores of a tile's results by way of shared memory: a warpgroup's columns, some of them at a time."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.epilogue import Epilogue, ResultRun, Span
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.schedule.warpgroups.bulk_results import BulkResult, staged_bytes
from lispgpt.passes.schedule.warpgroups.lane_stores import COLUMNS, LaneStores, area_bytes
from lispgpt.passes.schedule.warpgroups.tile_stores import ROWS, Line, TileStores
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import STAGING_BYTES, Tiling

MOST_COLUMNS = 48
"""That a thread finishes at once where lanes store all results, each of which has room for itself."""
FEWEST_COLUMNS = 32
"""That a thread finishes at once where there are several results, which would else take too many registers."""


@dataclass(frozen=True)
class TilePlace:
    """Where a block's tile starts in which batch, and its part of k."""

    batch: Index
    row: Index
    column: Index
    k: Index


def span_of(epilogue: Epilogue, first: Index, count: int) -> Span | None:
    """So many of a tile's columns, for results that are not of the product's shape; None where there are none."""
    return Span(first, count) if epilogue.others else None


@dataclass(frozen=True)
class BulkStores:
    """results: how each is stored.  staging: address of the subgroups' memory for what is on its way, `staged` bytes
    into the block's.  roomy: whether all of a tile's results have room for themselves there, which else wait for it."""

    target: Gpu
    product: Product
    tiling: Tiling
    results: Sequence[BulkResult]
    memory: BlockMemory
    staging: Index
    staged: int
    roomy: bool
    member: Member

    @property
    def whole(self) -> int:
        """Columns of a warpgroup that are stored so: the first ones, in whole lines of all results."""
        widest = max((result.width for result in self.results if result.map is not None), default=COLUMNS)
        return self.tiling.columns // widest * widest

    def store(self, epilogue: Epilogue, tile: TilePlace, pieces: Sequence[ResultRun]) -> int:
        """Finish and store as many pieces as are stored so, and have others take them; their number."""
        unit, stores = self.target.warpgroup, self._stores()
        assert unit is not None
        subgroup = b.div(self.member.number, self.target.subgroup)
        row = b.add(tile.row, b.add(b.mul(self.member.row_part, unit.rows), b.mul(subgroup, ROWS)))
        first_column = b.mul(self.member.output_part, self.tiling.columns)
        column, narrow = b.add(tile.column, first_column), self._narrow()
        opened: list[Index] = [0] * len(self.results)
        asked = epilogue.asked(pieces[: narrow // 4])
        by_lanes = self._lane_stores(narrow)
        for first in range(0, self.whole, narrow):
            following = range(first + narrow, min(first + 2 * narrow, self.whole))
            asked, now = epilogue.asked(pieces[following.start // 4 : following.stop // 4]), asked
            values, filled = epilogue.finished(now), []
            for number, result in enumerate(self.results):
                own, within = [each[number] for each in values], first % result.width
                if result.map is None:
                    by_lanes[number][first // narrow].put(own)
                    continue
                if within == 0:
                    opened[number] = stores.open()
                stores.put(opened[number], within, own)
                if within + narrow == result.width:
                    at = (tile.batch, row, b.add(column, first - within))
                    filled.append(Line(opened[number], result.map, result.boxes, at))
            stores.close(filled)
            for areas in filter(None, by_lanes):
                areas[first // narrow].store(row, b.add(column, first))
            epilogue.hand_on(now, values, span_of(epilogue, b.add(first_column, first), narrow))
        return self.whole // 4

    def end(self) -> None:
        """By all threads that store, ahead of the block's end."""
        self._stores().finish()

    @property
    def _lane(self) -> Index:
        return b.mod(self.member.number, self.target.subgroup)

    @property
    def _subgroup(self) -> Index:
        """The subgroup's number among those that multiply."""
        target, unit = self.target, self.target.warpgroup
        assert unit is not None
        group = b.add(self.member.row_part, b.mul(self.member.output_part, self.tiling.row_parts))
        return b.add(b.mul(group, unit.threads // target.subgroup), b.div(self.member.number, target.subgroup))

    def _narrow(self) -> int:
        """Columns that are finished together: of several results no more than registers hold."""
        widths = [result.width for result in self.results if result.map is not None]
        if not widths:
            steps = range(COLUMNS, MOST_COLUMNS + 1, COLUMNS)
            return max(n for n in steps if self.tiling.columns % n == 0)
        return widths[0] if len(self.results) == 1 else min(*widths, FEWEST_COLUMNS)

    def _in_lines(self) -> int:
        """Bytes of a subgroup's rows of the results that are stored in boxes."""
        boxed, copies = [result for result in self.results if result.map is not None], self.target.copies
        assert copies is not None
        return sum(staged_bytes(result.boxes, self.tiling.columns, copies, by_lanes=False) for result in boxed)

    def _stores(self) -> TileStores:
        unit, copies = self.target.warpgroup, self.target.copies
        assert unit is not None and copies is not None
        each = self._in_lines() if self.roomy else len(self.results) * STAGING_BYTES
        memory, buffers = b.add(self.staging, b.mul(self._subgroup, each)), each // (ROWS * copies.line)
        return TileStores(copies, unit, memory, buffers, self._lane, len(self.results), not self.roomy)

    def _lane_stores(self, narrow: int) -> list[list[LaneStores]]:
        """What stores each result by lanes, so many columns at a time; nothing for those that boxes store."""
        copies, unit = self.target.copies, self.target.warpgroup
        assert copies is not None and unit is not None
        subgroups = self.tiling.warpgroups * unit.threads // self.target.subgroup
        start = self.staged + subgroups * self._in_lines()
        extents, tile = (self.product.rows, self.product.columns), (self.tiling.rows, self.tiling.outputs)
        ends = [n if n % size else None for n, size in zip(extents, tile, strict=True)]
        found = []
        for result in self.results:
            buffer, areas = result.boxes.argument, []
            each = area_bytes(narrow, b.item_bytes(buffer.type))
            for _ in range(self.tiling.columns // narrow if result.map is None else 0):
                place = b.add(start, b.mul(self._subgroup, each))
                areas.append(LaneStores(copies, self.memory, place, narrow, buffer, self._lane, (ends[0], ends[1])))
                start += subgroups * each
            found.append(areas)
        return found
