"""Writing what attention and its gradients have in common: scores, and what they weigh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any, Self

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.tensor_map import strided
from lispgpt.passes.recognise import score_operands
from lispgpt.passes.tile.boxes import Box, emit, view_of
from lispgpt.passes.tile.build import Builder
from lispgpt.passes.tile.copies import ASYNC, BULK, REGISTERS, boxes_of
from lispgpt.passes.tile.types import (
    OPERAND,
    SUBGROUP,
    SUMS,
    SWIZZLE,
    WARPGROUP,
    RegisterTile,
    SharedTile,
    register_tile,
)

NO_PRODUCT: Product = None  # type: ignore[assignment]
"""What these have where others have a product."""

LINES_BESIDE = 2048
"""Bytes of shared memory for barriers beside swizzled lines, and to align these."""


@dataclass(frozen=True)
class ScoreBuilder(Builder):
    """unit: whose instructions multiply: subgroups', or warpgroups', which read what is beside rows from lines, as bulk
    copies bring them."""

    unit: str = SUBGROUP

    @property
    def rows(self) -> Any:
        """The rows of results: `rows` of each of so many `batches`."""
        raise NotImplementedError

    @property
    def operands(self) -> list[score_operands.Operand]:
        """All that is multiplied."""
        raise NotImplementedError

    @property
    def weight_parts(self) -> int:
        """BF16 numbers by which a weight of scores is multiplied."""
        raise NotImplementedError

    # ---- what a schedule asks

    def by_warpgroups(self, copiers: bool) -> Self:
        """The same for warpgroups, which is written to from there on."""
        return replace(self, unit=WARPGROUP, copiers=copiers)

    @property
    def is_wide(self) -> bool:
        """Whether it is for warpgroups, whose tiles lie in lines."""
        return self.unit == WARPGROUP

    @property
    def team_rows(self) -> int:
        """Of a subgroup's instructions, or a warpgroup's."""
        unit = self.target.warpgroup if self.is_wide else self.target.matrix
        assert unit is not None
        return unit.rows

    @property
    def across(self) -> bool:
        """Whether matrix instructions take what is weighed as it lies, beside scores' weights in registers."""
        return self.target.matrix is not None and self.target.matrix.result_as_left

    def operand_parts(self, operand: score_operands.Operand) -> int:
        """BF16 numbers by which an element of an operand is multiplied."""
        return 1 if operand.rounded or str(operand.element) == "bf16" else self.parts

    def parts_of(self, operand: Operand) -> int:
        """The same by a view."""
        return next(self.operand_parts(x) for x in self.operands if x.tensor == operand.tensor)

    def in_lines(self, count: int, own: bool = False) -> bool:
        """Whether warpgroups can read tiles of so many vectors, as they lie, from swizzled lines.  own: whether the
        rows that are multiplied with them lie in such lines, too, and not in registers."""
        unit = self.target.warpgroup
        if unit is None or self.most != BULK or not self.across or count % unit.block:
            return False
        depths = [operand.depth for operand in self.operands]
        # With as many vectors as these have numbers, ptxas of CUDA 12.9 and 13.0 lets weights overwrite rows' words.
        fits = max(count, *depths) <= unit.most_columns and (own or count not in depths)
        return fits and all(depth % unit.inner == 0 for depth in depths)

    def copies(self, boxes: Sequence[Box]) -> str:
        """BULK for warpgroups alone, and not ASYNC, whose pieces do not lie in lines."""
        if self.is_wide:
            return BULK if all(self.in_bulk(box.operand) for box in boxes) else REGISTERS
        return super().copies(boxes) if self.most != BULK else replace(self, most=ASYNC).copies(boxes)

    def in_bulk(self, operand: Operand) -> bool:
        """Whether bulk copies see a view."""
        copies, plain = self.target.copies, operand.dtype == "bf16" and strided(operand.tensor) is not None
        return copies is not None and plain and bool(boxes_of(operand, copies))

    # ---- tiles

    def row_task(self, rows: int) -> tuple[Index, Index]:
        """(batch, row) of this block's rows, where each block has so many; the last come first, which see most."""
        tiles = -(-self.rows.rows // rows)
        self.launch.grid = [self.rows.batches, tiles]
        last = b.constant(tiles - 1, ir.IndexType.get())
        number = b.emit("arith.subi", [last, b.block_id("y")], [last.type])
        return b.block_id("x"), b.mul(number, rows)

    def padded(self, depth: int) -> int:
        """In whole instructions."""
        assert self.target.matrix is not None
        return -(-depth // self.target.matrix.block) * self.target.matrix.block

    def row_registers(
        self, operand: score_operands.Operand, view: Operand, batch: Index, row: Index, n: int
    ) -> ir.Value:
        """Vectors of n rows as A of matrix instructions, in registers of those who have the rows."""
        depth, at = self.padded(operand.depth), (batch, row, 0)
        shape, teams = (self.operand_parts(operand), n, depth), (n // self.team_rows, 1)
        tile = RegisterTile(shape, ir.BF16Type.get(), OPERAND, teams, self.unit)
        return create_op("tile.load", [view_of(Box(view, at, n, depth)), *map(b.as_value, at)], [tile.type]).results[0]

    def empty_sums(self, rows: int, columns: int, members: int) -> ir.Value:
        """Zeros: of scores, whose members lie along columns, or of what is weighed, where each has its own."""
        tile = RegisterTile((members, rows, columns), b.f32(), SUMS, (rows // self.team_rows, 1), self.unit)
        self.launch.threads = tile.by_subgroups.members * self.target.subgroup
        return emit("zeros", [], tile.type)

    def scores(self, queries: ir.Value, keys: ir.Value, members: int) -> ir.Value:
        """Q · Kᵀ, whose columns so many members share."""
        rows, columns = queries.type.shape[1], keys.type.shape[1]
        tile = RegisterTile((1, rows, columns), b.f32(), SUMS, (rows // self.team_rows, members), self.unit)
        return self.mma(emit("zeros", [], tile.type), queries, keys)

    def weigh(self, sums: ir.Value, weights: ir.Value, values: ir.Value) -> ir.Value:
        """sums + weights · values; members that lie along the weights' columns have sums of their own."""
        tile = register_tile(weights)
        operand = replace(tile, shape=(self.weight_parts, *tile.shape[1:]), dtype=ir.BF16Type.get(), layout=OPERAND)
        return self.mma(sums, emit("as_operand", [weights], operand.type), values, self.across)

    def _ring_tile(self, box: Box, slots: int, how: str) -> SharedTile:
        tile = super()._ring_tile(box, slots, how)
        return tile if how == BULK else self._apart(box, tile)

    def _tile(self, box: Box, slots: int) -> SharedTile:
        tile = super()._tile(box, max(1, slots))
        return replace(tile, swizzle=SWIZZLE, padding=0) if box.lines else self._apart(box, tile)

    def _apart(self, box: Box, tile: SharedTile) -> SharedTile:
        """Rows far enough apart for lanes that read neighbouring ones: 64 bytes where these read vectors, or 16 where
        they read them across."""
        unit = self.target.matrix
        assert unit is not None
        if not unit.row_major_lanes or tile.swizzle:
            return tile
        step = 2 * tile.columns % SWIZZLE
        return replace(tile, padding=8 if box.across else unit.block if step == 0 else 0)
