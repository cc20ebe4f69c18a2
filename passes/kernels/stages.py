"""Tiles of a product's operands on their way through shared memory, some steps of k ahead of the arithmetic."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

from lispgpt.ir import build as b
from lispgpt.ir.build import Index
from lispgpt.ir.mlir import ir
from lispgpt.ir.structure import defining_op
from lispgpt.passes.kernels.block_memory import ALIGNMENT, BlockMemory
from lispgpt.passes.kernels.products import Operand, Product
from lispgpt.passes.kernels.read import Reader
from lispgpt.passes.kernels.views import VIEWS
from lispgpt.passes.targets import Gpu
from lispgpt.passes.targets.warpgroup_tiles import FEWEST_STAGES, MOST_STAGES, Tiling

X_PADDING = 8
"""f32 between rows of x in shared memory, which puts the rows that lanes read together on different banks."""

COPY_BYTES = 16
"""Of one copy."""

Place = Callable[[Index, Index], list[Index]]
"""From a row of a tile and a vector of 16 bytes in it to where that lies in a stage."""


@dataclass(frozen=True)
class Layout:
    """What a block's shared memory holds: `stages` of w, then as many of x.

    inner: elements of k in a stage.  steps: stages that are filled one after the other in all.
    """

    tiling: Tiling
    inner: int
    steps: int
    stages: int

    @classmethod
    def of(cls, tiling: Tiling, inner: int, steps: int, target: Gpu) -> Layout:
        one = cls(tiling, inner, steps, 1)
        fit = (target.dynamic_shared_bytes - ALIGNMENT) // one.nbytes
        return cls(tiling, inner, steps, max(FEWEST_STAGES, min(steps + 1, MOST_STAGES, fit)))

    @property
    def w_bytes(self) -> int:
        return self.tiling.outputs * self.inner * 2

    @property
    def x_row(self) -> int:
        return self.inner + X_PADDING

    @property
    def x_bytes(self) -> int:
        return self.tiling.rows * self.x_row * 4

    @property
    def nbytes(self) -> int:
        return self.stages * (self.w_bytes + self.x_bytes)


@dataclass(frozen=True)
class Block:
    """Which thread of how many this is, and where in which batch its block's tile and its part of k start."""

    thread: Index
    threads: int
    first_row: Index
    first_output: Index
    first_k: Index
    batch: Index = 0


class Stages:
    """Fills and hands out stages: step n of k lies in stage n modulo their number."""

    def __init__(self, layout: Layout, product: Product, target: Gpu, block: Block) -> None:
        assert target.copies is not None and target.warpgroup is not None
        self.layout, self.left, self.right, self.target, self.block = layout, product.left, product.right, target, block
        self.copies, self.unit, self.reader = target.copies, target.warpgroup, Reader(target)
        self.memory = BlockMemory(target, layout.nbytes, aligned=True)
        t, count = layout.tiling, layout.stages
        self.w_memory = self.memory.view(0, [count, t.outputs, layout.inner], ir.BF16Type.get())
        self.x_memory = self.memory.view(count * layout.w_bytes, [count, t.rows, layout.x_row], b.f32())

    def scratch(self, shape: list[int]) -> ir.Value:
        """f32 memory in place of the stages, once all threads are done with those."""
        return self.memory.view(0, shape, b.f32())

    def stage(self, step: Index) -> Index:
        return b.mod(step, self.layout.stages)

    def start(self, wait: Callable[[], None], weights_first: bool) -> None:
        """Start to fill all stages but one; wait() stands ahead of x, and of w unless weights_first."""
        steps = range(min(self.layout.stages - 1, self.layout.steps))
        if not weights_first:
            wait()
        for step in steps:
            self._fill_w(step)
        if weights_first:
            wait()
        for step in range(self.layout.stages - 1):
            if step in steps:
                self._fill_x(step)
            self.copies.commit()
        self._await(self.layout.stages - 2)

    def advance(self, step: Index) -> None:
        """At `step`, once the one before has been multiplied: wait for the next one, and refill what is free."""
        self._await(self.layout.stages - 3)
        coming = b.add(step, self.layout.stages - 1)

        def fill() -> None:
            self._fill_w(coming)
            self._fill_x(coming)

        b.if_then(b.less(coming, self.layout.steps), fill)
        self.copies.commit()

    def _await(self, newest: int) -> None:
        """Until all but the newest batches of copies have arrived, those of every thread of the block."""
        self.copies.wait(newest)
        self.unit.publish()
        b.barrier()

    def _fill_w(self, step: Index) -> None:
        def place(row: Index, vector: Index) -> list[Index]:
            return [row, b.mul(self.unit.swizzled(row, vector), 8)]

        self._fill(self.right, self.layout.tiling.outputs, self.block.first_output, step, self.w_memory, place)

    def _fill_x(self, step: Index) -> None:
        def place(row: Index, vector: Index) -> list[Index]:
            return [row, b.mul(vector, 4)]

        self._fill(self.left, self.layout.tiling.rows, self.block.first_row, step, self.x_memory, place)

    def _fill(self, operand: Operand, rows: int, first: Index, step: Index, memory: ir.Value, place: Place) -> None:
        """Start this thread's copies of a step's tile, 16 bytes each; past a tensor's end it may stay undefined."""
        width = COPY_BYTES // b.item_bytes(operand.tensor.type)
        per_row, threads = self.layout.inner // width, self.block.threads
        count = min(rows, operand.extent) * per_row
        for number in range(-(-count // threads)):
            vector = b.add(self.block.thread, number * threads)
            row, part = b.div(vector, per_row), b.mod(vector, per_row)

            def copy(row: Index = row, part: Index = part) -> None:
                source = self._locate(operand, rows, b.add(first, row), step, b.mul(part, width))
                self.copies.start(*source, memory, [self.stage(step), *place(row, part)], width)

            if (number + 1) * threads <= count:
                copy()
            else:
                b.if_then(b.less(vector, count), copy)

    def _locate(self, operand: Operand, tile: int, row: Index, step: Index, k: Index) -> tuple[ir.Value, list[Index]]:
        """The buffer of an operand, and where an element lies there; past the last row, the last one's."""
        if operand.extent > tile and operand.extent % tile:
            row = b.at_most(row, operand.extent - 1)
        k = b.add(b.add(self.block.first_k, b.mul(step, self.layout.inner)), k)
        index, op = operand.index(self.block.batch, row, k), defining_op(operand.tensor)
        while op.name != "bufferization.to_tensor":
            index = VIEWS[op.name](op, index, self.reader)
            op = defining_op(op.operands[0])
        return op.operands[0], index
