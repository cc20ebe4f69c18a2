"""Tiles for products on warpgroup instructions: which there are, and which should take least time."""

from __future__ import annotations

from dataclasses import dataclass

from lispgpt.passes.targets import Gpu

PARTS = 2
"""bf16 numbers that each f32 element of the left operand is split into: two keep about 16 bits."""

MOST_STAGES, FEWEST_STAGES = 5, 3

LEAST_OUTPUTS = 16
"""Of a tile."""

SHAPES = ((2, 1, 192), (1, 2, 256))
"""(row_parts, output_parts, most outputs) of tiles that two warpgroups can hold in registers beside parts of the left
operand."""

SHARED_SHAPES = ((2, 1, 256), (1, 2, 256))
"""The same where the left operand is taken from shared memory."""


@dataclass(frozen=True)
class Shape:
    """What a product is to its tiles: extents, the bytes of an element on the left, and whether the right operand is
    brought in lines of columns."""

    rows: int
    outputs: int
    inner: int
    left_bytes: int = 4
    turned: bool = False

    @property
    def parts(self) -> int:
        return PARTS if self.left_bytes == 4 else 1


@dataclass(frozen=True)
class Tiling:
    """A block's tile, shared by `row_parts` by `output_parts` warpgroups; `splits` blocks share the k of one tile."""

    rows: int
    outputs: int
    row_parts: int
    output_parts: int
    splits: int

    def blocks(self, rows: int, outputs: int) -> int:
        return -(-rows // self.rows) * -(-outputs // self.outputs) * self.splits


def tilings(target: Gpu, shape: Shape) -> list[Tiling]:
    """All of SHAPES, whose fewest stages fit in shared memory."""
    unit = target.warpgroup
    assert unit is not None
    step = unit.inner if shape.turned else unit.columns
    shapes = [
        (row_parts * unit.rows, n, row_parts, output_parts)
        for row_parts, output_parts, most in (SHAPES if shape.parts == PARTS else SHARED_SHAPES)
        for n in range(output_parts * max(step, LEAST_OUTPUTS // output_parts), most + 1, output_parts * step)
    ]
    steps = -(-shape.inner // unit.inner)
    splits = [n for n in (1, 2, 4, 8) if n <= target.cluster and steps % n == 0]
    return [Tiling(*sizes, split) for sizes in shapes for split in splits]


def cost(tiling: Tiling, shape: Shape, target: Gpu, batches: int = 1) -> float:
    """Clock cycles, roughly: for every wave of blocks the time of matrix units, copies from L2 or waiting, the longest.

    Measured on an H200 (2026): 26 bytes a cycle and core from L2; 700 cycles from step to step at least; a start of a
    block, its fill and its results, about 5000; 85 % of 2048 multiply-adds.
    """
    unit, rows, outputs = target.warpgroup, shape.rows, shape.outputs
    assert unit is not None
    waves = -(-tiling.blocks(rows, outputs) * batches // target.cores_for(tiling.splits))
    multiply = shape.parts * tiling.rows * tiling.outputs / (0.85 * unit.multiply_adds)
    load = (shape.left_bytes * min(tiling.rows, rows) + 2 * min(tiling.outputs, outputs)) / 26
    exchange = 1000 + tiling.rows * tiling.outputs * 4 / 26 if tiling.splits > 1 else 0
    ragged = 500 if rows % tiling.rows or outputs % tiling.outputs else 0
    return waves * (5000 + shape.inner / tiling.splits * max(multiply, load, 700 / unit.inner) + exchange + ragged)
