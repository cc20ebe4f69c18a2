"""How long a product by tiles should take, of what its blocks bring and multiply, at the chip's rates.

A model, not a measurement: what counts is which of several programs is ahead.  Each block brings its boxes of both
operands from the cache that all cores share, which brings each element from memory once.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from math import prod

from lispgpt.ir import build as b
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import shape_of, trip_count
from lispgpt.passes.targets import Gpu
from lispgpt.passes.tile.copies import operand_of
from lispgpt.passes.tile.types import register_tile, ring_tiles, shared_tile

CORE_SHARE, CACHE_SHARE = 1.5, 1.3
"""What a core takes from the cache at most, by its part of the memory's rate, and all cores together, by that rate: on
an H200 (2026), where these and START and STEP tell 14 products of few rows within 25 %, by 9 % in the middle."""

MADE, UNPACKED, BUSY = 8, 4, 0.5
"""Operations by which an element is made that is not in memory, and a number of one in a block; and the share of the
rate of vector instructions that is reached."""

REACHED = 0.87
"""Of the memory's rate, in long copies."""

START, STEP = 1.8e-6, 0.35e-6
"""Seconds of a block that nothing overlaps with: the first step's way from memory, sums of parts, stores; and what a
step takes beside its bytes."""


@dataclass(frozen=True)
class Work:
    """blocks: of the launch.  each: bytes that one of them brings.  unique: bytes that all bring, each once.
    multiply_adds: of one block, with those of its parts.  steps: of one block.  resident: blocks that share a core.
    others: operations of one block that are no matrix instructions'."""

    blocks: int
    each: float
    unique: float
    multiply_adds: float
    steps: int = 0
    resident: int = 1
    others: float = 0.0


def seconds(work: Work, target: Gpu) -> float | None:
    """None where the chip's rates are not known."""
    rates = target.rates
    if rates is None:
        return None
    memory = REACHED * rates.bandwidth
    busiest = -(-work.blocks // target.cores)
    together = min(busiest, work.resident)
    core = max(
        busiest * work.each / (CORE_SHARE * memory / target.cores),
        2 * busiest * work.multiply_adds / (REACHED * rates.matrix / target.cores),
        busiest * work.others / (BUSY * rates.vector / target.cores),
    )
    core += (START + work.steps * STEP) * (1 + (busiest - 1) / together)
    return max(core, START + max(work.blocks * work.each / (CACHE_SHARE * memory), work.unique / memory))


def work_of(program: Sequence[ir.Operation], grid: Sequence[int], residency: int) -> Work:
    """What a tile program's blocks do, whose ops these are, of a kernel with such a grid."""
    multiply_adds = others = 0.0
    steps, views = 0, {}
    brought: dict[ir.Value, int] = {}
    for op, times in _repeated(program):
        if op.name in ("tile.fill", "tile.load"):
            view = op.operands[1 if op.name == "tile.fill" else 0]
            operand, (rows, columns) = operand_of(view), _box(op)
            item = b.item_bytes(view.type)
            views[view] = prod(shape_of(view)) * item
            lines = min(rows, operand.extent) * item
            most = lines * operand.layout.extent(operand.layout.sums)  # nothing is read past the end
            brought[view] = min(most, brought.get(view, 0) + times * lines * columns)
            others += MADE * times * rows * columns if operand.is_computed() else 0
        elif op.name == "tile.mma":
            (_, rows, columns), a = register_tile(op.operands[0]).shape, shared_tile(op.operands[1])
            products = max(a.parts, shared_tile(op.operands[2]).parts)
            multiply_adds += times * rows * columns * a.numbers * products
            others += UNPACKED * times * rows * a.numbers if a.blocks else 0
            steps = max(steps, times)
    return Work(prod(grid), sum(brought.values()), sum(views.values()), multiply_adds, steps, max(1, residency), others)


def _repeated(ops: Sequence[ir.Operation], times: int = 1) -> Iterator[tuple[ir.Operation, int]]:
    """Ops, and those in them, with how often each is done."""
    for op in ops:
        yield op, times
        inner = times * trip_count(op) if op.name == "scf.for" else times
        for region in op.regions:
            for block in region.blocks:
                yield from _repeated([each.operation for each in block.operations], inner)


def _box(op: ir.Operation) -> tuple[int, int]:
    """Rows and columns of what an op brings."""
    if op.name == "tile.load":
        rows, columns = register_tile(op.results[0]).shape
        return rows, columns
    tile = ring_tiles(op.operands[0])[ir.IntegerAttr(op.attributes["member"]).value]
    return tile.rows, tile.columns
