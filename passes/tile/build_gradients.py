"""Writing attention's gradients as tile programs: sums weighed by what is made of scores."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from math import lcm
from typing import ClassVar

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import create_op, ir
from lispgpt.passes.kernels.operand_a import words_of
from lispgpt.passes.recognise import score_operands
from lispgpt.passes.recognise.attention_gradients import AttentionGradients
from lispgpt.passes.tile.boxes import Box
from lispgpt.passes.tile.build_scores import LINES_BESIDE, ScoreBuilder
from lispgpt.passes.tile.sum_rows import SumRows


@dataclass(frozen=True)
class GradientsBuilder(ScoreBuilder):
    """Writes the tile program of one kernel of such sums."""

    of: ClassVar[str] = "attention-gradient"

    gradients: AttentionGradients | None = None

    @cached_property
    def rows(self) -> SumRows:
        assert self.gradients is not None
        return SumRows(self.gradients)

    @property
    def operands(self) -> list[score_operands.Operand]:
        return [*self.rows.own, *self.rows.others, *(one.other for one in self.rows.sums.sums)]

    @property
    def weight_parts(self) -> int:
        exact = any(str(b.element_of(one.weights.type)) == "f32" for one in self.rows.sums.sums)
        return self.parts if exact else 1

    # ---- what a schedule asks

    @property
    def divides(self) -> bool:
        """Whether whole instructions take vectors of such types and layouts."""
        unit, operands = self.target.matrix, [*self.operands, *(one.out for one in self.rows.sums.sums)]
        types = {str(operand.element) for operand in operands}
        return (
            unit is not None
            and types <= {"f32", "bf16"}
            and all(operand.has_rows and operand.depth % unit.columns == 0 for operand in operands)
        )

    def takes(self, count: int) -> bool:
        """Whether tiles of so many vectors are of whole instructions, and in lines where warpgroups read them."""
        unit = self.target.matrix
        return (
            unit is not None
            and count % lcm(unit.block, unit.columns) == 0
            and (not self.is_wide or self.in_lines(count))
        )

    @property
    def in_pieces(self) -> bool:
        """Whether copies bring all tiles."""
        boxes = self.boxes(0, 0, 0, 64)
        return all(self.in_bulk(box.operand) if self.is_wide else self._in_pieces(box) for box in boxes)

    @property
    def own_words(self) -> int:
        """Registers of a lane for the vectors of its rows."""
        assert self.target.matrix is not None
        return sum(words_of(operand, self.target.matrix) for operand in self.rows.own)

    def block_bytes(self, rows: int, count: int, slots: int) -> int:
        """Of shared memory: tiles of so many vectors, and weights where these go through it."""
        unit = self.target.matrix
        assert unit is not None
        boxes = self.boxes(0, 0, 0, count)
        if self.is_wide:
            each = sum(2 * self.parts_of(box.operand) * box.rows * box.columns for box in boxes)
            return max(1, slots) * each + LINES_BESIDE
        weights = len(self.rows.sums.sums) * 2 * self.weight_parts * rows * (count + unit.padding)
        return self.shared_bytes(boxes, slots) + (0 if unit.result_as_left else weights)

    # ---- tiles

    def reach(self, task: Index, row: Index, rows: int) -> tuple[ir.Value, ...]:
        """(first, end): between which of what they are sums over any of the rows sums something, end excluded."""
        index = [ir.IndexType.get()] * 2
        return tuple(create_op("tile.reach", [b.as_value(task), b.as_value(row)], index, {"rows": rows}).results)

    def own_rows(self, number: int, task: Index, row: Index, rows: int) -> ir.Value:
        """The rows' own vectors of a product that makes scores."""
        operand = self.rows.own[number]
        batch = self.rows.batch_of(operand, task, 0)
        return self.row_registers(operand, self.rows.own_view(operand), batch, row, rows)

    def boxes(self, task: Index, round_: Index, at: Index, count: int) -> list[Box]:
        """So many vectors of all that lies along the sums, of each that is weighed as `weigh` takes it."""
        found, weighed = [], [one.other for one in self.rows.sums.sums]
        for operand, turned in self.rows.tiles(self.across):
            view, batch = self.rows.view(operand, turned), self.rows.batch_of(operand, task, round_)
            if turned:
                found.append(Box(view, (batch, 0, at), operand.depth, count))
            else:
                across, depth = self.across and operand in weighed, self.padded(operand.depth)
                found.append(Box(view, (batch, at, 0), count, depth, lines=self.is_wide, across=across))
        return found

    @property
    def scored(self) -> tuple[int, ...]:
        """Of each product that makes scores, the number of its tile."""
        tiles = self.rows.tiles(self.across)
        return tuple(tiles.index((other, False)) for other in self.rows.others)

    @property
    def weighed(self) -> tuple[int, ...]:
        """Of each sum, the number of the tile that it weighs."""
        tiles = self.rows.tiles(self.across)
        return tuple(tiles.index((one.other, not self.across)) for one in self.rows.sums.sums)

    def nothing(self, rows: int) -> tuple[ir.Value, ...]:
        """Zeros for each sum."""
        depths = [one.other.depth for one in self.rows.sums.sums]
        return tuple(self.empty_sums(rows, self.padded(d) if self.across else d, 1) for d in depths)

    def weights(
        self, scores: Sequence[ir.Value], at: tuple[Index, Index], round_: Index, along: Index
    ) -> tuple[ir.Value, ...]:
        """What the kernel makes of scores, for each sum, at (task, row) and from `along` on; 0 past the end."""
        places = map(b.as_value, (*at, round_, along))
        types = [scores[0].type] * len(self.rows.sums.sums)
        return tuple(create_op("tile.weights", [*places, *scores], types).results)

    def store_sums(self, sums: Sequence[ir.Value], at: tuple[Index, Index]) -> None:
        """Store each sum's rows from (task, row) on, as the kernel gives it; nothing past the last row."""
        for one, registers in zip(self.rows.sums.sums, sums, strict=True):
            create_op("tile.store", [registers, one.op.results[0], *map(b.as_value, (*at, 0))])

    def seconds_of(self, program: Sequence[ir.Operation]) -> float | None:
        """No model tells these."""
        return None
