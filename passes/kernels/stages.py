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
from lispgpt.passes.targets.warpgroup import WarpgroupUnit
from lispgpt.passes.targets.warpgroup_tiles import FEWEST_STAGES, MOST_STAGES, Tiling

PADDING, TURNED_PADDING = 8, 4
"""f32 between lines of shared memory, along k or across it, which put what lanes read together on different banks."""

COPY_BYTES = 16
"""Of one copy."""


@dataclass(frozen=True)
class Side:
    """How a tile of an operand lies in a stage: in lines along k, or turned, along its rows or columns.

    bf16 lies as the warpgroup instructions take it, swizzled, with `inner` elements in a line; f32 in plain lines.
    outer: rows or columns of the tile.  inner: elements of k.
    """

    operand: Operand
    outer: int
    inner: int

    @property
    def turned(self) -> bool:
        return self.operand.along_k == 1

    @property
    def swizzled(self) -> bool:
        return self.operand.dtype == "bf16"

    @property
    def width(self) -> int:
        """Elements of one copy."""
        return COPY_BYTES // b.item_bytes(self.operand.tensor.type)

    @property
    def shape(self) -> list[int]:
        """(lines, elements of one)."""
        if self.swizzled:
            blocks = -(-self.outer // self.inner)
            return [blocks * self.inner if self.turned else self.outer, self.inner]
        return [self.inner, self.outer + TURNED_PADDING] if self.turned else [self.outer, self.inner + PADDING]

    @property
    def nbytes(self) -> int:
        lines, length = self.shape
        return lines * length * b.item_bytes(self.operand.tensor.type)

    def copies(self) -> int:
        """Of a whole tile, or of as much of it as there is."""
        return min(self.outer, self.operand.extent) * self.inner // self.width

    def source(self, number: Index) -> tuple[Index, Index]:
        """(row or column, k) in the tile of the number-th copy."""
        per_line = (min(self.outer, self.operand.extent) if self.turned else self.inner) // self.width
        line, part = b.div(number, per_line), b.mul(b.mod(number, per_line), self.width)
        return (part, line) if self.turned else (line, part)

    def place(self, outer: Index, k: Index, unit: WarpgroupUnit) -> list[Index]:
        """Where in a stage a copy of what starts at (outer, k) belongs."""
        line, along = (k, outer) if self.turned else (outer, k)
        if not self.swizzled:
            return [line, along]
        vector = b.div(along, self.width)
        if self.turned:
            per_line = self.inner // self.width
            line, vector = b.add(b.mul(b.div(vector, per_line), self.inner), line), b.mod(vector, per_line)
        return [line, b.mul(unit.swizzled(line, vector), self.width)]

    def fits(self) -> bool:
        """Whether copies of the operand are aligned neighbours in memory."""
        along = self.operand.along_outer if self.turned else self.operand.along_k
        return self.operand.buffer() is not None and along % self.width == 0


@dataclass(frozen=True)
class Layout:
    """What a block's shared memory holds: `stages` of the right operand, then as many of the left one.

    steps: stages that are filled one after the other in all.
    """

    left: Side
    right: Side
    steps: int
    stages: int

    @classmethod
    def of(cls, product: Product, tiling: Tiling, inner: int, target: Gpu) -> Layout:
        left, right = Side(product.left, tiling.rows, inner), Side(product.right, tiling.outputs, inner)
        steps = -(-product.inner // inner) // tiling.splits
        one = cls(left, right, steps, 1)
        fit = (target.dynamic_shared_bytes - ALIGNMENT) // one.nbytes
        return cls(left, right, steps, max(FEWEST_STAGES, min(steps + 1, MOST_STAGES, fit)))

    @property
    def inner(self) -> int:
        return self.left.inner

    @property
    def nbytes(self) -> int:
        return self.stages * (self.left.nbytes + self.right.nbytes)


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

    def __init__(self, layout: Layout, target: Gpu, block: Block) -> None:
        assert target.copies is not None and target.warpgroup is not None
        self.layout, self.target, self.block = layout, target, block
        self.inner = layout.left.operand.layout.extent(layout.left.operand.layout.sums)
        self.copies, self.unit, self.reader = target.copies, target.warpgroup, Reader(target)
        self.memory = BlockMemory(target, layout.nbytes, aligned=True)
        count, left, right = layout.stages, layout.left, layout.right
        self.right_memory = self.memory.view(0, [count, *right.shape], ir.BF16Type.get())
        self.left_memory = self.memory.view(
            count * right.nbytes, [count, *left.shape], left.operand.tensor.type.element_type
        )

    def scratch(self, shape: list[int]) -> ir.Value:
        """f32 memory in place of the stages, once all threads are done with those."""
        return self.memory.view(0, shape, b.f32())

    def stage(self, step: Index) -> Index:
        return b.mod(step, self.layout.stages)

    def start(self, wait: Callable[[], None], right_first: bool) -> None:
        """Start to fill all stages but one; wait() stands ahead of the left operand, and of the right one unless
        right_first."""
        steps = range(min(self.layout.stages - 1, self.layout.steps))
        if not right_first:
            wait()
        for step in steps:
            self._fill_right(step)
        if right_first:
            wait()
        for step in range(self.layout.stages - 1):
            if step in steps:
                self._fill_left(step)
            self.copies.commit()
        self._await(self.layout.stages - 2)

    def advance(self, step: Index) -> None:
        """At `step`, once the one before has been multiplied: wait for the next one, and refill what is free."""
        self._await(self.layout.stages - 3)
        coming = b.add(step, self.layout.stages - 1)

        def fill() -> None:
            self._fill_right(coming)
            self._fill_left(coming)

        b.if_then(b.less(coming, self.layout.steps), fill)
        self.copies.commit()

    def _await(self, newest: int) -> None:
        """Until all but the newest batches of copies have arrived, those of every thread of the block."""
        self.copies.wait(newest)
        self.unit.publish()
        b.barrier()

    def _fill_right(self, step: Index) -> None:
        self._fill(self.layout.right, self.block.first_output, step, self.right_memory)

    def _fill_left(self, step: Index) -> None:
        self._fill(self.layout.left, self.block.first_row, step, self.left_memory)

    def _fill(self, side: Side, first: Index, step: Index, memory: ir.Value) -> None:
        """Start this thread's copies of a step's tile; past a tensor's last row or column it may stay undefined."""
        count, threads = side.copies(), self.block.threads
        for number in range(-(-count // threads)):
            copy_number = b.add(self.block.thread, number * threads)
            outer, k = side.source(copy_number)

            def copy(outer: Index = outer, k: Index = k) -> None:
                buffer, index, live = self._locate(side, b.add(first, outer), step, k)
                place = [self.stage(step), *side.place(outer, k, self.unit)]
                self.copies.start(buffer, index, memory, place, side.width, live)

            if (number + 1) * threads <= count:
                copy()
            else:
                b.if_then(b.less(copy_number, count), copy)

    def _locate(self, side: Side, outer: Index, step: Index, k: Index) -> tuple[ir.Value, list[Index], ir.Value | None]:
        """The buffer of an operand, where an element lies there, and how many of a copy's elements there are.

        Past the last row or column, the last ones'; past the last k none, where k does not fill all steps.
        """
        operand, live = side.operand, None
        if operand.extent > side.outer and operand.extent % side.outer:
            outer = b.at_most(outer, operand.extent - (side.width if side.turned else 1))
        k = b.add(b.add(self.block.first_k, b.mul(step, self.layout.inner)), k)
        if self.inner % self.layout.inner:
            inside = b.less(k, self.inner)
            live = b.select(inside, b.as_value(side.width), b.as_value(0))
            k = b.select(inside, b.as_value(k), b.as_value(0))
        index, op = operand.index(self.block.batch, outer, k), defining_op(operand.tensor)
        while op.name != "bufferization.to_tensor":
            index = VIEWS[op.name](op, index, self.reader)
            op = defining_op(op.operands[0])
        return op.operands[0], index, live
