"""How a tile's results are stored by way of shared memory: in bulk by boxes, or by lanes where columns fill no lines.

What a warpgroup instruction's threads hold goes to each subgroup's 16 rows, some of a warpgroup's columns at a time.
Boxes of whole lines are stored in bulk.  Other rows are put together in shared memory, from where neighbouring lanes
store neighbouring vectors of them: what a thread has of a row is two numbers beside each other.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from functools import partial

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import is_elementwise, operations, shape_of
from lispgpt.passes.kernels.block_memory import BlockMemory
from lispgpt.passes.kernels.epilogue import Epilogue, ResultRun, Span
from lispgpt.passes.kernels.products import Product
from lispgpt.passes.kernels.tensor_map import Boxes, find_boxes, whole
from lispgpt.passes.kernels.warpgroup_sums import Member
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.tensor_copies import TensorCopies
from lispgpt.passes.targets.warpgroup import WarpgroupUnit
from lispgpt.passes.targets.warpgroup_tiles import STAGING_BYTES, Tiling

ROWS = 16
"""Of a subgroup, and of a box."""


@dataclass(frozen=True)
class Line:
    """What a buffer holds.  at: (batch, row, column) of the first element in the tensor of a map."""

    buffer: Index
    map: ir.Value
    boxes: Boxes
    at: Sequence[Index]


@dataclass
class TileStores:
    """memory: address of a subgroup's `buffers` lots of ROWS swizzled lines.  lane: in the subgroup.  results: how many
    tensors lines are filled for in turns.  reused: whether buffers have been stored from before."""

    copies: TensorCopies
    unit: WarpgroupUnit
    memory: Index
    buffers: int
    lane: Index
    results: int
    reused: bool
    started: int = field(default=0, init=False)

    def open(self) -> Index:
        """A buffer whose store, if there was one, has read it."""
        buffer = b.add(self.memory, self.started % self.buffers * ROWS * self.copies.line)
        if self.reused and (self.started == 0 or self.started >= self.buffers):
            # A line may be opened ahead of others and stored after them, as many as there are other results.
            newest = self.buffers - 2 * self.results + 1 if self.started else 0
            b.if_then(b.equal(self.lane, 0), lambda: self.copies.wait_stored(newest))
            self.copies.subgroup_barrier()
        self.started += 1
        return buffer

    def put(self, buffer: Index, first: int, values: Sequence[ir.Value]) -> None:
        """Put columns into a buffer, from the first-th of its lines on.

        values: pairs of neighbours by eight columns, and of those by row and row + 8, as the instruction's results lie.
        """
        (self._put_words if b.is_short(values[0].type) else self._put_pairs)(buffer, first // 8, values)

    def close(self, filled: Sequence[Line]) -> None:
        """Store the lines of some buffers."""
        self.unit.publish()
        self.copies.subgroup_barrier()

        def store() -> None:
            for line in filled:
                self.copies.store(line.map, line.boxes.at(line.at), line.buffer)

        b.if_then(b.equal(self.lane, 0), store)

    def finish(self) -> None:
        """Ahead of a block's end, which would take the memory away."""
        b.if_then(b.equal(self.lane, 0), lambda: self.copies.wait_stored(0))

    def _put_words(self, buffer: Index, block: int, values: Sequence[ir.Value]) -> None:
        """16 columns at a time: four matrices, whose rows' addresses the lanes give."""
        row, across = b.mod(self.lane, 16), b.xor(b.div(self.lane, 16), b.mod(self.lane, 8))
        line = b.add(buffer, b.mul(row, self.copies.line))
        words = words_of(values)
        for start in range(0, len(words), 4):
            address = b.add(line, b.mul(b.xor(across, block + start // 2), 16))
            self.copies.put_matrices(address, words[start : start + 4])

    def _put_pairs(self, buffer: Index, block: int, values: Sequence[ir.Value]) -> None:
        row, pair = b.div(self.lane, 4), b.mod(self.lane, 4)
        line = b.add(b.add(buffer, b.mul(row, self.copies.line)), b.mul(b.mod(pair, 2), 8))
        across = b.xor(b.div(pair, 2), row)
        for number, value in enumerate(values):
            eight, half = divmod(number, 2)
            address = b.add(b.add(line, b.mul(b.xor(across, 2 * (block + eight)), 16)), 8 * half * self.copies.line)
            self.copies.put_pair(address, [b.lane_of(value, i) for i in range(2)])


def words_of(values: Sequence[ir.Value]) -> list[ir.Value]:
    """Pairs of bf16 as words."""
    word = ir.VectorType.get([1], b.i32())
    return [b.lane_of(b.emit("vector.bitcast", [value], [word]), 0) for value in values]


VECTOR = 16
"""Bytes that a lane stores at once, and between the ends of rows, which puts their starts on different banks."""
COLUMNS = 16
"""That a matrix instruction's pieces are stored by."""


def area_bytes(columns: int, item: int) -> int:
    """That a subgroup's rows of so many columns take at most, in areas of some of them each."""
    return ROWS * (columns * item + columns // COLUMNS * VECTOR)


@dataclass(frozen=True)
class LaneStores:
    """start: in the block's memory, of a subgroup's rows of `columns` columns of what goes to a buffer.  lane: in the
    subgroup.  extents: the buffer's rows and columns, where the tile may reach past them."""

    copies: TensorCopies
    memory: BlockMemory
    start: Index
    columns: int
    buffer: ir.Value
    lane: Index
    extents: tuple[int | None, int | None]

    @property
    def _item(self) -> int:
        return b.item_bytes(self.buffer.type)

    @property
    def _pitch(self) -> int:
        return self.columns * self._item + VECTOR

    def put(self, values: Sequence[ir.Value]) -> None:
        """Put all columns of the rows together.

        values: pairs of neighbours by eight columns, and of those by row and row + 8, as the instruction's results lie.
        """
        start = b.add(b.add(b.address_of(self.memory.memory), self.memory.start), self.start)
        if b.is_short(values[0].type):
            row, half = b.mod(self.lane, 16), b.div(self.lane, 16)
            line, words = b.add(b.add(start, b.mul(row, self._pitch)), b.mul(half, 16)), words_of(values)
            for first in range(0, len(words), 4):
                self.copies.put_matrices(b.add(line, first * 8), words[first : first + 4])
            return
        row, pair = b.div(self.lane, 4), b.mod(self.lane, 4)
        line = b.add(b.add(start, b.mul(row, self._pitch)), b.mul(pair, 8))
        for number, value in enumerate(values):
            eight, half = divmod(number, 2)
            address = b.add(line, 32 * eight + 8 * half * self._pitch)
            self.copies.put_pair(address, [b.lane_of(value, i) for i in range(2)])

    def store(self, row: Index, column: Index) -> None:
        """Store them, behind a barrier of the subgroup.  row, column: where the first goes."""
        width = VECTOR // self._item
        each = self.columns // width
        rows = self.memory.view(self.start, [ROWS, self._pitch // self._item], self.buffer.type.element_type)
        for number in range(-(-ROWS * each // 32)):
            place = b.add(self.lane, 32 * number)
            own, across = b.div(place, each), b.mul(b.mod(place, each), width)
            at = [b.add(row, own), b.add(column, across)]
            live = [b.less(x, extent) for x, extent in zip(at, self.extents, strict=True) if extent is not None]
            if ROWS * each % 32 and (number + 1) * 32 > ROWS * each:
                live.append(b.less(place, ROWS * each))
                own = b.at_most(own, ROWS - 1)
            value = b.load(rows, [own, across], width)
            b.if_live(b.both(*live), partial(b.store, value, self.buffer, at))


BULK_DTYPES = ("f32", "bf16")


@dataclass(frozen=True)
class BulkResult:
    """How a result is stored in boxes of one line of `width` columns, or without a map by lanes."""

    boxes: Boxes
    map: ir.Value | None
    width: int


def bulk_result(
    kernel: ir.Operation, boxes: Boxes, rows: int, copies: TensorCopies, by_lanes: bool = False
) -> BulkResult:
    """With a map of a kernel's for boxes of so many rows, if not by lanes."""
    width = copies.line // b.item_bytes(boxes.argument.type)
    return BulkResult(boxes, None if by_lanes else boxes.map(kernel, (1, rows, width)), width)


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
    return None if product.along_columns % 2 or not found else found


def lanes_store(boxes: Boxes, product: Product, columns: int, copies: TensorCopies) -> bool:
    """Whether a warpgroup's columns of a result are better stored by lanes: they are not whole lines of boxes, but
    whole vectors of rows that lie in memory as the product has them."""
    line = copies.line // b.item_bytes(boxes.argument.type)
    plain = len(boxes.argument.type.shape) == 2 and product.along_columns % COLUMNS == 0 and product.batches == 1
    return plain and columns % line != 0 == columns % COLUMNS


def staged_bytes(boxes: Boxes, columns: int, copies: TensorCopies, by_lanes: bool) -> int:
    """What a subgroup's rows of so many columns of a result take on their way to memory: whole lines, or all of them
    where lanes store them."""
    item = b.item_bytes(boxes.argument.type)
    return area_bytes(columns, item) if by_lanes else ROWS * (columns * item // copies.line * copies.line)


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
