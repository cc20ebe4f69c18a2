"""Writing attention as tile programs: the words that products do not need."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from math import lcm
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.ir.structure import nested_operations
from lispgpt.passes.kernels.operand_a import words_of
from lispgpt.passes.kernels.score_masks import factor_of
from lispgpt.passes.recognise import score_operands
from lispgpt.passes.recognise.attention import Attention
from lispgpt.passes.tile.attention_cost import BY_LINES, BY_TILES, Blocks, attention_seconds, products_of_parts
from lispgpt.passes.tile.attention_rows import AttentionRows
from lispgpt.passes.tile.boxes import Box, emit, view_of
from lispgpt.passes.tile.build_scores import LINES_BESIDE, ScoreBuilder
from lispgpt.passes.tile.types import (
    PATCHES,
    ROWS,
    SHARES,
    RegisterTile,
    register_tile,
    shared_tile,
)

RESIDENT_THREADS = 512
"""Of a core, about as many as have registers for queries, scores and sums."""


@dataclass(frozen=True)
class AttentionBuilder(ScoreBuilder):
    """Writes one attention's tile program at the insertion point.  shares_queries: whether a block's queries lie in its
    shared memory, for warpgroups in lines, and not in registers."""

    of: ClassVar[str] = "attention"

    attention: Attention | None = None
    shares_queries: bool = False

    @cached_property
    def rows(self) -> AttentionRows:
        assert self.attention is not None
        return AttentionRows(self.attention)

    @property
    def operands(self) -> list[score_operands.Operand]:
        a = self.rows.attention
        return [a.keys, a.values, a.queries]

    @property
    def weight_parts(self) -> int:
        return self.parts if self.rows.attention.exact else 1

    # ---- what a schedule asks

    @property
    def divides(self) -> bool:
        """Whether whole instructions take queries, keys and values of such types and layouts."""
        unit, a = self.target.matrix, self.rows.attention
        operands = (a.queries, a.keys, a.values, a.out)
        types = {str(a.keys.element), str(a.values.element)}
        plain = all(operand.has_rows for operand in operands) and types in ({"f32"}, {"bf16"})
        return unit is not None and bool(a.query_dims) and plain and a.width % unit.columns == 0 == a.depth % 4

    @property
    def key_bytes(self) -> int:
        """Of a key's number in memory."""
        return b.item_bytes(self.rows.attention.keys.element)

    def takes_keys(self, keys: int) -> bool:
        """Whether so many of a member's are whole instructions, for which lanes have registers; of warpgroups whether
        copies bring them, too."""
        if self.is_wide:
            return self.in_lines(keys, self.shares_queries)
        unit, most = self.target.matrix, self.target.attention_keys
        many = most and self.key_bytes == 4 and keys > most
        return unit is not None and keys % lcm(unit.block, unit.columns) == 0 and not many

    def in_pieces(self, keys: int) -> bool:
        """Whether copies bring both keys and values."""
        if self.is_wide:
            return self.in_bulk(self.rows.keys()) and self.in_bulk(self.rows.values(True))
        end = b.as_value(0)
        return all(map(self._in_pieces, (self.keys_box(0, 0, keys, end), self.values_box(0, 0, keys, end))))

    def block_bytes(self, rows: int, keys: int, slots: int, members: int) -> int:
        """Of shared memory: keys and values, queries that lie there, and what else members have to exchange."""
        assert self.target.matrix is not None
        a, unit = self.rows.attention, self.target.matrix
        queries = self._tile(self._queries_box(0, 0, rows), 1).slot_bytes if self.shares_queries else 0
        if self.is_wide:
            sums = 4 * members * rows * (a.width + 2) if members > 1 else 0
            parts = self.operand_parts(a.keys)
            return 2 * max(1, slots) * parts * keys * (a.depth + a.width) + LINES_BESIDE + sums + queries
        end = b.as_value(0)
        tiles = self.shared_bytes([self.keys_box(0, 0, keys, end), self.values_box(0, 0, keys, end)], slots) + queries
        weights = 0 if unit.result_as_left else 4 * rows * (keys + members * unit.padding)
        apart = tiles + weights + (4 * members * rows * (a.width + 2) if members > 1 else 0)
        if apart <= self.room or members == 1:
            return apart
        return max(tiles, 4 * members * rows * a.width) + weights + 8 * members * rows

    def shape_nanoseconds(self, rows: int, keys: int, members: int, resident: int) -> int:
        """What the attention should take by such blocks and tiles, so many blocks sharing a core; 0 where the chip's
        rates are not known."""
        return round(1e9 * (self._seconds(Blocks(rows, keys, members, resident, self._products)) or 0.0))

    @property
    def _products(self) -> tuple[int, int]:
        a = self.rows.attention
        q, k, v = map(self.operand_parts, (a.queries, a.keys, a.values))
        return products_of_parts(q, k), products_of_parts(self.weight_parts, v)

    def _seconds(self, blocks: Blocks) -> float | None:
        rates = BY_LINES if self.is_wide else BY_TILES
        return attention_seconds(self.rows, blocks, self.target, rates)

    def seconds_of(self, program: Sequence[ir.Operation]) -> float | None:
        """By its masks' tiles of scores, and the threads that share a core."""
        ops = [inner for op in program for inner in (op, *nested_operations(op))]
        tile = next(register_tile(op.operands[0]) for op in ops if op.name == "tile.mask")
        resident = max(1, RESIDENT_THREADS // self.launch.threads)
        blocks = Blocks(tile.shape[1], tile.shape[2], tile.teams[1], resident, self._products)
        return replace(self, unit=tile.unit)._seconds(blocks)

    @property
    def query_words(self) -> int:
        """Registers of a lane for its share of a subgroup's queries."""
        assert self.target.matrix is not None
        return words_of(self.rows.attention.queries, self.target.matrix)

    @property
    def factor(self) -> float:
        """What a mask leaves scores over: all of those that rows see are to be multiplied by it."""
        return factor_of(self.rows.attention)

    # ---- tiles

    def visible(self, batch: Index, row: Index, rows: int) -> tuple[ir.Value, ...]:
        """(first, least, last): the first position that any of the rows sees, the last that all see if they see all
        before it, and the last that any sees."""
        index = [ir.IndexType.get()] * 3
        return tuple(create_op("tile.visible", [b.as_value(batch), b.as_value(row)], index, {"rows": rows}).results)

    def keys_box(self, batch: Index, position: Index, keys: int, end: ir.Value) -> Box:
        """Keys up to an end, in whole instructions' depth."""
        attention = self.rows.attention
        at = (self.rows.batch_of(attention.keys, batch), position, 0)
        bulk = self.is_wide and self.in_pieces(keys)  # which masks hide what copies bring from behind the end of
        return Box(self.rows.keys(), at, keys, self.padded(attention.depth), None if bulk else end, lines=self.is_wide)

    def values_box(self, batch: Index, position: Index, keys: int, end: ir.Value) -> Box:
        """Values up to an end, as `weigh` takes them."""
        attention, view = self.rows.attention, self.rows.values(self.across)
        own = self.rows.batch_of(attention.values, batch)
        if self.across:
            return Box(view, (own, position, 0), keys, attention.width, end, lines=self.is_wide, across=True)
        return Box(view, (own, 0, position), attention.width, keys, end, ends_inner=True)

    def query_registers(self, batch: Index, row: Index, rows: int) -> ir.Value:
        """Queries as A of matrix instructions, in registers of those who have the rows."""
        queries = self.rows.attention.queries
        return self.row_registers(queries, self.rows.queries(), self.rows.batch_of(queries, batch), row, rows)

    def query_patches(self, batch: Index, row: Index, rows: int) -> ir.Value:
        """The same on their way through registers of all who multiply, for `query_lines`."""
        box = self._queries_box(batch, row, rows)
        tile = RegisterTile((rows, box.columns), box.operand.tensor.type.element_type, PATCHES)
        return create_op("tile.load", [view_of(box), *map(b.as_value, box.at)], [tile.type]).results[0]

    def query_lines(self, patches: ir.Value) -> ir.Value:
        """These in shared memory, for warpgroups in lines; all who multiply wait for each other."""
        rows = register_tile(patches).shape[0]
        memory = emit("shared", [], self._tile(self._queries_box(0, 0, rows), 1).type)
        slot = emit("slot", [memory, b.as_value(0)], shared_tile(memory).slot.type)
        create_op("tile.put", [patches, slot])
        create_op("tile.meet")
        return slot

    def _queries_box(self, batch: Index, row: Index, rows: int) -> Box:
        queries = self.rows.attention.queries
        at = (self.rows.batch_of(queries, batch), row, 0)
        return Box(self.rows.queries(), at, rows, self.padded(queries.depth), lines=self.is_wide)

    def numbers(self, value: float, members: int, rows: int, shares: bool) -> ir.Value:
        """One number for each row, of so many members that lie along columns; in shares of lanes, or whole."""
        teams = (rows // self.team_rows, 1)
        tile = RegisterTile((members, rows), b.f32(), SHARES if shares else ROWS, teams, self.unit)
        return b.constant(value, tile.type)

    def mask(self, scores: ir.Value, at: tuple[Index, Index, Index], least: ir.Value, last: ir.Value) -> ir.Value:
        """Scores from (batch, row, position) on as the kernel's softmax takes them, over `factor`; -infinity for
        positions that a row does not see, and for all behind `last`.  All rows see what is not behind `least`."""
        operands = [scores, *map(b.as_value, at), least, last]
        over = ir.FloatAttr.get(b.f32(), self.factor)
        return create_op("tile.mask", operands, [scores.type], {"over": over}).results[0]

    def store_rows(self, registers: ir.Value, at: tuple[Index, Index]) -> None:
        """Take these for the sums of weighed values from (batch, row) on, or if they are one number a row for its
        log-sum-exp, and store what the kernel's results are of them; nothing past the last row."""
        wide = len(register_tile(registers).shape) > 2 or register_tile(registers).layout not in (ROWS, SHARES)
        tensor = self.rows.result if wide else self.rows.log_sum
        if tensor is not None:
            create_op("tile.store", [registers, tensor, *map(b.as_value, (*at, 0))])
