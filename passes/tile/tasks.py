"""Whether a product's pipeline brings all of k once, and of the rows and columns of its block what it stores.

What a schedule says of places is Lisp, of numbers that are known while compiling and of a block's own: the former are
looked at here, and the latter only told apart.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lispgpt.base.dtypes import find_dtype
from lispgpt.base.errors import UserError
from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.boxes import Box

Boxes = Callable[[Index], Sequence[Box]]
Place = tuple[Index, Index, Index]

ROW_GROUP = 16
"""Tiles below each other that blocks take before they go on to the next columns, where those exceed the cache."""


RING, BEGIN, FILL, MULTIPLY = "ring", "begin", "fill", "multiply"


@dataclass
class Roles:
    """What is being written of blocks whose threads have roles and tiles in turns.  together: blocks that bring columns
    for each other.  splits: blocks that share out k, of which this one is number `rank`.  part: the ring, what
    fills its slots first, what fills them further, or what multiplies.  turn: the tile's number among a block's."""

    together: int
    splits: int
    rank: Index
    ring: ir.Value | None = None
    views: Sequence[ir.Value] = ()
    part: str = RING
    turn: Index = 0

    def part_of_k(self, boxes: Boxes, steps: int) -> Boxes:
        """Those of the block's own steps."""
        if self.splits == 1:
            return boxes
        return lambda number: boxes(b.add(b.mul(self.rank, steps), number))


