"""Products of a warpgroup's 64 rows with tiles in shared memory: scores, and what weights made of them weigh."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.passes.kernels.attention import Place, read_operand
from lispgpt.passes.kernels.matrices import Lanes
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.recognise.score_operands import Operand
from lispgpt.passes.schedule.attention.copied_tiles import CopiedTiles
from lispgpt.passes.targets.warpgroup import WarpgroupUnit

Left = Sequence[list[ir.Value]]
"""[block of k]: of an operand that is the left one, a lane's four words, or one descriptor."""


def row_words(
    operand: Operand, reader: Reader, lanes: Lanes, places: Sequence[tuple[Place, Index]], unit: WarpgroupUnit
) -> Left:
    """The lane's share of bf16 vectors that are its two rows."""
    words, i32s = [], ir.VectorType.get([1], b.i32())
    for block in range(operand.depth // unit.block):
        found = []
        for column in (0, 8):
            d = b.add(lanes.result_column, block * unit.block + column)
            for place in places:
                pair = read_operand(reader, operand, *place, d, 2)
                found.append(b.lane_of(b.emit("vector.bitcast", [pair], [i32s]), 0))
        words.append(found)
    return words


@dataclass(frozen=True)
class WarpgroupScores:
    """left: for each product that makes scores, with the number of the tiles' operand that is its right one."""

    unit: WarpgroupUnit
    tiles: CopiedTiles
    left: Sequence[tuple[Left, int]]

    @property
    def count(self) -> int:
        return self.tiles.count

    def scores(self, stage: Index) -> list[list[ir.Value]]:
        """[product]: the lane's scores, two of each eight columns of its first row, then of its second."""
        self.unit.fence()
        found: list[list[ir.Value]] = []
        for left, operand in self.left:
            sums: list[ir.Value] = []
            for block, mine in enumerate(left):
                right = self.tiles.line(operand, stage, 0, block)
                sums = self.unit.multiply(mine, right, sums) if sums else self.unit.start(mine, right, self.count // 2)
            self.unit.commit()
            found.append(sums)
        done = iter(self.unit.done([value for sums in found for value in sums]))
        return [[next(done) for _ in sums] for sums in found]

    def add(
        self, stage: Index, operands: Sequence[int], weights: Sequence[list[list[ir.Value]]], sums: list[list[ir.Value]]
    ) -> list[list[ir.Value]]:
        """Sums with a tile added.  operands: of the tile, that are weighed.  weights: [sum][row][column]."""
        words = [self._words(rows) for rows in weights]
        flat = [*(v for one in sums for v in one), *(word for one in words for block in one for word in block)]
        ready = iter(self.unit.ready(flat))
        sums = [[next(ready) for _ in one] for one in sums]
        words = [[[next(ready) for _ in block] for block in one] for one in words]
        found = [self._weighted(*each, stage) for each in zip(operands, words, sums, strict=True)]
        self.unit.commit()
        done = iter(self.unit.done([value for one in found for value in one]))
        return [[next(done) for _ in one] for one in found]

    def _words(self, rows: list[list[ir.Value]]) -> list[list[ir.Value]]:
        """[block of 16 columns]: a lane's weights as four words of two bf16."""
        i32s, words = ir.VectorType.get([1], b.i32()), []
        for block in range(self.count // self.unit.block):
            found = []
            for start in (4 * block, 4 * block + 2):
                for row in rows:
                    pair = b.shortened(b.vector_of(row[start : start + 2]), ir.BF16Type.get())
                    found.append(b.lane_of(b.emit("vector.bitcast", [pair], [i32s]), 0))
            words.append(found)
        return words

    def _weighted(
        self, operand: int, words: list[list[ir.Value]], sums: list[ir.Value], stage: Index
    ) -> list[ir.Value]:
        found, size = [], self.unit.inner // 2
        for part in range(len(sums) // size):
            some = sums[part * size : (part + 1) * size]
            for block, mine in enumerate(words):
                some = self.unit.multiply(
                    mine, self.tiles.transposed(operand, stage, block, part), some, transposed=True
                )
            found += some
        return found