@dataclass(frozen=True)
class TileOrder:
    """Which of a product's tiles of rows by columns a block has: `together` blocks have such that lie below each
    other, or `splits` of them the same."""

    product: Product
    rows: int
    columns: int
    together: int
    splits: int
    target: Gpu

    @property
    def row_tiles(self) -> int:
        return -(-self.product.rows // (self.rows * self.together))

    @property
    def column_tiles(self) -> int:
        return -(-self.product.columns // self.columns)

    @property
    def count(self) -> int:
        return self.row_tiles * self.column_tiles * self.product.batches

    @property
    def clusters(self) -> int:
        """Of blocks that go together."""
        if self.splits > 1:
            return self.count
        return min(self.count, self.target.cores_for(self.together) // self.together)

    @property
    def first(self) -> Place:
        """Of this block's first tile."""
        return self.place(self._cluster, self.rank)

    @property
    def rank(self) -> Index:
        """This block's in its cluster."""
        return b.mod(b.block_id("x"), self.together * self.splits)

    @property
    def _cluster(self) -> Index:
        return b.div(b.block_id("x"), self.together * self.splits)

    def each(self, body: Callable[[Index, Place], None]) -> None:
        """body(turn, place) for all tiles of this block."""
        cluster, rank = self._cluster, self.rank
        if self.clusters == self.count:
            body(0, self.place(cluster, rank))
            return
        rest = b.sub(self.count + self.clusters - 1, cluster)
        turns = b.div(rest, self.clusters) if self.count % self.clusters else self.count // self.clusters
        b.each(0, turns, 1, lambda turn: body(turn, self.place(b.add(cluster, b.mul(turn, self.clusters)), rank)))

    def place(self, number: Index, rank: Index) -> Place:
        """Of the number-th tile: along the columns first, or ROW_GROUP tiles below each other."""
        product, (high, wide) = self.product, (self.row_tiles, self.column_tiles)
        batch, number = product.of_batch(number, high * wide)
        if 2 * product.columns * product.inner <= self.target.l2_bytes or high <= ROW_GROUP:
            row, column = b.div(number, wide), b.mod(number, wide)
        else:
            group, place = b.div(number, ROW_GROUP * wide), b.mod(number, ROW_GROUP * wide)
            first = b.mul(group, ROW_GROUP)
            height, index = b.at_most(b.sub(high, first), ROW_GROUP), [ir.IndexType.get()]
            column = b.emit("arith.divui", [b.as_value(place), height], index)
            row = b.add(first, b.emit("arith.remui", [b.as_value(place), height], index))
        row = b.add(b.mul(row, self.together), rank) if self.together > 1 else row
        return batch, b.mul(row, self.rows), b.mul(column, self.columns)


@dataclass
class Task:
    """A block's tile of a product: (batch, row, column) where it begins, its sizes, and how many pipelines it has.
    roles: where a block has several, for whose threads roles are being written."""

    place: Place | None = None
    sizes: tuple[int, int] = (0, 0)
    pipelines: int = 0
    roles: Roles | None = None

    def check_boxes(self, boxes: Sequence[Box], left: Operand, right: Operand) -> None:
        """UserError for boxes of other rows or columns than the task's."""
        if self.place is None or left.tensor == right.tensor:
            return
        outer = {"left": (0, "row", left), "right": (1, "column", right)}
        for box in boxes:
            for side, (number, what, operand) in outer.items():
                if box.operand.tensor != operand.tensor:
                    continue
                if _same(box.at[1], self.place[2 - number]):
                    raise UserError(f"a box of the {side} operand begins at a {what}, and this one at the other's")
                if _same(box.at[1], self.place[1 + number]) and box.rows != self.sizes[number]:
                    raise UserError(f"the block's task has {self.sizes[number]} {what}s, and a box {box.rows} of them")

    def check_stored(self, at: Sequence[Index], sizes: Sequence[int]) -> None:
        """UserError for a store of anything but the task."""
        if self.place is None or self.pipelines != 1:
            return
        if _same(at[1], self.place[2]) or _same(at[2], self.place[1]):
            raise UserError("a store is at [batch row column], and this one at the column for a row")
        if all(map(_same, at[1:], self.place[1:])) and tuple(sizes) != self.sizes:
            raise UserError(f"the block's task is {_shape(self.sizes)}, and {_shape(sizes)} of it are stored")


def check_steps(steps: int, boxes: Boxes, inner: int) -> None:
    """UserError where steps leave out some of k, sum some of it twice, or multiply different parts of it."""
    last = sorted({0, 1, 2, steps // 2, steps - 1} & set(range(steps)))
    spans = [_span(boxes(number), number) for number in last]
    if None in spans:
        return  # places that a block finds out
    width = spans[0][1]  # type: ignore[index]
    if steps * width >= inner and spans == [(number * width, width) for number in last]:
        return
    end = 0
    for start, count in sorted(span for n in range(steps) if (span := _span(boxes(n), n)) is not None):
        if start != end and end < inner:
            raise UserError(_apart(start, end))
        end = start + count
    if end < inner:
        counted = "1 step brings" if steps == 1 else f"{steps} steps bring"
        raise UserError(f"{counted} {end} of the {inner} elements of k, along which the product sums")


def _apart(start: int, end: int) -> str:
    if start > end:
        return f"no step brings elements {end} to {start - 1} of k"
    return f"a step begins at element {start} of k, and another ends at {end}: what is between is summed twice"


def _span(boxes: Sequence[Box], number: int) -> tuple[int, int] | None:
    """(first element of k, how many) of a step's boxes; None where they are not known."""
    found = []
    for box in boxes:
        start = box.at[2]
        if not isinstance(start, int):
            return None
        found.append((start if not box.blocks else _elements(box, start), box.numbers))
    if len(set(found)) != 1:
        said = " and ".join(f"{start} to {start + count - 1}" for start, count in found)
        raise UserError(f"the boxes of step {number} are of elements {said} of k: they are multiplied one by one")
    return found[0]


def _elements(box: Box, nbytes: int) -> int:
    dtype = find_dtype(box.blocks)
    return nbytes // dtype.item_bytes * dtype.block


def _same(a: Index, b: Index) -> bool:
    return isinstance(a, ir.Value) and isinstance(b, ir.Value) and a == b


def _shape(sizes: Sequence[int]) -> str:
    return f"[{' '.join(map(str, sizes))}]"
